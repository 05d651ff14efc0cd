//! Spreading over groups of cells, and preferences of requests.
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use placement::{Cell, PlanContext, Policy, Pool, Request, Resources, Trait, Verdict};

const FILTERS: &str = "[[stage]]\nfilter = \"memory\"\n[[stage]]\nfilter = \"disk\"\n";

fn policy(name: &str, stages: &str) -> Policy {
    Policy::parse(&format!("name = \"{name}\"\n{FILTERS}{stages}")).unwrap()
}

fn cell(name: &str, memory: i64, rack: Option<&str>) -> Cell {
    let mut cell = Cell::new(name, Resources::new(memory, 1000, 100));
    cell.attributes_mut().rack = rack.map(str::to_owned);
    cell
}

fn pool(cells: impl IntoIterator<Item = Cell>) -> Pool {
    let mut pool = Pool::default();
    for cell in cells {
        pool.put(cell);
    }
    pool
}

/// The cells of the request's instances in the order of their indices; `-` where it is not placed.
fn placed(pool: &mut Pool, request: Request, policy: &Policy) -> Vec<String> {
    let jobs = Arc::new(request).jobs();
    let plan = pool.plan(&jobs, policy, &PlanContext::default());
    let mut cells = vec![String::from("-"); jobs.len()];
    for decision in plan.decisions {
        if let Verdict::Placed { cell } = decision.verdict {
            cells[decision.job] = cell.to_string();
        }
    }
    cells
}

fn instances(count: u32) -> Request {
    let mut request = Request::new("web", 10, 10);
    request.instances = count;
    request
}

/// Two cells in rack r1, of which one is the largest, one in r2, and one in no rack.
fn racks() -> Vec<Cell> {
    vec![
        cell("a", 1000, Some("r1")),
        cell("b", 900, Some("r1")),
        cell("c", 500, Some("r2")),
        cell("d", 100, None),
    ]
}

/// The cell with the most free memory wins.
const MOST_FREE: &str =
    "[[stage]]\nscore = \"memory\"\nmode = \"raw\"\n[[stage]]\npick = \"highest\"";

#[test]
fn fewest_spreads_an_app_over_racks() {
    let racks_first = format!("[[stage]]\nnarrow = \"fewest\"\nby = \"rack\"\n{MOST_FREE}");
    let policy = policy("racks", &racks_first);
    let cells = placed(&mut pool(racks()), instances(7), &policy);
    // a cell without a rack is a group of its own
    assert_eq!(cells, ["a", "c", "d", "a", "c", "d", "a"]);
}

#[test]
fn fewest_counts_what_ran_before_on_all_cells_of_a_group() {
    let racks_first = format!("[[stage]]\nnarrow = \"fewest\"\nby = \"rack\"\n{MOST_FREE}");
    let policy = policy("racks", &racks_first);
    let mut cells = racks();
    cells[1].counts.apps.insert("web".into(), 2);
    cells[1].available.memory_mb = 0;
    let cells = placed(&mut pool(cells), instances(5), &policy);
    assert_eq!(cells, ["c", "d", "c", "d", "a"]);
}

#[test]
fn cells_are_grouped_by_any_attribute() {
    for by in ["zone", "host", "reboot_batch", "platform", "traits.row"] {
        let set = |cell: &mut Cell, value: &str| {
            let attributes = cell.attributes_mut();
            match by {
                "zone" => attributes.zone = value.into(),
                "host" => attributes.host = Some(value.into()),
                "reboot_batch" => attributes.reboot_batch = Some(value.into()),
                "platform" => {
                    let stamp = "20260101T000000Z".into();
                    let version = value.into();
                    attributes.platform = Some(placement::Platform { version, stamp });
                }
                _ => {
                    let row = Trait::Word(value.into());
                    attributes.traits.insert("row".into(), row);
                }
            }
        };
        let mut cells = racks();
        for (cell, value) in cells.iter_mut().zip(["1", "1", "2", "2"]) {
            set(cell, value);
        }
        let stages = format!("[[stage]]\nnarrow = \"fewest\"\nby = \"{by}\"\n{MOST_FREE}");
        let cells = placed(&mut pool(cells), instances(3), &policy("by", &stages));
        assert_eq!(cells, ["a", "c", "a"], "{by}");
    }
}

