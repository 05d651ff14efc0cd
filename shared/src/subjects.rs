//! All subjects, under one prefix. The subjects of unsolicited messages and of answers to broadcasts contain the
//! sender's name. A server that permits each program only its own subjects thus makes it impossible to speak as another
//! program.

use std::{fmt, str::FromStr};

use async_nats::HeaderName;
use placement::{Invalid, check_name};

use crate::role::Role;

/// What managers append to the name of the apps' bucket for their other two buckets.
const TASKS: &str = "-tasks";
const LEASE: &str = "-lease";

/// The subjects of one cluster. The default prefix is `vendue`; with different prefixes, several clusters can share a
/// NATS account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    prefix: String,
}

/// Accepts a valid subject prefix: 1 to 64 of `A-Za-z0-9_-`, in tokens separated by dots.
pub fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    let tokens = prefix.split('.');
    if prefix.len() <= 64
        && tokens
            .into_iter()
            .all(|t| placement::check_name("prefix", t).is_ok())
    {
        return Ok(());
    }
    let expected = "at most 64 of A-Z a-z 0-9 _ - in tokens separated by dots";
    Err(Invalid::new("prefix", format!("{prefix:?}"), expected))
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl Subjects {
            $($(#[$doc])* pub fn $name(&self) -> String {
                format!(concat!("{}.", $text), self.prefix)
            })*
        }
    };
}

fixed! {
    /// A start request, or an array of them → one auctioneer.
    start = "start";
    /// A dry run → one auctioneer.
    place = "place";
    /// The last decisions for an app → one auctioneer.
    explain = "explain";
    /// How many more of a size fit → one auctioneer.
    capacity = "capacity";
    /// Stop an app or some of its instances → one auctioneer.
    stop = "stop";
    /// The cells as an auctioneer sees them, paged.
    pool = "pool";
    /// Anyone → every auctioneer: the queued work.
    queued = "queued";
    /// Anyone → every cell: advertise.
    discover = "discover";
    /// Auctioneer → every cell: bid.
    bid = "bid";
    /// Anyone → every cell: its instances.
    instances = "instances";
    /// Auctioneer → every cell: stop what matches.
    cells_stop = "cells.stop";
    /// The apps that managers keep running, paged.
    app_list = "app.list";
    /// Puts several apps at once.
    app_import = "app.import";
    /// A start request for a manager to store and to carry out.
    app_submit = "app.submit";
    /// The stored requests, paged.
    task_list = "task.list";
    /// Every cell's advertisements.
    adverts = "cell.*.advert";
    /// Every event.
    events = "event.>";
    /// Every request's outcome.
    outcomes = "outcome.*";
}

impl Subjects {
    /// The queue group of a cell's request subjects.
    pub const CELL_QUEUE: &str = "q";
    /// The queue group in which all auctioneers share requests.
    pub const AUCTIONEER_QUEUE: &str = "auctioneers";
    /// The queue group in which all managers share requests.
    pub const MANAGER_QUEUE: &str = "managers";

