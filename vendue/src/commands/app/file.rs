//! Files of apps: one app, an array of them, or `apps`, as JSON or TOML.

use std::{collections::BTreeMap, path::Path};

use manager::AppDefinition;
use scenarios::OfflineAuction;
use serde_json::Value;
use shared::wire::AppExport;

use crate::{commands::request_file, context::Usage};

/// An app in a file.
#[derive(Debug)]
pub(super) struct FileApp {
    /// Its name.
    pub(super) app: String,
    /// The wanted number of instances.
    pub(super) instances: u32,
    /// The definition as its user wrote it.
    pub(super) definition: Value,
}

/// Reads the apps of all files, checked as a manager would.
pub(super) fn read(files: &[String]) -> anyhow::Result<Vec<FileApp>> {
    let mut apps = Vec::new();
    let mut found_in: BTreeMap<String, &str> = BTreeMap::new();
    for file in files {
        for app in parse(file, &request_file::read(file)?)? {
            let name = request_file::named(file);
            if let Some(other) = found_in.insert(app.app.clone(), name) {
                let app = app.app;
                return Err(Usage::because(format_args!(
                    "{name}: app {app:?} is in {other} already; expected each app once"
                )));
            }
            apps.push(app);
        }
    }
    Ok(apps)
}

fn parse(file: &str, text: &str) -> anyhow::Result<Vec<FileApp>> {
    let tree = tree(file, text)?;
    let name = request_file::named(file);
    let many = match tree {
        Value::Array(many) => many,
        Value::Object(mut whole) if whole.contains_key("apps") => match whole.remove("apps") {
            Some(Value::Array(many)) => many,
            other => {
                let value = shared::wire::to_bytes(&other);
                let value = placement::cut(&String::from_utf8_lossy(&value)).into_owned();
                return Err(Usage::of_field(
                    Some("apps".into()),
                    format!("{name}: apps: {value}; expected a list of apps"),
                ));
            }
        },
        one => return Ok(vec![app(name, "", one)?]),
    };
    if many.is_empty() {
        return Err(Usage::because(format_args!(
            "{name}: no app in it; expected at least one"
        )));
    }
    let one = |(i, value)| app(name, &format!("apps[{i}]."), value);
    many.into_iter().enumerate().map(one).collect()
}

/// Parses a file. Its name says whether it is JSON or TOML, else its first characters do.
fn tree(file: &str, text: &str) -> anyhow::Result<Value> {
    let extension = Path::new(file).extension().and_then(|e| e.to_str());
    let toml = match extension {
        Some("toml") => true,
        Some("json") => false,
        _ => !looks_like_json(text),
    };
    let refuse = |e| Usage::because(format_args!("{}: {e}", request_file::named(file)));
    OfflineAuction::value(text, toml).map_err(refuse)
}

fn looks_like_json(text: &str) -> bool {
    let text = text.trim_start();
    let inner = text.strip_prefix('[').map(str::trim_start);
    // a TOML table begins with [name] or [[name]]
    text.starts_with('{') || inner.is_some_and(|inner| inner.starts_with(['{', ']']))
}

fn app(file: &str, at: &str, definition: Value) -> anyhow::Result<FileApp> {
    if definition.get("definition").is_some() {
        return Err(Usage::because(format_args!(
            "{file}: this is an exported file; `vendue app import` reads it"
        )));
    }
    let read = AppDefinition::read(&shared::wire::to_bytes(&definition));
    let read = read.map_err(|e| {
        let field = e.field.as_ref().map(|field| format!("{at}{field}"));
        // the line in the message refers to converted text, not to the file
        let message = e.message.split(" at line ").next().unwrap_or_default();
        Usage::of_field(field, format!("{file}: {at}{message}"))
    })?;
    Ok(FileApp {
        app: read.app().to_owned(),
        instances: read.instances,
        definition,
    })
}

