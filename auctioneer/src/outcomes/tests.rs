use shared::InstanceId;

use super::*;

fn id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

fn with_claim(body: &str, claim: Option<u128>) -> Ended {
    Ended {
        body: Bytes::from(body.to_owned()),
        unsure: false,
        contested: false,
        announced: true,
        claim: claim.map(AuctionId::from_u128),
        own: None,
    }
}

fn ended(outcomes: &mut Outcomes, now_ms: u64, name: &str, body: &str) {
    outcomes.ended(now_ms, &id(name), with_claim(body, None), false);
}

fn announced(outcomes: &mut Outcomes, now_ms: u64, name: &str) {
    outcomes.announced(now_ms, &id(name), AuctionId::from_u128(7));
}

#[test]
fn the_first_outcome_is_kept_for_two_minutes() {
    let mut outcomes = Outcomes::default();
    announced(&mut outcomes, 0, "a");
    assert_eq!(outcomes.get("a"), Some(Seen::Unsure(None)));
    ended(&mut outcomes, 10, "a", "one");
    ended(&mut outcomes, 20, "a", "two");
    announced(&mut outcomes, 30, "a");
    assert_eq!(outcomes.get("a"), Some(Seen::Ended("one".into())));
    outcomes.ended(40, &id("a"), with_claim("settled", None), true);
    assert_eq!(outcomes.get("a"), Some(Seen::Ended("settled".into())));
    assert_eq!(outcomes.bytes, 7);
    outcomes.prune(REMEMBER_MS + 9);
    assert_eq!(outcomes.get("a"), Some(Seen::Ended("settled".into())));
    outcomes.prune(REMEMBER_MS + 10);
    assert_eq!(outcomes.get("a"), Some(Seen::Unsure(None)), "it was there");
    assert_eq!((outcomes.bytes, outcomes.dropped), (0, 0));
    assert_eq!(outcomes.get("b"), None);
}

#[test]
fn only_one_certain_outcome_is_uncontested() {
    let mut outcomes = Outcomes::default();
    let mut unsure = with_claim("unknown", Some(1));
    unsure.unsure = true;
    assert!(!outcomes.is_uncontested(&id("none")));
    announced(&mut outcomes, 0, "begun");
    outcomes.ended(0, &id("unsure"), unsure, false);
    ended(&mut outcomes, 0, "certain", "one");
    for claim in [1, 2] {
        outcomes.ended(0, &id("two"), with_claim("one", Some(claim)), false);
    }
    let uncontested =
        ["begun", "unsure", "certain", "two"].map(|n| outcomes.is_uncontested(&id(n)));
    assert_eq!(uncontested, [false, false, true, false]);
    let is = ["one", "two"].map(|body| outcomes.is(&id("certain"), &Bytes::from(body)));
    assert_eq!(is, [true, false]);
    // until there is a certain outcome, the claim is that of whoever begins it again
    announced(&mut outcomes, 0, "unsure");
    announced(&mut outcomes, 0, "two");
    let claims = ["unsure", "two"].map(|name| outcomes.claim(&id(name)));
    assert_eq!(
        claims,
        [7, 1].map(|claim| Some(AuctionId::from_u128(claim)))
    );
}

/// An auctioneer that stood still hears all outcomes first, and only then who had begun the request.
#[test]
fn an_answer_without_a_claim_does_not_hide_that_there_were_two() {
    let mut outcomes = Outcomes::default();
    let mut unknown = with_claim("unknown", Some(1));
    unknown.unsure = true;
    outcomes.ended(0, &id("a"), unknown, false);
    ended(&mut outcomes, 0, "a", "found on c2");
    assert_eq!(outcomes.get("a"), Some(Seen::Ended("found on c2".into())));
    announced(&mut outcomes, 0, "a");
    assert_eq!(
        outcomes.get("a"),
        Some(Seen::Unsure(Some("found on c2".into())))
    );
}

#[test]
fn of_two_outcomes_the_one_with_the_lower_claim_stands_whichever_comes_first() {
    for order in [[1, 2], [2, 1]] {
        let mut outcomes = Outcomes::default();
        for claim in order {
            let new = with_claim(&claim.to_string(), Some(claim));
            outcomes.ended(0, &id("a"), new, false);
        }
        assert_eq!(
            outcomes.get("a"),
            Some(Seen::Unsure(Some("1".into()))),
            "which copy runs is seen on the cells: {order:?}"
        );
        assert_eq!(outcomes.claim(&id("a")), Some(AuctionId::from_u128(1)));
    }
}

#[test]
fn an_outcome_that_leaves_open_what_runs_is_replaced_by_a_better_one() {
    let mut outcomes = Outcomes::default();
    let unknown = r#"{"id":"a","app":"web","outcome":"unknown","instances":[]}"#;
    let placed = r#"{"id":"a","app":"web","outcome":"placed","instances":[],"claim":"00000000-0000-0000-0000-000000000009"}"#;
    let heard = |body: &'static str| Ended::heard(&id("a"), body.into(), |_| true).unwrap();
    outcomes.announced(0, &id("a"), AuctionId::from_u128(9));
    outcomes.ended(0, &id("a"), heard(unknown), false);
    assert_eq!(outcomes.get("a"), Some(Seen::Unsure(Some(unknown.into()))));
    outcomes.ended(1, &id("a"), heard(placed), false);
    assert_eq!(outcomes.get("a"), Some(Seen::Ended(placed.into())));
    assert_eq!(outcomes.claim(&id("a")), Some(AuctionId::from_u128(9)));
}

