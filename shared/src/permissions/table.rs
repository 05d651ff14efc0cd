//! The arms of [`Role::permissions`](super::Role::permissions): one function per role.

use super::{Permissions, Role, Subscribe};
use crate::{subjects::Subjects, wire::kind};

pub(super) fn cell(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
    hear_broadcasts(&mut may, subjects);
    speak_as_cell(&mut may, subjects, name);
    let served = [
        "start", "stop", "drain", "cordon", "uncordon", "set", "state", "logs",
    ];
    let served = served.map(|what| subjects.cell(name, what));
    may.serve(Subjects::CELL_QUEUE, served);
    may.publish([subjects.cell(name, "result"), subjects.log("*", "*", name)]);
    may.hear([subjects.cell(name, "advert")]);
    may.answer();
    may.be_service(&subjects.service(Role::Cell));
    may
}

/// Permits hearing what all cells are asked.
fn hear_broadcasts(may: &mut Permissions, subjects: &Subjects) {
    may.hear([
        subjects.discover(),
        subjects.bid(),
        subjects.instances(),
        subjects.cells_stop(),
    ]);
}

/// Permits what one cell publishes.
fn speak_as_cell(may: &mut Permissions, subjects: &Subjects, name: &str) {
    let own = |what: &&str| subjects.cell(name, what);
    // including its state, because it asks whether its name is free
    may.publish(
        ["advert", "heartbeat", "state", "answer.*.*"]
            .iter()
            .map(own),
    );
    may.publish(kind::OF_CELLS.map(|kind| subjects.event(kind, "*", name)));
}

pub(super) fn bridge(subjects: &Subjects, name: &str, cells: &[String]) -> Permissions {
    let mut may = Permissions::default();
    hear_broadcasts(&mut may, subjects);
    for cell in cells {
        speak_as_cell(&mut may, subjects, cell);
        // one subject for all that a cell is asked, as a bridge has many cells and each subscription takes memory
        may.serve(Subjects::CELL_QUEUE, [subjects.cell(cell, "*")]);
    }
    may.serve(Subjects::CELL_QUEUE, [subjects.bridge_state(name)]);
    may.answer();
    may.be_service(&subjects.service(Role::Bridge));
    may
}

/// Returns the permissions of a facade. It starts work without auctioneers, as a Cloud Controller decides itself; what
/// that cannot know, the cells refuse.
pub(super) fn facade(subjects: &Subjects, name: &str, cells: &[String]) -> Permissions {
    let mut may = Permissions::default();
    // including its own state, because it asks whether its name is free
    may.publish([subjects.discover(), subjects.facade_state(name)]);
    for cell in cells {
        may.publish(["start", "stop"].map(|what| subjects.cell(cell, what)));
        may.hear(["advert", "heartbeat", "result"].map(|what| subjects.cell(cell, what)));
        may.hear(kind::OF_CELLS.map(|kind| subjects.event(kind, "*", cell)));
    }
    may.serve(Subjects::CELL_QUEUE, [subjects.facade_state(name)]);
    may.answer();
    may.be_service(&subjects.service(Role::Facade));
    may
}

pub(super) fn auctioneer(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
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
        // with --single
        subjects.grant(name),
        // to ask whether its name is free, and which policies others have
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
    may.answer();
    may.be_service(&service);
    may
}

/// The roles that are NATS services.
const SERVICES: [Role; 5] = [
    Role::Auctioneer,
    Role::Cell,
    Role::Manager,
    Role::Bridge,
    Role::Facade,
];

/// What anybody who may see an app's state may ask about it.
const LOOKS: [&str; 2] = ["show", "history"];
/// What a user may ask managers to do with an app.
const CHANGES: [&str; 9] = [
    "put", "scale", "stop", "start", "restart", "delete", "undo", "pause", "resume",
];

/// What a user may ask managers to do with a stored request; `result` includes its output.
const TASK_VERBS: [&str; 4] = ["run", "show", "result", "cancel"];

/// Permits lists and states of apps and stored requests, without the values of their environments and without output.
fn look_at_apps(may: &mut Permissions, subjects: &Subjects) {
    may.publish([subjects.app_list(), subjects.task_list()]);
    may.publish(LOOKS.map(|verb| subjects.app(verb, "*")));
}