#[test]
fn app_instances_by_rack_is_weighed_against_other_scores() {
    let soft = |weight: f64| {
        let stages = format!(
            "[[stage]]\nscore = \"app-instances\"\nby = \"rack\"\nweight = -{weight:?}\n{MOST_FREE}"
        );
        let cells = placed(&mut pool(racks()), instances(4), &policy("soft", &stages));
        cells.join("")
    };
    // an instance more costs as much as so many MiB less
    assert_eq!(soft(1.0), "aaaa");
    assert_eq!(soft(300.0), "aaca");
    assert_eq!(soft(10_000.0), "acda");
}

#[test]
fn preferred_cells_win_while_they_have_room() {
    let mut cells = racks();
    cells[2].attributes_mut().optional_placement_tags = vec!["ssd".into()];
    cells[3].attributes_mut().placement_tags = vec!["ssd".into()];
    let size = Trait::Word("large".into());
    cells[3].attributes_mut().traits.insert("size".into(), size);
    let stages = format!("[[stage]]\nscore = \"preferred\"\nweight = 10000.0\n{MOST_FREE}");
    let policy = policy("prefers", &stages);
    let mut request = instances(12);
    request.prefer.placement_tags = vec!["ssd".into()];
    let wanted = Trait::Words(vec!["large".into(), "huge".into()]);
    request.prefer.traits.insert("size".into(), wanted);
    assert!(policy.ignored_fields(&request).is_empty());
    let placed_on = placed(&mut pool(cells.clone()), request.clone(), &policy);
    assert_eq!(placed_on[..10], vec!["d"; 10], "both of two are met there");
    assert_eq!(placed_on[10..], ["c", "c"], "one of two is met there");
    // not a demand: without such cells it goes elsewhere
    let elsewhere = placed(&mut pool(cells[..2].to_vec()), request.clone(), &policy);
    assert!(elsewhere.iter().all(|cell| cell != "-"), "{elsewhere:?}");
    let nothing = placed(&mut pool(cells), instances(1), &policy);
    assert_eq!(nothing, ["a"], "a request without preferences");

    let diego = Policy::preset("diego").unwrap();
    let warning = "prefer: the policy diego has no stage for it; ignored";
    assert_eq!(diego.ignored_fields(&request), [warning]);
    let vendue = Policy::preset("vendue").unwrap();
    assert!(vendue.ignored_fields(&request).is_empty());
}

#[test]
fn a_stage_that_groups_says_by_what() {
    let fault = |stage: &str| {
        let text = format!("name = \"x\"\n{FILTERS}[[stage]]\n{stage}\n{MOST_FREE}");
        Policy::parse(&text).unwrap_err().to_string()
    };
    let expected =
        "expected zone, host, rack, reboot_batch, platform or a trait such as traits.row";
    for (stage, what) in [
        ("narrow = \"fewest\"", "by is missing; "),
        ("narrow = \"fewest\"\nby = \"row\"", "by is \"row\"; "),
        (
            "narrow = \"fewest\"\nby = \"traits.\"",
            "by is \"traits.\"; ",
        ),
        ("score = \"app-instances\"\nby = \"x\"", "by is \"x\"; "),
    ] {
        let message = fault(stage);
        assert!(message.ends_with(&format!("{what}{expected}")), "{message}");
    }
    let message = fault("narrow = \"app-fewest\"\nby = \"rack\"");
    assert!(message.contains("\"by\""), "{message}");
}

#[test]
fn too_many_preferences_are_refused() {
    let mut request = instances(1);
    request.prefer.placement_tags = vec!["t".into(); 65];
    let message = request.check().unwrap_err().to_string();
    assert!(message.starts_with("prefer.placement_tags: "), "{message}");
}
