//! Requests about apps: their bodies are read here, and become commands of the machine or questions about it.

use placement::Invalid;
use serde_json::Value;
use shared::{
    Subjects,
    wire::{
        AppAction, AppExport, AppImport, AppList, AppLook, AppMove, AppPut, AppRestart, AppScale,
        GrantRequest, TaskList, WireError, check_version, code, parse_strict, read_nothing,
    },
};

use crate::{
    definition::AppDefinition,
    io::{AppCommand, MoveOrder, TaskCommand},
    tasks::{Submitted, TaskDefinition},
};

/// Maximum number of apps in one import.
pub(super) const MAX_IMPORT: usize = 1_000;
/// Maximum number of ids in one question for stored requests.
const MAX_TASK_IDS: usize = 1_000;

/// The token of a subject that says what is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Put,
    Scale,
    Stop,
    Start,
    Restart,
    Move,
    Delete,
    Undo,
    Pause,
    Resume,
    Show,
    History,
    Export,
    List,
    Import,
    Submit,
    TaskRun,
    TaskShow,
    TaskResult,
    TaskCancel,
    TaskList,
    Grant,
}

impl Verb {
    /// Returns whether it is about stored requests.
    pub(super) fn is_of_tasks(self) -> bool {
        matches!(
            self,
            Self::Submit
                | Self::TaskRun
                | Self::TaskShow
                | Self::TaskResult
                | Self::TaskCancel
                | Self::TaskList
        )
    }

    /// Returns the subject of its endpoint.
    pub(super) fn subject(self, subjects: &Subjects) -> String {
        let name = self.name();
        match self {
            Self::List => subjects.app_list(),
            Self::Import => subjects.app_import(),
            Self::Submit => subjects.app_submit(),
            Self::TaskList => subjects.task_list(),
            Self::Grant => subjects.grant("*"),
            Self::TaskRun | Self::TaskShow | Self::TaskResult | Self::TaskCancel => {
                subjects.task(name.trim_start_matches("task-"), "*")
            }
            _ => subjects.app(name, "*"),
        }
    }

    /// Returns the queue group of its endpoint. One manager gets each request, except for those that only the acting
    /// manager can carry out.
    pub(super) fn queue(self, manager: &str) -> &str {
        match self {
            Self::Move | Self::Grant => manager,
            _ => Subjects::MANAGER_QUEUE,
        }
    }

    pub(super) const ALL: [Self; 22] = [
        Self::Put,
        Self::Scale,
        Self::Stop,
        Self::Start,
        Self::Restart,
        Self::Move,
        Self::Delete,
        Self::Undo,
        Self::Pause,
        Self::Resume,
        Self::Show,
        Self::History,
        Self::Export,
        Self::List,
        Self::Import,
        Self::Submit,
        Self::TaskRun,
        Self::TaskShow,
        Self::TaskResult,
        Self::TaskCancel,
        Self::TaskList,
        Self::Grant,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Scale => "scale",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Move => "move",
            Self::Delete => "delete",
            Self::Undo => "undo",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Show => "show",
            Self::History => "history",
            Self::Export => "export",
            Self::List => "list",
            Self::Import => "import",
            Self::Submit => "submit",
            Self::TaskRun => "task-run",
            Self::TaskShow => "task-show",
            Self::TaskResult => "task-result",
            Self::TaskCancel => "task-cancel",
            Self::TaskList => "task-list",
            Self::Grant => "grant",
        }
    }
}

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Wanted {
    Command(AppCommand),
    Move(MoveOrder),
    Grant(GrantRequest),
    Look(Look),
    List(AppList),
    Import(Vec<ImportedApp>),
    Task(TaskCommand),
    /// The state of a stored request, with or without its output.
    TaskLook {
        output: bool,
    },
    TaskList(TaskList),
}

/// A question about one app. Without a version, the wanted one is meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    Show(Option<u32>),
    Export(Option<u32>),
    History,
}

/// One app of an import.
#[derive(Debug)]
pub(super) struct ImportedApp {
    /// Empty if the definition has no name.
    pub(super) app: String,
    pub(super) commands: Result<Vec<AppCommand>, WireError>,
}

