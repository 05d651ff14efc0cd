//! Random policies.

use placement::Policy;

use super::Dice;

/// Returns a policy of random stages, any of which may follow any other.
pub fn policy(dice: &mut Dice) -> Policy {
    if dice.one_in(2) {
        return Policy::preset(dice.of(Policy::PRESETS)).unwrap();
    }
    let mut stages: Vec<String> = Vec::new();
    // most policies filter by the amounts
    let amounts = ["memory", "disk", "containers", "cpu", "extra"];
    if !dice.one_in(6) {
        stages.extend(amounts.map(|name| format!("filter = \"{name}\"")));
    }
    for _ in 0..dice.below(6) {
        let filter = dice.of(&Policy::filters());
        let parameter = match filter {
            "container-count" => "\nlimit = 9",
            "reboot-within" => "\ndays = 10",
            _ => "",
        };
        stages.push(format!("filter = \"{filter}\"{parameter}"));
    }
    let simple = dice.one_in(2);
    let narrows: &[&str] = if simple {
        &["zone-fewest"]
    } else {
        &["zone-fewest", "app-fewest", "upper-half-memory", "locality"]
    };
    for narrow in narrows {
        if dice.one_in(2) {
            stages.push(format!("narrow = \"{narrow}\""));
        }
    }
    if !simple && dice.one_in(3) {
        let by = dice.of(&GROUPINGS);
        stages.push(format!("narrow = \"fewest\"\nby = \"{by}\""));
    }
    let pick = dice.of(&[
        "lowest",
        "lowest",
        "highest",
        "sample",
        "first-of\"\nfraction = 0.3 #",
    ]);
    if pick != "sample" {
        scores(dice, simple, &mut stages);
    }
    if !simple && !stages.is_empty() && dice.one_in(4) {
        let at = usize::try_from(dice.below(stages.len() as u64)).unwrap();
        let last = stages.len() - 1;
        stages.swap(at, last);
    }
    let order = dice.of(&["asked", "diego", "largest-first"]);
    let limit = if dice.one_in(6) { dice.below(20) } else { 0 };
    let starting = if dice.one_in(6) { dice.below(5) } else { 0 };
    let mut text = format!(
        "name = \"random-one\"\norder = \"{order}\"\nmax_in_flight = {limit}\nmax_starting_per_cell = {starting}\n"
    );
    if pick != "sample" && dice.one_in(4) {
        text.push_str("combine = \"product\"\n");
    }
    for stage in stages {
        text.push_str(&format!("[[stage]]\n{stage}\n"));
    }
    text.push_str(&format!("[[stage]]\npick = \"{pick}\"\n"));
    if dice.one_in(3) {
        text.push_str(EXPECTED);
    }
    Policy::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Expected work with every sort of resource.
const EXPECTED: &str = r#"
[[expected]]
share = 3
memory_mb = 300
disk_mb = 100
devices = { card = { count = 1, amount = 300 } }
[[expected]]
share = 2
memory_mb = 700
cpu_millis = 1500
extra = { gpu = 1 }
[[expected]]
share = 1.5
memory_mb = 100
disk_mb = 300
devices = { card = { count = 2, models = ["m1"] }, chip = { count = 1, amount = 700 } }
"#;

/// Attributes by which cells are grouped.
const GROUPINGS: [&str; 6] = [
    "zone",
    "host",
    "rack",
    "reboot_batch",
    "platform",
    "traits.ssd",
];

const RESOURCES: [&str; 8] = [
    "memory",
    "disk",
    "containers",
    "cpu",
    "gpu",
    "card",
    "card",
    "chip",
];

/// Returns a score that looks at any resource.
fn resource_score(dice: &mut Dice) -> String {
    if dice.one_in(2) {
        let of = dice.of(&RESOURCES);
        let steps = dice.of(&[0, 3, 100]);
        let fed_by = dice.of(&["", "", "\nfed_by = \"cpu\"", "\nfed_by = \"memory\""]);
        let scarce = dice.of(&["", "\nscarce_below = 1.5", "\nscarce_below = 20"]);
        let packed = match of {
            "gpu" | "card" | "chip" => dice.of(&["", "\npacked = true"]),
            _ => "",
        };
        return format!(
            "score = \"fragmentation\"\nof = \"{of}\"\nsteps = {steps}{fed_by}{packed}{scarce}"
        );
    }
    let mut names = RESOURCES.to_vec();
    names.dedup();
    let names = dice.some(&names, 3);
    let names = if names.is_empty() {
        vec!["card".to_owned()]
    } else {
        names
    };
    let squared = dice.of(&["", "\nsquared = true"]);
    format!("score = \"resources\"\nof = {names:?}{squared}")
}

fn scores(dice: &mut Dice, simple: bool, stages: &mut Vec<String>) {
    let plain = ["resources", "starting", "app-instances", "tasks", "index"];
    let rich = [
        "memory",
        "disk",
        "platform",
        "reboot",
        "owner",
        "random",
        "hardware",
        "objective",
    ];
    for _ in 0..=dice.below(4) {
        if !simple && dice.one_in(5) {
            let weight = dice.of(&["0.0", "0.25", "1.0", "-0.5"]);
            stages.push(format!("{}\nweight = {weight}", resource_score(dice)));
            continue;
        }
        if !simple && dice.one_in(6) {
            let by = dice.of(&GROUPINGS);
            let score = dice.of(&["preferred", "app-instances\"\nby = \"BY"]);
            let weight = dice.of(&["0.25", "1.0", "-0.5"]);
            let stage = format!("score = \"{score}\"\nweight = {weight}");
            stages.push(stage.replace("BY", by));
            continue;
        }
        let fancy = dice.of(&rich);
        let name = if simple {
            dice.of(&plain)
        } else {
            dice.of(&[plain[0], plain[3], fancy])
        };
        let weight = dice.of(&["0.0", "0.25", "1.0", "1000.0", "-0.5"]);
        let mut stage = format!("score = \"{name}\"\nweight = {weight}");
        if name == "index" && dice.one_in(3) {
            stage.push_str("\nindex_mode = \"raw\"");
        }
        if name == "objective" {
            stage.push_str("\nalpha = 0.25\nbeta = 0.25\ngamma = 0.25\ndelta = 0.25");
            if dice.one_in(2) {
                let text = dice.of(&[
                    "r.AvailableMemoryMB / (2 - count(ai.AppID, r.RunningAppIDs)) + r.Stack",
                    "-r.AvailZoneNumber mod 3 + ai.InstanceNumber * count(ai.AppSourceBlobID, r.CachedBlobIDs)",
                    "ai.RequiredMemoryMB / r.AvailableMemoryMB - ai.RequiredDiskMB / r.TotalDiskMB",
                    "(r.Available.card - ai.Required.card) / r.Total.card + r.Available.cpu / r.Total.cpu",
                    "r.Available.gpu + r.Total.containers - r.Available.containers + ai.Required.disk",
                    "count(ai.AppID, r.RunningAppIDs) + r.Available.chip / 1000 + r.Available.containers + r.Available.gpu",
                ]);
                stage.push_str(&format!("\nexpression = \"{text}\""));
            }
        } else if rich.contains(&name) {
            let raw = ["platform", "reboot", "random"].contains(&name);
            let modes: &[&str] = if raw {
                &["rank", "ratio"]
            } else {
                &["rank", "ratio", "raw"]
            };
            stage.push_str(&format!("\nmode = \"{}\"", dice.of(modes)));
        }
        if dice.one_in(4) {
            stage.push_str(&format!("\nkind = \"{}\"", dice.of(&["lrp", "task"])));
        }
        stages.push(stage);
    }
}