    /// Creates the subjects under this prefix.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Invalid> {
        let prefix = prefix.into();
        check_prefix(&prefix)?;
        Ok(Self { prefix })
    }

    /// Returns the prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns a subject of one cell: `advert`, `start`, `stop`, `drain`, `set`, `state`, `logs`, `heartbeat` or
    /// `result`.
    pub fn cell(&self, cell: &str, what: &str) -> String {
        [&self.prefix, ".cell.", cell, ".", what].concat()
    }

    /// Returns the subject of a request about one app to one manager: `put`, `scale`, `stop`, `start`, `restart`,
    /// `delete`, `undo`, `pause`, `resume`, `show`, `history`, `move` or `export`. The app may be `*`.
    pub fn app(&self, verb: &str, app: &str) -> String {
        [&self.prefix, ".app.", verb, ".", app].concat()
    }

    /// Returns the verb and the app in a request's subject.
    pub fn app_of<'s>(&self, subject: &'s str) -> Option<(&'s str, &'s str)> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".app.")?;
        let (verb, app) = rest.split_once('.')?;
        (!app.contains('.')).then_some((verb, app))
    }

    /// Returns the subject of a request about one stored request to one manager: `run`, `show`, `result` or `cancel`.
    /// The id may be `*`.
    pub fn task(&self, verb: &str, id: &str) -> String {
        [&self.prefix, ".task.", verb, ".", id].concat()
    }

    /// Returns the verb and the id in a request's subject.
    pub fn task_of<'s>(&self, subject: &'s str) -> Option<(&'s str, &'s str)> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".task.")?;
        let (verb, id) = rest.split_once('.')?;
        (!id.contains('.')).then_some((verb, id))
    }

    /// Returns the cell in an advertisement's subject.
    pub fn cell_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".cell.")?;
        rest.split_once('.').map(|(cell, _)| cell)
    }

    /// Returns the subject of an event about an app or a cell, published by a cell or an auctioneer. Each may be `*`.
    pub fn event(&self, kind: &str, about: &str, by: &str) -> String {
        [&self.prefix, ".event.", kind, ".", about, ".", by].concat()
    }

    /// Parses an event's subject.
    pub fn event_of<'s>(&self, subject: &'s str) -> Option<EventSubject<'s>> {
        let [kind, about, by] = self.tokens(subject, "event")?;
        Some(EventSubject { kind, about, by })
    }

    /// Returns the subject of the whole answer to a request.
    pub fn outcome(&self, request_id: &str) -> String {
        [&self.prefix, ".outcome.", request_id].concat()
    }

    /// Returns the subject of an instance's output on a cell; `index` and `cell` may be `*`.
    pub fn log(&self, app: &str, index: &str, cell: &str) -> String {
        format!("{}.log.{app}.{index}.{cell}", self.prefix)
    }

    /// Parses the subject of a line of output.
    pub fn log_of<'s>(&self, subject: &'s str) -> Option<LogSubject<'s>> {
        let [app, index, cell] = self.tokens(subject, "log")?;
        Some(LogSubject { app, index, cell })
    }

    /// Returns the subject of a cell's answer to a broadcast.
    pub fn cell_answer(&self, cell: &str, to: &AnswerTo) -> String {
        [&self.prefix, ".cell.", cell, ".answer.", &to.0].concat()
    }

    /// Returns whether this is the subject of an answer of the cell.
    pub fn is_answer_of_cell(&self, subject: &str, cell: &str) -> bool {
        let rest = subject.strip_prefix(&self.prefix);
        rest.is_some_and(|rest| rest.starts_with(".cell."))
            && self.answer_of(subject).is_some_and(|to| to.by == cell)
    }

    /// Returns the subject of the answers of all cells to this asker's broadcasts; `token` may be `*`.
    pub fn cell_answers(&self, asker: &str, token: &str) -> String {
        format!("{}.cell.*.answer.{asker}.{token}", self.prefix)
    }

    /// Returns the subject of an auctioneer's answer to a broadcast.
    pub fn auctioneer_answer(&self, auctioneer: &str, to: &AnswerTo) -> String {
        format!("{}.auctioneer.{auctioneer}.answer.{to}", self.prefix)
    }

    /// Returns the subject of the answers of all auctioneers to this asker's broadcasts; `token` may be `*`.
    pub fn auctioneer_answers(&self, asker: &str, token: &str) -> String {
        format!("{}.auctioneer.*.answer.{asker}.{token}", self.prefix)
    }

    /// Returns the subject of all answers of one auctioneer.
    pub fn answers_of_auctioneer(&self, auctioneer: &str) -> String {
        format!("{}.auctioneer.{auctioneer}.answer.*.*", self.prefix)
    }

    /// An auctioneer asks the managers for the grant to accept requests (`--single`); it may be `*`.
    pub fn grant(&self, auctioneer: &str) -> String {
        format!("{}.auctioneer.{auctioneer}.grant", self.prefix)
    }

    /// The auctioneer that the subject of such a question names.
    pub fn grant_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let rest = subject.strip_prefix(&self.prefix)?;
        let name = rest.strip_prefix(".auctioneer.")?.strip_suffix(".grant")?;
        (!name.contains('.')).then_some(name)
    }

    /// Returns the default bucket in which managers store the apps.
    pub fn apps_bucket(&self) -> String {
        format!("{}-apps", self.prefix.replace('.', "-"))
    }

    /// Returns the bucket in which managers store requests, next to a bucket of apps.
    pub fn tasks_bucket(apps_bucket: &str) -> String {
        format!("{apps_bucket}{TASKS}")
    }

    /// Returns the bucket with the lease of the managers of a bucket of apps.
    pub fn lease_bucket(apps_bucket: &str) -> String {
        format!("{apps_bucket}{LEASE}")
    }

    /// Rejects names that no bucket of apps can have: those that cannot be part of a subject, and those that may be
    /// another bucket of other managers.
    pub fn check_apps_bucket(field: &str, name: &str) -> Result<(), Invalid> {
        check_name(field, name)?;
        if name.ends_with(TASKS) || name.ends_with(LEASE) {
            let expected =
                format!("a name that does not end with {LEASE} or {TASKS}: managers add these");
            return Err(Invalid::new(field, format!("{name:?}"), expected));
        }
        Ok(())
    }

    /// Returns the name of the NATS service of all programs of a role, which must not contain the prefix's dots.
    pub fn service(&self, role: Role) -> String {
        format!("{}-{role}", self.prefix.replace('.', "-"))
    }

    /// Parses the subject of an answer to a broadcast.
    pub fn answer_of<'s>(&self, subject: &'s str) -> Option<AnswerSubject<'s>> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        let (role, rest) = first_token(rest)?;
        let (by, rest) = first_token(rest)?;
        let (asker, token) = first_token(rest.strip_prefix("answer.")?)?;
        let known = ["cell", "auctioneer"].contains(&role) && !token.contains('.');
        known.then_some(AnswerSubject { by, asker, token })
    }

    /// Returns the three tokens below one of the cluster's words.
    fn tokens<'s>(&self, subject: &'s str, word: &str) -> Option<[&'s str; 3]> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        let rest = rest.strip_prefix(word)?.strip_prefix('.')?;
        let mut tokens = rest.split('.');
        let three = [tokens.next()?, tokens.next()?, tokens.next()?];
        tokens.next().is_none().then_some(three)
    }

    /// Returns the subject of a manager's echo to itself, which is evidence that messages arrive.
    pub fn manager_echo(&self, manager: &str) -> String {
        format!("{}.manager.{manager}.echo", self.prefix)
    }

    /// Returns the subject that asks a bridge for its counters.
    pub fn bridge_state(&self, bridge: &str) -> String {
        format!("{}.bridge.{bridge}.state", self.prefix)
    }

    /// Returns the subject that asks a facade for its counters.
    pub fn facade_state(&self, facade: &str) -> String {
        format!("{}.facade.{facade}.state", self.prefix)
    }

    /// Returns the subject of an auctioneer's echo to itself, which is evidence that messages arrive.
    pub fn echo(&self, auctioneer: &str) -> String {
        format!("{}.echo.{auctioneer}", self.prefix)
    }
}

