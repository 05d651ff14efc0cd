//! Refuses to start what already runs: outside a manager nobody can tell that an app was started twice, in two
//! requests, which a person rarely intends.

use std::collections::{BTreeMap, BTreeSet};

use placement::Request;
use serde_json::Value;
use shared::{
    AttemptId,
    wire::{Instance, InstanceState, format_indices, instance_id},
};

use super::{
    instances::{self, Answers},
    managed,
};
use crate::{
    cluster::Cluster,
    context::{Failure, failure_code},
    output::counted,
};

/// Fails if instances of the requested apps that belong to other requests run or wait. A request that names indices is
/// only refused for those. `requests` is one start request or an array.
pub(crate) async fn refuse(cluster: &Cluster, requests: &Value) -> anyhow::Result<()> {
    let all = match requests {
        Value::Array(many) => many.as_slice(),
        one => std::slice::from_ref(one),
    };
    // the auctioneer reports an invalid request in an array
    let all: Vec<Request> = all
        .iter()
        .filter_map(|request| serde_json::from_value(request.clone()).ok())
        .collect();
    let apps: BTreeSet<&str> = all.iter().map(|request| request.app.as_str()).collect();
    managed::refuse_start(cluster, &apps).await?;
    let only = apps.first().copied().filter(|_| apps.len() == 1);
    let answers = instances::held_and_queued(cluster, only).await;
    let answers = match answers {
        // without cells nothing runs; a lost connection does not prove that
        Err(e) if is_unreachable(&e) => return cluster.check_connected(),
        answers => answers?,
    };
    // even if no manager answers now, its instances run
    let mut of_manager = answers
        .instances
        .iter()
        .filter(|l| managed::is_of_manager(l));
    if let Some(located) = of_manager.find(|l| apps.contains(l.instance.app.as_str())) {
        return Err(managed::start_refusal(&located.instance.app));
    }
    match refusal(&all, &answers) {
        Some(message) => Err(anyhow::anyhow!(message)),
        None => Ok(()),
    }
}

fn is_unreachable(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| failure.code == failure_code::UNREACHABLE)
}

/// What already exists, by app.
#[derive(Debug, Default)]
struct Existing {
    indices: BTreeSet<u32>,
    running: usize,
    queued: usize,
}

fn refusal(requests: &[Request], answers: &Answers) -> Option<String> {
    let mut there: BTreeMap<&str, Existing> = BTreeMap::new();
    for (app, requests) in by_app(requests) {
        let wanted = |index: u32| {
            let names = |request: &&Request| match &request.indices {
                Some(indices) => indices.contains(&index),
                None => true,
            };
            requests.iter().any(names)
        };
        for located in answers.instances.iter().filter(|l| l.instance.app == app) {
            let instance = &located.instance;
            let stays = located.lives() && instance.state != InstanceState::Stopping;
            if stays && wanted(instance.index) && !is_own(&requests, instance) {
                let there = there.entry(app).or_default();
                there.indices.insert(instance.index);
                there.running += 1;
            }
        }
        let ids: BTreeSet<&str> = requests.iter().map(|request| &*request.id).collect();
        for group in answers.queued.iter().filter(|group| group.app == app) {
            let indices = instances::indices(group).into_iter();
            let indices: Vec<u32> = indices.filter(|index| wanted(*index)).collect();
            if !ids.contains(group.request.as_str()) && !indices.is_empty() {
                let there = there.entry(app).or_default();
                there.queued += indices.len();
                there.indices.extend(indices);
            }
        }
    }
    (!there.is_empty()).then(|| message(&there))
}

fn by_app(requests: &[Request]) -> BTreeMap<&str, Vec<&Request>> {
    let mut by_app: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
    for request in requests {
        by_app.entry(&request.app).or_default().push(request);
    }
    by_app
}

/// Returns whether an instance belongs to one of these requests themselves: repeating an id is not a second start.
fn is_own(requests: &[&Request], instance: &Instance) -> bool {
    requests.iter().any(|request| {
        let (kind, index) = (instance.kind, instance.index);
        instance_id(&request.id, &request.app, kind, index) == instance.instance
            || is_attempt(request, instance)
    })
}

/// Returns whether an instance was started by a manager for a stored request of the same id and app.
fn is_attempt(request: &Request, instance: &Instance) -> bool {
    let of = instance.request.as_ref();
    let attempt = of.and_then(|id| AttemptId::parse(id.as_str()));
    instance.app == request.app && attempt.is_some_and(|attempt| attempt.id == request.id)
}

