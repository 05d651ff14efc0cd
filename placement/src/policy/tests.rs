use super::*;
use crate::Request;

#[test]
fn a_policy_says_how_it_picks_and_which_end_wins() {
    for (pick, name, highest) in [
        ("lowest\"", "lowest", Some(false)),
        ("highest\"", "highest", Some(true)),
        ("first-of\"", "first-of", Some(false)),
        ("first-of\"\norder = \"highest\"", "first-of", Some(true)),
    ] {
        let text =
            format!("name = \"t\"\n[[stage]]\nscore = \"memory\"\n[[stage]]\npick = \"{pick}\n");
        let policy = Policy::parse(&text).unwrap();
        assert_eq!((policy.pick_name(), policy.highest_wins()), (name, highest));
    }
    let random = Policy::preset("random").unwrap();
    assert_eq!(
        (random.pick_name(), random.highest_wins()),
        ("sample", None)
    );
}

/// Returns which fields of the request are ignored by a policy of only these stages.
fn ignored(stages: &str, request: &Request) -> Vec<String> {
    let text = format!("name = \"t\"\n{stages}[[stage]]\npick = \"sample\"");
    let lines = Policy::parse(&text).unwrap().ignored_fields(request);
    let field = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
    lines.iter().map(field).collect()
}

#[test]
fn nothing_asked_for_is_nothing_ignored() {
    let nothing = Request {
        cpu_millis: 0,
        extra: [("gpu".to_owned(), 0)].into(),
        ..Request::new("x", 1, 1)
    };
    assert_eq!(ignored("", &nothing), [""; 0]);
}

/// The filter only affects strict requests; the narrowing is for the others.
#[test]
fn nearness_is_heeded_by_a_narrowing_or_where_it_is_strict_by_a_filter() {
    let (filter, narrow) = ("filter = \"locality\"", "narrow = \"locality\"");
    for (stage, strict, expected) in [
        (filter, false, &["near"][..]),
        (filter, true, &[]),
        (narrow, false, &[]),
        (narrow, true, &["strict"]),
    ] {
        let near = vec!["app:y".into()];
        let request = Request {
            near,
            strict,
            ..Request::new("x", 1, 1)
        };
        let ignored = ignored(&format!("[[stage]]\n{stage}\n"), &request);
        assert_eq!(ignored, expected, "{stage}, strict = {strict}");
    }
}

/// Returns the error for a policy with this content.
fn fault(json: &serde_json::Value) -> String {
    let error = Policy::from_json(json).expect_err("it is wrong");
    error.message
}

#[test]
fn a_value_of_another_sort_is_named_with_what_it_is_and_what_was_expected() {
    use serde_json::json;
    for (value, what) in [
        (json!(5), "the number 5"),
        (json!(true), "true"),
        (json!([]), "a list"),
        (json!({}), "a table"),
        (json!(null), "nothing"),
    ] {
        let message = fault(&json!({"preset": value}));
        assert_eq!(message, format!("preset is {what}; expected a string"));
    }
    for (field, expected) in [
        ("bids", "true or false"),
        ("max_in_flight", "a finite number"),
        (
            "max_deferral",
            "a duration of at most \"1h\", such as \"10m\"",
        ),
        ("stage", "a list of tables, [[stage]]"),
    ] {
        let message = fault(&json!({"name": "x", field: "y"}));
        assert_eq!(
            message,
            format!("{field} is the string \"y\"; expected {expected}")
        );
    }
    let message = fault(&json!(["diego"]));
    assert_eq!(message, "the policy is a list; expected a table");
}

