//! Any text is either a policy or an error with a place; a policy can be read back from its own output.
#![no_main]

use libfuzzer_sys::fuzz_target;
use placement::Policy;

fuzz_target!(|text: &str| {
    match Policy::parse(text) {
        Ok(policy) => {
            let written = policy.to_toml();
            let again = Policy::parse(&written).expect("what was written reads back");
            assert_eq!(again, policy, "{written}");
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
            assert!(error.column >= 1, "{error}");
        }
    }
});
