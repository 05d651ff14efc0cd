//! The report: its structure, and its behaviour in a browser.
//!
//! `VENDUE_TEST_REPORT_DIR=DIR` keeps the pages and screenshots of them there, for inspection.

#![allow(clippy::unwrap_used)]
// synthetic numbers are small
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod browser;
mod pages;
mod report_text;
mod sample;

use browser::Browser;
use pages::{Pages, assert_figures, assert_quiet, opened, width_beyond};
use serde_json::json;
use simulator::outcome::SimOutcome;
use simulator::report;

#[test]
fn the_page_shows_the_outcome_in_every_form() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let outcome = sample::two_days();
    let pages = Pages::new();
    let mut browser = opened(&chromium, &pages.write("two-days", &outcome));
    assert_quiet(&browser);
    assert_figures(&mut browser, &outcome);

    let cells = || outcome.runs.iter().flat_map(|r| &r.cells);
    let blocks: usize = cells().map(|c| c.instances.len()).sum();
    for (selector, count) in [
        (".plot g", blocks),
        (".cells li", cells().count()),
        (".plot .gone", 1),
        (".map", 3),
        (".histogram", 9),
        // six quantities (one run loses a cell for a while) and a band for each policy
        (".chart", 9),
        (".refusals", 2),
        ("[data-figure='/placed'].best", 1),
    ] {
        let found = browser.eval(&format!("document.querySelectorAll(\"{selector}\").length"));
        assert_eq!(found, json!(count), "{selector}");
    }
    // policies differ in colour and in dashes, in lines, bands and bars alike
    for (selector, property, kinds) in [
        (".line", "stroke", 3),
        (".line", "stroke-dasharray", 3),
        (".range", "fill", 3),
        (".bar rect:last-child", "fill", 3),
    ] {
        let found = browser.eval(&format!(
            "[...new Set([...document.querySelectorAll('{selector}')]\
             .map(e => getComputedStyle(e).getPropertyValue('{property}')))]"
        ));
        assert_eq!(
            found.as_array().unwrap().len(),
            kinds,
            "{selector} {property}: {found}"
        );
    }
    assert_eq!(
        browser.eval("document.querySelector('.file').textContent"),
        outcome.scenario
    );
    assert_eq!(
        browser.eval("document.querySelector('.command').textContent"),
        outcome.command
    );
}

#[test]
fn the_page_suits_light_dark_paper_and_phone() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let pages = Pages::new();
    let file = pages.write("two-days-media", &sample::two_days());
    let mut browser = opened(&chromium, &file);
    pages.picture(&mut browser, "two-days-light");
    media(&mut browser, "screen", "dark");
    pages.picture(&mut browser, "two-days-dark");
    let background = "getComputedStyle(document.body).backgroundColor";
    let dark = browser.eval(background);
    media(&mut browser, "print", "dark");
    assert_ne!(
        browser.eval(background),
        dark,
        "paper is white in the dark, too"
    );
    media(&mut browser, "screen", "light");
    assert_ne!(browser.eval(background), dark);

    for width in [1024, 768, 360, 320] {
        browser.resize(width, 740);
        browser.settle();
        assert!(
            width_beyond(&mut browser) <= 0,
            "too wide at {width} pixels"
        );
        if width == 360 {
            pages.picture(&mut browser, "two-days-phone");
        }
    }
    media(&mut browser, "print", "light");
    let pdf = browser.call("Page.printToPDF", json!({"preferCSSPageSize": true}));
    if pages.keep {
        pages.save("two-days.pdf", &pdf);
    }
    assert_quiet(&browser);
}

fn media(browser: &mut Browser, media: &str, scheme: &str) {
    let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.call(
        "Emulation.setEmulatedMedia",
        json!({"media": media, "features": feature}),
    );
    browser.settle();
}