#[test]
fn a_number_out_of_its_range_is_named_with_the_range() {
    use serde_json::json;
    let whole = "expected an integer from 0 to 4294967295";
    for n in [-1.0, 1.5, 4_294_967_296.0] {
        let message = fault(&json!({"preset": "diego", "max_in_flight": n}));
        assert_eq!(message, format!("max_in_flight is {n}; {whole}"));
    }
    for n in [0, u32::MAX] {
        let policy = Policy::from_json(&json!({"preset": "diego", "max_in_flight": n}));
        assert_eq!(policy.unwrap().max_in_flight, n);
    }
    for n in [-2.0, 0.0, 0.5, 1.5] {
        let message = fault(&json!({"preset": "objective", "azs": n}));
        let expected = format!("azs is {n}; expected an integer from 1");
        assert_eq!(message, expected);
    }
    assert!(Policy::from_json(&json!({"preset": "objective", "azs": 1})).is_ok());
    let message = fault(&json!({"preset": "dapi", "reboot_within": -1}));
    let expected = "reboot_within is the number -1; expected a number of days from 0, or a string";
    assert_eq!(message, expected);
    assert!(Policy::from_json(&json!({"preset": "dapi", "reboot_within": 0})).is_ok());
    for number in ["nan", "inf", "-inf"] {
        let error = Policy::parse(&format!("preset = \"diego\"\nindex_weight = {number}"));
        let number = if number == "nan" { "NaN" } else { number };
        let expected = format!("index_weight is the number {number}; expected a finite number");
        assert_eq!(error.unwrap_err().message, expected);
    }
}

#[test]
fn a_policy_has_at_most_64_stages_and_its_days_are_not_negative() {
    let stages = |filters: usize| {
        let filters = "[[stage]]\nfilter = \"memory\"\n".repeat(filters);
        Policy::parse(&format!(
            "name = \"t\"\n{filters}[[stage]]\npick = \"sample\""
        ))
    };
    assert!(stages(63).is_ok());
    assert_eq!(stages(64).unwrap_err().message, "more than 64 stages");
    let days = |days: f64| {
        Policy::parse(&format!(
            "name = \"t\"\n[[stage]]\nfilter = \"reboot-within\"\ndays = {days:?}\n[[stage]]\npick = \"sample\""
        ))
    };
    assert!(days(0.0).is_ok());
    assert_eq!(
        days(-0.5).unwrap_err().to_string(),
        "line 4, column 8: days is -0.5; expected a number from 0"
    );
}

/// Only a policy given as a text has lines.
#[test]
fn a_fault_names_its_line_where_there_are_lines() {
    let unknown = "unknown preset \"digo\"; expected one of";
    let of_file = Policy::parse("preset = \"digo\"").unwrap_err().to_string();
    assert!(of_file.starts_with(&format!("line 1, column 10: {unknown}")));
    assert!(of_file.ends_with("; did you mean \"diego\"?"));
    let json = serde_json::json!({"preset": "digo"});
    let of_json = Policy::from_json(&json).unwrap_err().to_string();
    assert!(of_json.starts_with(unknown), "{of_json}");
}

#[test]
fn an_unknown_score_is_told_all_that_there_are() {
    let text = "name = \"t\"\n[[stage]]\nscore = \"memroy\"\n[[stage]]\npick = \"lowest\"";
    let error = Policy::parse(text).unwrap_err();
    assert_eq!(
        error.message,
        "unknown score \"memroy\"; expected one of resources, starting, app-instances, tasks, preferred, \
         index, memory, disk, platform, reboot, owner, random, hardware, fragmentation, objective"
    );
    assert_eq!(error.nearest.as_deref(), Some("memory"));
}

/// Returns a policy with one score and what follows it.
fn with_score(score: &str, more: &str) -> Result<Policy, String> {
    let text =
        format!("name = \"t\"\n[[stage]]\nscore = \"{score}\n[[stage]]\npick = \"lowest\"\n{more}");
    Policy::parse(&text).map_err(|error| error.to_string())
}

const FRAGMENTS: &str = "fragmentation\"\nof = \"memory\"";

#[test]
fn a_policy_with_fragments_learns_the_expected_work_unless_its_file_gives_it() {
    for (policy, expects, learns) in [
        (Policy::preset("vendue").unwrap(), true, true),
        (Policy::preset("diego").unwrap(), false, false),
        (with_score(FRAGMENTS, "").unwrap(), true, true),
        (
            with_score(FRAGMENTS, "[[expected]]\nshare = 1\nmemory_mb = 64").unwrap(),
            true,
            false,
        ),
        (
            with_score("memory\"", "[[expected]]\nshare = 1\nmemory_mb = 64").unwrap(),
            false,
            false,
        ),
    ] {
        assert_eq!((policy.expects(), policy.learns()), (expects, learns));
    }
}

