//! Any text is either an objective or an error with a column inside the text; an objective's tree can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use placement::{Constants, Objective};

fuzz_target!(|text: &str| {
    let mut constants = Constants::default();
    constants.set("alpha", 0.5);
    match Objective::parse(text, &constants) {
        Ok(objective) => assert!(objective.tree().lines().count() <= 256),
        Err(error) => {
            assert!(error.column <= text.chars().count() + 1, "{error}");
            let _ = error.picture();
        }
    }
});
