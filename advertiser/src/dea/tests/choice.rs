//! What a Cloud Controller would choose.

use placement::{Explain, PlanContext, Policy, Request};
use serde_json::{Value, json};

use super::{super::*, advertisement};

fn hear(estate: &mut Estate, now_ms: u64, body: &Value) {
    let body = body.to_string();
    let heard = EstateInput::Heard {
        subject: "dea.advertise",
        body: body.as_bytes(),
    };
    estate.handle(now_ms, heard);
}

fn request(app: &str, memory_mb: i64, disk_mb: i64, instances: u32) -> Request {
    let mut request = Request::new(app, memory_mb, disk_mb);
    request.stack = Some("cflinuxfs2".into());
    request.instances = instances;
    request
}

fn choose(estate: &Estate, now_ms: u64, request: &Request) -> DeaChoice {
    let context = PlanContext {
        first: true,
        explain: Explain::Finalists,
        ..PlanContext::default()
    };
    estate.choose(now_ms, request, &Policy::preset("dea").unwrap(), &context)
}

/// Returns the names of the finalists of each decision.
fn finalists(choice: &DeaChoice) -> Vec<String> {
    let decisions = choice.decisions.iter();
    decisions.map(|d| d.finalists.join(" ")).collect()
}

/// Returns a cell of a scenario as the advertisement of a DEA.
fn advertisement_of(cell: &Value) -> Value {
    let mut body = json!({"id": cell["cell"], "stacks": cell["stacks"],
        "available_memory": cell["available"]["memory_mb"], "app_id_to_count": cell.get("apps").unwrap_or(&json!({}))});
    if let Some(disk) = cell["available"].get("disk_mb") {
        body["available_disk"] = disk.clone();
    }
    if let Some(zone) = cell.get("zone") {
        body["placement_properties"] = json!({"zone": zone});
    }
    body
}

fn seconds(text: &Value) -> u64 {
    let text = text.as_str().unwrap_or("0s");
    text.trim_end_matches('s').parse().unwrap()
}

/// Compares with what the original decided over the same DEAs, heard as messages. In cases with several requests only
/// the first one is compared, because each search starts from what was advertised.
#[test]
fn the_choices_are_those_of_the_original() {
    let vectors = include_str!("../../../../placement/tests/vectors/dea.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let mut compared = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let scenario = &case["scenario"];
        let expiry_s = scenario.get("ttl").map_or(15, seconds);
        let mut estate = Estate::new(EstateOptions { expiry_s });
        let now_s = 1_000;
        let mut cells: Vec<&Value> = scenario["cells"].as_array().unwrap().iter().collect();
        cells.sort_by_key(|cell| std::cmp::Reverse(seconds(&cell["age"])));
        for cell in cells {
            let heard_s = now_s - seconds(&cell["age"]);
            hear(&mut estate, heard_s * 1_000, &advertisement_of(cell));
        }
        let wanted: Request = serde_json::from_value(scenario["requests"][0].clone()).unwrap();
        let choice = choose(&estate, now_s * 1_000, &wanted);
        for (decision, expected) in choice
            .decisions
            .iter()
            .zip(case["expect"].as_array().unwrap())
        {
            let found = json!({"outcome": decision.outcome, "finalists": decision.finalists});
            assert_eq!(found["outcome"], expected["outcome"], "{}", case["name"]);
            if let Some(finalists) = expected.get("finalists") {
                assert_eq!(&found["finalists"], finalists, "{}", case["name"]);
            }
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared}");
}

#[test]
fn memory_and_counts_are_reserved_and_disk_is_not() {
    let mut estate = Estate::default();
    for (id, zone) in [("a", "z1"), ("b", "z1"), ("c", "z2")] {
        hear(&mut estate, 0, &advertisement(id, zone, 1_000, &json!({})));
    }
    // the whole disk of a DEA each time
    let choice = choose(&estate, 0, &request("x", 500, 40_960, 7));
    let expected = ["a b c", "c", "b", "c", "a b", "b", ""];
    assert_eq!(finalists(&choice), expected);
    let placed = choice.decisions.iter().filter(|d| d.cell.is_some()).count();
    assert_eq!(
        (placed, choice.deas),
        (6, 3),
        "two on each DEA, then memory is exhausted"
    );
    let reason = choice.decisions[6].reason.as_deref();
    assert_eq!(reason, Some("insufficient resources: memory"));
}

#[test]
fn odd_advertisements_fail_no_choice_and_are_said() {
    let mut estate = Estate::default();
    hear(
        &mut estate,
        0,
        &advertisement("good", "z1", 1_000, &json!({})),
    );
    let odd = |id: &str, key: &str, value: Option<Value>| {
        let mut body = advertisement(id, "z2", 1_000, &json!({"x": 1}));
        match value {
            Some(value) => body[key] = value,
            None => _ = body.as_object_mut().unwrap().remove(key),
        }
        body
    };
    for body in [
        odd("null-properties", "placement_properties", Some(json!(null))),
        odd("no-counts", "app_id_to_count", None),
        odd("null-count", "app_id_to_count", Some(json!({"x": null}))),
        odd(
            "other-null-count",
            "app_id_to_count",
            Some(json!({"y": null})),
        ),
        odd("no-memory", "available_memory", None),
        odd("no-stacks", "stacks", None),
        odd("text-stacks", "stacks", Some(json!("cflinuxfs2"))),
        odd(
            "null-zone",
            "placement_properties",
            Some(json!({"zone": null})),
        ),
        odd("no-disk", "available_disk", None),
    ] {
        hear(&mut estate, 0, &body);
    }
    let choice = choose(&estate, 0, &request("x", 100, 100, 1));
    let failing: Vec<&str> = choice.failing.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        failing,
        [
            "no-counts",
            "no-memory",
            "no-stacks",
            "null-count",
            "null-properties"
        ]
    );
    assert_eq!(
        (choice.deas, choice.decisions[0].cell.is_some()),
        (10, true)
    );
    // without room for it, memory decides before stacks are considered
    let large = choose(&estate, 0, &request("x", 2_000, 100, 1));
    assert!(!large.failing.iter().any(|(id, _)| id == "no-stacks"));
}

#[test]
fn a_text_that_stands_for_stacks_is_searched() {
    let mut estate = Estate::default();
    let mut body = advertisement("a", "z1", 1_000, &json!({}));
    body["stacks"] = json!("cflinuxfs2");
    hear(&mut estate, 0, &body);
    let mut wanted = request("x", 100, 100, 1);
    for (stack, finalist) in [("linux", "a"), ("cflinuxfs2", "a"), ("cflinuxfs3", "")] {
        wanted.stack = Some(stack.into());
        assert_eq!(
            finalists(&choose(&estate, 0, &wanted)),
            [finalist],
            "{stack}"
        );
    }
}

#[test]
fn a_null_zone_is_a_zone_of_its_own() {
    let mut estate = Estate::default();
    let mut null = advertisement("null", "", 100, &json!({"x": 1}));
    null["placement_properties"] = json!({"zone": null});
    hear(&mut estate, 0, &null);
    hear(
        &mut estate,
        0,
        &advertisement("none", "default", 100, &json!({"x": 1})),
    );
    let mut absent = advertisement("absent", "", 100, &json!({}));
    absent
        .as_object_mut()
        .unwrap()
        .remove("placement_properties");
    hear(&mut estate, 0, &absent);
    let choice = choose(&estate, 0, &request("x", 10, 10, 1));
    assert_eq!(
        finalists(&choice),
        ["absent"],
        "zones tie at 1, then the emptier"
    );
}