/// Moves the pointer to the middle of the first match of a selector.
fn hover(browser: &mut Browser, selector: &str) -> String {
    let at = browser.eval(&format!(
        "(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}}); \
         const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2] }})()"
    ));
    // a scroll hides what was shown, so let its event pass first
    browser.settle();
    browser.call(
        "Input.dispatchMouseEvent",
        json!({"type": "mouseMoved", "x": at[0], "y": at[1]}),
    );
    browser.settle();
    let shown =
        browser.eval("(t => t && !t.hidden ? t.textContent : '')(document.getElementById('tip'))");
    shown.as_str().unwrap().to_owned()
}

#[test]
fn the_pointer_shows_instances_and_values() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let outcome = sample::two_days();
    let pages = Pages::new();
    let mut browser = opened(&chromium, &pages.write("two-days-pointer", &outcome));
    let cell = &outcome.runs[0].cells[0];
    // what ran before comes first, then the app with the most memory
    let shown = hover(&mut browser, ".plot g rect");
    assert!(shown.starts_with("z1-cell-0: "), "{shown}");
    let known = cell.instances.iter().any(|i| {
        let app = &outcome.runs[0].apps[i.app as usize];
        shown.starts_with(&format!(
            "z1-cell-0: {app} #{}, {}\u{a0}GiB",
            i.index,
            i.memory_mb / 1024
        ))
    });
    assert!(known, "{shown}");
    let shown = hover(&mut browser, ".chart[data-field=empty_cells]");
    for policy in ["diego: ", "diego-bin-pack: ", "random: "] {
        assert!(shown.contains(policy), "{shown}");
    }
    let shown = hover(&mut browser, ".histogram .bar:nth-of-type(3)");
    assert!(shown.contains("instances ("), "{shown}");
    pages.picture(&mut browser, "pointer");
    assert_quiet(&browser);
}

#[test]
fn without_a_script_it_can_be_read() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let pages = Pages::new();
    for (name, outcome) in [
        ("two-days", sample::two_days()),
        ("large", sample::large(2, 50, 2000)),
    ] {
        let file = pages.write(&format!("{name}-no-script"), &outcome);
        let mut browser = Browser::start(&chromium);
        browser.call(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": true}),
        );
        browser.open(&file);
        assert_figures(&mut browser, &outcome);
        assert_eq!(
            browser.eval("document.querySelectorAll('canvas').length"),
            json!(0)
        );
        let drawn = "document.querySelectorAll('.plot g, .plot .used').length";
        assert!(browser.eval(drawn).as_u64().unwrap() >= 6, "{name}");
    }
}

#[test]
fn hostile_names_stay_names() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let pages = Pages::new();
    let outcomes = [
        ("hostile", sample::hostile()),
        ("hostile-canvas", sample::hostile_canvas()),
    ];
    for (name, outcome) in outcomes {
        let html = report::html(&outcome);
        assert!(!html.contains("<img"));
        assert_eq!(
            html.matches("</script>").count(),
            2,
            "only the page's own two"
        );
        assert!(!html.contains(['\u{1b}', '\u{202e}']));
        let mut browser = opened(&chromium, &pages.write(name, &outcome));
        assert_quiet(&browser);
        assert_eq!(browser.eval("document.images.length"), json!(0));
        assert_figures(&mut browser, &outcome);
        let shown = hover(&mut browser, ".plot");
        assert!(shown.contains("</script><img"), "{shown}");
        browser.resize(360, 740);
        browser.settle();
        assert!(width_beyond(&mut browser) <= 0);
        pages.picture(&mut browser, name);
        assert_quiet(&browser);
    }
}

#[test]
fn empty_outcomes_make_valid_pages() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let pages = Pages::new();
    for (at, outcome) in sample::empty().into_iter().enumerate() {
        let mut browser = opened(&chromium, &pages.write(&format!("empty-{at}"), &outcome));
        assert_quiet(&browser);
        let text = browser.eval("document.body.innerText");
        assert!(!text.as_str().unwrap().contains("NaN"), "{text}");
        pages.picture(&mut browser, &format!("empty-{at}"));
    }
}

