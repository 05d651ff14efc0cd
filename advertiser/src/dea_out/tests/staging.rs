//! Apps that a Cloud Controller has staged on a cell, and how long a cell is believed to exist.

use placement::Kind;
use shared::{RequestId, wire::TaskResult};

use super::*;

const SHA1: &str = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12";

fn stages(cell: &mut Cell) {
    cell.attributes_mut().staging = true;
}

/// Creates a cell of 1,024 MB that stages apps, and returns the subject on which its DEA listens for that.
fn stager() -> (World, String) {
    let mut world = World::new();
    assert_eq!(world.staging, Vec::<String>::new());
    world.advertise(1, &stages);
    let own = world.staging.last().unwrap().clone();
    assert_eq!(world.staging[..2], ["staging.stop", "staging.locate"]);
    (world, own)
}

impl World {
    fn stage(&mut self, own: &str) -> InstanceId {
        let start: Value = serde_json::from_str(START).unwrap();
        let body = json!({"app_id": "orders", "stack": "linux", "task_id": "t1", "properties": {},
            "download_uri": "http://me:secret@a/s", "upload_uri": "http://me:secret@a/u", "start_message": start});
        self.hear(own, &body.to_string());
        self.starts.last().unwrap().work[0].instance
    }

    fn ends(&mut self, instance: InstanceId, change: impl FnOnce(&mut TaskResult)) {
        let mut result = TaskResult {
            v: shared::VERSION,
            cell: "c1".into(),
            instance,
            request: RequestId::new("dea-out-out-x").unwrap(),
            exit_code: Some(0),
            signal: None,
            ended: "exit 0".into(),
            stopped: false,
            began: true,
            ran_ms: Some(1),
            output: None,
            result: json!({"droplet_sha1": SHA1}).as_object().cloned(),
        };
        change(&mut result);
        let out = self.cells.task_ended(self.now_ms, result);
        self.take(out);
    }

    /// Returns the replies to the Cloud Controller.
    fn replies(&self) -> Vec<&Value> {
        let said = self.said.iter();
        let replies = said.filter(|(subject, _)| subject == "_INBOX.x");
        replies.map(|(_, body)| body).collect()
    }
}

#[test]
fn an_app_is_staged_on_the_cell_and_its_first_instance_started_there() {
    let (mut world, own) = stager();
    let task = world.stage(&own);
    let work = &world.starts[0].work[0];
    assert_eq!((work.kind, work.app.as_str()), (Kind::Task, "orders"));
    assert_eq!((work.memory_mb, work.disk_mb), (1_024, 2_048));
    assert!(work.is_staging() && work.has_result());
    let shown = format!("{:?}", world.starts);
    assert!(!shown.contains("me:secret"), "{shown}");
    world.answer(&[task], None);
    let begun = json!({"task_id": "t1", "task_streaming_log_url": null, "error": null});
    assert_eq!(world.replies(), [&begun]);
    world.ends(task, |_| ());
    assert_eq!(world.replies()[1]["droplet_sha1"], SHA1);
    let work = &world.starts[1].work[0];
    assert_eq!((work.kind, work.index), (Kind::Lrp, 2));
    let droplet = &work.run.as_ref().unwrap().droplet.as_ref().unwrap().0;
    assert_eq!(droplet["sha1"], SHA1);
    let counters = world.cells.counters();
    assert_eq!((counters.staged, counters.not_staged), (1, 0));
}

#[test]
fn how_a_task_ended_is_replied_whatever_was_heard_before() {
    for (change, why) in [
        (
            (|r| (r.exit_code, r.ended) = (Some(3), "exit 3".into())) as fn(&mut TaskResult),
            "exit 3",
        ),
        (
            |r| (r.exit_code, r.signal, r.ended) = (None, Some(9), "signal 9".into()),
            "signal 9",
        ),
        (|r| r.stopped = true, "task stopped"),
        (|r| r.result = None, "no droplet_sha1"),
    ] {
        let (mut world, own) = stager();
        let task = world.stage(&own);
        // the cell's acceptance was not heard
        world.ends(task, change);
        let replies = world.replies();
        assert_eq!((replies.len(), &replies[0]["error"]), (2, &Value::Null));
        let error = replies[1]["error"].as_str().unwrap();
        assert!(error.contains(why), "{error}");
        assert_eq!(world.starts.len(), 1);
    }
    // what others run is not a task of this program
    let (mut world, _) = stager();
    world.ends(InstanceId::from_u128(7), |_| ());
    assert_eq!(world.replies(), Vec::<&Value>::new());
}

#[test]
fn a_task_that_is_stopped_is_stopped_on_the_cell() {
    let (mut world, own) = stager();
    let task = world.stage(&own);
    world.answer(&[task], None);
    world.hear("staging.stop", r#"{"app_id":"orders"}"#);
    assert_eq!(world.stops, [task]);
    world.ends(task, |result| result.stopped = true);
    assert_eq!(world.replies().len(), 2);
    assert_eq!(world.replies()[1]["error"], "Error staging: task stopped");
}

#[test]
fn a_cell_that_no_longer_stages_is_a_dea_that_does_not() {
    let (mut world, own) = stager();
    world.unlistened.clear();
    world.advertise(1, &|_| ());
    assert_eq!(world.unlistened, std::slice::from_ref(&own));
    world.said.clear();
    world.pass(10_000);
    assert!(
        world
            .said
            .iter()
            .all(|(subject, _)| subject != "staging.advertise")
    );
    // another DEA of the same cell has its own subject for staging
    world.staging.clear();
    world.advertise(2, &stages);
    assert_ne!(world.staging.last(), Some(&own));
}

/// The Cloud Controller hears at once that nothing will come of its tasks, and not after its own timeout.
#[test]
fn a_restarted_cell_is_told_to_whoever_waits_for_staging() {
    for begun in [true, false] {
        let (mut world, own) = stager();
        let task = world.stage(&own);
        if begun {
            world.answer(&[task], None);
        }
        let before = world.replies().len();
        world.advertise(2, &stages);
        let replies = world.replies();
        assert_eq!(replies.len(), before + 1);
        let last = replies.last().unwrap();
        assert_eq!(last["error"], "Error staging: the cell was restarted");
        assert_eq!(last.get("droplet_sha1").is_some(), begun, "{last}");
        // the counters of the former DEA stay
        assert_eq!(world.cells.counters().not_staged, 1);
        world.pass(20_000);
        assert_eq!(world.replies().len(), before + 1);
    }
}

/// Whoever can publish an advertisement of a cell must not keep its DEA alive for longer than a minute.
#[test]
fn a_ttl_is_believed_up_to_a_limit() {
    let mut world = World::new();
    let cell = Cell::new("c1", Resources::new(1_024, 4_096, 10));
    let about = (Incarnation::from_u128(1), 5_000, u64::MAX);
    let out = world.cells.advertised(world.now_ms, about, &cell);
    world.take(out);
    assert_eq!(world.cells.deas(NOON + 59_999), 1);
    assert_eq!(world.cells.deas(NOON + 60_000), 0);
}
