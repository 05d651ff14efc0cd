//! What the server's permissions refuse. A manager ends if it lacks a permission that it needs. If it only lacks those
//! for stored requests or for auctioneers with `--single`, as on a server whose permissions were made for an earlier
//! version, it still keeps apps running.

use shared::{
    Subjects,
    nats::PermissionViolation,
    permissions::Role,
    wire::{WireError, code},
};
use tokio::sync::watch;

use super::{
    ManagerError, Shell,
    requests::Verb,
    store::{Bucket, Store},
};

/// Set to what was refused if stored requests are not permitted.
pub(super) type TasksRefused = watch::Sender<Option<PermissionViolation>>;

impl Shell {
    /// Waits until the server refuses something that every manager needs.
    pub(super) async fn refused(self) -> ManagerError {
        let permissions = Role::Manager.permissions(&self.subjects, &self.name);
        let name = self.name.to_string();
        // every use of JetStream is needed
        let of_state = |refused: &PermissionViolation| {
            let system = ["$JS.", "$KV."];
            system.iter().any(|of| refused.subject.starts_with(of))
        };
        // apps are kept running all the same without auctioneers that ask for the grant
        let grants = self.subjects.grant("*");
        let apps =
            |refused: &PermissionViolation| !self.is_of_tasks(refused) && refused.subject != grants;
        tokio::select! {
            violation = self.bus.violations.first(|r| permissions.needs(r) && apps(r)) =>
                ManagerError::NotPermitted { name, violation },
            violation = self.state_violations.first(|r| of_state(r) && apps(r)) =>
                ManagerError::StateNotPermitted { name, violation },
        }
    }

    /// Reports when the server refuses what stored requests need. From then on this run of the manager leaves them
    /// alone.
    pub(super) async fn tell_of_tasks(self) {
        let of_tasks = |refused: &PermissionViolation| self.is_of_tasks(refused);
        let violation = tokio::select! {
            violation = self.bus.violations.first(of_tasks) => violation,
            violation = self.state_violations.first(of_tasks) => violation,
        };
        tracing::warn!(
            %violation,
            "tasks and durable requests are left alone: the server's permissions are those of an earlier version; \
             write its configuration anew (`vendue auth`), reload it, and start the manager again"
        );
        self.tasks_refused.send_replace(Some(violation));
        // the other tasks continue
        std::future::pending::<()>().await;
    }

    /// Returns the error for any request about stored requests if they are not permitted.
    pub(super) fn refuses(&self, verb: Verb) -> Option<WireError> {
        if !verb.is_of_tasks() {
            return None;
        }
        let refused = self.tasks_refused.borrow();
        let violation = refused.as_ref()?;
        let message = format!("manager {}: {violation}; apps are kept running", self.name);
        Some(WireError::new(code::NOT_PERMITTED, message))
    }

    fn is_of_tasks(&self, refused: &PermissionViolation) -> bool {
        is_of_tasks(&self.subjects, &self.store, &refused.subject)
    }
}

/// Returns whether only stored requests need this subject.
fn is_of_tasks(subjects: &Subjects, store: &Store, subject: &str) -> bool {
    let stream = store.stream(Bucket::Tasks);
    let verbs = Verb::ALL.into_iter().filter(|verb| verb.is_of_tasks());
    subject == subjects.cell("*", "result")
        || subject.starts_with(&store.prefix(Bucket::Tasks))
        || subject.starts_with("$JS.") && subject.split('.').any(|token| token == stream)
        || verbs.into_iter().any(|v| v.subject(subjects) == subject)
}