/// 250,000 instances under two policies fit into a page that draws only what is in view.
#[test]
fn a_quarter_of_a_million_instances() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let outcome = sample::large(2, 1250, 62_500);
    let pages = Pages::new();
    let file = pages.write("large", &outcome);
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size < 5 * 1024 * 1024, "{size} bytes");
    let mut browser = opened(&chromium, &file);
    // for people: how long it took until the page had loaded and what is in view was drawn
    let took = browser.eval(
        "(n => [n.domContentLoadedEventEnd, n.loadEventEnd, performance.getEntriesByType('paint')\
         .map(p => p.name + ' ' + p.startTime)])(performance.getEntriesByType('navigation')[0])",
    );
    eprintln!("{size} bytes; DOM, load, paint: {took} ms");
    assert_quiet(&browser);
    assert_figures(&mut browser, &outcome);
    browser.eval("document.querySelector('.maps').scrollIntoView()");
    pages.picture(&mut browser, "large");

    // only what is in view has been drawn; for printing, everything is
    let drawn = "document.querySelectorAll('.drawn canvas').length";
    let all = browser.eval("document.querySelectorAll('.plot').length");
    let some = browser.eval(drawn);
    assert!(
        some.as_u64() > Some(0) && some.as_u64() < all.as_u64(),
        "{some} of {all}"
    );
    let colours = browser.eval(
        "(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer))\
         .size)(document.querySelector('canvas'))",
    );
    assert!(colours.as_u64() > Some(12), "{colours} colours");
    let took = browser.eval(
        "(start => (dispatchEvent(new Event('beforeprint')), performance.now() - start))(performance.now())",
    );
    eprintln!("all maps drawn in {took} ms");
    assert_eq!(browser.eval(drawn), all);

    assert_packed_is_read(&mut browser, &outcome);
    assert_quiet(&browser);
}

/// Checks that the script decodes what was packed: the instance that belongs there is under the pointer.
fn assert_packed_is_read(browser: &mut Browser, outcome: &SimOutcome) {
    let run = 1;
    let cell = &outcome.runs[run].cells[3];
    let at = browser.eval(&format!(
        "(() => {{ const e = document.querySelector('.plot[data-run=\"{run}\"]'); \
         e.scrollIntoView({{block: 'start'}}); const b = e.getBoundingClientRect(); \
         return [b.left, b.top + 3 * 4 + 1, b.width] }})()"
    ));
    browser.settle();
    let mut seen = std::collections::BTreeSet::new();
    let widest = outcome
        .runs
        .iter()
        .flat_map(|r| &r.cells)
        .map(|c| c.memory_mb.max(c.used_mb))
        .max();
    for instance in 0..cell.instances.len() {
        let middle = (instance as f64 + 0.5) * 256.0 / widest.unwrap() as f64;
        let x = at[0].as_f64().unwrap() + middle * at[2].as_f64().unwrap();
        browser.call(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": x, "y": at[1]}),
        );
        let shown = browser.eval("document.getElementById('tip').textContent");
        seen.insert(shown.as_str().unwrap().to_owned());
    }
    let expected: std::collections::BTreeSet<String> = cell
        .instances
        .iter()
        .map(|i| {
            let before = if i.before { ", ran before" } else { "" };
            let app = &outcome.runs[run].apps[i.app as usize];
            format!("{}: {app} #{}, 256 MiB{before}", cell.cell, i.index)
        })
        .collect();
    let missing: Vec<_> = expected.difference(&seen).collect();
    // pointers are in whole pixels while blocks may be narrower, so neighbours hide one another
    assert!(
        missing.len() * 2 < expected.len(),
        "not found: {missing:?}\nseen: {seen:?}"
    );
    assert!(
        seen.is_subset(&expected),
        "{:?}",
        seen.difference(&expected).collect::<Vec<_>>()
    );
}