#[test]
fn what_is_no_answer_to_the_request_is_no_outcome() {
    for (body, good) in [
        (
            r#"{"id":"a","app":"web","outcome":"placed","instances":[]}"#,
            true,
        ),
        (
            r#"{"error":{"code":"invalid_request","message":"app: missing"}}"#,
            true,
        ),
        (
            r#"{"id":"b","app":"web","outcome":"placed","instances":[]}"#,
            false,
        ),
        (
            r#"{"id":"a","app":"web","outcome":"done","instances":[]}"#,
            false,
        ),
        (r#"{"id":"a","outcome":"placed"}"#, false),
        (
            // for another index
            r#"{"id":"a","app":"web","outcome":"placed","instances":[{"index":1,"instance":"IS","outcome":"placed","cell":"c"}]}"#,
            false,
        ),
        (
            r#"{"id":"a","app":"web","outcome":"placed","instances":[{"index":0,"instance":"IS","outcome":"placed","cell":"c"}]}"#,
            true,
        ),
        ("{}", false),
        ("\u{1}garbage", false),
        ("", false),
    ] {
        for kind in [Kind::Lrp, Kind::Task] {
            let body = body.replace("IS", &instance_id("a", "web", kind, 0).to_string());
            let heard = Ended::heard(&id("a"), body.clone().into(), |_| true);
            assert_eq!(heard.is_some(), good, "{body}");
        }
    }
}

#[test]
fn an_outcome_that_names_an_unknown_cell_is_not_certain() {
    let body = r#"{"id":"a","app":"web","outcome":"placed","instances":[{"index":0,"outcome":"placed","cell":"c"}]}"#;
    for (known, unsure) in [("c", false), ("d", true)] {
        let heard = Ended::heard(&id("a"), body.into(), |cell| cell == known).unwrap();
        assert_eq!(heard.unsure, unsure);
    }
}

#[test]
fn too_many_outcomes_push_out_the_oldest_which_is_known_to_have_been_there() {
    let mut outcomes = Outcomes::default();
    for n in 0..=MAX_OUTCOMES {
        ended(&mut outcomes, 0, &n.to_string(), "x");
    }
    assert_eq!(outcomes.get("0"), Some(Seen::Unsure(None)));
    assert_eq!(outcomes.get("1"), Some(Seen::Ended("x".into())));
    assert_eq!((outcomes.known.len(), outcomes.dropped), (MAX_OUTCOMES, 1));
}

#[test]
fn what_is_pushed_out_is_counted() {
    let mut outcomes = Outcomes::default();
    let large = "x".repeat(MAX_BYTES / 4 * 3);
    for (id, dropped) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
        ended(&mut outcomes, 0, id, &large);
        assert_eq!(outcomes.dropped(), dropped, "after {id}");
    }
}

#[test]
fn a_flood_of_announcements_pushes_out_no_outcome() {
    let mut outcomes = Outcomes::default();
    ended(&mut outcomes, 0, "a", "x");
    for n in 0..=MAX_BEGUN {
        announced(&mut outcomes, 0, &n.to_string());
    }
    assert_eq!(outcomes.get("a"), Some(Seen::Ended("x".into())));
    assert_eq!((outcomes.known.len(), outcomes.dropped), (MAX_BEGUN + 1, 0));
}

#[test]
fn too_many_bytes_push_out_the_oldest() {
    let mut outcomes = Outcomes::default();
    let large = "x".repeat(MAX_BYTES / 2);
    ended(&mut outcomes, 0, "a", &large);
    ended(&mut outcomes, 0, "b", &large);
    assert_eq!(outcomes.get("a"), Some(Seen::Ended(large.clone().into())));
    ended(&mut outcomes, 0, "c", "x");
    assert_eq!(outcomes.get("a"), Some(Seen::Unsure(None)));
    assert_eq!(outcomes.get("b"), Some(Seen::Ended(large.into())));
    assert_eq!(outcomes.get("c"), Some(Seen::Ended("x".into())));
}

#[test]
fn what_was_begun_here_counts_among_the_bytes() {
    let mut outcomes = Outcomes::default();
    let own = Begun {
        app: "web".into(),
        instances: vec![InstanceId::from_u128(1); 3],
    };
    let new = Ended {
        own: Some(Arc::new(own)),
        ..with_claim("12345", None)
    };
    outcomes.ended(0, &id("a"), new, false);
    assert_eq!(outcomes.bytes, 5 + 3 * 16);
}

#[test]
fn so_many_forgotten_ids_are_known_to_have_been_there() {
    let mut former = Former::default();
    for n in 0..2 * FORMER {
        former.add(&n.to_string());
    }
    assert!(former.has("0") && former.has(&(2 * FORMER - 1).to_string()));
    former.add("one more");
    assert!(!former.has("0"), "the older half is forgotten");
    assert!(former.has(&FORMER.to_string()) && former.has("one more"));
}
