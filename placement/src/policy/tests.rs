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
        let text = format!(
            "name = \"t\"\n[[stage]]\nscore = \"memory\"\n[[stage]]\npick = \"{pick}\n"
        );
        let policy = Policy::parse(&text).unwrap();
        assert_eq!((policy.pick_name(), policy.highest_wins()), (name, highest));
    }
    let random = Policy::preset("random").unwrap();
    assert_eq!((random.pick_name(), random.highest_wins()), ("sample", None));
}

/// Which fields of the request a policy of only these stages ignores.
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

/// The filter holds strict requests only; the narrowing is for the others.
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
