//! `app put`: puts the apps that files describe.

use placement::{DecisionOutcome, DecisionReport};
use serde_json::{Value, json};
use shared::wire::{AppChanged, AppPut, ErrorBody, FieldChange, PlaceAnswer, WireError, code};

use super::{
    changed,
    file::{self, FileApp},
    wait,
};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    commands::decisions,
    context::{Exit, Failure, Format, Global, Usage, failure_code},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file holds one app, an array of apps, or a list `apps`, as JSON or TOML: a start request without \
                  id, which may also have the sections crash, health and update. Putting the same again changes \
                  nothing. Each app is put by itself; the exit code is 2 when any of them is invalid, else 1 when any \
                  was not accepted, else 3 when instances are not placed (with --wait or --dry-run).\n\n\
                  Example: vendue app put examples/apps/web.toml --wait"
)]
pub(crate) struct PutArgs {
    /// Files of apps; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Only show what would change, and where new instances would be placed
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    #[command(flatten)]
    waiting: wait::Waiting,
}

/// The result for one app.
struct Result1 {
    app: String,
    changed: Result<AppChanged, WireError>,
    placement: Option<PlaceAnswer>,
}

/// Puts the apps.
pub(super) async fn put(global: &Global, args: &PutArgs) -> anyhow::Result<Exit> {
    let apps = file::read(&args.files)?;
    let cluster = Cluster::connect(global).await?;
    let mut results = Vec::new();
    for app in &apps {
        let changed = put_one(&cluster, app, args.dry_run).await?;
        let placement = match &changed {
            Ok(changed) if args.dry_run => place(&cluster, app, changed).await?,
            _ => None,
        };
        results.push(Result1 {
            app: app.app.clone(),
            changed,
            placement,
        });
    }
    if cluster.format == Format::Table {
        print(&results)?;
    }
    let put = results.iter().zip(&apps);
    let put = put.filter_map(|(result, app)| Some((result.changed.as_ref().ok()?, app)));
    let targets = put.map(|(changed, app)| wait::Target::running(changed).with(app.instances));
    let waited = args
        .waiting
        .until_ready(&cluster, targets.collect())
        .await?;
    match cluster.format {
        Format::Json => {
            let mut document = document(&results)?;
            if let Some(waited) = &waited {
                document["waited"] = serde_json::to_value(waited)?;
            }
            output::json(&document)?;
        }
        Format::Table => {
            wait::print(waited.as_deref().unwrap_or_default())?;
        }
    }
    Ok(exit(
        &results,
        wait::exit(waited.as_deref().unwrap_or_default()),
    ))
}

/// Puts one app. If it is refused, the others are still put; if no manager answers, they are not.
async fn put_one(
    cluster: &Cluster,
    app: &FileApp,
    dry_run: bool,
) -> anyhow::Result<Result<AppChanged, WireError>> {
    let question = AppPut {
        v: shared::VERSION,
        definition: app.definition.clone(),
        dry_run,
    };
    match changed::ask(cluster, "put", &app.app, &question).await {
        Ok(changed) => Ok(Ok(changed)),
        Err(error) => refusal(error).map(Err),
    }
}

/// Returns what a manager refused; any other error ends the command.
fn refusal(error: anyhow::Error) -> anyhow::Result<WireError> {
    let message = error.to_string();
    if let Some(usage) = error.downcast_ref::<Usage>() {
        return Ok(WireError {
            code: code::INVALID_REQUEST.into(),
            field: usage.field.clone(),
            message,
        });
    }
    let unanswered = [failure_code::UNREACHABLE, failure_code::NO_ANSWER];
    match error.downcast_ref::<Failure>() {
        Some(failure) if !unanswered.contains(&failure.code.as_str()) => {
            Ok(WireError::new(&failure.code, message))
        }
        _ => Err(error),
    }
}

/// Asks an auctioneer where the instances to be started would go. A cluster without one is no obstacle.
async fn place(
    cluster: &Cluster,
    app: &FileApp,
    changed: &AppChanged,
) -> anyhow::Result<Option<PlaceAnswer>> {
    let Some(request) = new_instances(app, changed) else {
        return Ok(None);
    };
    let question = json!({"v": shared::VERSION, "request": request});
    let subject = cluster.subjects.place();
    let asked = cluster.ask(Peer::Auctioneer, subject, &question, TIMEOUT);
    match asked.await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            note(format_args!(
                "{}: where it would be placed is not known: {error}",
                app.app
            ));
            Ok(None)
        }
    }
}

/// Returns a start request for what a change would start: everything if what runs is new, else what is added.
fn new_instances(app: &FileApp, changed: &AppChanged) -> Option<Value> {
    let own = |change: &FieldChange| {
        let first = change.field.split('.').next().unwrap_or_default();
        ["instances", "crash", "update"].contains(&first)
    };
    let before = changed
        .changes
        .iter()
        .find(|change| change.field == "instances");
    let before = before.map(|change| change.before.as_ref().and_then(Value::as_u64).unwrap_or(1));
    let mut request = app.definition.clone();
    let fields = request.as_object_mut()?;
    for field in ["v", "crash", "update"] {
        fields.remove(field);
    }
    if !changed.changed {
        return None;
    }
    if !changed.created && !changed.more && changed.changes.iter().all(own) {
        let before = u32::try_from(before?).ok()?;
        let added: Vec<u32> = (before..app.instances).collect();
        if added.is_empty() {
            return None;
        }
        fields.insert("indices".into(), added.into());
    }
    Some(request)
}

