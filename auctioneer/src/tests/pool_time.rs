use crate::pool_time::{MAX_GAP_MS, PoolTime};

#[test]
fn time_passes_only_between_messages_that_flow() {
    for (what, gaps_ms, expected_ms, flows) in [
        ("an echo a second", vec![1_000, 1_000, 1_000], 3_000, true),
        ("the longest pause", vec![MAX_GAP_MS], MAX_GAP_MS, true),
        ("a longer one", vec![MAX_GAP_MS + 1], 0, false),
        ("a day", vec![1_000, 86_400_000], 1_000, false),
        (
            "a day, then flowing again",
            vec![86_400_000, 500],
            500,
            true,
        ),
    ] {
        let mut time = PoolTime::default();
        let mut now_ms = 77;
        assert!(
            !time.evidence(now_ms),
            "{what}: the first message begins the flow"
        );
        let mut last = true;
        for gap_ms in gaps_ms {
            now_ms += gap_ms;
            last = time.evidence(now_ms);
        }
        assert_eq!((time.now_ms(), last), (expected_ms, flows), "{what}");
    }
}

#[test]
fn a_known_interruption_counts_however_short() {
    let mut time = PoolTime::default();
    time.evidence(0);
    time.evidence(100);
    time.interrupted();
    assert!(!time.evidence(150));
    assert_eq!(time.now_ms(), 100);
}