/// Returns the first token and what follows its dot. Works on bytes: tokens are short, and each bid's subject is
/// parsed, for which `split` needs three times as long.
fn first_token(text: &str) -> Option<(&str, &str)> {
    let dot = text.bytes().position(|byte| byte == b'.')?;
    Some((&text[..dot], &text[dot + 1..]))
}

/// A parsed event subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSubject<'s> {
    /// What happened.
    pub kind: &'s str,
    /// The app or cell that it is about.
    pub about: &'s str,
    /// The cell or auctioneer that publishes it.
    pub by: &'s str,
}

/// A parsed subject of a line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSubject<'s> {
    /// The app.
    pub app: &'s str,
    /// The index of the instance.
    pub index: &'s str,
    /// The cell that publishes it.
    pub cell: &'s str,
}

/// A parsed subject of an answer to a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSubject<'s> {
    /// The cell or auctioneer that answers.
    pub by: &'s str,
    /// The asker that it answers.
    pub asker: &'s str,
    /// The token of the question.
    pub token: &'s str,
}

/// The header of a broadcast that says where to answer: an [`AnswerTo`].
pub const ANSWER_TO: &str = "Vendue-Answer-To";

/// Where the answers to a broadcast go: `<asker>.<token>`, below the answering program's own subject. So an asker
/// cannot make a program publish anywhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerTo(String);

impl AnswerTo {
    /// Creates it from the asker and one of its questions; each is one token.
    pub fn new(asker: &str, token: &str) -> Result<Self, Invalid> {
        check_name("asker", asker)?;
        check_name("token", token)?;
        Ok(Self([asker, ".", token].concat()))
    }

    /// Reads a broadcast's headers; none if they do not contain it.
    pub fn of(message: &async_nats::Message) -> Result<Option<Self>, Invalid> {
        // a constant, because a name given as text is checked each time, and every cell reads every broadcast
        const NAME: HeaderName = HeaderName::from_static(ANSWER_TO);
        let headers = message.headers.as_ref();
        let to = headers.and_then(|headers| headers.get(NAME));
        to.map(|to| to.as_str().parse()).transpose()
    }

    /// Returns the headers of a broadcast.
    pub fn headers(&self) -> async_nats::HeaderMap {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(ANSWER_TO, self.0.as_str());
        headers
    }
}

