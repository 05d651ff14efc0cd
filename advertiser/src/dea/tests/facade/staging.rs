//! What a Cloud Controller that has apps staged is told, and when.

use super::*;
use crate::dea::tests::bodies::staging_start;

const SHA1: &str = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12";

/// Creates the facade of a cell that stages apps.
fn stager() -> World {
    let mut world = World::new();
    let said = world.facade.handle(world.now_ms, FacadeInput::Stages(true));
    assert_eq!(subjects_of(&published(&said)), ["staging.advertise"]);
    world
}

impl World {
    fn stage(&mut self) -> Vec<FacadeOutput> {
        let body = serde_json::from_str(&staging_start()).unwrap();
        self.hear("staging.d1.start", &body)
    }

    /// Has an app staged. Returns the key given to the cell.
    fn staging(&mut self) -> String {
        match &self.stage()[..] {
            [FacadeOutput::Stage { key, .. }] => key.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Has an app staged, which the cell accepts.
    fn begun(&mut self) -> String {
        let key = self.staging();
        let said = published(&self.happens(&key, FacadeEvent::Accepted));
        let begun = json!({"task_id": "t1", "task_streaming_log_url": null, "error": null});
        assert_eq!(said, [("_INBOX.cc".to_owned(), begun)]);
        key
    }

    fn ends(&mut self, key: &str, failed: Option<&str>, left: &Value) -> Vec<FacadeOutput> {
        let staged = FacadeStaged {
            failed: failed.map(str::to_owned),
            left: Hidden(left.as_object().unwrap().clone()),
            output: Hidden(Some("the last of it\n".to_owned())),
        };
        self.happens(key, FacadeEvent::Staged(Box::new(staged)))
    }

    fn knows_nothing_of(&self, key: &str) -> bool {
        self.facade.state_of(key).is_none() && self.facade.app_of(key).is_none()
    }
}

fn crashed(description: &str) -> FacadeEvent {
    FacadeEvent::Crashed {
        exit_status: -1,
        description: description.to_owned(),
    }
}

fn left() -> Value {
    json!({"droplet_sha1": SHA1, "detected_buildpack": "Ruby", "buildpack_key": "k",
        "detected_start_command": "ruby app.rb", "procfile": {"web": "ruby app.rb"}})
}

#[test]
fn only_where_apps_are_staged_it_says_so_and_hears_of_them() {
    let mut world = World::new();
    assert_eq!(world.stage(), []);
    assert_eq!(world.hear("staging.locate", &json!({})), []);
    let all = world.pass(20_000);
    assert!(!subjects_of(&all).contains(&"staging.advertise"));
    let mut world = stager();
    let said = published(&world.hear("staging.locate", &json!({})));
    let room = json!({"id": "d1", "stacks": ["cflinuxfs2"], "available_memory": 2048, "available_disk": 4096});
    assert_eq!(said, [("staging.advertise".to_owned(), room)]);
    let all = world.pass(20_000);
    let count = subjects_of(&all)
        .iter()
        .filter(|said| **said == "staging.advertise")
        .count();
    assert_eq!(count, 4);
    // until it is emptied, or no longer stages
    world.facade.handle(world.now_ms, FacadeInput::Evacuate);
    assert_eq!(world.hear("staging.locate", &json!({})), []);
    assert!(!subjects_of(&world.pass(20_000)).contains(&"staging.advertise"));
    let mut world = stager();
    world
        .facade
        .handle(world.now_ms, FacadeInput::Stages(false));
    assert_eq!(world.stage(), []);
    assert!(!subjects_of(&world.pass(20_000)).contains(&"staging.advertise"));
}

#[test]
fn a_task_takes_the_larger_of_what_the_app_and_staging_need() {
    let mut world = stager();
    let out = world.stage();
    let [FacadeOutput::Stage { staging, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!((staging.memory_mb, staging.disk_mb), (1_024, 2_048));
    assert_eq!(staging.app, "5d1f7a52");
    let said = published(&world.hear("staging.locate", &json!({})));
    let room = (&said[0].1["available_memory"], &said[0].1["available_disk"]);
    assert_eq!(room, (&json!(1_024), &json!(2_048)));
    // staging does not count as an instance of the app
    assert_eq!(world.advertisement()["app_id_to_count"], json!({}));
    let mut body: Value = serde_json::from_str(&staging_start()).unwrap();
    body["start_message"]["limits"] = json!({"mem": 1_025, "disk": 1, "fds": 1});
    let said = published(&world.hear("staging.d1.start", &body));
    let refused = json!({"task_id": "t1", "error": "Not enough memory resources available"});
    assert_eq!(said, [("_INBOX.cc".to_owned(), refused)]);
    body["start_message"]["limits"] = json!({"mem": 1_025, "disk": 2_049, "fds": 1});
    let said = published(&world.hear("staging.d1.start", &body));
    assert_eq!(said[0].1["error"], "Not enough disk resources available");
    body["start_message"]["limits"] = json!({"mem": -1, "disk": 1, "fds": 1});
    assert_eq!(world.hear("staging.d1.start", &body), []);
    assert_eq!((world.facade.malformed, world.facade.not_staged), (1, 2));
}

#[test]
fn a_droplet_is_replied_and_its_first_instance_started_here() {
    let mut world = stager();
    let key = world.begun();
    assert_eq!(world.happens(&key, FacadeEvent::Running(None)), []);
    let out = world.ends(&key, None, &left());
    let [
        FacadeOutput::Publish { subject, body },
        FacadeOutput::Start { start, .. },
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    let mut reply = left();
    reply["task_id"] = "t1".into();
    reply["task_log"] = "the last of it\n".into();
    assert_eq!(subject, "_INBOX.cc");
    assert_eq!(serde_json::from_slice::<Value>(&body.0).unwrap(), reply);
    assert_eq!(
        (start.droplet.as_str(), start.sha1.as_deref()),
        (APP, Some(SHA1))
    );
    assert_eq!(world.facade.staged, 1);
    // a repeated result says nothing new
    assert_eq!(world.ends(&key, None, &left()), []);
    assert!(world.knows_nothing_of(&key));
}

/// Some Cloud Controllers have no address for a droplet that does not exist yet.
#[test]
fn a_droplet_without_an_address_is_left_to_the_health_manager() {
    let mut world = stager();
    let mut body: Value = serde_json::from_str(&staging_start()).unwrap();
    body["start_message"]["executableUri"] = Value::Null;
    let out = world.hear("staging.d1.start", &body);
    let [FacadeOutput::Stage { key, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    world.happens(key, FacadeEvent::Accepted);
    assert_eq!(published(&world.ends(key, None, &left())).len(), 1);
    assert_eq!(world.advertisement()["app_id_to_count"], json!({}));
}

#[test]
fn a_task_that_fails_is_replied_with_its_error_and_starts_nothing() {
    let mut world = stager();
    let info = json!({"type": "NoAppDetectedError", "message": "no buildpack took it"});
    let key = world.begun();
    let out = world.ends(&key, Some("exit 222"), &json!({"error_info": info}));
    let reply = json!({"task_id": "t1", "detected_buildpack": null, "buildpack_key": null, "droplet_sha1": null,
        "detected_start_command": null, "procfile": null, "task_log": "the last of it\n", "error": "Error staging: exit 222",
        "error_info": info});
    assert_eq!(published(&out), [("_INBOX.cc".to_owned(), reply)]);
    assert_eq!(out.len(), 1);
    // exit code 0 is not sufficient
    for no_droplet in [
        json!({}),
        json!({"droplet_sha1": "../x"}),
        json!({"droplet_sha1": 1}),
    ] {
        let key = world.begun();
        let out = world.ends(&key, None, &no_droplet);
        let error = published(&out)[0].1["error"].to_string();
        assert!(error.contains("no droplet_sha1"), "{error}");
        assert_eq!(out.len(), 1);
    }
    assert_eq!((world.facade.staged, world.facade.not_staged), (0, 4));
}

#[test]
fn what_the_cell_does_not_accept_is_the_first_reply_and_the_last() {
    let mut world = stager();
    let key = world.staging();
    let said = published(&world.happens(&key, crashed("draining")));
    let reply = json!({"task_id": "t1", "task_streaming_log_url": null, "error": "Error staging: draining"});
    assert_eq!(said, [("_INBOX.cc".to_owned(), reply)]);
    assert!(world.knows_nothing_of(&key));
}

#[test]
fn a_stop_is_replied_at_once_and_the_rest_is_not() {
    let stopped = json!({"task_id": "t1", "error": "Error staging: task stopped"});
    let of_app = json!({"app_id": "5d1f7a52"});
    // the last one stops a whole app
    for (subject, body) in [
        ("staging.stop", of_app.clone()),
        ("dea.stop", json!({"droplet": "5d1f7a52"})),
    ] {
        let mut world = stager();
        let key = world.begun();
        assert_eq!(world.hear("staging.stop", &json!({"app_id": "other"})), []);
        let of_version = json!({"droplet": "5d1f7a52", "version": "v"});
        assert_eq!(world.hear("dea.stop", &of_version), []);
        let out = world.hear(subject, &body);
        assert_eq!(published(&out), [("_INBOX.cc".to_owned(), stopped.clone())]);
        assert_eq!(out[1], FacadeOutput::Stop { key: key.clone() });
        assert_eq!(
            world.facade.state_of(&key),
            Some(DeaInstanceState::Stopping)
        );
        // a second stop has no one to reply to
        assert_eq!(world.hear("staging.stop", &of_app), []);
        assert_eq!(world.happens(&key, FacadeEvent::Stopped), []);
        assert!(world.knows_nothing_of(&key));
        assert_eq!(world.facade.not_staged, 1);
    }
    // also when the DEA ends
    let mut world = stager();
    let key = world.begun();
    let out = world.facade.handle(world.now_ms, FacadeInput::ShutDown);
    assert!(published(&out).iter().any(|(_, body)| *body == stopped));
    assert!(out.contains(&FacadeOutput::Stop { key }));
}

#[test]
fn a_task_that_takes_too_long_is_stopped() {
    let mut world = stager();
    let key = world.begun();
    let replies = |said: &[(String, Value)]| -> Vec<String> {
        let to_cc = said.iter().filter(|(subject, _)| subject == "_INBOX.cc");
        to_cc
            .map(|(_, body)| body["error"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(replies(&world.pass(899_999)), Vec::<String>::new());
    assert_eq!(
        replies(&world.pass(1)),
        ["Error staging: not done after 900 s"]
    );
    assert_eq!(
        world.facade.state_of(&key),
        Some(DeaInstanceState::Stopping)
    );
    // a task that was told to end gets no further reply
    assert_eq!(replies(&world.pass(900_000)), Vec::<String>::new());
    assert_eq!(world.ends(&key, Some("task stopped"), &json!({})), []);
    assert!(world.knows_nothing_of(&key));
}

#[test]
fn an_end_whose_result_is_not_heard_is_a_failure_after_a_while() {
    let mut world = stager();
    let key = world.begun();
    assert_eq!(world.happens(&key, crashed("exit 0")), []);
    let said = world.pass(5_000);
    let reply = said
        .iter()
        .find(|(subject, _)| subject == "_INBOX.cc")
        .unwrap();
    let error = reply.1["error"].as_str().unwrap();
    assert!(error.starts_with("Error staging: exit 0;"), "{error}");
    assert!(world.knows_nothing_of(&key));
    // if the result arrives in time, all is well
    let key = world.begun();
    world.happens(&key, crashed("exit 0"));
    assert_eq!(world.ends(&key, None, &left()).len(), 2);
}