pub(super) fn manager(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
    let service = subjects.service(Role::Manager);
    may.publish([
        subjects.start(),
        subjects.cell("*", "stop"),
        subjects.instances(),
        subjects.manager_echo(name),
        // a health check next to it has its key
        format!("$SRV.INFO.{service}"),
    ]);
    may.publish(kind::OF_MANAGERS.map(|kind| subjects.event(kind, "*", name)));
    may.hear([
        subjects.adverts(),
        subjects.cell("*", "heartbeat"),
        subjects.cell("*", "result"),
        subjects.cell_answers(name, "*"),
        subjects.manager_echo(name),
    ]);
    may.hear(kind::OF_CELLS.map(|kind| subjects.event(kind, "*", "*")));
    let verbs = CHANGES.iter().chain(&LOOKS).chain(&["export"]);
    may.serve(
        Subjects::MANAGER_QUEUE,
        verbs.map(|verb| subjects.app(verb, "*")),
    );
    // every manager hears these, and the one that acts answers
    may.serve(name, [subjects.app("move", "*"), subjects.grant("*")]);
    may.serve(
        Subjects::MANAGER_QUEUE,
        TASK_VERBS.map(|verb| subjects.task(verb, "*")),
    );
    may.serve(
        Subjects::MANAGER_QUEUE,
        [
            subjects.app_list(),
            subjects.app_import(),
            subjects.app_submit(),
            subjects.task_list(),
        ],
    );
    may.answer();
    may.be_service(&service);
    may
}

/// Permits creating, reading and writing the buckets, each of which is a stream, but neither deleting nor purging.
pub(super) fn manager_state(subjects: &Subjects) -> Permissions {
    let mut may = Permissions::default();
    may.publish(["$JS.API.INFO".to_owned()]);
    let apps = subjects.apps_bucket();
    let tasks = Subjects::tasks_bucket(&apps);
    // the history of the apps and the output of tasks are read one message at a time, the lease is only watched
    may.publish([&apps, &tasks].map(|bucket| format!("$JS.API.STREAM.MSG.GET.KV_{bucket}")));
    for bucket in [Subjects::lease_bucket(&apps), apps, tasks] {
        may.publish([
            format!("$JS.API.STREAM.INFO.KV_{bucket}"),
            format!("$JS.API.STREAM.CREATE.KV_{bucket}"),
            format!("$JS.API.CONSUMER.CREATE.KV_{bucket}"),
            // the server slows down a watch that is behind by flow control requests, which are answered there
            format!("$JS.FC.KV_{bucket}.>"),
            format!("$KV.{bucket}.>"),
        ]);
    }
    may
}

pub(super) fn user(subjects: &Subjects, name: &str) -> Permissions {
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
    ]);
    may.publish(CHANGES.map(|verb| subjects.app(verb, "*")));
    may.publish(TASK_VERBS.map(|verb| subjects.task(verb, "*")));
    may.publish([subjects.app_submit()]);
    look_at_apps(&mut may, subjects);
    may.hear([
        subjects.events(),
        subjects.log("*", "*", "*"),
        subjects.cell_answers(name, "*"),
        subjects.auctioneer_answers(name, "*"),
    ]);
    may
}

/// Permits asking bridges and facades for their counters.
fn ask_bridges(may: &mut Permissions, subjects: &Subjects) {
    may.publish([subjects.bridge_state("*"), subjects.facade_state("*")]);
}

pub(super) fn operator(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = user(subjects, name);
    may.publish.retain(|subject| !subject.starts_with("$SRV."));
    may.publish(["set", "drain", "cordon", "uncordon"].map(|what| subjects.cell("*", what)));
    // an export contains the values of environments
    may.publish([subjects.app("export", "*"), subjects.app_import()]);
    may.publish([subjects.app("move", "*")]);
    for verb in ["PING", "INFO", "STATS"] {
        let of = |role| format!("$SRV.{verb}.{}", subjects.service(role));
        may.publish([format!("$SRV.{verb}")]);
        may.publish(SERVICES.map(of));
    }
    ask_bridges(&mut may, subjects);
    may.hear([subjects.adverts(), subjects.cell("*", "heartbeat")]);
    may
}

pub(super) fn observer(subjects: &Subjects) -> Permissions {
    let mut may = Permissions::default();
    look_at_apps(&mut may, subjects);
    may.hear([
        subjects.events(),
        subjects.adverts(),
        subjects.cell("*", "heartbeat"),
    ]);
    may
}

pub(super) fn metrics(subjects: &Subjects) -> Permissions {
    let mut may = Permissions::default();
    may.publish([subjects.pool()]);
    may.publish(SERVICES.map(|role| format!("$SRV.STATS.{}", subjects.service(role))));
    may.hear([subjects.events(), subjects.cell("*", "heartbeat")]);
    may
}

pub(super) fn recorder(subjects: &Subjects, name: &str) -> Permissions {
    let mut may = Permissions::default();
    may.publish([subjects.discover(), subjects.pool(), subjects.instances()]);
    may.hear([
        subjects.adverts(),
        subjects.start(),
        subjects.stop(),
        subjects.cell_answers(name, "*"),
    ]);
    // that would take requests from the auctioneers
    let join = |subject| Subscribe {
        subject,
        queue: Some(Subjects::AUCTIONEER_QUEUE.to_owned()),
    };
    may.not_join = vec![join(subjects.start()), join(subjects.stop())];
    may
}
