//! `[[apps]]`: what managers are told to keep running, and when.

use std::collections::{BTreeMap, BTreeSet};

use manager::{AppCommand, AppDefinition};
use placement::{MAX_INSTANCES, Span};
use scenarios::ScenarioError;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{millis, read};

/// Maximum number of apps of one table.
const MAX_COUNT: u32 = 10_000;
/// Maximum number of commands of a scenario: one for each app of each table.
const MAX_COMMANDS: usize = 100_000;

/// A command to the managers.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// When it is sent, in milliseconds after the first moment of the workload.
    pub at_ms: u64,
    /// The app.
    pub app: String,
    /// The command.
    pub command: AppCommand,
}

/// One table, which has exactly one field besides `at`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AppsTable {
    #[serde(default)]
    at: Span,
    #[serde(default)]
    put: Option<Map<String, Value>>,
    #[serde(default)]
    scale: Option<ScaleTable>,
    #[serde(default)]
    restart: Option<RestartTable>,
    #[serde(default)]
    stop: Option<NamedTable>,
    #[serde(default)]
    start: Option<NamedTable>,
    #[serde(default)]
    delete: Option<NamedTable>,
    #[serde(default)]
    undo: Option<NamedTable>,
    #[serde(default)]
    pause: Option<NamedTable>,
    #[serde(default)]
    resume: Option<NamedTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleTable {
    app: String,
    instances: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartTable {
    app: String,
    #[serde(default)]
    max_in_flight: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedTable {
    app: String,
}

/// The names that earlier tables have put: single ones, and how many there are for a name with `{n}`.
#[derive(Default)]
struct Names {
    single: BTreeSet<String>,
    many: BTreeMap<String, u32>,
}

/// Returns the commands of all tables, sorted by time; commands of one moment in the order of the tables.
pub(super) fn commands(tables: Vec<AppsTable>) -> Result<Vec<Command>, ScenarioError> {
    let mut names = Names::default();
    let mut commands = Vec::new();
    for (i, table) in tables.into_iter().enumerate() {
        let at = format!("apps[{i}]");
        let at_ms = millis(table.at);
        let told = table.read(&at, &mut names)?;
        if commands.len() + told.len() > MAX_COMMANDS {
            let expected = format!("at most {MAX_COMMANDS} commands in all tables");
            return Err(read::wrong(&at, &told.len().into(), &expected));
        }
        let told = told.into_iter().map(|(app, command)| Command {
            at_ms,
            app,
            command,
        });
        commands.extend(told);
    }
    commands.sort_by_key(|command| command.at_ms);
    Ok(commands)
}

type Told = Vec<(String, AppCommand)>;

impl AppsTable {
    fn read(self, at: &str, names: &mut Names) -> Result<Told, ScenarioError> {
        let plain = [
            ("stop", self.stop, AppCommand::Stop),
            ("start", self.start, AppCommand::Start),
            ("delete", self.delete, AppCommand::Delete),
            ("undo", self.undo, AppCommand::Undo),
            ("pause", self.pause, AppCommand::Pause),
            ("resume", self.resume, AppCommand::Resume),
        ];
        let mut all = Vec::new();
        if let Some(scale) = self.scale {
            let to = scale.instances;
            if !(1..=MAX_INSTANCES).contains(&to) {
                let expected = format!("a number from 1 to {MAX_INSTANCES}");
                return Err(read::wrong(
                    &format!("{at}.scale.instances"),
                    &to.into(),
                    &expected,
                ));
            }
            all.push(("scale", scale.app, AppCommand::Scale(to)));
        }
        if let Some(restart) = self.restart {
            let max_in_flight = restart.max_in_flight;
            all.push((
                "restart",
                restart.app,
                AppCommand::Restart { max_in_flight },
            ));
        }
        let plain = plain
            .into_iter()
            .filter_map(|(verb, named, command)| Some((verb, named?.app, command)));
        all.extend(plain);
        match (self.put, all.as_slice()) {
            (Some(put), []) => names.put(&format!("{at}.put"), put),
            (None, [(verb, app, command)]) => names.told(&format!("{at}.{verb}"), app, command),
            _ => Err(ScenarioError::Field {
                at: at.to_owned(),
                message: "expected exactly one of put, scale, restart, stop, start, delete, undo, pause and resume"
                    .into(),
            }),
        }
    }
}

impl Names {
    /// Puts one app, or `count` of them with `{n}` in their name.
    fn put(&mut self, at: &str, mut fields: Map<String, Value>) -> Result<Told, ScenarioError> {
        let count = match fields.remove("count") {
            None => None,
            Some(given) => {
                let count = given.as_u64().and_then(|n| u32::try_from(n).ok());
                let count = count.filter(|n| (1..=MAX_COUNT).contains(n));
                let expected = format!("a number from 1 to {MAX_COUNT}");
                Some(count.ok_or_else(|| read::wrong(&format!("{at}.count"), &given, &expected))?)
            }
        };
        let name = fields
            .get("app")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = name.to_owned();
        if count.is_some() != name.contains("{n}") {
            let expected =
                "a name with {n}, the number of the app, beside \"count\"; without it, one without";
            return Err(read::wrong(&format!("{at}.app"), &name.into(), expected));
        }
        // simulated cells execute nothing
        fields
            .entry("run")
            .or_insert_with(|| serde_json::json!({ "command": ["simulated"] }));
        let Some(count) = count else {
            self.single.insert(name.clone());
            let definition = definition(at, &fields, &name)?;
            return Ok(vec![(name, AppCommand::Put(Box::new(definition)))]);
        };
        let first = definition(at, &fields, &numbered(&name, 0))?;
        // only the longest name may be too long
        definition(at, &fields, &numbered(&name, count - 1))?;
        let put = numbered_all(&name, count).map(|app| {
            let mut one = first.clone();
            let mut template = (*one.template).clone();
            template.app.clone_from(&app);
            one.template = template.into();
            (app, AppCommand::Put(Box::new(one)))
        });
        let put = put.collect();
        self.single.extend(numbered_all(&name, count));
        self.many.insert(name, count);
        Ok(put)
    }

    /// Returns a command to an app that was put before, or to all apps that a table put.
    fn told(&self, at: &str, app: &str, command: &AppCommand) -> Result<Told, ScenarioError> {
        if let Some(count) = self.many.get(app) {
            let all = numbered_all(app, *count).map(|app| (app, command.clone()));
            return Ok(all.collect());
        }
        if self.single.contains(app) {
            return Ok(vec![(app.to_owned(), command.clone())]);
        }
        let expected = "an app that a put before it names";
        Err(read::wrong(&format!("{at}.app"), &app.into(), expected))
    }
}

fn numbered(name: &str, n: u32) -> String {
    name.replace("{n}", &n.to_string())
}

fn numbered_all(name: &str, count: u32) -> impl Iterator<Item = String> {
    (0..count).map(move |n| numbered(name, n))
}

/// Reads a definition as `vendue app put` does.
fn definition(
    at: &str,
    fields: &Map<String, Value>,
    app: &str,
) -> Result<AppDefinition, ScenarioError> {
    let mut fields = fields.clone();
    fields.insert("app".into(), app.into());
    let body = Value::Object(fields).to_string();
    AppDefinition::read(body.as_bytes()).map_err(|error| ScenarioError::Field {
        at: at.to_owned(),
        message: error.message,
    })
}