#[test]
fn the_expected_work_of_a_file_is_checked_and_written_again() {
    let tables = "[[expected]]\nshare = 0.75\nmemory_mb = 64\n\n[[expected]]\nshare = 0.25\ncpu_millis = 500\n";
    let policy = with_score(FRAGMENTS, tables).unwrap();
    assert_eq!(policy.expected().unwrap().to_toml().trim(), tables.trim());
    assert!(with_score(FRAGMENTS, "").unwrap().expected().is_none());
    let table = "[[expected]]\nshare = 1\nmemory_mb = 64\n";
    let most = crate::MAX_EXPECTED_SIZES;
    assert!(with_score(FRAGMENTS, &table.repeat(most)).is_ok());
    for (tables, expected) in [
        (table.repeat(most + 1), "expected 1 to"),
        (table.replace("64", "-1"), "memory_mb"),
        (table.replace("64", "1.5"), "1.5"),
        (table.replace("share = 1", "share = 0"), "share"),
    ] {
        let refused = with_score(FRAGMENTS, &tables).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    let none = "name = \"t\"\nexpected = []\n[[stage]]\npick = \"sample\"";
    assert!(
        Policy::parse(none)
            .unwrap_err()
            .to_string()
            .contains("expected 1 to")
    );
}

#[test]
fn the_resources_of_a_score_are_limited_and_how_their_fragments_are_measured_counts() {
    let of = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"r{n}\"")).collect();
        with_score(&format!("resources\"\nof = [{}]", names.join(", ")), "")
    };
    assert!(of(1).is_ok() && of(16).is_ok());
    assert!(of(17).unwrap_err().contains("expected 1 to 16"));
    assert!(of(0).unwrap_err().contains("expected 1 to 16"));
    let fed = format!("{}\nfed_by = \"cpu\"", FRAGMENTS.replace("memory", "gpu"));
    let unfed = FRAGMENTS.replace("memory", "gpu");
    let packed = format!("{unfed}\npacked = true");
    for other in [&fed, &packed] {
        let other = with_score(other, "").unwrap();
        assert_ne!(other, with_score(&unfed, "").unwrap());
        assert_eq!(Policy::parse(&other.to_toml()).unwrap(), other);
    }
    let memory = with_score(&format!("{FRAGMENTS}\npacked = true"), "").unwrap_err();
    assert!(memory.contains("of is \"memory\"; expected a set of devices"));
}

#[test]
fn the_scarcity_of_fragments_is_a_number_above_0() {
    let scarce = |below: &str| with_score(&format!("{FRAGMENTS}\nscarce_below = {below}"), "");
    let policy = scarce("1.5").unwrap();
    assert_ne!(policy, with_score(FRAGMENTS, "").unwrap());
    let written = policy.to_toml();
    assert!(written.contains("scarce_below = 1.5"), "{written}");
    assert_eq!(Policy::parse(&written).unwrap(), policy);
    let refused = scarce("0").unwrap_err();
    let expected = "scarce_below is 0; expected a number above 0";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn limits_and_days_of_filters_are_written_again() {
    let text = "name = \"t\"\n[[stage]]\nfilter = \"container-count\"\nlimit = 7\n[[stage]]\nfilter = \"reboot-within\"\ndays = 3.5\nbatch = \"7d\"\n[[stage]]\npick = \"sample\"";
    let policy = Policy::parse(text).unwrap();
    let written = policy.to_toml();
    assert!(
        written.contains("limit = 7") && written.contains("days = 3.5"),
        "{written}"
    );
    assert_eq!(Policy::parse(&written).unwrap(), policy);
}

#[test]
fn a_cell_never_fits_what_its_attributes_exclude_and_may_fit_what_is_only_too_large() {
    let mut cell = crate::Cell::new("c", crate::Resources::new(100, 100, 10));
    cell.attributes_mut().stacks = vec!["cflinuxfs4".into()];
    let stack = |stack: &str| Request {
        stack: Some(stack.into()),
        ..Request::new("x", 1_000, 1)
    };
    let diego = Policy::preset("diego").unwrap();
    assert!(diego.never_fits(&cell, &stack("windows")));
    assert!(!diego.never_fits(&cell, &stack("cflinuxfs4")));
    cell.evacuating = true;
    assert!(
        !diego.never_fits(&cell, &stack("cflinuxfs4")),
        "it may come back"
    );
}