/// Reads the body of a request; `id` is the app or id in its subject.
pub(super) fn read(
    verb: Verb,
    id: &str,
    body: &[u8],
    max_payload: usize,
) -> Result<Wanted, WireError> {
    check_version(body)?;
    Ok(match verb {
        Verb::Submit => submitted(body, Submitted::Any, max_payload)?,
        Verb::TaskRun => submitted(body, Submitted::Task(id), max_payload)?,
        Verb::TaskShow | Verb::TaskResult => {
            read_nothing(body)?;
            let output = verb == Verb::TaskResult;
            Wanted::TaskLook { output }
        }
        Verb::TaskCancel => {
            let AppAction { .. } = parse_strict(body, "no field but v")?;
            Wanted::Task(TaskCommand::Cancel)
        }
        Verb::TaskList => Wanted::TaskList(task_list(body)?),
        Verb::Put => Wanted::Command(put(body, max_payload)?),
        Verb::Scale => {
            let scale: AppScale = parse_strict(body, "instances")?;
            Wanted::Command(AppCommand::Scale(scale.instances))
        }
        Verb::Restart => {
            let restart: AppRestart = parse_strict(body, "max_in_flight")?;
            let max_in_flight = restart.max_in_flight;
            Wanted::Command(AppCommand::Restart { max_in_flight })
        }
        Verb::Move => Wanted::Move(order(body)?),
        Verb::Grant => Wanted::Grant(grant(id, body)?),
        Verb::Stop => action(body, AppCommand::Stop)?,
        Verb::Start => action(body, AppCommand::Start)?,
        Verb::Delete => action(body, AppCommand::Delete)?,
        Verb::Undo => action(body, AppCommand::Undo)?,
        Verb::Pause => action(body, AppCommand::Pause)?,
        Verb::Resume => action(body, AppCommand::Resume)?,
        Verb::Show => Wanted::Look(Look::Show(version(body)?)),
        Verb::Export => Wanted::Look(Look::Export(version(body)?)),
        Verb::History => {
            read_nothing(body)?;
            Wanted::Look(Look::History)
        }
        Verb::List => Wanted::List(list(body)?),
        Verb::Import => Wanted::Import(import(body, max_payload)?),
    })
}

fn order(body: &[u8]) -> Result<MoveOrder, WireError> {
    let AppMove {
        id, index, from, ..
    } = parse_strict(body, "id, index or from")?;
    placement::check_name("id", &id)?;
    placement::check_name("from", &from)?;
    Ok(MoveOrder { id, index, from })
}

/// An auctioneer of another version may say more.
fn grant(auctioneer: &str, body: &[u8]) -> Result<GrantRequest, WireError> {
    let request: GrantRequest = shared::wire::read(body)?;
    placement::check_name("auctioneer", auctioneer)?;
    placement::check_name("run", &request.run)?;
    Ok(request)
}

/// Reads a body without any field. Fields are rejected, as they show that the message was meant for another subject.
fn action(body: &[u8], command: AppCommand) -> Result<Wanted, WireError> {
    let AppAction { .. } = parse_strict(body, "no field but v")?;
    Ok(Wanted::Command(command))
}

fn version(body: &[u8]) -> Result<Option<u32>, WireError> {
    if body.is_empty() {
        return Ok(None);
    }
    let look: AppLook = parse_strict(body, "version")?;
    Ok(look.version)
}

fn list(body: &[u8]) -> Result<AppList, WireError> {
    if body.is_empty() {
        return Ok(AppList::default());
    }
    let list: AppList = parse_strict(body, "after or limit")?;
    if list.limit == Some(0) {
        return Err(Invalid::new("limit", 0, "a number from 1").into());
    }
    Ok(list)
}

