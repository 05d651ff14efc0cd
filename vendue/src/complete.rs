//! Completion in the shell, including values: cells, apps, zones, policies, scenarios, contexts.
//!
//! The name of an argument's value determines what it takes (`CELL`, `APP`, `NAME|FILE`), so a new command completes
//! without changes here. Completion briefly asks the cluster that the line names, and stays silent if nobody answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    future::Future,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use clap::{Arg, Command, FromArgMatches};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter},
    env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh},
};
use placement::Policy;
use shared::{
    Subjects, ask, nats,
    wire::{AppList, AppListed, Instances, InstancesAnswer, QueuedRequest},
};
use simulator::{scenario::AUCTIONS_2014, shipped};

use crate::{
    cluster::{Cluster, Peer, nats_options, short_name},
    commands::{condition, instances, task},
    context::{Format, Global},
};

/// The variable that contains the shell's name when a shell asks.
const VARIABLE: &str = "VENDUE_COMPLETE";
/// A person is waiting: what is not answered within this time is not offered.
const DEADLINE: Duration = Duration::from_millis(300);
/// How long to wait after the last answer, as the number of cells is not asked for first.
const QUIET: Duration = Duration::from_millis(80);

const SHELLS: Shells<'static> = Shells(&[&BashWords, &Elvish, &Fish, &Powershell, &Zsh]);

/// Returns whether a shell asks for completions instead of running a command.
pub(crate) fn is_asked() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Answers the shell. Returns false if it does not ask after all.
pub(crate) fn answer(command: &Command) -> io::Result<bool> {
    let asked = CompleteEnv::with_factory(|| completing(command))
        .var(VARIABLE)
        .shells(SHELLS)
        .try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref());
    asked.map_err(io::Error::other)
}

/// Returns what a shell reads to ask us from then on.
pub(crate) fn registration(shell: &str) -> io::Result<Vec<u8>> {
    let completer = SHELLS.completer(shell);
    let completer = completer.ok_or_else(|| io::Error::other("no such shell"))?;
    let mut text = Vec::new();
    completer.write_registration(VARIABLE, "vendue", "vendue", "vendue", &mut text)?;
    Ok(text)
}

/// Returns the command line without hidden parts, and with completers.
fn completing(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in args.cloned() {
        shown = shown.arg(match completer(&arg) {
            Some(completer) => arg.add(completer),
            None => arg,
        });
    }
    let commands = command.get_subcommands().filter(|c| !c.is_hide_set());
    shown.subcommands(commands.map(completing))
}

/// Returns how the values of an argument are completed, if the library does not know.
fn completer(arg: &Arg) -> Option<ArgValueCompleter> {
    if arg.get_id() == "context" {
        return Some(ArgValueCompleter::new(contexts));
    }
    let values = arg.get_value_names().and_then(|names| names.first());
    let what = match values {
        Some(name) => name.to_string(),
        None if arg.get_num_args().is_some_and(|n| !n.takes_values()) => return None,
        None => arg.get_id().as_str().to_uppercase(),
    };
    Some(match what.as_str() {
        "CELL" => ArgValueCompleter::new(cells),
        "N:like=CELL" => ArgValueCompleter::new(cells_alike),
        "ZONE" => ArgValueCompleter::new(zones),
        "APP" => ArgValueCompleter::new(apps),
        "TASK" => ArgValueCompleter::new(tasks),
        "APP|CELL" => ArgValueCompleter::new(apps_and_cells),
        "NAME|FILE" if arg.get_id() == "policy" => ArgValueCompleter::new(policies),
        "SCENARIO" => ArgValueCompleter::new(scenarios),
        "FIELD OP VALUE" => ArgValueCompleter::new(fields),
        "ATTRIBUTE=VALUE" => ArgValueCompleter::new(attributes),
        "FILE" => ArgValueCompleter::new(PathCompleter::any()),
        _ => return None,
    })
}

/// Candidates with their descriptions.
type Candidates = BTreeMap<String, String>;

fn matching(candidates: Candidates, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let matching = candidates
        .into_iter()
        .filter(|(name, _)| name.starts_with(&*typed));
    matching
        .map(|(name, said)| {
            let said = (!said.is_empty()).then_some(said);
            CompletionCandidate::new(name).help(said.map(Into::into))
        })
        .collect()
}

fn policies(typed: &OsStr) -> Vec<CompletionCandidate> {
    let simulates = words().iter().any(|word| word == "sim");
    let old = AUCTIONS_2014.iter().filter(|_| simulates);
    let names = Policy::PRESETS.iter().chain(old);
    let names = names.map(|name| ((*name).to_owned(), String::new()));
    let mut found = matching(names.collect(), typed);
    found.extend(files(typed, &["toml"]));
    found
}

