//! The user: asks managers for one thing after the other until they have answered, and knows what should run then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use shared::wire::{AppExport, AppImport, AppImported, ErrorBody, WireError, code, to_bytes};
use tokio::sync::mpsc;

use super::{
    cluster::lock,
    orders::{APPS, Order},
    script::Deed,
    table::{self, Found},
    watch::Watch,
};
use crate::parts::Observer;

/// What each instance asks for, in MiB: twice everything that is wanted fits on all cells but one.
const MEMORY_MB: u64 = 48;
/// How long to wait for an answer before asking again.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a lost bucket stays lost.
const LOST: Duration = Duration::from_secs(3);

/// An app that should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) instances: u32,
    pub(crate) version: u32,
    /// The version with which the app was created.
    created: u32,
}

/// What was requested, and how it went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) orders: usize,
    pub(crate) again: usize,
    pub(crate) drains: usize,
    pub(crate) losses: usize,
    /// Repeated orders that changed something at the end, because an earlier order was carried out late.
    pub(crate) late: usize,
}

/// The orders that are still open, and when the last answer arrived.
#[derive(Debug)]
struct Open {
    count: usize,
    answered: Instant,
}

/// The user's side of the managers.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) observer: Arc<Observer>,
    pub(crate) watch: Arc<Mutex<Watch>>,
    mark: String,
    wanted: Arc<Mutex<BTreeMap<String, Wanted>>>,
    version: Arc<Mutex<u32>>,
    open: Arc<Mutex<Open>>,
    pub(crate) tally: Arc<Mutex<Tally>>,
    orders: mpsc::UnboundedSender<Order>,
    cells: mpsc::UnboundedSender<(String, Deed)>,
}

/// Why something is not done yet.
enum Failure {
    Again(String),
    /// The app does not exist.
    Gone,
    Never(String),
}

pub(crate) fn name(app: usize) -> String {
    format!("app-{app}")
}

impl Desk {
    pub(crate) fn open(observer: &Arc<Observer>, watch: &Arc<Mutex<Watch>>, mark: &str) -> Self {
        let (orders, mut next_order) = mpsc::unbounded_channel();
        let (cells, mut next_cell) = mpsc::unbounded_channel();
        let open = Open {
            count: 0,
            answered: Instant::now(),
        };
        let desk = Self {
            observer: observer.clone(),
            watch: watch.clone(),
            mark: mark.to_owned(),
            wanted: Arc::default(),
            version: Arc::default(),
            open: Arc::new(Mutex::new(open)),
            tally: Arc::default(),
            orders,
            cells,
        };
        let user = desk.clone();
        tokio::spawn(async move {
            while let Some(order) = next_order.recv().await {
                user.carry_out(order).await;
                user.answered();
            }
        });
        let operator = desk.clone();
        tokio::spawn(async move {
            while let Some((cell, deed)) = next_cell.recv().await {
                operator.tell_cell(&cell, deed).await;
                operator.answered();
            }
        });
        desk
    }

    /// Sends an order once everything before it has been answered.
    pub(crate) fn order(&self, order: Order) {
        lock(&self.open).count += 1;
        lock(&self.tally).orders += 1;
        self.orders.send(order).expect("a user");
    }

    /// Drains a cell or puts it back.
    pub(crate) fn cell(&self, cell: &str, deed: Deed) {
        lock(&self.open).count += 1;
        lock(&self.tally).drains += usize::from(deed == Deed::Drain);
        self.cells
            .send((cell.to_owned(), deed))
            .expect("an operator");
    }

    fn answered(&self) {
        let mut open = lock(&self.open);
        open.count -= 1;
        open.answered = Instant::now();
    }

    /// Returns when the last answer arrived; none while one is awaited.
    pub(crate) fn all_answered(&self) -> Option<Instant> {
        let open = lock(&self.open);
        (open.count == 0).then_some(open.answered)
    }

    fn tell(&self, what: &str) {
        lock(&self.watch).tell(what);
    }

