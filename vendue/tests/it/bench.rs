//! The benchmark of a cluster runs to its end; its figures are not judged.

use crate::common::{is_old_server, run};

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

#[test]
fn a_small_fleet_of_apps_is_measured_from_end_to_end() {
    let measured = run(&[
        "bench", "apps", "--divide", "100", "--idle", "100ms", "--output", "json",
    ]);
    if is_old_server() {
        measured.expect(1, &["2.11.15 or newer", "the manager ended"]);
        return;
    }
    let measured = measured.expect(0, &["a smaller cluster"]).json();
    assert!(
        measured["crashes"]["measured"].as_u64() >= Some(10),
        "{measured}"
    );
    assert_eq!(measured["rollout"]["instances"], 10);
    assert_eq!(measured["loss"]["lost_cells"], 2);
    assert!(
        measured["loss"]["lost_instances"].as_u64() > Some(0),
        "{measured}"
    );
    assert_eq!(measured["tasks"]["tasks"], 10);
    assert_eq!(measured["durable"]["requests"], 50);
    for figure in ["acknowledged_per_second", "published_per_second", "ratio"] {
        let figure = measured["durable"][figure].as_f64();
        assert!(figure > Some(0.0), "{measured}");
    }
    assert_eq!(measured["rest"]["instances"], 2_500);
    assert!(
        measured["rest"]["manager_kib"].as_u64() > Some(0),
        "{measured}"
    );
}

#[test]
fn a_small_estate_of_deas_is_measured_from_end_to_end() {
    let measured = run(&[
        "bench",
        "dea",
        "--deas",
        "10",
        "--instances",
        "3",
        "--starts",
        "20",
        "--idle",
        "100ms",
        "--output",
        "json",
    ])
    .expect(0, &[])
    .json();
    assert_eq!(measured["starts"]["placed"], 20, "{measured}");
    assert_eq!(measured["dropped"], 0, "{measured}");
    assert!(measured["bridge_kib"].as_u64() > Some(0), "{measured}");
}