/// Runs of very different lengths are each drawn over their own length, and the pointer shows the time.
#[test]
fn runs_of_different_length_are_drawn_over_their_own_length() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let mut outcome = sample::two_days();
    for sample in &mut outcome.runs[1].series {
        sample.at_ms /= 88;
    }
    let pages = Pages::new();
    let mut browser = opened(&chromium, &pages.write("two-lengths", &outcome));
    let text = browser.eval("document.querySelector('#time').parentElement.innerText");
    let text = text.as_str().unwrap();
    assert!(text.contains("drawn over its own length"), "{text}");
    assert!(text.contains("end of each run"), "{text}");
    // the line of the short run also reaches the right end
    let ends = browser.eval(
        "[...document.querySelector('.chart[data-field=empty_cells]').querySelectorAll('path.line')]\
         .map(p => p.getAttribute('d').split('L').pop().split(' ')[0])",
    );
    assert_eq!(ends, json!(["1000", "1000", "1000"]));
    let shown = hover(&mut browser, ".chart[data-field=empty_cells]");
    assert!(
        shown.contains("at 24\u{a0}h") || shown.contains("at 24 h"),
        "{shown}"
    );
    assert!(
        shown.contains("at 16.4 min") || shown.contains("at 16.4\u{a0}min"),
        "{shown}"
    );
    assert_quiet(&browser);
}

/// Next to a longer run, a run that has ended has no value any more.
#[test]
fn the_pointer_shows_when_a_run_has_ended() {
    let Some(chromium) = browser::find() else {
        return;
    };
    let mut outcome = sample::two_days();
    for sample in &mut outcome.runs[2].series {
        sample.at_ms /= 3;
    }
    let pages = Pages::new();
    let mut browser = opened(&chromium, &pages.write("ended", &outcome));
    let shown = hover(&mut browser, ".chart[data-field=empty_cells]");
    assert!(shown.contains("random: ended at 16"), "{shown}");
    assert!(!shown.contains("diego: ended"), "{shown}");
    assert_quiet(&browser);
}

#[test]
fn seeds_warnings_and_notes_are_on_the_page() {
    let mut outcome = sample::two_days();
    let mut other = outcome.clone();
    other.seed = 2;
    for run in &mut other.runs {
        run.figures.stranded_mb.mean *= 2.0;
    }
    let outcomes = [outcome.clone(), other];
    outcome.seeds = Some(simulator::outcome::Seeds::of(
        &outcomes,
        "vendue sim --seeds 2",
    ));
    outcome.warnings = vec!["workload[0].at: <late>".into()];
    outcome.runs[0].notes = vec!["Ended after 1h.".into()];
    let html = report::html(&outcome);
    for part in [
        "1 to 2; pictures and figures: 1",
        "Over all seeds",
        "Stranded memory: mean (MiB)",
        " ± ",
        "workload[0].at: &lt;late&gt;",
        "Ended after 1h.",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let text = report::text(&outcome, 100, false);
    assert!(text.contains("Warning: workload[0].at: <late>"), "{text}");
    assert!(text.contains("diego: Ended after 1h."), "{text}");
}

#[test]
fn twelve_policies_have_colours_of_their_own() {
    let mut outcome = sample::two_days();
    let run = outcome.runs[0].clone();
    outcome.runs = (0..12)
        .map(|n| simulator::outcome::SimRun {
            policy: format!("policy-{n}"),
            ..run.clone()
        })
        .collect();
    let html = report::html(&outcome);
    for n in 0..12 {
        assert!(html.contains(&format!("class=\"line p{n}\"")), "{n}");
        assert_eq!(
            html.matches(&format!("--p{n}: #")).count(),
            2,
            "{n}: light and dark"
        );
    }
    assert!(!html.contains("class=\"line p0 again\""));
}

/// However large the outcome is, the page stays small enough to be sent and opened.
#[test]
fn more_than_fits_is_shown_more_coarsely() {
    let outcome = sample::large(5, 1250, 62_500);
    let html = report::html(&outcome);
    assert!(html.len() < 5 * 1024 * 1024, "{} bytes", html.len());
    assert!(html.contains("largest entries are shown by themselves"));
    // many cells
    let html = report::html(&sample::large(5, 4000, 5000));
    assert!(html.len() < 5 * 1024 * 1024, "{} bytes", html.len());
}

#[test]
fn the_same_outcome_gives_the_same_bytes() {
    let outcome = sample::large(2, 40, 3000);
    assert_eq!(report::html(&outcome), report::html(&outcome));
    assert_eq!(
        report::text(&outcome, 100, true),
        report::text(&outcome, 100, true)
    );
}