    async fn carry_out(&self, order: Order) {
        self.tell(&format!("ask: {order:?}"));
        match order {
            Order::Put { app, instances } => {
                let app = name(app);
                lock(&self.watch).stops.ask_to_stop(&app, instances);
                self.put(&app, instances);
                self.put_again(&app).await;
            }
            Order::Scale { app, instances } => {
                let app = name(app);
                if let Some(wanted) = lock(&self.wanted).get_mut(&app) {
                    wanted.instances = instances;
                }
                lock(&self.watch).stops.ask_to_stop(&app, instances);
                let body = json!({"v": 1, "instances": instances});
                self.until_done("scale", &app, &body).await;
            }
            Order::Restart { app } => {
                self.until_done("restart", &name(app), &json!({"v": 1}))
                    .await;
            }
            Order::Delete { app } => {
                let app = name(app);
                lock(&self.wanted).remove(&app);
                lock(&self.watch).stops.ask_to_stop(&app, 0);
                self.until_done("delete", &app, &json!({"v": 1})).await;
            }
            Order::LoseBucket { lease } => self.lose_bucket(lease).await,
        }
        self.tell(&format!("done: {order:?}"));
    }

    /// Records that a new version of the app is wanted from now on.
    fn put(&self, app: &str, instances: u32) {
        let mut version = lock(&self.version);
        *version += 1;
        let mut wanted = lock(&self.wanted);
        let created = wanted.get(app).map_or(*version, |wanted| wanted.created);
        let now = Wanted {
            instances,
            version: *version,
            created,
        };
        wanted.insert(app.to_owned(), now);
    }

    /// Puts the wanted definition of an app. Returns whether that changed anything.
    async fn put_again(&self, app: &str) -> bool {
        let wanted = lock(&self.wanted)[app];
        let (memory, version) = (MEMORY_MB.to_string(), wanted.version.to_string());
        let definition = json!({"app": app, "instances": wanted.instances, "memory_mb": MEMORY_MB,
            "disk_mb": 1, "run": {"command": table::command(), "env": {table::MARK: self.mark,
                table::MEMORY: memory, table::VERSION: version}},
            "crash": {"immediate": 10, "wait": "1s", "max_wait": "1s", "give_up": 0},
            "update": {"max_in_flight": 2, "min_healthy": "500ms", "deadline": "0s"}});
        let body = json!({"v": 1, "definition": definition});
        let answer = self.until_done("put", app, &body).await;
        answer.is_some_and(|answer| answer["changed"] == true)
    }

    /// Repeats what is wanted, as an order that was carried out late may have undone it.
    pub(crate) async fn repeat(&self) {
        for app in (0..APPS).map(name) {
            let wanted = lock(&self.wanted).contains_key(&app);
            let changed = if wanted {
                self.put_again(&app).await
            } else {
                let answer = self.until_done("delete", &app, &json!({"v": 1})).await;
                answer.is_some_and(|answer| answer["changed"] == true)
            };
            if changed {
                self.tell(&format!("{app} was not what was wanted"));
                lock(&self.tally).late += 1;
                lock(&self.open).answered = Instant::now();
            }
        }
    }

    /// Deletes all apps.
    pub(crate) fn delete_all(&self) {
        for app in 0..APPS {
            if lock(&self.wanted).contains_key(&name(app)) {
                self.order(Order::Delete { app });
            }
        }
    }

    /// Asks managers until one has done it; none if there is no such app.
    async fn until_done(&self, verb: &str, app: &str, body: &Value) -> Option<Value> {
        let subject = self.observer.subjects.app(verb, app);
        self.until_answered(&subject, &to_bytes(body)).await
    }