fn print(results: &[Result1]) -> anyhow::Result<()> {
    for result in results {
        match &result.changed {
            Ok(changed) => output::say(changed::in_a_line(changed))?,
            Err(error) => note(format_args!("{}: not put: {error}", result.app)),
        }
    }
    changed::print_changes(
        results
            .iter()
            .filter_map(|result| result.changed.as_ref().ok()),
    )?;
    let placed = results
        .iter()
        .filter_map(|result| result.placement.as_ref());
    let all: Vec<DecisionReport> = placed.flat_map(|p| p.decisions.iter().cloned()).collect();
    if !all.is_empty() {
        decisions::print(&all)?;
        note(format_args!(
            "{}, if all were started now, each app by itself; nothing was changed or started",
            decisions::counts(&all)
        ));
    }
    Ok(())
}

fn document(results: &[Result1]) -> anyhow::Result<Value> {
    let one = |result: &Result1| {
        let mut one = match &result.changed {
            Ok(changed) => serde_json::to_value(changed)?,
            Err(error) => {
                let ErrorBody { v, error } = error.body();
                json!({"v": v, "app": result.app, "error": error})
            }
        };
        if let Some(placement) = &result.placement {
            one["placement"] = serde_json::to_value(placement)?;
        }
        anyhow::Ok(one)
    };
    let apps: Vec<Value> = results.iter().map(one).collect::<Result<_, _>>()?;
    Ok(json!({"v": shared::VERSION, "apps": apps}))
}

/// Returns the first exit code that applies to any app: invalid, not accepted, the result of waiting, not placed.
fn exit(results: &[Result1], waited: Exit) -> Exit {
    let refused = |invalid: bool| {
        let mut errors = results
            .iter()
            .filter_map(|result| result.changed.as_ref().err());
        errors.any(|error| (error.code == code::INVALID_REQUEST) == invalid)
    };
    let decisions = results
        .iter()
        .filter_map(|result| result.placement.as_ref());
    let mut decisions = decisions.flat_map(|placement| &placement.decisions);
    if refused(true) {
        Exit::BadUsage
    } else if refused(false) {
        Exit::Failed
    } else if waited != Exit::Ok {
        waited
    } else if decisions.any(|decision| decision.outcome != DecisionOutcome::Placed) {
        Exit::Unplaced
    } else {
        Exit::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> FileApp {
        FileApp {
            app: "web".into(),
            instances: 5,
            definition: json!({"app": "web", "instances": 5, "crash": {}, "memory_mb": 1}),
        }
    }

    fn changed(fields: &[(&str, u64)], created: bool) -> AppChanged {
        let change = |(field, before): &(&str, u64)| FieldChange {
            field: (*field).into(),
            before: (*before > 0).then(|| (*before).into()),
            after: Some(5.into()),
        };
        AppChanged {
            app: "web".into(),
            changed: created || !fields.is_empty(),
            created,
            changes: fields.iter().map(change).collect(),
            ..AppChanged::default()
        }
    }

    #[test]
    fn a_dry_run_asks_for_what_would_be_started() {
        let all = json!({"app": "web", "instances": 5, "memory_mb": 1});
        let mut added = all.clone();
        added["indices"] = json!([3, 4]);
        let mut nearly_all = all.clone();
        nearly_all["indices"] = json!([1, 2, 3, 4]);
        for (fields, created, expected) in [
            (&[][..], true, Some(all.clone())),
            (&[("memory_mb", 2)], false, Some(all.clone())),
            (&[("health.check", 2)], false, Some(all)),
            (&[("instances", 3)], false, Some(added.clone())),
            (&[("instances", 3), ("crash.wait", 1)], false, Some(added)),
            // without a number, a definition means one instance
            (&[("instances", 0)], false, Some(nearly_all)),
            (&[("instances", 9)], false, None),
            (&[("update.order", 1)], false, None),
            (&[], false, None),
        ] {
            let asked = new_instances(&app(), &changed(fields, created));
            assert_eq!(asked, expected, "{fields:?}");
        }
    }

    #[test]
    fn the_worst_app_is_the_exit_code() {
        let result = |text: &str| Result1 {
            app: "web".into(),
            changed: match text {
                "put" => Ok(AppChanged::default()),
                code => Err(WireError::new(code, "")),
            },
            placement: None,
        };
        for (texts, waited, expected) in [
            ("put put", Exit::Ok, Exit::Ok),
            ("put put", Exit::Unplaced, Exit::Unplaced),
            ("put conflict", Exit::Unplaced, Exit::Failed),
            ("invalid_request conflict put", Exit::Ok, Exit::BadUsage),
        ] {
            let results: Vec<Result1> = texts.split(' ').map(result).collect();
            assert_eq!(exit(&results, waited), expected, "{texts}");
        }
    }

    #[test]
    fn only_what_a_manager_refused_lets_the_others_be_put() {
        let refused = refusal(Usage::of_field(Some("memory_mb".into()), "bad".into())).unwrap();
        assert_eq!(
            (refused.code.as_str(), refused.field.as_deref()),
            ("invalid_request", Some("memory_mb"))
        );
        assert_eq!(
            refusal(Failure::because(code::CONFLICT, "others"))
                .unwrap()
                .code,
            "conflict"
        );
        for unanswered in [failure_code::UNREACHABLE, failure_code::NO_ANSWER] {
            assert!(refusal(Failure::because(unanswered, "")).is_err());
        }
    }
}