fn message(there: &BTreeMap<&str, Existing>) -> String {
    let mut lines: Vec<String> = there
        .iter()
        .map(|(app, there)| there.in_words(app))
        .collect();
    if let (1, Some((app, there))) = (there.len(), there.first_key_value()) {
        let next = there.indices.last().map_or(0, |last| last + 1);
        lines.push(format!(
            "`vendue stop {app}` stops it; indices from {next} up add instances to it; with --again \
             new instances with the same indices run beside the old ones"
        ));
    } else {
        lines.push("--again starts them beside what runs; nothing was started".into());
    }
    lines.join("\n")
}

impl Existing {
    fn in_words(&self, app: &str) -> String {
        let indices = format_indices(self.indices.iter().copied());
        let mut counts = Vec::new();
        if self.running > 0 {
            counts.push(counted(self.running, "instance"));
        }
        if self.queued > 0 {
            counts.push(format!("{} queued", self.queued));
        }
        let counts = counts.join(", ");
        let index = if self.indices.len() == 1 {
            "index"
        } else {
            "indices"
        };
        format!("{app} runs already: {counts} ({index} {indices})")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::app_status::tests::{group, located};

    fn request(text: &Value) -> Request {
        let mut whole = json!({"app": "a", "memory_mb": 1, "disk_mb": 1, "id": "r-9"});
        for (field, value) in text.as_object().unwrap() {
            whole[field] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn answers(instances: &[&str], queued: &[&str]) -> Answers {
        Answers {
            instances: instances.iter().map(|text| located(text)).collect(),
            queued: queued.iter().map(|text| group(text)).collect(),
            ..Answers::default()
        }
    }

    #[test]
    fn what_runs_or_waits_for_another_request_is_refused() {
        let all = |requests: &[Value], answers: &Answers| {
            let requests: Vec<Request> = requests.iter().map(request).collect();
            refusal(&requests, answers)
        };
        let running = answers(
            &["lrp 0 running 1", "lrp 1 starting 1", "lrp 2 stopping 1"],
            &[],
        );
        let said = all(&[json!({})], &running).unwrap();
        assert!(
            said.contains("a runs already: 2 instances (indices 0-1)"),
            "{said}"
        );
        assert!(
            said.contains("--again") && said.contains("vendue stop a"),
            "{said}"
        );
        // other indices are an addition
        assert_eq!(
            all(&[json!({"instances": 4, "indices": [2, 3]})], &running),
            None
        );
        let said = all(&[json!({"instances": 4, "indices": [1, 3]})], &running).unwrap();
        assert!(said.contains("1 instance (index 1)"), "{said}");
        let said = all(&[json!({})], &answers(&[], &["3-4"])).unwrap();
        assert!(
            said.contains("a runs already: 2 queued (indices 3-4)"),
            "{said}"
        );
        // ended instances and other apps do not matter
        let ended = answers(&["lrp 0 crashed 1", "lrp 1 exited 1"], &[]);
        assert_eq!(all(&[json!({})], &ended), None);
        assert_eq!(all(&[json!({"app": "b"})], &running), None);
        // every app of an array is named
        let mut two = running.clone();
        let mut other = two.instances[0].clone();
        other.instance.app = "b".into();
        two.instances.push(other);
        let said = all(&[json!({}), json!({"app": "b"}), json!({"app": "c"})], &two).unwrap();
        assert!(
            said.contains("a runs already") && said.contains("b runs already"),
            "{said}"
        );
        assert!(!said.contains("c runs"), "{said}");
    }

    #[test]
    fn a_repeat_of_the_same_request_is_no_second_start() {
        let mut answers = answers(&["lrp 0 running 1"], &["1"]);
        answers.instances[0].instance.instance = instance_id("r-1", "a", placement::Kind::Lrp, 0);
        let own = request(&json!({"id": "r-1", "instances": 2}));
        assert_eq!(refusal(&[own], &answers), None);
        let other = request(&json!({"id": "r-2", "instances": 2}));
        assert!(refusal(&[other], &answers).is_some());
        // of a stored one, too
        let attempt = "t-0000000b-1-r-2".parse().unwrap();
        answers.instances[0].instance.request = Some(attempt);
        answers.queued.clear();
        let repeat = request(&json!({"id": "r-2"}));
        assert_eq!(refusal(&[repeat], &answers), None);
        let other = request(&json!({"id": "r-3"}));
        assert!(refusal(&[other], &answers).is_some());
    }
}
