//! Real cells, whose ledgers accept or refuse.

use placement::Resources;
use serde_json::{Value, json};
use shared::shutdown::CancellationToken;

use crate::harness::{Cluster, cells_of};

/// Starts reps with a simulated executor, each with its own connection.
async fn reps(cluster: &Cluster, count: usize, memory_mb: i64) -> Vec<CancellationToken> {
    let mut tokens = Vec::new();
    for n in 0..count {
        let name = format!("cell-{n}");
        let zone = format!("z{}", n % 2);
        let mut config =
            rep::RepConfig::new(&name, zone, Resources::new(memory_mb, 100_000, 1_000));
        config.executor = rep::ExecutorKind::Simulated(rep::SimulatedConfig::default());
        let (bus, token) = (cluster.bus(&name).await, CancellationToken::new());
        tokio::spawn(rep::run(
            config,
            bus,
            cluster.subjects.clone(),
            token.clone(),
        ));
        tokens.push(token);
    }
    tokens
}

/// Returns what all cells report as running.
async fn running(cluster: &Cluster, cells: usize) -> Vec<Value> {
    let mut answers = Vec::new();
    shared::ask::gather(
        &cluster.client,
        cluster.subjects.instances(),
        "{\"v\":1}".into(),
        std::time::Duration::from_secs(10),
        None,
        |answer| {
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
            let more = answer["more"] == true;
            answers.push(answer);
            !more && answers.iter().filter(|a| a["more"] != true).count() == cells
        },
    )
    .await
    .unwrap();
    let instances = |answer: &Value| answer["instances"].as_array().cloned().unwrap();
    answers.iter().flat_map(instances).collect()
}

#[tokio::test]
async fn both_policies_start_what_they_placed() {
    for policy in ["dea", "diego"] {
        let cluster = Cluster::start().await;
        let _reps = reps(&cluster, 4, 1_000).await;
        let _auctioneer = cluster.warm("a1", policy, 4).await;
        let body = json!({ "app": "web", "memory_mb": 100, "disk_mb": 1, "run": { "command": ["true"] }, "instances": 8 });
        let reply = cluster.start_app(&body).await;
        assert_eq!(reply["outcome"], "placed", "{policy}: {reply}");
        let mut told: Vec<Value> = reply["instances"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["instance"].clone())
            .collect();
        let mut found: Vec<Value> = running(&cluster, 4)
            .await
            .iter()
            .map(|i| i["instance"].clone())
            .collect();
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        told.sort_by_key(text);
        found.sort_by_key(text);
        assert_eq!(told, found, "{policy}");
        let cells: std::collections::BTreeSet<String> = cells_of(&reply).into_iter().collect();
        assert_eq!(cells.len(), 4, "{policy}: spread over all");
        let stopped = cluster
            .ask(&cluster.subjects.stop(), &json!({ "app": "web" }))
            .await;
        assert_eq!(
            (&stopped["outcome"], &stopped["count"]),
            (&json!("stopped"), &json!(8))
        );
    }
}

#[tokio::test]
async fn two_auctioneers_at_work_never_overcommit() {
    for policy in ["dea", "diego"] {
        let cluster = Cluster::start().await;
        let _reps = reps(&cluster, 3, 1_000).await;
        let first = cluster.warm("a1", policy, 3).await;
        let second = cluster.warm("a2", policy, 3).await;
        // room for 30 instances of 100 MiB; 60 are requested at once, one per request
        let ask = async |n: usize| {
            let body = json!({ "app": format!("app{}", n % 7), "memory_mb": 100, "disk_mb": 1, "run": { "command": ["true"] },
                "instances": 60, "indices": [n] });
            cluster.start_app(&body).await
        };
        let replies = futures_util::future::join_all((0..60).map(ask)).await;
        let count = |outcome: &str| replies.iter().filter(|r| r["outcome"] == outcome).count();
        assert_eq!(count("unknown"), 0, "{policy}");
        let found = running(&cluster, 3).await;
        assert_eq!(
            found.len(),
            count("placed"),
            "{policy}: what was said is what runs"
        );
        assert_eq!(
            count("placed"),
            30,
            "{policy}: all room is used and no more"
        );
        drop((first, second));
    }
}

#[tokio::test]
async fn a_cell_that_withdraws_is_removed_at_once() {
    let cluster = Cluster::start().await;
    let reps = reps(&cluster, 2, 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 2).await;
    let watch = cluster.watch().await;
    reps[0].cancel();
    let lost = watch.received("vendue.event.cell-lost.cell-0").await;
    assert_eq!(lost["reason"], "cell withdrew");
    cluster.sees("a1", 1).await;
}

/// A new auctioneer does not know what was requested before, and asks the cells about every id that it is given.
#[tokio::test]
async fn arrays_with_ids_of_their_own_are_placed_once_by_an_auctioneer_that_has_just_started() {
    const CELLS: usize = 10;
    const ARRAYS: usize = 8;
    const REQUESTS: usize = 200;
    let cluster = Cluster::start().await;
    let _reps = reps(&cluster, CELLS, 100_000).await;
    let array = |number: usize| {
        let requests = (0..REQUESTS).map(|n| {
            json!({ "id": format!("r-{number}-{n}"), "app": format!("app{number}"), "instances": REQUESTS, "indices": [n],
                "memory_mb": 1, "disk_mb": 1, "deadline": "30s", "run": { "command": ["true"] } })
        });
        requests.collect::<Value>()
    };
    // some of each app run already, so that every cell may run some of each request
    let first = cluster.warm("a0", "dea", CELLS).await;
    for number in 0..ARRAYS {
        let body = json!({ "app": format!("app{number}"), "memory_mb": 1, "disk_mb": 1, "instances": CELLS, "run": { "command": ["true"] } });
        assert_eq!(cluster.start_app(&body).await["outcome"], "placed");
    }
    first.leave().await;
    let _auctioneer = cluster.warm("a1", "dea", CELLS).await;
    for repeated in [false, true] {
        let asked = (0..ARRAYS).map(|number| {
            let body = serde_json::to_vec(&array(number)).unwrap();
            let cluster = &cluster;
            async move {
                let patience = std::time::Duration::from_secs(60);
                let subject = cluster.subjects.start();
                cluster.raw_within(patience, &subject, &body).await.unwrap()
            }
        });
        for reply in futures_util::future::join_all(asked).await {
            let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
            assert_eq!(reply["outcome"], "placed", "repeated: {repeated}");
        }
        let found = running(&cluster, CELLS).await;
        assert_eq!(found.len(), ARRAYS * (REQUESTS + CELLS), "each runs once");
    }
}
