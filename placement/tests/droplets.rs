//! Under every policy, droplets go to cells that run them, staging goes to cells that stage apps, and other work goes
//! to no DEA.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::{droplet, staging};
use placement::{
    Cell, Explain, Form, Job, Kind, PlanContext, Policy, Pool, Request, Resources, Run, Verdict,
};

/// A cell that runs no droplets, one that also runs them, one that also stages apps, and a DEA.
fn cells() -> Vec<Cell> {
    [
        ("plain", false, false),
        ("both", true, false),
        ("stager", true, false),
        ("dea", true, true),
    ]
    .map(|(name, droplets, only)| {
        let mut cell = Cell::new(name, Resources::new(1_000, 1_000, 100));
        let attributes = cell.attributes_mut();
        (attributes.droplets, attributes.droplets_only) = (droplets, only);
        attributes.staging = name == "stager";
        cell
    })
    .into()
}

fn pool(left_out: &[&str]) -> Pool {
    let mut pool = Pool::default();
    for cell in cells() {
        if !left_out.contains(&cell.cell.as_str()) {
            pool.put(cell);
        }
    }
    pool
}

/// Returns ten jobs of a form; for staging, which is a task, one.
fn jobs(form: Form) -> Vec<Job> {
    let mut request = Request::new("web", 10, 10);
    request.instances = 10;
    match form {
        Form::Command => {}
        Form::Droplet => request.run = Some(droplet()),
        Form::Staging => {
            (request.kind, request.instances) = (Kind::Task, 1);
            request.run = Some(staging());
        }
    }
    request.check().unwrap();
    Arc::new(request).jobs()
}

/// Returns every preset, and a policy that names no filter at all.
fn policies() -> Vec<Policy> {
    let bare = "name = \"bare\"\n[[stage]]\npick = \"sample\"\n";
    let presets = Policy::PRESETS.iter().map(|name| Policy::preset(name));
    let mut all: Vec<Policy> = presets.map(Result::unwrap).collect();
    all.extend(Policy::parse(bare));
    all
}

#[test]
fn both_engines_place_each_form_on_cells_that_run_it_only() {
    for policy in policies() {
        for (form, allowed) in [
            (Form::Droplet, &["both", "stager", "dea"][..]),
            (Form::Staging, &["stager"]),
            (Form::Command, &["plain", "both", "stager"]),
        ] {
            let (mut pool, jobs) = (pool(&[]), jobs(form));
            for seed in 0..5 {
                let context = PlanContext {
                    seed,
                    ..PlanContext::default()
                };
                let plain = pool.plan_plainly(&jobs, &policy, &context);
                let fast = pool.plan(&jobs, &policy, &context);
                for (plain, fast) in plain.decisions.iter().zip(&fast.decisions) {
                    assert_eq!(plain.verdict, fast.verdict, "{}", policy.name());
                    let Verdict::Placed { cell } = &fast.verdict else {
                        panic!("{}: {fast:?}", policy.name());
                    };
                    assert!(allowed.contains(&cell.as_ref()), "{} {cell}", policy.name());
                }
            }
        }
    }
}

#[test]
fn without_such_a_cell_the_reason_says_so() {
    for policy in policies() {
        for (form, left_out, reason, why) in [
            (
                Form::Droplet,
                &["both", "stager", "dea"][..],
                "found no compatible cell that runs droplets",
                "runs no droplets",
            ),
            (
                Form::Staging,
                &["stager"],
                "found no compatible cell that stages apps",
                "stages no apps",
            ),
            (
                Form::Command,
                &["both", "stager", "plain"],
                "found no compatible cell that runs anything but droplets",
                "runs only droplets",
            ),
        ] {
            let (mut pool, jobs) = (pool(left_out), jobs(form));
            let context = PlanContext {
                explain: Explain::Stages,
                ..PlanContext::default()
            };
            let plan = pool.plan(&jobs, &policy, &context);
            let Verdict::Unplaced(unplaced) = &plan.decisions[0].verdict else {
                panic!("{}: {:?}", policy.name(), plan.decisions[0]);
            };
            assert_eq!(unplaced.reason, reason, "{}", policy.name());
            assert_eq!(unplaced.tally[0].stage, "droplets");
            assert_eq!(unplaced.tally[0].reason.as_deref(), Some(why));
            let capacity = pool.capacity(&jobs[0].request, &policy, &context);
            assert_eq!(
                (capacity.fits, capacity.reason.as_deref()),
                (0, Some(reason))
            );
        }
        let capacity = pool(&[]).capacity(
            &jobs(Form::Droplet)[0].request,
            &policy,
            &PlanContext::default(),
        );
        assert!(capacity.fits > 0 && capacity.reason.is_none());
    }
}

#[test]
fn a_stage_that_drops_nothing_is_not_told_of() {
    let policy = Policy::preset("dea").unwrap();
    let context = PlanContext {
        explain: Explain::Stages,
        ..PlanContext::default()
    };
    let plan = pool(&["dea"]).plan(&jobs(Form::Command), &policy, &context);
    let explained = plan.decisions[0].explanation.as_ref().unwrap();
    assert!(
        explained
            .stages
            .iter()
            .all(|stage| stage.stage != "droplets")
    );
}

#[test]
fn a_droplet_has_no_command_and_is_no_task() {
    let with = |change: fn(&mut Request)| {
        let mut request = Request::new("web", 1, 1);
        request.run = Some(droplet());
        change(&mut request);
        request.check().map_err(|invalid| invalid.field)
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|r| r.kind = placement::Kind::Task), Err("kind".into()));
    let command = |r: &mut Request| r.run.as_mut().unwrap().command = vec!["x".into()];
    assert_eq!(with(command), Err("run.command".into()));
}

#[test]
fn staging_is_a_task_and_nothing_else() {
    fn run(request: &mut Request) -> &mut Run {
        request.run.as_mut().unwrap()
    }
    let with = |change: fn(&mut Request)| {
        let mut request = Request::new("web", 1, 1);
        (request.kind, request.run) = (Kind::Task, Some(staging()));
        change(&mut request);
        request.check().map_err(|invalid| invalid.field)
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|r| r.kind = Kind::Lrp), Err("kind".into()));
    let command = |r: &mut Request| run(r).command = vec!["x".into()];
    assert_eq!(with(command), Err("run.command".into()));
    let both = |r: &mut Request| run(r).droplet = droplet().droplet;
    assert_eq!(with(both), Err("run.droplet".into()));
    assert_eq!(with(|r| run(r).port = true), Err("run.port".into()));
    let nothing = |r: &mut Request| run(r).staging = Some(Arc::default());
    assert_eq!(with(nothing), Err("run.staging.download_uri".into()));
}
