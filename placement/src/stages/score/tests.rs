use super::*;
use crate::{Cell, Explain, PlanContext, Policy, Pool, Rating, Request, Resources};

/// 2026-06-01.
const NOW_MS: i64 = 1_780_272_000_000;

/// Returns the term and the whole rating of each of the cells under one score stage.
fn rated(stage: &str, combine: &str, cells: &[&dyn Fn(&mut Cell)]) -> Vec<(f64, f64)> {
    let text = format!(
        "name = \"t\"\ncombine = \"{combine}\"\n[[stage]]\n{stage}\n\
         [[stage]]\npick = \"first-of\"\nfraction = 1.0"
    );
    let mut pool = Pool::default();
    for (n, change) in cells.iter().enumerate() {
        let mut cell = Cell::new(format!("c{n}"), Resources::new(1000, 1000, 10));
        change(&mut cell);
        pool.put(cell);
    }
    let request = Request {
        owner: Some("me".into()),
        ..Request::new("web", 10, 10)
    };
    let context = PlanContext {
        now_ms: NOW_MS,
        explain: Explain::Stages,
        ..PlanContext::default()
    };
    let jobs = std::sync::Arc::new(request).jobs();
    let plan = pool.plan_plainly(&jobs, &Policy::parse(&text).unwrap(), &context);
    let ratings = &plan.decisions[0].explanation.as_ref().unwrap().ratings;
    let number = |rating: Rating| rating.score().or(rating.cost()).unwrap();
    let rated = ratings.iter();
    rated.map(|r| (r.terms[0].1, number(r.rating))).collect()
}

fn terms(stage: &str, cells: &[&dyn Fn(&mut Cell)]) -> Vec<f64> {
    let rated = rated(stage, "sum", cells);
    rated.into_iter().map(|(term, _)| term).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
    let same = found.len() == expected.len() && found.iter().zip(expected).all(close);
    assert!(same, "{what}: {found:?}, not {expected:?}");
}

#[test]
fn counts_are_taken_as_they_are() {
    let busy = |cell: &mut Cell| {
        (cell.counts.starting, cell.counts.tasks, cell.index) = (3, 2, 7);
        cell.counts.apps.insert("web".into(), 5);
    };
    let idle = |cell: &mut Cell| cell.index = 4;
    for (stage, expected) in [
        ("score = \"starting\"", [3.0, 0.0]),
        ("score = \"tasks\"", [2.0, 0.0]),
        ("score = \"app-instances\"", [5.0, 0.0]),
        ("score = \"index\"", [1.0, 0.0]),
        ("score = \"index\"\nindex_mode = \"raw\"", [7.0, 4.0]),
        ("score = \"tasks\"\nweight = -0.5", [-1.0, 0.0]),
    ] {
        assert_close(&terms(stage, &[&busy, &idle]), &expected, stage);
    }
}

/// The fewest instances of the owner are the best, unless the weight reverses that.
#[test]
fn owners_by_rank_ratio_and_count() {
    let holding = |n: u32| {
        move |cell: &mut Cell| {
            cell.counts.owners.insert("me".into(), n);
        }
    };
    let cells: [&dyn Fn(&mut Cell); 3] = [&holding(1), &holding(0), &holding(4)];
    for (parameters, expected) in [
        ("mode = \"rank\"", [0.5, 1.0, 0.0]),
        ("mode = \"ratio\"", [0.75, 1.0, 0.0]),
        ("mode = \"raw\"", [1.0, 0.0, 4.0]),
        ("mode = \"rank\"\nweight = -2.0", [1.0, 0.0, 2.0]),
        ("mode = \"ratio\"\nweight = -2.0", [0.5, 0.0, 2.0]),
    ] {
        let stage = format!("score = \"owner\"\n{parameters}");
        assert_close(&terms(&stage, &cells), &expected, parameters);
    }
}

/// Never is best; then the latest, in buckets of less than a week.
#[test]
fn reboots_by_bucket_and_by_date() {
    let on = |day: &'static str| {
        move |cell: &mut Cell| cell.attributes_mut().next_reboot = day.parse().ok()
    };
    let never = |_: &mut Cell| ();
    let (latest, same_week) = (on("2026-06-21"), on("2026-06-15"));
    let (week_before, past) = (on("2026-06-14"), on("2026-05-31"));
    let cells: [&dyn Fn(&mut Cell); 5] = [&never, &latest, &same_week, &week_before, &past];
    for (parameters, expected) in [
        ("mode = \"rank\"", [1.0, 0.5, 0.5, 0.0, 1.0]),
        ("mode = \"rank\"\nweight = -1.0", [0.0, 0.5, 0.5, 1.0, 0.0]),
        ("mode = \"ratio\"", [1.0, 1.0, 1.0 / 7.0, 0.0, 1.0]),
        (
            "mode = \"ratio\"\nweight = -1.0",
            [0.0, 0.0, 6.0 / 7.0, 1.0, 0.0],
        ),
    ] {
        let stage = format!("score = \"reboot\"\n{parameters}");
        assert_close(&terms(&stage, &cells), &expected, parameters);
    }
    assert_close(&terms("score = \"reboot\"", &cells[..1]), &[0.0], "alone");
    let alike = terms("score = \"reboot\"", &[&never, &never]);
    assert_close(&alike, &[1.0, 1.0], "nobody reboots");
}

#[test]
fn chance_ranks_every_cell_once() {
    let plain = |_: &mut Cell| ();
    let mut ranks = terms("score = \"random\"", &[&plain, &plain, &plain]);
    ranks.sort_by(f64::total_cmp);
    assert_close(&ranks, &[0.0, 0.5, 1.0], "three cells");
    assert_close(&terms("score = \"random\"", &[&plain]), &[1.0], "one cell");
    let shares = terms("score = \"random\"\nmode = \"ratio\"", &[&plain, &plain]);
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
}

/// A term is raised to its weight, and the best product is 1.
#[test]
fn a_product_is_scaled_to_its_best() {
    let free = |mb: i64| move |cell: &mut Cell| cell.available.memory_mb = mb;
    let cells: [&dyn Fn(&mut Cell); 2] = [&free(200), &free(600)];
    for (weight, expected) in [
        ("1.0", [0.8, 0.4]),
        ("2.0", [0.64, 0.16]),
        ("0.5", [0.8_f64.sqrt(), 0.4_f64.sqrt()]),
        ("3.0", [0.512, 0.064]),
        ("0.0", [1.0, 1.0]),
    ] {
        let stage = format!("score = \"memory\"\nmode = \"ratio\"\nweight = {weight}");
        let rated = rated(&stage, "product", &cells);
        let (terms, values): (Vec<f64>, Vec<f64>) = rated.into_iter().unzip();
        assert_close(&terms, &expected, weight);
        assert_close(&values, &[1.0, expected[1] / expected[0]], weight);
    }
}

#[test]
fn the_best_is_found_among_many_and_is_a_finite_number() {
    let mut values: Vec<f64> = (0..21).map(|n| f64::from((n * 8) % 21) - 10.0).collect();
    values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    assert!(ties(best(&values, true), 10.0) && ties(best(&values, false), -10.0));
    assert!(ties(best(&[3.0], true), 3.0) && ties(best(&[3.0], false), 3.0));
    assert!(best(&[f64::NAN], true).is_infinite());
}
