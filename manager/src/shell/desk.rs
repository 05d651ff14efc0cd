//! Requests that wait for the state machine, and the answers to them.

use std::collections::HashMap;

use shared::{
    VERSION,
    wire::{
        AppChanged, AppImportResult, AppImported, AppList, AppListed, AppMoved, GrantRequest,
        TaskStored, WireError, code, to_bytes,
    },
};

use super::{
    Shell,
    requests::{ImportedApp, Look, Wanted, read},
    service::{Asked, ReplyTo},
    task_page::{ENVELOPE, MAX_PAGE, task_page},
    views::{TaskView, View},
};
use crate::{
    commands::no_such_app,
    grants::GrantReply,
    ids::CommandKey,
    io::{
        AppAnswer, AppCommand, ManagerInput, MoveAnswer, MoveOrder, TaskAnswer, TaskCommand,
        TaskInput,
    },
    manager::Manager,
    stored::unavailable,
};

/// What an answer of the machine belongs to.
enum Waiting {
    Change {
        app: String,
        dry_run: bool,
        to: ReplyTo,
    },
    Import {
        batch: u64,
        at: usize,
        then: Vec<AppCommand>,
    },
    Task(ReplyTo),
    Move {
        app: String,
        order: MoveOrder,
        to: ReplyTo,
    },
    Grant(ReplyTo),
}

/// An import of which some apps have not been answered yet.
struct Import {
    to: ReplyTo,
    results: Vec<AppImportResult>,
    left: usize,
}

/// The waiting requests.
#[derive(Default)]
pub(super) struct Desk {
    waiting: HashMap<CommandKey, Waiting>,
    imports: HashMap<u64, Import>,
    last: u64,
}

/// A request that is answered without the machine.
pub(super) enum Ready {
    /// With this answer.
    Answer(ReplyTo, Result<bytes::Bytes, WireError>),
    /// With a view that may have to be read from the bucket.
    View(Box<View>),
    /// With a stored request, whose output may have to be read from the bucket.
    TaskView(Box<TaskView>),
}

impl Desk {
    /// Takes a request, which either becomes inputs of the machine or can be answered without it.
    pub(super) fn take(
        &mut self,
        shell: &Shell,
        machine: &Manager,
        asked: Asked,
        inputs: &mut Vec<ManagerInput>,
    ) -> Option<Ready> {
        let max_payload = shell.max_payload();
        let (app, to) = (asked.app, asked.to);
        if let Some(error) = shell.refuses(asked.verb) {
            return Some(Ready::Answer(to, Err(error)));
        }
        match read(asked.verb, &app, &asked.body, max_payload) {
            Err(error) => Some(Ready::Answer(to, Err(error))),
            Ok(Wanted::Command(command)) => {
                let dry_run = matches!(command, AppCommand::Try(_));
                let name = app.clone();
                let waiting = Waiting::Change { app, dry_run, to };
                inputs.push(self.command(waiting, name, command));
                None
            }
            // the acting manager has heard it too
            Ok(Wanted::Move(_)) if !machine.is_acting() => None,
            Ok(Wanted::Move(order)) => {
                inputs.push(self.move_order(app, order, to));
                None
            }
            Ok(Wanted::Grant(_)) if !machine.is_acting() => None,
            Ok(Wanted::Grant(request)) => {
                inputs.push(self.grant(app, request, to));
                None
            }
            Ok(Wanted::Import(apps)) => self.import(shell, apps, to, inputs),
            Ok(Wanted::Task(command)) => {
                inputs.push(self.task_command(to, app, command));
                None
            }
            Ok(_) if !machine.is_ready() => Some(Ready::Answer(to, Err(unavailable()))),
            Ok(Wanted::List(list)) => {
                let page = page(shell, machine, &list, max_payload);
                Some(Ready::Answer(to, Ok(to_bytes(&page))))
            }
            Ok(Wanted::TaskList(list)) => {
                let page = task_page(&shell.name, machine, &list, max_payload);
                Some(Ready::Answer(to, Ok(to_bytes(&page))))
            }
            Ok(Wanted::TaskLook { output }) => {
                let Some(task) = machine.task(&app) else {
                    return Some(Ready::Answer(to, Err(no_such_task(&app))));
                };
                let view = TaskView {
                    to,
                    output: output && task.state.is_over(),
                    acting: machine.is_acting(),
                    task,
                };
                Some(Ready::TaskView(Box::new(view)))
            }
            Ok(Wanted::Look(look)) => Some(show(machine, look, &app, to)),
        }
    }

