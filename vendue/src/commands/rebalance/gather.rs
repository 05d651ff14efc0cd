//! Gathers what a plan is based on: the cells as an auctioneer knows them, the instances as the cells list them, and
//! the apps as a manager knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use manager::{AppDefinition, UpdateOrder, WaveId};
use placement::{Movable, Policy, Pool, Request, Usage};
use serde::Serialize;
use serde_json::{Value, json};
use shared::wire::{AppLook, AppShown, AppStatus, InstanceState, Rollout, code, to_bytes};

use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    commands::{
        app::list,
        instances::{self, Located},
        policy_file,
    },
    context::Failure,
    output::with_progress,
};

/// Maximum number of concurrent questions for definitions.
const AT_ONCE: usize = 16;

/// An app that is left out of the moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LeftOut {
    pub(super) app: String,
    pub(super) why: String,
}

/// The present state of the cluster.
pub(super) struct Gathered {
    pub(super) auctioneer: String,
    policy: String,
    pub(super) pool: Pool,
    pub(super) movable: Vec<Movable>,
    /// The measured usage of each cell.
    pub(super) usage: BTreeMap<Arc<str>, Usage>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Gathered {
    /// Returns the auctioneer's policy, which is known here only if it is a preset.
    pub(super) fn policy(&self) -> anyhow::Result<Policy> {
        policy_file::load(&self.policy).map_err(|error| {
            error.context(format!(
                "the policy of {} is no preset: --policy FILE names it",
                self.auctioneer
            ))
        })
    }
}

/// Asks for everything; if apps are named, only for those.
pub(super) async fn gather(cluster: &Cluster, only: &[String]) -> anyhow::Result<Gathered> {
    let listed = list::all(cluster).await?;
    let known = instances::pool(cluster, TIMEOUT).await?;
    let mut pool = Pool::default();
    for entry in known.cells {
        pool.put(entry.cell);
    }
    check_known(only, &listed.apps)?;
    let mut left_out = Vec::new();
    let wanted = |status: &AppStatus| only.is_empty() || only.contains(&status.app);
    let mut apps = Vec::new();
    for status in listed.apps.into_iter().filter(wanted) {
        match why_not(&status) {
            // nothing of it is to run, which matters only to who names it
            Some(STOPPED) if only.is_empty() => {}
            None => apps.push(status),
            Some(why) => left_out.push(LeftOut {
                app: status.app,
                why: why.into(),
            }),
        }
    }
    let definitions = definitions(cluster, apps, &mut left_out).await;
    let held = instances::held(cluster, None).await?;
    Ok(Gathered {
        auctioneer: known.auctioneer,
        policy: known.policy,
        movable: movable(&held.instances, &definitions, &pool),
        usage: usage(&held.instances),
        pool,
        left_out,
    })
}

/// Refuses a name that no app has.
fn check_known(only: &[String], apps: &[AppStatus]) -> anyhow::Result<()> {
    let known: BTreeSet<&str> = apps.iter().map(|status| status.app.as_str()).collect();
    match only.iter().find(|app| !known.contains(app.as_str())) {
        None => Ok(()),
        Some(app) => Err(Failure::because(
            code::NOT_FOUND,
            format!(
                "--app: {app:?} is not known; expected an app that a manager keeps running (`vendue app list`)"
            ),
        )),
    }
}

/// Why nothing of an app that is not to run is moved.
const STOPPED: &str = "it is stopped";

/// Explains why no instance of an app is moved now.
fn why_not(status: &AppStatus) -> Option<&'static str> {
    if status.deleted || status.stopped {
        return Some(STOPPED);
    }
    if status.went_back {
        return Some("it is to be put again");
    }
    (status.rollout != Rollout::Done).then_some("its rollout has not been completed")
}

/// What runs of each app: its status, and what an instance needs.
type Definitions = BTreeMap<String, (AppStatus, Arc<Request>)>;

async fn definitions(
    cluster: &Cluster,
    apps: Vec<AppStatus>,
    left_out: &mut Vec<LeftOut>,
) -> Definitions {
    let one = async |status: AppStatus| {
        let definition = definition(cluster, &status).await;
        (status, definition)
    };
    let asked = stream::iter(apps).map(one).buffered(AT_ONCE);
    let asked = with_progress("waiting for definitions", asked.collect::<Vec<_>>()).await;
    let mut definitions = Definitions::new();
    for (status, definition) in asked {
        match definition {
            Ok(request) => {
                definitions.insert(status.app.clone(), (status, request));
            }
            Err(why) => left_out.push(LeftOut {
                app: status.app,
                why,
            }),
        }
    }
    definitions
}

