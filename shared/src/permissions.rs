//! What each role may publish and subscribe to: the one table from which a server's configuration, the
//! documentation and the tests are made. A new role is a line of [`Role::ALL`], its texts, and an arm of
//! [`Role::permissions`].

use std::{fmt, time::Duration};

use crate::{
    nats::{Act, PermissionViolation},
    subjects::Subjects,
    wire::kind,
};

pub use crate::role::Role;

/// What one connection may do. Whatever is not listed is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects to publish to.
    pub publish: Vec<String>,
    /// What to subscribe to.
    pub subscribe: Vec<Subscribe>,
    /// Queue groups that are refused although their subject may be subscribed to.
    pub not_join: Vec<Subscribe>,
    /// Whether it may publish to the reply subjects of what it receives.
    pub responses: Option<Responses>,
}

/// A subject to subscribe to, in a queue group where it names one: plainly, everything sent there
/// could be read without taking it from its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The subject.
    pub subject: String,
    /// The only queue group that may be joined there.
    pub queue: Option<String>,
}

impl fmt::Display for Subscribe {
    /// As a server's configuration has it: the subject, and its queue group after a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => write!(f, "{} {queue}", self.subject),
            None => f.write_str(&self.subject),
        }
    }
}

/// The right to answer: so many messages to each reply subject, in this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responses {
    /// Messages.
    pub max: u32,
    /// From the request on.
    pub expires: Duration,
}

