//! What each role may publish and subscribe to: the single table from which server configurations, the documentation
//! and the tests are made. A new role is a line of [`Role::ALL`], its texts, and an arm of [`Role::permissions`].

mod table;

use std::fmt;

use crate::{
    nats::{Act, PermissionViolation},
    subjects::{Subjects, may_answer},
};

pub use crate::role::Role;

/// What one connection may do. Everything that is not listed is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that it may publish to.
    pub publish: Vec<String>,
    /// Subjects that it may subscribe to.
    pub subscribe: Vec<Subscribe>,
    /// Queue groups that it may not join although it may subscribe to their subject.
    pub not_join: Vec<Subscribe>,
}

/// A subject to subscribe to, within a queue group if one is named: a plain subscription could read everything sent
/// there without taking it from its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The subject.
    pub subject: String,
    /// The only queue group that may be joined there.
    pub queue: Option<String>,
}

impl fmt::Display for Subscribe {
    /// Formats it as in a server's configuration: the subject, and its queue group after a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => write!(f, "{} {queue}", self.subject),
            None => f.write_str(&self.subject),
        }
    }
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 11] = [
        Self::Cell,
        Self::Auctioneer,
        Self::Manager,
        Self::ManagerState,
        Self::Bridge,
        Self::Facade,
        Self::User,
        Self::Operator,
        Self::Observer,
        Self::Metrics,
        Self::Recorder,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Auctioneer => "auctioneer",
            Self::Manager => "manager",
            Self::ManagerState => "manager-state",
            Self::Bridge => "bridge",
            Self::Facade => "facade",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Observer => "observer",
            Self::Metrics => "metrics",
            Self::Recorder => "recorder",
        }
    }

    /// Returns what it is trusted with, in words.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Cell => "Runs work; speaks for itself only",
            Self::Auctioneer => "Decides where work goes; reads every request, commands every cell",
            Self::Manager => "Keeps apps running; starts through auctioneers, stops on any cell",
            Self::ManagerState => {
                "A manager's second connection, to the account that has JetStream; reads and writes the stored apps"
            }
            Self::Bridge => {
                "Makes cells of DEAs (`vendue advertiser dea-in`); speaks for these cells only, here for one, CELL"
            }
            Self::Facade => {
                "Makes DEAs of some cells (`vendue advertiser dea-out`); starts and stops on these only, here on one, CELL"
            }
            Self::User => "Starts and stops work and apps; sees all instances, events and output",
            Self::Operator => {
                "As a user; also drains and cordons cells, sets their attributes, moves instances of apps, and exports apps with their environment"
            }
            Self::Observer => {
                "Hears events, advertisements and heartbeats; reads apps without their environment"
            }
            Self::Metrics => "Reads counters, the pool and events",
            Self::Recorder => {
                "Records requests (`vendue sim record`); reads every request with its environment"
            }
        }
    }

    /// Returns whether it belongs to the account that has JetStream, which has no other members.
    pub fn has_jetstream(self) -> bool {
        self == Self::ManagerState
    }

    /// Returns the name of a manager's second connection.
    pub fn state_of(manager: &str) -> String {
        format!("{manager}-state")
    }

    /// Returns the names of the cells of a bridge.
    pub fn cells_of_bridge(name: &str, slots: usize) -> Vec<String> {
        (0..slots).map(|slot| format!("{name}-{slot}")).collect()
    }

    /// Returns what a connection of this role and name may do. The name may also be a placeholder. For roles that
    /// concern certain cells, it is what they may do for one named `CELL`.
    pub fn permissions(self, subjects: &Subjects, name: &str) -> Permissions {
        self.permissions_for(subjects, name, &["CELL".to_owned()])
    }

    /// Like [`Role::permissions`], with these cells for bridges and facades.
    pub fn permissions_for(self, subjects: &Subjects, name: &str, cells: &[String]) -> Permissions {
        let mut permissions = match self {
            Self::Cell => table::cell(subjects, name),
            Self::Auctioneer => table::auctioneer(subjects, name),
            Self::Manager => table::manager(subjects, name),
            Self::ManagerState => table::manager_state(subjects),
            Self::Bridge => table::bridge(subjects, name, cells),
            Self::Facade => table::facade(subjects, name, cells),
            Self::User => table::user(subjects, name),
            Self::Operator => table::operator(subjects, name),
            Self::Observer => table::observer(subjects),
            Self::Metrics => table::metrics(subjects),
            Self::Recorder => table::recorder(subjects, name),
        };
        permissions.hear([format!("_INBOX.{name}.>")]);
        permissions
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Permissions {
    fn publish(&mut self, subjects: impl IntoIterator<Item = String>) {
        self.publish.extend(subjects);
    }

    fn hear(&mut self, subjects: impl IntoIterator<Item = String>) {
        self.subscribe
            .extend(subjects.into_iter().map(|subject| Subscribe {
                subject,
                queue: None,
            }));
    }

    fn serve(&mut self, queue: &str, subjects: impl IntoIterator<Item = String>) {
        let subscribe = subjects.into_iter().map(|subject| Subscribe {
            subject,
            queue: Some(queue.to_owned()),
        });
        self.subscribe.extend(subscribe);
    }

    /// Permits answering anybody. Inboxes end in a random token, which a role only learns from a question. The server's
    /// own way, `allow_responses`, permits any reply subject that a client receives: with a message to itself, or one
    /// from an accomplice, it could publish anything.
    fn answer(&mut self) {
        self.publish(["_INBOX.>", "_R_.>", "_GR_.>"].map(String::from));
    }

    /// Permits what a NATS service with this name hears below `$SRV`; its id is one token.
    fn be_service(&mut self, service: &str) {
        for verb in ["PING", "INFO", "STATS"] {
            let all = format!("$SRV.{verb}");
            let own = format!("{all}.{service}");
            let this = format!("{own}.*");
            self.hear([all, own, this]);
        }
    }

    /// Returns whether a program of this role cannot work if this is refused. Only refused answers are harmless,
    /// because others choose their subjects.
    pub fn needs(&self, violation: &PermissionViolation) -> bool {
        let subject = violation.subject.as_str();
        violation.act == Act::Subscribe || (self.may_publish(subject) && !may_answer(subject))
    }

    /// Returns whether it may publish to this subject.
    pub fn may_publish(&self, subject: &str) -> bool {
        self.publish.iter().any(|allowed| covers(allowed, subject))
    }
}

/// Returns whether a pattern matches a subject without wildcards.
fn covers(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in pattern.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            (_, None) => return false,
            ("*", Some(_)) => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_nats_says_it_does() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.*", "a", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            ("a.b", "a.c", false),
        ] {
            assert_eq!(covers(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn nobody_but_its_owner_publishes_below_a_name() {
        let subjects = Subjects::new("vendue").unwrap();
        let own = [
            "vendue.cell.it.advert",
            "vendue.cell.it.heartbeat",
            "vendue.cell.it.result",
            "vendue.cell.it.answer.alice.n",
            "vendue.event.running.web.it",
            "vendue.event.asked.web.it",
            "vendue.log.web.0.it",
            "vendue.echo.it",
            "vendue.auctioneer.it.answer.alice.n",
            "vendue.auctioneer.it.grant",
            "vendue.manager.it.echo",
            "vendue.event.stop-brake.web.it",
        ];
        for role in Role::ALL {
            let other = role.permissions(&subjects, "other");
            for subject in own {
                assert!(!other.may_publish(subject), "{role} {subject}");
            }
        }
        let count = |role: Role| {
            let it = role.permissions(&subjects, "it");
            own.iter().filter(|subject| it.may_publish(subject)).count()
        };
        let counts = [Role::Cell, Role::Auctioneer, Role::Manager].map(count);
        assert_eq!(counts, [6, 4, 2]);
    }

    #[test]
    fn nobody_but_a_managers_second_connection_reaches_what_is_stored() {
        let subjects = Subjects::new("a.b").unwrap();
        for role in Role::ALL {
            let may = role.permissions(&subjects, "it");
            let stored = |subject: &String| {
                let system = ["$JS.", "$KV."];
                system.iter().any(|system| subject.starts_with(system))
            };
            let none = !may.publish.iter().any(stored);
            assert_eq!(none, !role.has_jetstream(), "{role}");
        }
        let may = Role::ManagerState.permissions(&subjects, "it");
        assert!(
            may.publish
                .iter()
                .all(|subject| !subject.starts_with("a.b"))
        );
        for bucket in ["a-b-apps", "a-b-apps-lease", "a-b-apps-tasks"] {
            assert!(may.may_publish(&format!("$KV.{bucket}.web")), "{bucket}");
        }
        assert!(!may.may_publish("$KV.a-b-other.web"));
    }

    #[test]
    fn a_bridge_speaks_for_its_slots_and_a_facade_commands_its_cells() {
        let subjects = Subjects::new("vendue").unwrap();
        let cells = Role::cells_of_bridge("dea", 2);
        let bridge = Role::Bridge.permissions_for(&subjects, "dea", &cells);
        let facade = Role::Facade.permissions_for(&subjects, "out", &cells);
        for (subject, of_bridge, of_facade) in [
            ("vendue.cell.dea-1.advert", true, false),
            ("vendue.event.running.web.dea-0", true, false),
            ("vendue.cell.dea-1.answer.alice.n", true, false),
            ("vendue.cell.dea-2.advert", false, false),
            ("vendue.event.running.web.dea", false, false),
            ("vendue.cell.dea-0.start", false, true),
            ("vendue.cell.dea-0.stop", false, true),
            ("vendue.cell.dea-2.start", false, false),
            ("vendue.cell.dea-0.drain", false, false),
            ("vendue.start", false, false),
        ] {
            assert_eq!(bridge.may_publish(subject), of_bridge, "bridge {subject}");
            assert_eq!(facade.may_publish(subject), of_facade, "facade {subject}");
        }
    }

    #[test]
    fn only_a_role_that_hears_requests_may_answer() {
        let subjects = Subjects::new("vendue").unwrap();
        for role in Role::ALL {
            let may = role.permissions(&subjects, "it");
            let serves = may.subscribe.iter().any(|s| s.queue.is_some());
            assert_eq!(may.may_publish("_INBOX.alice.x"), serves, "{role}");
        }
    }
}