    fn command(&mut self, waiting: Waiting, app: String, command: AppCommand) -> ManagerInput {
        self.last += 1;
        let to = CommandKey(self.last);
        self.waiting.insert(to, waiting);
        ManagerInput::Command { to, app, command }
    }

    fn move_order(&mut self, app: String, order: MoveOrder, to: ReplyTo) -> ManagerInput {
        self.last += 1;
        let key = CommandKey(self.last);
        let input = ManagerInput::Move {
            to: key,
            app: app.clone(),
            order: order.clone(),
        };
        self.waiting.insert(key, Waiting::Move { app, order, to });
        input
    }

    fn grant(&mut self, auctioneer: String, request: GrantRequest, to: ReplyTo) -> ManagerInput {
        self.last += 1;
        let key = CommandKey(self.last);
        self.waiting.insert(key, Waiting::Grant(to));
        ManagerInput::Grant {
            to: key,
            auctioneer,
            request,
        }
    }

    /// The machine has answered an auctioneer, or leaves that to another manager.
    pub(super) fn granted(
        &mut self,
        shell: &Shell,
        key: CommandKey,
        reply: Option<GrantReply>,
    ) -> Option<Ready> {
        let Waiting::Grant(to) = self.waiting.remove(&key)? else {
            return None;
        };
        let answer = reply?.answer(&shell.name);
        Some(Ready::Answer(to, Ok(to_bytes(&answer))))
    }

    /// Handles the machine's answer about a move.
    pub(super) fn moved(
        &mut self,
        shell: &Shell,
        key: CommandKey,
        answer: Result<MoveAnswer, WireError>,
    ) -> Option<Ready> {
        let Waiting::Move { app, order, to } = self.waiting.remove(&key)? else {
            return None;
        };
        let answer = answer.map(|answer| {
            to_bytes(&AppMoved {
                v: VERSION,
                manager: shell.name.to_string(),
                app,
                index: order.index,
                from: order.from,
                state: answer.state,
                cell: answer.cell.map(|cell| cell.to_string()),
                reason: answer.reason,
            })
        });
        Some(Ready::Answer(to, answer))
    }

    fn task_command(&mut self, to: ReplyTo, id: String, command: TaskCommand) -> ManagerInput {
        self.last += 1;
        let key = CommandKey(self.last);
        self.waiting.insert(key, Waiting::Task(to));
        let id = match &command {
            TaskCommand::Submit(definition) => definition.request.id.clone(),
            TaskCommand::Cancel => id,
        };
        let to = key;
        ManagerInput::Task(TaskInput::Command { to, id, command })
    }

    /// Handles the machine's answer to a command about a stored request.
    pub(super) fn task_answered(
        &mut self,
        shell: &Shell,
        key: CommandKey,
        answer: Result<Box<TaskAnswer>, WireError>,
    ) -> Option<Ready> {
        let Waiting::Task(to) = self.waiting.remove(&key)? else {
            return None;
        };
        let answer = answer.map(|answer| {
            to_bytes(&TaskStored {
                v: VERSION,
                manager: shell.name.to_string(),
                changed: answer.changed,
                task: answer.status,
            })
        });
        Some(Ready::Answer(to, answer))
    }