/// Reads a submitted request. Its size is limited because the stored value also holds the result.
fn submitted(body: &[u8], what: Submitted<'_>, max_payload: usize) -> Result<Wanted, WireError> {
    let most = max_payload * 2 / 5;
    if body.len() > most {
        let bytes = body.len();
        let message = format!(
            "a request of {bytes} bytes; expected at most {most} with this server's max_payload"
        );
        return Err(WireError::new(code::INVALID_REQUEST, message));
    }
    let definition = Box::new(TaskDefinition::read(body, what)?);
    Ok(Wanted::Task(TaskCommand::Submit(definition)))
}

fn task_list(body: &[u8]) -> Result<TaskList, WireError> {
    if body.is_empty() {
        return Ok(TaskList::default());
    }
    let list: TaskList = parse_strict(body, "app, ids, after or limit")?;
    if list.limit == Some(0) {
        return Err(Invalid::new("limit", 0, "a number from 1").into());
    }
    if list.ids.len() > MAX_TASK_IDS {
        let expected = format!("at most {MAX_TASK_IDS}");
        return Err(Invalid::new("ids", list.ids.len(), expected).into());
    }
    Ok(list)
}

fn put(body: &[u8], max_payload: usize) -> Result<AppCommand, WireError> {
    let put: AppPut = parse_strict(body, "definition or dry_run")?;
    let definition = Box::new(definition(&put.definition, max_payload)?);
    Ok(if put.dry_run {
        AppCommand::Try(definition)
    } else {
        AppCommand::Put(definition)
    })
}

/// Reads a definition. Its size is limited because the stored value holds two definitions.
fn definition(value: &Value, max_payload: usize) -> Result<AppDefinition, WireError> {
    if !value.is_object() {
        let found: String = value.to_string().chars().take(40).collect();
        return Err(Invalid::new("definition", found, "an object").into());
    }
    let body = serde_json::to_vec(value).unwrap_or_default();
    let most = max_payload * 2 / 5;
    if body.len() > most {
        let found = format!("{} bytes", body.len());
        let expected = format!("at most {most} bytes with this server's max_payload");
        return Err(Invalid::new("definition", found, expected).into());
    }
    AppDefinition::read(&body)
}

fn import(body: &[u8], max_payload: usize) -> Result<Vec<ImportedApp>, WireError> {
    let import: AppImport = parse_strict(body, "restore or apps")?;
    if import.apps.is_empty() || import.apps.len() > MAX_IMPORT {
        let expected = format!("from 1 to {MAX_IMPORT} apps");
        return Err(Invalid::new("apps", import.apps.len(), expected).into());
    }
    let one = |exported: &AppExport| {
        let name = exported.definition.get("app").and_then(Value::as_str);
        ImportedApp {
            app: placement::cut(name.unwrap_or_default()).into_owned(),
            commands: commands(exported, import.restore, max_payload),
        }
    };
    Ok(import.apps.iter().map(one).collect())
}

