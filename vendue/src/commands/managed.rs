//! Apps that managers keep running must be changed through them: instances started or stopped behind a manager's back
//! would be stopped or started again.

use std::{collections::BTreeSet, time::Duration};

use manager::WaveId;
use shared::wire::{AppLook, AppShown};

use crate::{
    cluster::{Cluster, Peer},
    commands::instances::{self, Located},
    context::{Failure, failure_code},
};

/// How long to wait for a manager, which answers from its memory.
const PATIENCE: Duration = Duration::from_millis(500);

/// Fails if a manager keeps this app running, as it would not stay stopped.
pub(crate) async fn refuse_stop(cluster: &Cluster, app: &str) -> anyhow::Result<()> {
    let managed = if let Some(managed) = is_managed(cluster, app).await {
        managed
    } else {
        // no manager answers now, but an instance's request tells whether a manager started it
        let held = instances::held(cluster, Some(app)).await;
        held.is_ok_and(|answers| answers.instances.iter().any(is_of_manager))
    };
    if !managed {
        return Ok(());
    }
    Err(Failure::because(
        failure_code::FAILED,
        format_args!(
            "{app} is kept running by a manager, which would start again what is stopped; nothing was stopped\n\
             `vendue app stop {app}` stops it, `vendue app scale {app} N` changes how many run; --force stops \
             instances nevertheless"
        ),
    ))
}

/// Fails if a manager keeps one of these apps running: it would stop other instances, or there would be too many.
pub(crate) async fn refuse_start(cluster: &Cluster, apps: &BTreeSet<&str>) -> anyhow::Result<()> {
    for app in apps {
        match is_managed(cluster, app).await {
            Some(true) => return Err(start_refusal(app)),
            Some(false) => {}
            // without a manager, the next question would also go unanswered
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Returns the error for an app that is not started because a manager keeps it running.
pub(crate) fn start_refusal(app: &str) -> anyhow::Error {
    Failure::because(
        failure_code::FAILED,
        format_args!(
            "{app} is kept running by a manager; nothing was started\n\
             `vendue app scale {app} N` changes how many run, `vendue app put FILE` what runs; with --again \
             instances of another request run beside the manager's"
        ),
    )
}

/// Returns whether a manager started this instance.
pub(crate) fn is_of_manager(located: &Located) -> bool {
    let request = located.instance.request.as_ref();
    located.lives() && request.is_some_and(|request| WaveId::parse(request.as_ref()).is_some())
}

/// Returns whether a manager knows the app; none if no manager answers in time.
async fn is_managed(cluster: &Cluster, app: &str) -> Option<bool> {
    let question = AppLook {
        v: shared::VERSION,
        version: None,
    };
    let subject = cluster.subjects.app("show", app);
    let asked = cluster.ask::<AppShown>(Peer::Manager, subject, &question, PATIENCE);
    match asked.await {
        Ok(shown) => Some(!shown.status.deleted),
        Err(error) => {
            let failure = error.downcast_ref::<Failure>()?;
            let unknown = failure.code == shared::wire::code::NOT_FOUND;
            unknown.then_some(false)
        }
    }
}
