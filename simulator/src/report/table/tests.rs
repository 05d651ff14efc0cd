use super::*;
use crate::outcome::{CellEnd, Figures, Traffic};

fn outcome(figures: Vec<Figures>) -> SimOutcome {
    let run = |(at, figures)| SimRun {
        policy: format!("p{at}"),
        figures,
        ..SimRun::default()
    };
    SimOutcome {
        v: 1,
        name: String::new(),
        description: String::new(),
        seed: 0,
        command: String::new(),
        scenario: String::new(),
        over: "in-process".to_owned(),
        interrupted: false,
        warnings: Vec::new(),
        seeds: None,
        runs: figures.into_iter().enumerate().map(run).collect(),
    }
}

fn find<'a>(groups: &'a [Group], pointer: &str) -> (&'static str, &'a Row) {
    let (group, row) = groups
        .iter()
        .flat_map(|g| g.rows.iter().map(move |r| (g, r)))
        .find(|(_, r)| r.pointer == pointer)
        .unwrap();
    (group.title, row)
}

#[test]
fn every_figure_has_a_place_of_its_own() {
    let figures = Figures {
        kept: Some(crate::outcome::Kept::default()),
        ..Figures::default()
    };
    let groups = groups(&outcome(vec![figures]));
    let other: Vec<&str> = groups
        .iter()
        .filter(|g| g.title == OTHER)
        .flat_map(|g| &g.rows)
        .map(|r| r.pointer.as_str())
        .collect();
    assert_eq!(other, ["/virtual_ms"], "a figure without a specification");
}

#[test]
fn the_best_is_marked_where_a_direction_is_known() {
    let a = Figures {
        placed: 5,
        unplaced: 1,
        asked: 7,
        saved: Some(2.0),
        ..Default::default()
    };
    let b = Figures {
        placed: 6,
        unplaced: 1,
        asked: 7,
        saved: None,
        ..Default::default()
    };
    let groups = groups(&outcome(vec![a, b]));
    assert_eq!(find(&groups, "/placed").1.best, [false, true]);
    assert_eq!(
        find(&groups, "/unplaced").1.best,
        [false, false],
        "both are the same"
    );
    assert_eq!(
        find(&groups, "/asked").1.best,
        [false, false],
        "neither is better"
    );
    assert_eq!(
        find(&groups, "/saved").1.best,
        [false, false],
        "only one is known"
    );
    assert!(find(&groups, "/lost").1.is_empty());
}

#[test]
fn counts_are_not_compared_where_less_was_asked_for() {
    let figures = |asked, placed| Figures {
        asked,
        placed,
        ..Default::default()
    };
    let groups = groups(&outcome(vec![figures(350, 348), figures(345, 344)]));
    assert_eq!(find(&groups, "/placed").1.best, [false, false]);
}

#[test]
fn means_over_time_are_not_compared_between_runs_of_different_length() {
    let figures = |virtual_ms, mean| {
        let mut figures = Figures {
            virtual_ms,
            ..Default::default()
        };
        figures.stranded_mb.mean = mean;
        figures.wait_ms.mean = mean;
        figures
    };
    let unlike = groups(&outcome(vec![figures(1_000, 1.0), figures(88_000, 2.0)]));
    assert_eq!(find(&unlike, "/stranded_mb/mean").1.best, [false, false]);
    assert_eq!(find(&unlike, "/wait_ms/mean").1.best, [true, false]);
    let like = groups(&outcome(vec![figures(1_000, 1.0), figures(1_020, 2.0)]));
    assert_eq!(find(&like, "/stranded_mb/mean").1.best, [true, false]);
}

#[test]
fn cells_of_unlike_size_are_compared_by_their_shares() {
    let mut unlike = outcome(vec![Figures::default()]);
    let cell = |memory_mb| CellEnd {
        cell: "c".into(),
        zone: "z".into(),
        memory_mb,
        used_mb: 0,
        gone: false,
        instances: Vec::new(),
    };
    unlike.runs[0].cells = vec![cell(10), cell(10)];
    assert_eq!(find(&groups(&unlike), "/distribution").0, DISTRIBUTION);
    unlike.runs[0].cells.push(cell(20));
    let groups = groups(&unlike);
    assert_eq!(find(&groups, "/distribution").0, DISTRIBUTION_OF_SHARES);
}

#[test]
fn values_that_look_the_same_are_equally_good() {
    let traffic = |sent| Traffic {
        sent,
        ..Default::default()
    };
    let runs = [5_000_000, 5_000_001, 7].map(|bytes| Figures {
        traffic: Traffic {
            bytes,
            ..traffic(1)
        },
        ..Default::default()
    });
    let both = groups(&outcome(runs[..2].to_vec()));
    assert_eq!(find(&both, "/traffic/bytes").1.best, [false, false]);
    let three = groups(&outcome(runs.to_vec()));
    assert_eq!(find(&three, "/traffic/bytes").1.best, [false, false, true]);
}

#[test]
fn kinds_of_messages_that_only_one_run_has_leave_a_gap() {
    let mut a = Figures::default();
    a.messages.insert(
        "bid/x~y".to_owned(),
        Traffic {
            sent: 3,
            delivered: 4,
            bytes: 5,
        },
    );
    let groups = groups(&outcome(vec![a, Figures::default()]));
    let (group, row) = find(&groups, "/messages/bid~1x~0y/delivered");
    assert_eq!(group, DELIVERED);
    assert_eq!(row.label, "bid/x~y");
    assert_eq!(row.values, [Some(Value::from(4)), None]);
}