/// Returns the commands that bring one app to its exported state.
fn commands(
    exported: &AppExport,
    restore: bool,
    max_payload: usize,
) -> Result<Vec<AppCommand>, WireError> {
    let definition = Box::new(definition(&exported.definition, max_payload)?);
    if restore {
        let missing = |field: &str| {
            let expected = "the value of an export; without it the app cannot be restored";
            WireError::from(Invalid::new(field, "nothing", expected))
        };
        let bucket = exported.bucket.as_ref().ok_or_else(|| missing("bucket"))?;
        let uid = exported.uid.as_ref().ok_or_else(|| missing("uid"))?;
        let version = exported.version.ok_or_else(|| missing("version"))?;
        if version == 0 {
            return Err(Invalid::new("version", 0, "a number from 1").into());
        }
        return Ok(vec![AppCommand::Restore {
            bucket: bucket.parse()?,
            uid: uid.parse()?,
            version,
            stopped: exported.stopped,
            definition,
        }]);
    }
    let mut commands = vec![AppCommand::Put(definition)];
    if exported.stopped {
        commands.push(AppCommand::Stop);
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn error(verb: Verb, body: &str) -> (String, String) {
        let error = read(verb, "x", body.as_bytes(), MAX).unwrap_err();
        (error.field.unwrap_or_default(), error.message)
    }

    #[test]
    fn what_changes_something_has_a_body_and_no_unknown_field() {
        let changing = [
            Verb::Put,
            Verb::Scale,
            Verb::Stop,
            Verb::Start,
            Verb::Restart,
            Verb::Move,
            Verb::Delete,
            Verb::Undo,
            Verb::Pause,
            Verb::Resume,
            Verb::Import,
            Verb::Submit,
            Verb::TaskRun,
            Verb::TaskCancel,
            Verb::Grant,
        ];
        for verb in changing {
            assert!(read(verb, "x", b"", MAX).is_err(), "{verb:?}");
        }
        for verb in Verb::ALL {
            if !changing.contains(&verb) {
                assert!(read(verb, "x", b"", MAX).is_ok(), "{verb:?}");
                assert!(read(verb, "x", b"{}", MAX).is_ok(), "{verb:?}");
            }
        }
        for verb in Verb::ALL {
            let (field, message) = error(verb, r#"{"v":2,"x":1}"#);
            assert_eq!(field, "v", "{verb:?} {message}");
            // a role asks, not a person
            if verb == Verb::Grant {
                continue;
            }
            let (field, _) = error(verb, r#"{"v":1,"force":true}"#);
            let own = ["force", "definition", "instances", "apps", "id"];
            assert!(own.contains(&field.as_str()), "{verb:?} {field}");
        }
        assert!(read(Verb::Stop, "x", br#"{"v":1}"#, MAX).is_ok());
    }

    #[test]
    fn an_auctioneer_says_who_it_is_and_which_run() {
        let asks = |id: &str, body: &str| read(Verb::Grant, id, body.as_bytes(), MAX).is_ok();
        let good = r#"{"v":1,"run":"r-1","ask":"wants","later":1}"#;
        assert!(asks("a1", good));
        assert!(!asks("a b", good) && !asks("", good));
        for bad in [
            r#"{"run":"","ask":"wants"}"#,
            r#"{"run":"r","ask":"takes"}"#,
            r#"{"ask":"wants"}"#,
        ] {
            assert!(!asks("a1", bad), "{bad}");
        }
    }

    #[test]
    fn errors_in_a_definition_name_its_own_field() {
        let put = r#"{"v":1,"definition":{"app":"web","memory_mb":-1,"disk_mb":1,"run":{"command":["x"]}}}"#;
        assert_eq!(error(Verb::Put, put).0, "memory_mb");
        assert_eq!(error(Verb::Put, r#"{"definition":[1]}"#).0, "definition");
        let small = read(Verb::Put, "x", put.as_bytes(), 100).unwrap_err();
        assert!(small.message.contains("max_payload"), "{small}");
        assert_eq!(error(Verb::List, r#"{"limit":0}"#).0, "limit");
    }

    #[test]
    fn an_import_is_read_app_by_app() {
        let good = r#"{"app":"web","memory_mb":1,"disk_mb":1,"run":{"command":["x"]}}"#;
        let body = format!(
            r#"{{"v":1,"apps":[{{"definition":{good},"stopped":true}},{{"definition":{{"app":"db"}}}}]}}"#
        );
        let Wanted::Import(apps) = read(Verb::Import, "x", body.as_bytes(), MAX).unwrap() else {
            panic!("no import");
        };
        assert_eq!((apps[0].app.as_str(), apps[1].app.as_str()), ("web", "db"));
        assert_eq!(apps[0].commands.as_ref().unwrap().len(), 2);
        assert!(apps[1].commands.is_err());
        let body = format!(r#"{{"v":1,"restore":true,"apps":[{{"definition":{good}}}]}}"#);
        let Wanted::Import(apps) = read(Verb::Import, "x", body.as_bytes(), MAX).unwrap() else {
            panic!("no import");
        };
        let error = apps[0].commands.as_ref().unwrap_err();
        assert_eq!(error.field.as_deref(), Some("bucket"));
        assert_eq!(
            super::tests::error(Verb::Import, r#"{"apps":[]}"#).0,
            "apps"
        );
    }
}
