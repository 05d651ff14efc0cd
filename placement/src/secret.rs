//! Secrets: files of the cell that an instance gets.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::invalid::Invalid;

/// The most secrets of a request.
pub const MAX_SECRETS: usize = 64;
/// The longest path.
const MAX_PATH: usize = 256;

/// A file below the cell's directory of secrets, and where its content goes for an instance: to an environment variable
/// or a file. The content is never part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// The file, relative to the cell's directory of secrets.
    pub file: String,
    /// The variable that gets the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The file that gets the content, relative to the instance's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Secret {
    /// Rejects paths that lead elsewhere, and secrets with no destination or two. `field` is its name in the request.
    /// The errors quote nothing, like all errors about `run`.
    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        check_path(&format!("{field}.file"), &self.file)?;
        match (&self.env, &self.path) {
            (Some(name), None) => check_variable(&format!("{field}.env"), name),
            (None, Some(path)) => check_path(&format!("{field}.path"), path),
            (env, _) => {
                let what = if env.is_some() { "both" } else { "neither" };
                let expected = "env (a variable) or path (a file of the instance)";
                Err(Invalid::new(field, what, expected))
            }
        }
    }
}

fn check_variable(field: &str, name: &str) -> Result<(), Invalid> {
    if (1..=MAX_PATH).contains(&name.len()) && !name.contains(['=', '\0']) {
        return Ok(());
    }
    let expected = format!("a name of 1 to {MAX_PATH} bytes, without = and NUL");
    Err(Invalid::new(field, "this name", expected))
}

fn check_path(field: &str, path: &str) -> Result<(), Invalid> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let fine = (1..=MAX_PATH).contains(&path.len()) && !path.contains('\0') && !path.ends_with('/');
    if fine && Path::new(path).components().all(plain) {
        return Ok(());
    }
    let expected = format!("a relative path of 1 to {MAX_PATH} bytes without . and ..");
    Err(Invalid::new(field, "this path", expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(json: &str) -> Secret {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_secret_goes_to_one_place_inside() {
        for json in [
            r#"{"file":"db","env":"DB"}"#,
            r#"{"file":"web/db..key","path":"keys/db"}"#,
            r#"{"file":"..db","path":".pgpass"}"#,
        ] {
            assert_eq!(secret(json).check("s"), Ok(()), "{json}");
        }
        for (json, field) in [
            (r#"{"file":"db"}"#, "s"),
            (r#"{"file":"db","env":"A","path":"a"}"#, "s"),
            (r#"{"file":"","env":"A"}"#, "s.file"),
            (r#"{"file":"/etc/shadow","env":"A"}"#, "s.file"),
            (r#"{"file":"../x","env":"A"}"#, "s.file"),
            (r#"{"file":"a/../../x","env":"A"}"#, "s.file"),
            (r#"{"file":"./a","env":"A"}"#, "s.file"),
            (r#"{"file":"a/","env":"A"}"#, "s.file"),
            (r#"{"file":"a","path":"../a"}"#, "s.path"),
            (r#"{"file":"a","path":"/a"}"#, "s.path"),
            (r#"{"file":"a","env":"A=B"}"#, "s.env"),
            (r#"{"file":"a","env":""}"#, "s.env"),
        ] {
            let refused = secret(json).check("s").unwrap_err();
            assert_eq!(refused.field, field, "{json}: {refused}");
            let values = ["neither", "both", "this path", "this name"];
            assert!(values.contains(&refused.value.as_str()), "{refused}");
        }
        let long = secret(&format!(r#"{{"file":"{}","env":"A"}}"#, "x".repeat(257)));
        assert!(long.check("s").is_err());
    }
}
