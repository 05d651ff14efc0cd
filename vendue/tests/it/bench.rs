//! The measurement of a cluster runs to its end; its figures are not judged.

use crate::common::run;

#[test]
fn a_small_cluster_is_measured_from_end_to_end() {
    let measured = run(&[
        "bench",
        "cluster",
        "--cells",
        "20",
        "--requests",
        "100",
        "--array",
        "50",
        "--connections",
        "4",
        "--idle",
        "100ms",
        "--output",
        "json",
    ])
    .expect(0, &[])
    .json();
    assert_eq!(measured["batched"]["accepted"], 100);
    assert_eq!(measured["adverts"]["cells_known"], 20);
    assert_eq!(measured["adverts"]["dropped"], 0);
    assert!(
        measured["memory"]["supervisor_kib"].as_u64() > Some(0),
        "{measured}"
    );
}