/// Returns what an instance of the app needs, or why none is moved.
async fn definition(cluster: &Cluster, status: &AppStatus) -> Result<Arc<Request>, String> {
    let question = AppLook {
        v: shared::VERSION,
        version: None,
    };
    let subject = cluster.subjects.app("show", &status.app);
    let asked = cluster.ask_quietly(Peer::Manager, subject, to_bytes(&question), TIMEOUT);
    let answer = asked.await.map_err(|error| error.to_string())?;
    let shown: AppShown = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
    let definition = read(shown.definition)?;
    if definition.update.order == UpdateOrder::StopFirst {
        return Err("two of an index may not run at once (update.order is stop-first)".into());
    }
    if !definition.template.devices.is_empty() {
        return Err("it uses devices, and which of them are free elsewhere is not planned".into());
    }
    let mut request = Request::clone(&definition.template);
    request.instances = definition.instances;
    Ok(Arc::new(request))
}

/// Reads a definition without the values of the environment and without the contents of a droplet, which are not
/// revealed and do not affect the choice of a cell.
fn read(mut definition: Value) -> Result<AppDefinition, String> {
    if let Some(run) = definition["run"].as_object_mut() {
        run.remove("env");
        // only on which cells it can run matters, but a droplet needs an address
        if let Some(droplet) = run.get_mut("droplet") {
            *droplet = json!({"uri": "http://hidden.invalid/"});
        }
    }
    AppDefinition::read(&to_bytes(&definition)).map_err(|error| error.message)
}

/// Returns the usable instances of these apps on cells that take work.
fn movable(instances: &[Located], definitions: &Definitions, pool: &Pool) -> Vec<Movable> {
    let movable = instances.iter().filter_map(|located| {
        let instance = &located.instance;
        let (status, request) = definitions.get(&instance.app)?;
        let wave = WaveId::parse(instance.request.as_ref()?.as_ref())?;
        let is_wanted = wave.uid.to_string() == status.uid && instance.index < status.wanted;
        let is_up = instance.state == InstanceState::Running && instance.ready != Some(false);
        let stays = pool.get(&located.cell).is_some_and(|cell| !cell.evacuating);
        (is_wanted && is_up && stays).then(|| Movable {
            request: Arc::clone(request),
            index: instance.index,
            cell: located.cell.as_str().into(),
            usage: instance.usage,
        })
    });
    movable.collect()
}

/// Returns what all instances of each cell use, as far as measured; an instance without measurements counts with its
/// reservation.
fn usage(instances: &[Located]) -> BTreeMap<Arc<str>, Usage> {
    let mut cells: BTreeMap<Arc<str>, Usage> = BTreeMap::new();
    for located in instances.iter().filter(|located| located.lives()) {
        let own = located.instance.usage.unwrap_or(Usage {
            memory_mb: located.instance.memory_mb,
            cpu_millis: 0,
        });
        let cell = cells.entry(located.cell.as_str().into()).or_default();
        cell.memory_mb += own.memory_mb;
        cell.cpu_millis += own.cpu_millis;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(fields: Value) -> AppStatus {
        let mut whole = json!({
            "app": "web", "uid": "00000001", "version": 1, "wanted": 2, "running": 2, "starting": 0,
            "complete": 2, "rollout": "done",
        });
        if let Value::Object(fields) = fields {
            whole.as_object_mut().unwrap().extend(fields);
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn an_app_that_changes_is_left_as_it_is() {
        assert_eq!(why_not(&status(json!({}))), None);
        assert!(why_not(&status(json!({"rollout": "running"}))).is_some());
        assert_eq!(why_not(&status(json!({"stopped": true}))), Some(STOPPED));
        assert!(why_not(&status(json!({"went_back": true}))).is_some());
    }

    #[test]
    fn an_app_that_no_manager_knows_is_refused() {
        let apps = [status(json!({}))];
        assert!(check_known(&["web".into()], &apps).is_ok());
        let refused = check_known(&["web".into(), "db".into()], &apps).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("--app: \"db\" is not known")
        );
    }

    #[test]
    fn a_definition_is_read_without_its_environment() {
        let definition = json!({
            "app": "web", "memory_mb": 64, "disk_mb": 1,
            "run": {"command": ["sleep", "1"], "env": ["COLOUR"]}, "update": {"order": "stop-first"},
        });
        let definition = read(definition).unwrap();
        assert_eq!(definition.update.order, UpdateOrder::StopFirst);
        assert!(read(json!({"app": "web"})).is_err());
    }
}