impl FromStr for AnswerTo {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "two names with a dot between them";
        let (asker, token) = text
            .split_once('.')
            .ok_or_else(|| Invalid::new(ANSWER_TO, format!("{text:?}"), expected))?;
        check_name("asker", asker)?;
        check_name("token", token)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for AnswerTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a program may answer on this reply subject. A server does not check whether the asker may publish to
/// its reply subject, so a program that answered on any subject would publish what the asker may not. Imports and
/// gateways rewrite an inbox to the other two prefixes.
pub fn may_answer(reply: &str) -> bool {
    ["_INBOX", "_R_.", "_GR_."]
        .iter()
        .any(|allowed| reply.starts_with(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_of_two_managers_are_the_same_only_if_both_are() {
        let names = ["prod", "prod-apps", "prod-apps-apps"];
        let all = names.map(|name| {
            assert!(Subjects::check_apps_bucket("bucket", name).is_ok());
            let (lease, tasks) = (Subjects::lease_bucket(name), Subjects::tasks_bucket(name));
            [name.to_owned(), lease, tasks]
        });
        let all: std::collections::BTreeSet<String> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 9, "{all:?}");
        for name in ["prod-tasks", "prod-apps-lease", "a.b", ""] {
            let error = Subjects::check_apps_bucket("bucket", name).unwrap_err();
            assert_eq!(error.field, "bucket", "{name}");
        }
    }

    #[test]
    fn what_is_built_is_read_back() {
        let subjects = Subjects::new("a.b").unwrap();
        let event = subjects.event("placed", "web", "auctioneer-1");
        let read = subjects.event_of(&event).unwrap();
        assert_eq!(
            (read.kind, read.about, read.by),
            ("placed", "web", "auctioneer-1")
        );
        let log = subjects.log("web", "3", "c1");
        let read = subjects.log_of(&log).unwrap();
        assert_eq!((read.app, read.index, read.cell), ("web", "3", "c1"));
        let app = subjects.app("put", "web");
        assert_eq!(subjects.app_of(&app), Some(("put", "web")));
        let task = subjects.task("run", "r-1");
        assert_eq!(subjects.task_of(&task), Some(("run", "r-1")));
        assert_eq!(subjects.grant_of(&subjects.grant("a1")), Some("a1"));
        let to: AnswerTo = "alice.n-1".parse().unwrap();
        for answer in [
            subjects.cell_answer("c1", &to),
            subjects.auctioneer_answer("c1", &to),
        ] {
            let read = subjects.answer_of(&answer).unwrap();
            assert_eq!((read.by, read.asker, read.token), ("c1", "alice", "n-1"));
        }
        let own = subjects.cell_answer("c1", &to);
        assert!(subjects.is_answer_of_cell(&own, "c1"));
        for other in [
            subjects.cell_answer("c2", &to),
            subjects.auctioneer_answer("c1", &to),
            subjects.cell("c1", "answer"),
            subjects.cell("c1", "start"),
        ] {
            assert!(!subjects.is_answer_of_cell(&other, "c1"), "{other}");
        }
    }

    #[test]
    fn what_has_another_form_is_nobodys_word() {
        let subjects = Subjects::new("vendue").unwrap();
        for other in [
            "vendue.event.placed.web",
            "vendue.event.placed.web.c1.more",
            "vendue.events.placed.web.c1",
            "other.event.placed.web.c1",
        ] {
            assert_eq!(subjects.event_of(other), None, "{other}");
        }
        for other in [
            "vendue.app.list",
            "vendue.app.put.web.more",
            "vendue.cell.put.web",
        ] {
            assert_eq!(subjects.app_of(other), None, "{other}");
        }
        for other in ["vendue.auctioneer.a.b.grant", "vendue.cell.a1.grant"] {
            assert_eq!(subjects.grant_of(other), None, "{other}");
        }
        for other in [
            "_INBOX.alice.n",
            "vendue.cell.c1.answer.alice",
            "vendue.cell.c1.answer.alice.n.more",
            "vendue.cell.c1.start.alice.n",
            "vendue.queue.c1.answer.alice.n",
        ] {
            assert_eq!(subjects.answer_of(other), None, "{other}");
        }
    }

    #[test]
    fn an_asker_names_two_tokens_and_nothing_else() {
        for bad in ["", "alice", "alice.", ".n", "a.b.c", "a.*", ">.n", "a b.n"] {
            assert!(bad.parse::<AnswerTo>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_inboxes_are_answered() {
        for good in ["_INBOX.a.b", "_INBOX_a.b", "_R_.x", "_GR_.x.y._INBOX.a"] {
            assert!(may_answer(good), "{good}");
        }
        for bad in ["vendue.cell.c1.drain", "$KV.apps.web", "INBOX.a", "_R_x"] {
            assert!(!may_answer(bad), "{bad}");
        }
    }
}
