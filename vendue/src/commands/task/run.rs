//! `task run`: stores the tasks in files and has them carried out.

use std::time::Duration;

use serde_json::Value;

use super::{
    submit::{exit, report, stored, submit, tell_failed, tell_ids},
    wait::{self, Waited},
};
use crate::{
    cluster::Cluster,
    commands::request_file,
    context::{Exit, Global},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file holds one task or an array of them, as JSON: a start request, which may also have \
                  \"retries\" (how often a failed run is repeated; 0) and \"timeout\" (how long a run may take). A \
                  task without an \"id\" gets a new one. A repeated id is the same task: nothing runs twice.\n\n\
                  Example: vendue task run examples/task.json --wait"
)]
pub(crate) struct RunArgs {
    /// Files of tasks; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Wait until all have ended; the exit code is that of `vendue task wait`
    #[arg(long)]
    wait: bool,
    /// How long --wait waits at most [default: 1h]
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// Stores the tasks, and waits for them if requested.
pub(super) async fn run(global: &Global, args: &RunArgs) -> anyhow::Result<Exit> {
    let mut tasks = Vec::new();
    for file in &args.files {
        tasks.extend(in_file(file, &request_file::read(file)?)?);
    }
    let cluster = Cluster::connect(global).await?;
    let to = |id: &str| cluster.subjects.task("run", id);
    let submitted = submit(&cluster, tasks, &to).await?;
    let stored = stored(&submitted);
    if !args.wait || stored.is_empty() {
        return report(&cluster, &submitted);
    }
    tell_ids(&stored);
    tell_failed(&submitted);
    let failed = exit(&submitted);
    let timeout = args.timeout.unwrap_or(wait::TIMEOUT);
    let waited = wait::until_over(&cluster, Waited::stored(stored), timeout).await?;
    Ok(match failed {
        Exit::Ok => waited,
        worse => worse,
    })
}

/// Returns the tasks of a file, each with an id.
fn in_file(file: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let mut requests = match request_file::check_with(file, text, &request_file::STORED_FIELDS)? {
        Value::Array(many) => many,
        one => vec![one],
    };
    for request in &mut requests {
        if let Value::Object(fields) = request {
            fields.entry("kind").or_insert_with(|| "task".into());
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_file_get_ids_and_their_kind() {
        let text = r#"[{"app":"a","memory_mb":1,"disk_mb":1,"retries":2},{"id":"x","app":"b","memory_mb":1,"disk_mb":1,"kind":"lrp"}]"#;
        let tasks = in_file("tasks.json", text).unwrap();
        assert_eq!(
            (&tasks[0]["kind"], &tasks[0]["retries"]),
            (&"task".into(), &2.into())
        );
        assert!(tasks[0]["id"].as_str().is_some_and(|id| id.len() > 8));
        // the manager refuses it
        assert_eq!(
            (&tasks[1]["id"], &tasks[1]["kind"]),
            (&"x".into(), &"lrp".into())
        );
        assert!(in_file("tasks.json", "[]").is_err());
    }
}
