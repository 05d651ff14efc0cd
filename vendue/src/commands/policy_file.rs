//! Loads policies for commands and roles: presets by name, or files.

use std::path::Path;

use placement::{Policy, PolicyError};

use crate::context::Usage;

/// Loads a preset by name, or a file.
pub(crate) fn load(name: &str) -> anyhow::Result<Policy> {
    let unknown = match Policy::preset(name) {
        Ok(policy) => return Ok(policy),
        Err(unknown) => unknown,
    };
    let file = Path::new(name);
    let looks_like_a_file = file.extension().is_some() || name.contains('/');
    match std::fs::read_to_string(file) {
        Ok(text) => Policy::parse(&text).map_err(|fault| refused(name, &text, &fault)),
        Err(e) if looks_like_a_file => Err(Usage::because(format_args!("{name}: {e}"))),
        Err(_) => {
            let hint = placement::nearest(name, Policy::PRESETS)
                .map_or(String::new(), |n| format!("; did you mean {n}?"));
            Err(Usage::because(format_args!(
                "{unknown}, or a policy file{hint}"
            )))
        }
    }
}

/// Loads a policy for a role that decides by it, and logs the warnings about it.
pub(crate) fn load_to_run(name: &str) -> anyhow::Result<Policy> {
    let policy = load(name)?;
    for warning in warnings(&policy) {
        tracing::warn!(policy = policy.name(), "{warning}");
    }
    Ok(policy)
}

/// Returns warnings about what a policy lets through although a plan should not promise it: a line for each resource.
pub(crate) fn warnings(policy: &Policy) -> Vec<String> {
    let warning = |name: &&str| {
        format!(
            "no stage has filter = {name:?} for all kinds of work: plans and dry runs promise more of it than cells have, and the cells refuse"
        )
    };
    policy.unfiltered_resources().iter().map(warning).collect()
}

/// Formats a fault, followed by the line with a caret at its place.
pub(crate) fn refused(file: &str, text: &str, fault: &PolicyError) -> anyhow::Error {
    let line = fault.line.checked_sub(1).and_then(|n| text.lines().nth(n));
    let Some(line) = line else {
        return Usage::because(format_args!("{file}: {fault}"));
    };
    // a fault inside a quoted expression has its own column
    let inside = fault.message.strip_prefix("expression: column ");
    let inside = inside.and_then(|rest| rest.split(':').next()?.parse().ok());
    let column = fault.column - 1 + inside.filter(|_| !line.contains("\"\"\"")).unwrap_or(0);
    let caret = " ".repeat(column);
    Usage::because(format_args!("{file}: {fault}\n  {line}\n  {caret}^"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_preset_or_a_file() {
        assert_eq!(load("dea").unwrap().name(), "dea");
        let error = load("deigo").unwrap_err().to_string();
        assert!(
            error.contains("or a policy file; did you mean diego?"),
            "{error}"
        );
        let error = load("no/such.toml").unwrap_err().to_string();
        assert!(error.starts_with("no/such.toml: "), "{error}");
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mine.toml");
        std::fs::write(&file, Policy::preset("diego").unwrap().to_toml()).unwrap();
        assert_eq!(load(&file.display().to_string()).unwrap().name(), "diego");
        std::fs::write(&file, "stages = 3").unwrap();
        let error = load(&file.display().to_string()).unwrap_err().to_string();
        assert!(error.contains("mine.toml:"), "{error}");
    }

    #[test]
    fn a_policy_that_holds_nothing_back_is_warned_of() {
        for name in Policy::PRESETS {
            assert_eq!(warnings(&load(name).unwrap()), [""; 0], "{name}");
        }
        let all = Policy::parse("name = \"all\"\n[[stage]]\npick = \"sample\"").unwrap();
        let warnings = warnings(&all);
        assert_eq!(warnings.len(), 5);
        assert!(warnings[4].contains("filter = \"extra\""), "{warnings:?}");
    }
}