fn scenarios(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = shipped::ALL
        .iter()
        .map(|(name, _)| ((*name).to_owned(), String::new()));
    let mut found = matching(names.collect(), typed);
    found.extend(files(typed, &["toml", "json"]));
    found
}

/// Completes files with these extensions, and directories on the way.
fn files(typed: &OsStr, ends: &'static [&'static str]) -> Vec<CompletionCandidate> {
    let wanted = move |path: &Path| {
        let end = path.extension().and_then(OsStr::to_str);
        path.is_dir() || end.is_some_and(|end| ends.contains(&end))
    };
    PathCompleter::any().filter(wanted).complete(typed)
}

fn contexts(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = nats::context_names().into_iter();
    matching(names.map(|name| (name, String::new())).collect(), typed)
}

fn fields(typed: &OsStr) -> Vec<CompletionCandidate> {
    let fields = condition::field_names().into_iter();
    matching(fields.map(|name| (name, String::new())).collect(), typed)
}

fn attributes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let all = serde_json::to_value(placement::Attributes::default()).unwrap_or_default();
    let names = all.as_object().into_iter().flatten();
    let names = names.map(|(name, _)| (format!("{name}="), String::new()));
    matching(names.collect(), typed)
}

fn cells(typed: &OsStr) -> Vec<CompletionCandidate> {
    let pool = asking(|cluster| async move { pool(&cluster).await }).unwrap_or_default();
    let named = |(cell, zone): (String, String)| (cell, format!("zone {zone}"));
    matching(pool.into_iter().map(named).collect(), typed)
}

/// Completes `3:like=` and a cell.
fn cells_alike(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let Some(at) = typed.find('=') else {
        return Vec::new();
    };
    let (count, cell) = typed.split_at(at + 1);
    let found = cells(OsStr::new(cell)).into_iter();
    found.map(|cell| cell.add_prefix(count)).collect()
}

fn zones(typed: &OsStr) -> Vec<CompletionCandidate> {
    let pool = asking(|cluster| async move { pool(&cluster).await }).unwrap_or_default();
    let zones = pool.into_values().map(|zone| (zone, String::new()));
    matching(zones.collect(), typed)
}

fn apps(typed: &OsStr) -> Vec<CompletionCandidate> {
    // `vendue app` only knows apps that were put
    let only_put = words().get(1).is_some_and(|word| word == "app");
    let known = asking(|cluster| async move {
        if only_put {
            return Some(apps_put(&cluster).await);
        }
        let (held, put) = tokio::join!(apps_held(&cluster), apps_put(&cluster));
        Some(held.into_iter().chain(put).collect())
    });
    let names = known.unwrap_or_default().into_iter();
    let names = names.map(|name| (name, String::new()));
    matching(names.collect(), typed)
}

fn tasks(typed: &OsStr) -> Vec<CompletionCandidate> {
    let ids = asking(|cluster| async move { Some(task::ids(&cluster).await) });
    let ids = ids.unwrap_or_default().into_iter();
    matching(ids.map(|id| (id, String::new())).collect(), typed)
}

fn apps_and_cells(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = apps(typed);
    found.extend(cells(typed));
    found
}

/// Returns every cell with its zone.
async fn pool(cluster: &Cluster) -> Option<BTreeMap<String, String>> {
    let pool = instances::pool(cluster, DEADLINE).await.ok()?;
    let cells = pool.cells.into_iter();
    Some(
        cells
            .map(|c| (c.cell.cell.clone(), c.cell.zone.clone()))
            .collect(),
    )
}

/// Returns the apps of which cells hold or remember instances, or auctioneers have some queued.
async fn apps_held(cluster: &Cluster) -> BTreeSet<String> {
    let mut apps = BTreeSet::new();
    let question = Instances {
        v: shared::VERSION,
        ..Instances::default()
    };
    let take = |answer: Result<InstancesAnswer, _>| {
        let held = answer.into_iter().flat_map(|answer| answer.instances);
        apps.extend(held.map(|instance| instance.app));
        false
    };
    let (bus, subjects) = (&cluster.bus, &cluster.subjects);
    let held = ask::instances(bus, subjects, &question, (DEADLINE, Some(QUIET)), take);
    let request = QueuedRequest {
        v: shared::VERSION,
        app: None,
        limit: None,
    };
    let waiting = ask::queued(bus, subjects, &request);
    let (_, waiting) = tokio::join!(held, waiting);
    let groups = waiting.unwrap_or_default();
    let groups = groups.into_iter().flat_map(|answer| answer.queued);
    apps.extend(groups.map(|group| group.app));
    apps
}