/// Reads the apps of an exported file.
pub(super) fn exported(file: &str) -> anyhow::Result<Vec<AppExport>> {
    let text = request_file::read(file)?;
    let name = request_file::named(file);
    let expected =
        "expected a file that `vendue app export` wrote; `vendue app put` reads files of apps";
    let refuse =
        |e: &dyn std::fmt::Display| Usage::because(format_args!("{name}: {e}; {expected}"));
    let mut tree: Value = serde_json::from_str(&text).map_err(|e| refuse(&e))?;
    let Some(Value::Array(apps)) = tree.get_mut("apps").map(Value::take) else {
        return Err(refuse(&"apps: missing or no list"));
    };
    if apps.is_empty() {
        return Err(refuse(&"apps: there is none in it"));
    }
    let one = |(i, value): (usize, Value)| {
        let read: Result<AppExport, _> = serde_json::from_value(value);
        let read = read.map_err(|e| refuse(&format_args!("apps[{i}]: {e}")))?;
        match read.definition["app"].as_str() {
            Some(_) => Ok(read),
            None => Err(refuse(&format_args!("apps[{i}].definition.app: no name"))),
        }
    };
    apps.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str =
        r#"{"app":"web","instances":2,"memory_mb":16,"disk_mb":16,"run":{"command":["x"]}}"#;
    const DB: &str = "app = \"db\"\nmemory_mb = 16\ndisk_mb = 16\nrun.command = [\"x\"]\n";

    fn names(file: &str, text: &str) -> Vec<String> {
        let apps = parse(file, text).unwrap_or_else(|e| panic!("{file} {text}: {e}"));
        apps.into_iter().map(|app| app.app).collect()
    }

    #[test]
    fn one_app_or_several_as_json_or_toml() {
        let list = format!("[{WEB}]");
        let apps = format!("{{\"apps\":[{WEB}]}}");
        let tables = format!("[[apps]]\n{DB}\n[[apps]]\n{}", DB.replace("db", "db2"));
        assert_eq!(names("web.json", WEB), ["web"]);
        assert_eq!(names("-", WEB), ["web"]);
        assert_eq!(names("-", &list), ["web"]);
        assert_eq!(names("web.json", &apps), ["web"]);
        assert_eq!(names("db.toml", DB), ["db"]);
        assert_eq!(names("-", DB), ["db"]);
        assert_eq!(names("-", &tables), ["db", "db2"]);
        assert_eq!(parse("-", WEB).unwrap()[0].instances, 2);
    }

    #[test]
    fn what_cannot_be_an_app_is_refused_with_file_and_field() {
        let second = format!("[{WEB},{}]", WEB.replace("16,\"disk", "-1,\"disk"));
        for (file, text, said) in [
            ("a.json", "{", "a.json: "),
            ("a.toml", "app = ", "a.toml: "),
            ("-", "[]", "standard input: no app in it"),
            (
                "a.json",
                r#"{"apps":3}"#,
                "a.json: apps: 3; expected a list",
            ),
            ("a.json", &second, "a.json: apps[1].memory_mb: -1"),
            ("a.json", &WEB.replace("instances", "instnces"), "instnces"),
            ("a.json", r#"{"definition":{}}"#, "vendue app import"),
        ] {
            let error = parse(file, text).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert!(error.downcast_ref::<Usage>().is_some(), "{text}");
        }
    }

    #[test]
    fn an_app_is_in_one_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let files = [
            write("a.json", WEB),
            write("b.toml", DB),
            write("c.json", WEB),
        ];
        assert_eq!(read(&files[..2]).unwrap().len(), 2);
        let error = read(&files).unwrap_err().to_string();
        assert!(error.contains("c.json: app \"web\" is in"), "{error}");
    }

    #[test]
    fn only_exported_files_are_imported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("apps.json");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            exported(file.to_str().unwrap())
        };
        let good = format!("{{\"v\":1,\"apps\":[{{\"definition\":{WEB}}}]}}");
        assert_eq!(read(&good).unwrap()[0].definition["app"], "web");
        for bad in [
            WEB,
            "[]",
            "{",
            r#"{"apps":[]}"#,
            r#"{"apps":[{"definition":{}}]}"#,
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("vendue app export"), "{bad}: {error}");
        }
    }
}
