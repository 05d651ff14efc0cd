//! Which DEAs exist, according to what is heard.

use placement::check_name;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::*, advertisement};

fn hear(estate: &mut Estate, now_ms: u64, subject: &str, body: &Value) -> Vec<EstateChange> {
    let body = body.to_string();
    let body = body.as_bytes();
    estate.handle(now_ms, EstateInput::Heard { subject, body })
}

fn advertise(estate: &mut Estate, now_ms: u64, id: &str) -> Vec<EstateChange> {
    let body = advertisement(id, "z1", 512, &json!({}));
    hear(estate, now_ms, "dea.advertise", &body)
}

fn live(estate: &Estate, now_ms: u64) -> Vec<String> {
    estate.live(now_ms).map(|(ad, _)| ad.id.clone()).collect()
}

#[test]
fn an_advertisement_counts_in_whole_seconds() {
    for (expiry_s, heard_ms, now_ms, is_live) in [
        (10, 100_000, 109_000, true),
        (10, 100_400, 109_900, true),
        (10, 100_600, 110_100, false),
        (10, 100_900, 110_000, false),
        (10, 100_000, 110_000, false),
        (15, 100_000, 114_999, true),
        (15, 100_000, 115_000, false),
    ] {
        let mut estate = Estate::new(EstateOptions { expiry_s });
        advertise(&mut estate, heard_ms, "d");
        let found = !live(&estate, now_ms).is_empty();
        assert_eq!(found, is_live, "{expiry_s} s, from {heard_ms} to {now_ms}");
    }
}

#[test]
fn a_dea_joins_expires_and_is_forgotten() {
    let mut estate = Estate::new(EstateOptions::default());
    let d = || "d".to_owned();
    assert_eq!(
        advertise(&mut estate, 1_000, "d"),
        [EstateChange::Joined(d())]
    );
    assert_eq!(
        advertise(&mut estate, 6_000, "d"),
        [EstateChange::Advertised(d())]
    );
    assert_eq!(estate.handle(15_999, EstateInput::Tick), []);
    let left = EstateChange::Left(d(), DeaState::Silent);
    assert_eq!(estate.handle(16_000, EstateInput::Tick), [left]);
    assert_eq!(estate.handle(35_999, EstateInput::Tick), []);
    assert_eq!(
        estate.handle(36_000, EstateInput::Tick),
        [EstateChange::Forgotten(d())]
    );
    assert_eq!(estate.deas().count(), 0);
}

#[test]
fn shutdown_and_advertisement_count_in_the_order_of_their_arrival() {
    let mut estate = Estate::new(EstateOptions::default());
    let down =
        json!({"id": "d", "ip": "10.0.0.1", "version": "0.0.1", "app_id_to_count": {"a": 1}});
    assert_eq!(
        hear(&mut estate, 0, "dea.shutdown", &down),
        [],
        "an unknown DEA"
    );
    assert_eq!(estate.deas().count(), 0);
    advertise(&mut estate, 0, "d");
    let left = EstateChange::Left("d".into(), DeaState::ShutDown);
    assert_eq!(hear(&mut estate, 1_000, "dea.shutdown", &down), [left]);
    assert_eq!(
        hear(&mut estate, 1_000, "dea.shutdown", &down),
        [],
        "said again"
    );
    assert!(live(&estate, 1_000).is_empty());
    advertise(&mut estate, 2_000, "d");
    assert_eq!(live(&estate, 2_000), ["d"]);
    assert_eq!(estate.dea("d").unwrap().ip, "10.0.0.1");
}

#[test]
fn a_newer_advertisement_replaces_the_older_completely() {
    let mut estate = Estate::new(EstateOptions::default());
    let first = advertisement("d", "z1", 512, &json!({"a": 3}));
    hear(&mut estate, 0, "dea.advertise", &first);
    let second = json!({"id": "d", "stacks": [], "available_memory": 0, "app_id_to_count": {}});
    hear(&mut estate, 0, "dea.advertise", &second);
    let dea = estate.dea("d").unwrap();
    let advertisement = dea.advertisement.as_ref().unwrap();
    assert_eq!(
        (advertisement.count_of("a"), advertisement.zone()),
        (0, "default")
    );
    assert_eq!(dea.most_memory_mb, 512);
}