/// Returns the first page of the apps that managers keep running.
async fn apps_put(cluster: &Cluster) -> BTreeSet<String> {
    let question = AppList::default();
    let subject = cluster.subjects.app_list();
    let asked = cluster.ask::<AppListed>(Peer::Manager, subject, &question, DEADLINE);
    let apps = asked.await.map_or(Vec::new(), |listed| listed.apps);
    apps.into_iter().map(|status| status.app).collect()
}

/// Asks the cluster that the line names; nothing if it does not answer in time.
fn asking<T, F>(question: impl FnOnce(Cluster) -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let global = global(words())?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().ok()?;
    let asked = async {
        let options = nats_options(&global, &short_name("complete"), false);
        let cluster = Cluster {
            bus: nats::connect(&options).await.ok()?,
            subjects: Subjects::new(global.prefix.as_str()).ok()?,
            format: Format::Json,
        };
        question(cluster).await
    };
    // the parts have their own deadlines: this one is for connecting
    let asked = async { tokio::time::timeout(DEADLINE * 2, asked).await };
    let found = runtime.block_on(asked).ok().flatten();
    runtime.shutdown_background();
    found
}

/// Returns the line so far, as given by the shell.
fn words() -> Vec<OsString> {
    let line = std::env::args_os().skip_while(|word| word != "--").skip(1);
    line.take_while(|word| word != "--").collect()
}

/// Returns where the cluster is, according to the line and the environment.
fn global(words: Vec<OsString>) -> Option<Global> {
    let flags = ["nats", "prefix", "creds", "context"];
    let mut given = vec![OsString::from("vendue")];
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let name = text.strip_prefix("--").unwrap_or_default();
        let (name, joined) = match name.split_once('=') {
            Some((name, _)) => (name, true),
            None => (name, false),
        };
        if flags.contains(&name) && (joined || rest.peek().is_some()) {
            given.push(word.clone());
            given.extend(if joined { None } else { rest.next() });
        }
    }
    let command = <Global as clap::Args>::augment_args(Command::new("vendue"));
    let matches = command.try_get_matches_from(given).ok()?;
    Global::from_arg_matches(&matches).ok()
}

/// bash, with the words as they were typed: by default it also splits them at `:`, `=` and `@`, so that an address or
/// `--policy=diego` would no longer be one word.
struct BashWords;

const BASH: &str = r#"
_vendue() {
    local line=${COMP_LINE:0:COMP_POINT} words current head IFS=$' \t\n'
    read -ra words <<< "$line"
    if [[ $line == *[[:space:]] ]]; then words+=(""); fi
    current=${words[${#words[@]}-1]}
    IFS=$'\n'
    COMPREPLY=($(VENDUE_COMPLETE=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) \
        vendue -- "${words[@]}" 2> /dev/null))
    # bash replaces what stands after the last of its own breaks only
    head=${current%"$2"}
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=:] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o bashdefault -o nosort -F _vendue vendue 2> /dev/null ||
    complete -o bashdefault -F _vendue vendue
"#;

impl EnvCompleter for BashWords {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        _var: &str,
        _name: &str,
        _bin: &str,
        _completer: &str,
        buf: &mut dyn Write,
    ) -> Result<(), io::Error> {
        buf.write_all(BASH.trim_start().as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), io::Error> {
        Bash.write_complete(cmd, args, current_dir, buf)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_is_hidden_is_not_offered() {
        let shown = completing(&crate::cli::Cli::command());
        let names: Vec<&str> = shown.get_subcommands().map(Command::get_name).collect();
        assert!(
            names.contains(&"wait") && !names.contains(&"web"),
            "{names:?}"
        );
        let up = shown.find_subcommand("up").unwrap();
        let longs: Vec<&str> = up.get_arguments().filter_map(Arg::get_long).collect();
        assert!(longs.contains(&"cells") && !longs.contains(&"until-stdin-ends"));
    }

    #[test]
    fn the_cluster_is_the_one_that_the_line_names() {
        let read = |line: &str| global(line.split(' ').map(OsString::from).collect()).unwrap();
        let global = read("vendue ps --all --nats nats://h:1 --cell x --prefix=other --zone");
        assert_eq!(global.nats.as_deref(), Some("nats://h:1"));
        assert_eq!(global.prefix, "other");
        let global = read("vendue cells --context prod show");
        assert_eq!(global.context.as_deref(), Some("prod"));
        // the value is still to come
        assert_eq!(read("vendue cells --nats").nats, None);
    }
}