/// A cell answers at once.
const CELL_ANSWERS: Responses = Responses {
    max: 1,
    expires: Duration::from_secs(120),
};
/// An auctioneer answers a queued start when it is over: after 24 hours at most.
const AUCTIONEER_ANSWERS: Responses = Responses {
    max: 1,
    expires: Duration::from_secs(25 * 3_600),
};

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] = [
        Self::Cell,
        Self::Auctioneer,
        Self::User,
        Self::Operator,
        Self::Observer,
        Self::Metrics,
        Self::Recorder,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Auctioneer => "auctioneer",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Observer => "observer",
            Self::Metrics => "metrics",
            Self::Recorder => "recorder",
        }
    }

    /// What it is trusted with, in words.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Cell => "Runs work; speaks for itself only",
            Self::Auctioneer => "Decides where work goes; reads every request, commands every cell",
            Self::User => "Starts and stops work and apps; sees all instances, events and output",
            Self::Operator => {
                "As a user; also drains and cordons cells, sets their attributes, and exports apps with their environment"
            }
            Self::Observer => "Hears events, advertisements and heartbeats; publishes nothing",
            Self::Metrics => "Reads counters, the pool and events",
            Self::Recorder => {
                "Records requests (`vendue sim record`); reads every request with its environment"
            }
        }
    }

    /// What a connection of this role and name may do. The name may also be a placeholder.
    pub fn permissions(self, subjects: &Subjects, name: &str) -> Permissions {
        let mut permissions = match self {
            Self::Cell => cell(subjects, name),
            Self::Auctioneer => auctioneer(subjects, name),
            Self::User => user(subjects, name),
            Self::Operator => operator(subjects, name),
            Self::Observer => observer(subjects),
            Self::Metrics => metrics(subjects),
            Self::Recorder => recorder(subjects, name),
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

    /// What a NATS service of this name hears below `$SRV`; its id is one token.
    fn be_service(&mut self, service: &str) {
        for verb in ["PING", "INFO", "STATS"] {
            let all = format!("$SRV.{verb}");
            let own = format!("{all}.{service}");
            let this = format!("{own}.*");
            self.hear([all, own, this]);
        }
    }

    /// Whether a program of this role cannot do its work when this is refused. Only answers to others may
    /// be: the right to them ends, and others choose the subjects.
    pub fn needs(&self, violation: &PermissionViolation) -> bool {
        violation.act == Act::Subscribe || self.may_publish(&violation.subject)
    }

    /// Whether it may publish there on its own account, not in answer to something.
    pub fn may_publish(&self, subject: &str) -> bool {
        self.publish.iter().any(|allowed| covers(allowed, subject))
    }
}

/// Whether a subject without wildcards is one of those that a pattern names.
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

fn cell(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions {
        responses: Some(CELL_ANSWERS),
        ..Permissions::default()
    };
    let own = |what: &&str| subjects.cell(name, what);
    // its state, too: it asks whether its name is free
    may.publish(
        ["advert", "heartbeat", "state", "answer.*.*"]
            .iter()
            .map(own),
    );
    may.publish(kind::OF_CELLS.map(|kind| subjects.event(kind, "*", name)));
    may.publish([subjects.log("*", "*", name)]);
    may.hear([
        subjects.discover(),
        subjects.bid(),
        subjects.instances(),
        subjects.cells_stop(),
        subjects.cell(name, "advert"),
    ]);
    let served = [
        "start", "stop", "drain", "cordon", "uncordon", "set", "state", "logs",
    ];
    may.serve(Subjects::CELL_QUEUE, served.iter().map(own));
    may.be_service(&subjects.service(Role::Cell));
    may
}

fn auctioneer(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions {
        responses: Some(AUCTIONEER_ANSWERS),
        ..Permissions::default()
    };
    let service = subjects.service(Role::Auctioneer);
    may.publish([
        subjects.discover(),
        subjects.bid(),
        subjects.instances(),
        subjects.cells_stop(),
        subjects.cell("*", "start"),
        subjects.cell("*", "stop"),
        subjects.cell("*", "state"),
        subjects.outcomes(),
        subjects.echo(name),
        subjects.answers_of_auctioneer(name),
        // whether its name is free, and which policies others have
        format!("$SRV.INFO.{service}"),
    ]);
    may.publish(kind::OF_AUCTIONEERS.map(|kind| subjects.event(kind, "*", name)));
    may.hear([
        subjects.adverts(),
        subjects.cell_answers(name, "*"),
        subjects.outcomes(),
        subjects.event(kind::ASKED, "*", "*"),
        subjects.echo(name),
    ]);
    may.serve(
        Subjects::AUCTIONEER_QUEUE,
        [
            subjects.start(),
            subjects.stop(),
            subjects.place(),
            subjects.explain(),
            subjects.pool(),
            subjects.capacity(),
        ],
    );
    may.serve(name, [subjects.queued()]);
    may.be_service(&service);
    may
}

/// What a user may ask managers about an app.
const APP_VERBS: [&str; 11] = [
    "put", "scale", "stop", "start", "restart", "delete", "undo", "pause", "resume", "show",
    "history",
];

fn user(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
    may.publish([
        subjects.start(),
        subjects.stop(),
        subjects.place(),
        subjects.explain(),
        subjects.capacity(),
        subjects.pool(),
        subjects.queued(),
        subjects.instances(),
        subjects.cell("*", "state"),
        subjects.cell("*", "logs"),
        format!("$SRV.INFO.{}", subjects.service(Role::Auctioneer)),
        subjects.app_list(),
    ]);
    may.publish(APP_VERBS.iter().map(|verb| subjects.app(verb, "*")));
    may.hear([
        subjects.events(),
        subjects.log("*", "*", "*"),
        subjects.cell_answers(name, "*"),
        subjects.auctioneer_answers(name, "*"),
    ]);
    may
}

fn operator(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = user(subjects, name);
    may.publish.retain(|subject| !subject.starts_with("$SRV."));
    may.publish(["set", "drain", "cordon", "uncordon"].map(|what| subjects.cell("*", what)));
    // an export has the values of environments
    may.publish([subjects.app("export", "*"), subjects.app_import()]);
    for verb in ["PING", "INFO", "STATS"] {
        let of = |role| format!("$SRV.{verb}.{}", subjects.service(role));
        may.publish([format!("$SRV.{verb}"), of(Role::Auctioneer), of(Role::Cell)]);
    }
    may.hear([subjects.adverts(), subjects.cell("*", "heartbeat")]);
    may
}

fn observer(subjects: &Subjects) -> Permissions {
    let mut may = Permissions::default();
    may.hear([
        subjects.events(),
        subjects.adverts(),
        subjects.cell("*", "heartbeat"),
    ]);
    may
}

fn metrics(subjects: &Subjects) -> Permissions {
    let mut may = Permissions::default();
    may.publish([subjects.pool()]);
    may.publish(
        [Role::Auctioneer, Role::Cell].map(|role| format!("$SRV.STATS.{}", subjects.service(role))),
    );
    may.hear([subjects.events(), subjects.cell("*", "heartbeat")]);
    may
}

fn recorder(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
    may.publish([subjects.discover(), subjects.pool(), subjects.instances()]);
    may.hear([
        subjects.adverts(),
        subjects.start(),
        subjects.stop(),
        subjects.cell_answers(name, "*"),
    ]);
    // it would take requests from the auctioneers
    let join = |subject| Subscribe {
        subject,
        queue: Some(Subjects::AUCTIONEER_QUEUE.to_owned()),
    };
    may.not_join = vec![join(subjects.start()), join(subjects.stop())];
    may
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
            "vendue.cell.it.answer.alice.n",
            "vendue.event.running.web.it",
            "vendue.event.asked.web.it",
            "vendue.log.web.0.it",
            "vendue.echo.it",
            "vendue.auctioneer.it.answer.alice.n",
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
        assert_eq!((count(Role::Cell), count(Role::Auctioneer)), (5, 3));
    }

    #[test]
    fn only_a_role_that_hears_requests_may_answer() {
        let subjects = Subjects::new("vendue").unwrap();
        for role in Role::ALL {
            let may = role.permissions(&subjects, "it");
            let serves = may.subscribe.iter().any(|s| s.queue.is_some());
            assert_eq!(may.responses.is_some(), serves, "{role}");
        }
    }
}
