//! Pages of reports: they are written, opened in a browser, and checked for properties that hold for each.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::{Value, json};
use simulator::{outcome::SimOutcome, report};

use crate::browser::Browser;

/// The directory for pages: one that is kept if requested, else a temporary one.
pub(crate) struct Pages {
    dir: PathBuf,
    pub(crate) keep: bool,
    _temporary: tempfile::TempDir,
}

impl Pages {
    pub(crate) fn new() -> Pages {
        let temporary = tempfile::tempdir().unwrap();
        let asked = std::env::var_os("VENDUE_TEST_REPORT_DIR").map(PathBuf::from);
        let keep = asked.is_some();
        let dir = asked.unwrap_or_else(|| temporary.path().to_owned());
        std::fs::create_dir_all(&dir).unwrap();
        Pages {
            dir,
            keep,
            _temporary: temporary,
        }
    }

    pub(crate) fn write(&self, name: &str, outcome: &SimOutcome) -> PathBuf {
        let file = self.dir.join(name).with_extension("html");
        std::fs::write(&file, report::html(outcome)).unwrap();
        file
    }

    pub(crate) fn picture(&self, browser: &mut Browser, name: &str) {
        if !self.keep {
            return;
        }
        browser.settle();
        let answer = browser.call(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true}),
        );
        self.save(&format!("{name}.png"), &answer);
    }

    pub(crate) fn save(&self, name: &str, answer: &Value) {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(answer["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(self.dir.join(name), bytes).unwrap();
    }
}

pub(crate) fn opened(chromium: &PathBuf, file: &Path) -> Browser {
    let mut browser = Browser::start(chromium);
    browser.resize(1280, 900);
    browser.open(file);
    browser.settle();
    browser
}

pub(crate) fn assert_quiet(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Checks that the table has every figure of the JSON with exactly its value, and nothing else.
pub(crate) fn assert_figures(browser: &mut Browser, outcome: &SimOutcome) {
    let cells = browser.eval(
        "[...document.querySelectorAll('td[data-figure]')].filter(td => td.dataset.value !== undefined)\
         .map(td => [td.dataset.run, td.dataset.figure, td.dataset.value])",
    );
    let mut shown: Vec<(usize, String, Value)> = cells
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| {
            let text = |at: usize| cell[at].as_str().unwrap();
            let value = serde_json::from_str(text(2)).unwrap();
            (text(0).parse().unwrap(), text(1).to_owned(), value)
        })
        .collect();
    let mut expected = Vec::new();
    for (at, run) in outcome.runs.iter().enumerate() {
        leaves(
            &serde_json::to_value(&run.figures).unwrap(),
            "",
            &mut |pointer, value| {
                expected.push((at, pointer.to_owned(), value.clone()));
            },
        );
    }
    for (_, pointer, _) in &mut expected {
        *pointer = pointer.replace(['\u{1b}', '\u{202e}'], "\u{fffd}");
    }
    let key = |entry: &(usize, String, Value)| (entry.0, entry.1.clone());
    shown.sort_by_key(key);
    expected.sort_by_key(key);
    assert!(!expected.is_empty());
    for (shown, expected) in shown.iter().zip(&expected) {
        assert_eq!(shown, expected);
    }
    assert_eq!(shown.len(), expected.len());
}

fn leaves(value: &Value, at: &str, found: &mut impl FnMut(&str, &Value)) {
    let Some(members) = value.as_object() else {
        return found(at, value);
    };
    for (name, member) in members {
        let name = name.replace('~', "~0").replace('/', "~1");
        leaves(member, &format!("{at}/{name}"), found);
    }
}

pub(crate) fn width_beyond(browser: &mut Browser) -> i64 {
    browser
        .eval("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .as_i64()
        .unwrap()
}