    pub(crate) async fn until_answered(&self, subject: &str, body: &[u8]) -> Option<Value> {
        loop {
            match self.ask(subject, body).await {
                Ok(answer) => return Some(answer),
                Err(Failure::Gone) => return None,
                Err(Failure::Never(why)) => {
                    lock(&self.watch).violated(&format!("{subject} is refused: {why}"));
                    return None;
                }
                Err(Failure::Again(why)) => {
                    self.tell(&format!("again {subject}: {why}"));
                    lock(&self.tally).again += 1;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    async fn ask(&self, subject: &str, body: &[u8]) -> Result<Value, Failure> {
        let request = async_nats::Request::new()
            .payload(body.to_vec().into())
            .timeout(Some(ANSWER));
        let sent = self
            .observer
            .client
            .send_request(subject.to_owned(), request);
        let answer = sent.await.map_err(|e| Failure::Again(e.to_string()))?;
        if let Ok(ErrorBody { error, .. }) = serde_json::from_slice(&answer.payload) {
            return Err(failure(&error));
        }
        let read = serde_json::from_slice(&answer.payload);
        read.map_err(|e| Failure::Never(e.to_string()))
    }

    async fn tell_cell(&self, cell: &str, deed: Deed) {
        let drains = deed == Deed::Drain;
        if drains {
            lock(&self.watch).stops.leaves(cell);
        }
        let (what, body) = if drains {
            ("drain", json!({"v": 1, "deadline": "5s"}))
        } else {
            ("uncordon", json!({"v": 1}))
        };
        self.tell(&format!("ask: {cell} {deed:?}"));
        let subject = self.observer.subjects.cell(cell, what);
        self.until_answered(&subject, &to_bytes(&body)).await;
        self.tell(&format!("done: {cell} {deed:?}"));
        if !drains {
            lock(&self.watch).stops.stays(cell);
        }
    }

    /// Loses the bucket and acts like an operator: what is restored is what an export contained.
    async fn lose_bucket(&self, lease: bool) {
        // instances of deleted apps that still run are known from the bucket alone
        while let Some(left) = self.leftover() {
            self.tell(&format!("not yet lost: {left:?}"));
            tokio::time::sleep(AGAIN).await;
        }
        let apps: Vec<String> = lock(&self.wanted).keys().cloned().collect();
        let mut exported = Vec::new();
        for app in &apps {
            if let Some(export) = self.until_done("export", app, &json!({})).await {
                exported.push(serde_json::from_value(export).expect("an export"));
            }
        }
        if exported.is_empty() {
            return;
        }
        lock(&self.tally).losses += 1;
        let mut streams = vec!["KV_vendue-apps"];
        if lease {
            streams.push("KV_vendue-apps-lease");
        }
        for stream in streams {
            self.delete_stream(stream).await;
        }
        self.tell("the bucket is lost");
        tokio::time::sleep(LOST).await; // the fault itself, not a wait
        self.restore(exported).await;
    }

    /// Returns a process that still runs for a deleted app.
    fn leftover(&self) -> Option<Found> {
        let wanted = lock(&self.wanted).clone();
        let is_left = |process: &Found| {
            let of = wanted.get(&process.app);
            of.is_none_or(|wanted| process.version < wanted.created)
        };
        table::look(&self.mark).into_iter().find(is_left)
    }

    async fn delete_stream(&self, stream: &str) {
        loop {
            let subject = format!("$JS.API.STREAM.DELETE.{stream}");
            let answer = self.observer.client.request(subject, "".into()).await;
            let text = answer.map_or_else(
                |e| e.to_string(),
                |answer| String::from_utf8_lossy(&answer.payload).into_owned(),
            );
            // 10059: there is no such stream
            if text.contains("\"success\":true") || text.contains("10059") {
                return;
            }
            self.tell(&format!("again {stream}: {text}"));
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Returns whether the bucket has the app, according to its server.
    async fn is_stored(&self, app: &str) -> bool {
        let subject = "$JS.API.STREAM.MSG.GET.KV_vendue-apps";
        let key = to_bytes(&json!({"last_by_subj": format!("$KV.vendue-apps.app.{app}")}));
        let answer = self.observer.client.request(subject, key).await;
        answer.is_ok_and(|answer| String::from_utf8_lossy(&answer.payload).contains("\"message\""))
    }

    /// Imports until every app is there.
    async fn restore(&self, mut apps: Vec<AppExport>) {
        while !apps.is_empty() {
            let import = AppImport {
                v: shared::VERSION,
                restore: true,
                apps: apps.clone(),
            };
            let subject = self.observer.subjects.app_import();
            let Some(answer) = self.until_answered(&subject, &to_bytes(&import)).await else {
                return;
            };
            let answer: AppImported = serde_json::from_value(answer).expect("an import's answer");
            let told = format!("restored: {:?}", answer.apps);
            let mut left = Vec::new();
            for (app, result) in apps.into_iter().zip(answer.apps) {
                // refused: either an unanswered import restored it, or the loss has not been noticed yet
                if result.error.is_some() && !self.is_stored(&result.app).await {
                    left.push(app);
                }
            }
            apps = left;
            self.tell(&told);
            if !apps.is_empty() {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// What a manager says of all apps.
    pub(crate) async fn shown(&self) -> String {
        let subject = format!("{}.app.list", self.observer.subjects.prefix());
        match self.ask(&subject, br#"{"v":1}"#).await {
            Ok(apps) => apps.to_string(),
            Err(Failure::Again(why) | Failure::Never(why)) => why,
            Err(Failure::Gone) => "no apps".to_owned(),
        }
    }

    /// What runs and should not, and what should and does not.
    pub(crate) fn differences(&self) -> Vec<String> {
        let wanted = lock(&self.wanted).clone();
        differences(&wanted, &table::look(&self.mark))
    }

    /// Declares that what runs now as it should must not be stopped.
    pub(crate) fn hold(&self) {
        let wanted = lock(&self.wanted);
        let mut watch = lock(&self.watch);
        for (app, wanted) in &*wanted {
            watch.stops.want(app, wanted.instances);
        }
    }
}

fn failure(error: &WireError) -> Failure {
    match error.code.as_str() {
        code::NOT_FOUND => Failure::Gone,
        code::INVALID_REQUEST => Failure::Never(error.to_string()),
        _ => Failure::Again(error.to_string()),
    }
}

/// Checks that each wanted index runs once, in the wanted version, and nothing else does.
fn differences(wanted: &BTreeMap<String, Wanted>, found: &[Found]) -> Vec<String> {
    let mut at: BTreeMap<(&str, u32), Vec<&Found>> = BTreeMap::new();
    for process in found {
        let key = (process.app.as_str(), process.index);
        at.entry(key).or_default().push(process);
    }
    let mut differences = Vec::new();
    for (app, wanted) in wanted {
        for index in 0..wanted.instances {
            match at.remove(&(app.as_str(), index)).as_deref() {
                Some([one]) if one.version == wanted.version => {}
                other => differences.push(format!("{app} {index} of {wanted:?}: {other:?}")),
            }
        }
    }
    let surplus = at.into_values().flatten();
    differences.extend(surplus.map(|process| format!("nobody wants {process:?}")));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_old_twice_or_too_much_is_a_difference() {
        let process = |index, version| Found {
            pid: 1,
            parent: 1,
            started_ticks: 1,
            app: "web".into(),
            index,
            version,
            instance: "i".into(),
            cell: "c".into(),
            memory_mb: 1,
        };
        let two = Wanted {
            instances: 2,
            version: 3,
            created: 1,
        };
        let wanted = BTreeMap::from([("web".to_owned(), two)]);
        let count = |found: &[Found]| differences(&wanted, found).len();
        assert_eq!(count(&[process(0, 3), process(1, 3)]), 0);
        assert_eq!(count(&[process(0, 3)]), 1);
        assert_eq!(count(&[process(0, 3), process(1, 2)]), 1);
        assert_eq!(count(&[process(0, 3), process(1, 3), process(1, 3)]), 1);
        assert_eq!(count(&[process(0, 3), process(1, 3), process(2, 3)]), 1);
    }
}