#[test]
fn a_dea_that_is_emptied_is_known_by_its_heartbeats() {
    let mut estate = Estate::new(EstateOptions::default());
    let state = |state: &str| {
        json!({"droplet": "a", "version": "v", "instance": "i", "index": 0, "state": state,
                                     "state_timestamp": 1.5})
    };
    advertise(&mut estate, 0, "d");
    hear(
        &mut estate,
        1_000,
        "dea.shutdown",
        &json!({"id": "d", "app_id_to_count": {}}),
    );
    for now_ms in [10_000, 20_000, 30_000, 40_000] {
        let droplets = [state("EVACUATING"), state("EVACUATING"), state("CRASHED")];
        let beat = json!({"dea": "d", "droplets": droplets});
        let changes = hear(&mut estate, now_ms, "dea.heartbeat", &beat);
        assert!(
            matches!(&changes[..], [EstateChange::Heartbeat(beat)] if beat.droplets.len() == 3)
        );
        assert_eq!(estate.handle(now_ms, EstateInput::Tick), []);
    }
    let dea = estate.dea("d").unwrap();
    assert_eq!(dea.state, DeaState::ShutDown);
    let counts = dea.instances.as_ref().unwrap();
    assert_eq!(counts[&DeaInstanceState::Evacuating], 2);
    let gone = [EstateChange::Forgotten("d".into())];
    assert_eq!(estate.handle(70_000, EstateInput::Tick), gone);
}

#[test]
fn malformed_and_odd_messages_are_counted_by_sender() {
    let mut estate = Estate::new(EstateOptions::default());
    let mut odd = advertisement("d1", "z", 1, &json!({}));
    odd["placement_properties"] = json!(null);
    hear(&mut estate, 0, "dea.advertise", &odd);
    hear(&mut estate, 0, "dea.advertise", &odd);
    hear(&mut estate, 0, "dea.advertise", &json!("hush"));
    hear(
        &mut estate,
        0,
        "droplet.exited",
        &json!({"id": "d2", "droplet": "a", "password": "hush"}),
    );
    hear(&mut estate, 0, "dea.nosuch", &json!("hush"));
    let counted: Vec<_> = estate.senders.iter().collect();
    let numbers: Vec<_> = counted
        .iter()
        .map(|(name, sender)| (*name, sender.malformed, sender.odd, sender.subject))
        .collect();
    assert_eq!(
        numbers,
        [
            (None, 1, 0, "dea.advertise"),
            (Some("d1"), 0, 2, "dea.advertise"),
            (Some("d2"), 1, 0, "droplet.exited"),
        ]
    );
    assert!(!format!("{counted:?}").contains("hush"));
    assert_eq!(live(&estate, 0), ["d1"], "what is odd is used all the same");
}

#[test]
fn neither_deas_nor_senders_grow_without_bound() {
    let mut estate = Estate::new(EstateOptions::default());
    for n in 0..MAX_DEAS + 5 {
        advertise(&mut estate, 0, &format!("d{n}"));
    }
    assert_eq!((estate.deas().count(), estate.dropped), (MAX_DEAS, 5));
    for n in 0..MAX_SENDERS + 7 {
        let body = json!({"dea": format!("d{n}"), "droplets": [null]});
        hear(&mut estate, 0, "dea.heartbeat", &body);
    }
    assert_eq!(estate.senders.iter().count(), MAX_SENDERS);
    assert_eq!(estate.senders.of_others, 7);
}

proptest! {
    #[test]
    fn whatever_is_said_the_estate_stays_sound(
        said in prop::collection::vec(
            (0..Estate::SUBJECTS.len(), 0..4_usize, 0..20_000_u64, any::<bool>()), 0..60),
    ) {
        let mut estate = Estate::new(EstateOptions::default());
        let mut now_ms = 0;
        for (subject, dea, later_ms, tick) in said {
            now_ms += later_ms;
            let id = ["a", "b", "c", "not.a.name"][dea];
            let body = json!({"id": id, "dea": id, "droplet": "x", "index": 0, "droplets": []});
            hear(&mut estate, now_ms, Estate::SUBJECTS[subject], &body);
            if tick {
                estate.handle(now_ms, EstateInput::Tick);
                for (_, dea) in estate.deas() {
                    prop_assert_eq!(dea.state == DeaState::Live, dea.is_live(now_ms));
                }
            }
            prop_assert!(estate.deas().all(|(id, _)| check_name("id", id).is_ok()));
        }
        estate.handle(now_ms + 60_000, EstateInput::Tick);
        estate.handle(now_ms + 90_001, EstateInput::Tick);
        prop_assert_eq!(estate.deas().count(), 0, "nobody is known for ever");
    }
}