    fn import(
        &mut self,
        shell: &Shell,
        apps: Vec<ImportedApp>,
        to: ReplyTo,
        inputs: &mut Vec<ManagerInput>,
    ) -> Option<Ready> {
        self.last += 1;
        let batch = self.last;
        let mut import = Import {
            to,
            results: Vec::new(),
            left: 0,
        };
        for (at, imported) in apps.into_iter().enumerate() {
            let app = imported.app.clone();
            let error = match imported.commands {
                Ok(mut commands) => {
                    import.left += 1;
                    let first = commands.remove(0);
                    let then = commands;
                    let waiting = Waiting::Import { batch, at, then };
                    inputs.push(self.command(waiting, app, first));
                    None
                }
                Err(error) => Some(error),
            };
            import.results.push(AppImportResult {
                app: imported.app,
                version: None,
                changed: false,
                error,
            });
        }
        if import.left == 0 {
            return Some(imported(shell, import));
        }
        self.imports.insert(batch, import);
        None
    }

    /// Handles the machine's answer to a command, which leads to a further input or to an answer.
    pub(super) fn answered(
        &mut self,
        shell: &Shell,
        key: CommandKey,
        answer: Result<AppAnswer, WireError>,
        inputs: &mut Vec<ManagerInput>,
    ) -> Option<Ready> {
        match self.waiting.remove(&key)? {
            // other functions handle these answers
            Waiting::Task(_) | Waiting::Move { .. } | Waiting::Grant(_) => None,
            Waiting::Change { app, dry_run, to } => {
                let answer = answer.map(|answer| {
                    to_bytes(&AppChanged {
                        v: VERSION,
                        manager: shell.name.to_string(),
                        app,
                        uid: answer.uid.to_string(),
                        version: answer.version,
                        changed: answer.changed,
                        created: answer.created,
                        dry_run,
                        changes: answer.differences.changes,
                        more: answer.differences.more,
                    })
                });
                Some(Ready::Answer(to, answer))
            }
            Waiting::Import {
                batch,
                at,
                mut then,
            } => {
                let import = self.imports.get_mut(&batch)?;
                let result = import.results.get_mut(at)?;
                match answer {
                    Ok(answer) => {
                        result.version = Some(answer.version);
                        result.changed |= answer.changed;
                    }
                    Err(error) => {
                        result.error = Some(error);
                        then.clear();
                    }
                }
                if !then.is_empty() {
                    let app = result.app.clone();
                    let next = then.remove(0);
                    let waiting = Waiting::Import { batch, at, then };
                    inputs.push(self.command(waiting, app, next));
                    return None;
                }
                import.left -= 1;
                if import.left > 0 {
                    return None;
                }
                Some(imported(shell, self.imports.remove(&batch)?))
            }
        }
    }
}

fn imported(shell: &Shell, import: Import) -> Ready {
    let answer = AppImported {
        v: VERSION,
        manager: shell.name.to_string(),
        apps: import.results,
    };
    Ready::Answer(import.to, Ok(to_bytes(&answer)))
}

/// What is known of an app.
fn show(machine: &Manager, look: Look, app: &str, to: ReplyTo) -> Ready {
    let Some((record, status)) = machine.record(app).zip(machine.status(app)) else {
        return Ready::Answer(to, Err(no_such_app(app)));
    };
    Ready::View(Box::new(View {
        look,
        to,
        status,
        record: record.clone(),
        bucket: machine.bucket(),
        acting: machine.is_acting(),
    }))
}

fn no_such_task(id: &str) -> WireError {
    let message = format!(
        "no stored request has the id {:?}; results are kept for an hour",
        placement::cut(id)
    );
    WireError::new(code::NOT_FOUND, message)
}

/// Builds a page of the apps that fits into one message.
fn page(shell: &Shell, machine: &Manager, list: &AppList, max_payload: usize) -> AppListed {
    let limit = list.limit.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let mut room = max_payload.saturating_sub(ENVELOPE);
    let mut page = AppListed {
        v: VERSION,
        manager: shell.name.to_string(),
        acting: machine.is_acting(),
        total: machine.count(),
        apps: Vec::new(),
        next: None,
    };
    for name in machine.apps_after(list.after.as_deref()) {
        let Some(status) = machine.status(name) else {
            continue;
        };
        let bytes = to_bytes(&status).len() + 1;
        if page.apps.len() >= limit || (bytes > room && !page.apps.is_empty()) {
            page.next = page.apps.last().map(|last| last.app.clone());
            break;
        }
        room = room.saturating_sub(bytes);
        page.apps.push(status);
    }
    page
}
