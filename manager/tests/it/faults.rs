//! Losses: of cells, managers, the bucket, the server.

use std::collections::BTreeMap;

use async_nats::jetstream::Context;
use futures_util::StreamExt;
use serde_json::{Value, json};
use testkit::{eventually, eventually_within};

use crate::harness::{Cluster, PATIENCE, web};

#[tokio::test]
async fn what_a_lost_cell_ran_is_replaced() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let mut cells = cluster.cells(3).await;
    let _manager = cluster.manager("m1").await;
    cluster.put(web(6)).await;
    let before = cluster.each_once("web", 6).await;
    drop(cells.remove(0));
    let after = cluster.each_once("web", 6).await;
    let stayed = before.iter().filter(|(index, id)| after[index] == **id);
    assert_eq!(stayed.count(), 4, "{before:?} {after:?}");
    cluster.runs("web", 6).await;
}

#[tokio::test]
async fn another_manager_goes_on_where_the_first_was_killed() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let mut cells = cluster.cells(3).await;
    let first = cluster.manager("m1").await;
    cluster.put(web(6)).await;
    let before = cluster.each_once("web", 6).await;
    let second = cluster.manager("m2").await;
    let mut started = cluster
        .client
        .subscribe("vendue.event.placed.web.*")
        .await
        .unwrap();
    cluster.client.flush().await.unwrap();
    drop(first);
    drop(cells.remove(0));
    let after = cluster.each_once("web", 6).await;
    let stayed = before.iter().filter(|(index, id)| after[index] == **id);
    assert_eq!(stayed.count(), 4, "{before:?} {after:?}");
    // nothing that ran was started again, and each lost index was started once
    let mut placed: BTreeMap<u64, usize> = BTreeMap::new();
    second.leave().await;
    while let Ok(Some(event)) =
        tokio::time::timeout(std::time::Duration::from_millis(300), started.next()).await
    {
        let event: Value = serde_json::from_slice(&event.payload).unwrap();
        for one in event["instances"].as_array().unwrap() {
            *placed.entry(one["index"].as_u64().unwrap()).or_default() += 1;
        }
    }
    let lost = before.iter().filter(|(index, id)| after[index] != **id);
    let expected: BTreeMap<u64, usize> = lost.map(|(index, _)| (*index, 1)).collect();
    assert_eq!(placed, expected);
}

#[tokio::test]
async fn a_manager_that_leaves_gives_the_lease_back_at_once() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _cells = cluster.cells(1).await;
    let first = cluster.manager("m1").await;
    cluster.put(web(1)).await;
    cluster.runs("web", 1).await;
    let _second = cluster.manager("m2").await;
    eventually("the second to know the app", async || {
        let listed = cluster.ask(&cluster.subjects.app_list(), &json!({})).await;
        let second = listed["manager"] == "m2" && listed["total"] == 1;
        second.then_some(()).ok_or(listed.to_string())
    })
    .await;
    let began = std::time::Instant::now();
    first.leave().await;
    eventually_within(PATIENCE, "the second to act", async || {
        let listed = cluster.ask(&cluster.subjects.app_list(), &json!({})).await;
        let acts = listed["manager"] == "m2" && listed["acting"] == true;
        acts.then_some(()).ok_or(listed.to_string())
    })
    .await;
    // a lease that was not given back is taken after 15 s
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_deleted_bucket_stops_nothing_and_a_restored_one_takes_over_what_runs() {
    lose_and_restore(async |context| {
        context.delete_stream("KV_apps").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn so_does_one_that_is_purged_with_the_lease() {
    lose_and_restore(async |context| {
        for stream in ["KV_apps", "KV_apps-lease"] {
            let stream = context.get_stream(stream).await.unwrap();
            stream.purge().await.unwrap();
        }
    })
    .await;
}

async fn lose_and_restore(lose: impl AsyncFnOnce(Context)) {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _cells = cluster.cells(2).await;
    let _manager = cluster.manager("m1").await;
    cluster.put(web(4)).await;
    let before = cluster.each_once("web", 4).await;
    cluster.runs("web", 4).await;
    let exported = cluster.app("export", "web", json!({})).await;
    lose(async_nats::jetstream::new(cluster.client.clone())).await;
    eventually_within(PATIENCE, "the empty bucket", async || {
        let listed = cluster.ask(&cluster.subjects.app_list(), &json!({})).await;
        (listed["total"] == 0)
            .then_some(())
            .ok_or(listed.to_string())
    })
    .await;
    assert_eq!(cluster.each_once("web", 4).await, before);
    let body = json!({ "v": 1, "restore": true, "apps": [exported] });
    eventually_within(PATIENCE, "the app to be restored", async || {
        let restored = cluster.ask(&cluster.subjects.app_import(), &body).await;
        let done = restored["apps"][0]["version"] == 1;
        done.then_some(()).ok_or(restored.to_string())
    })
    .await;
    cluster.runs("web", 4).await;
    assert_eq!(cluster.each_once("web", 4).await, before);
    // a repeated import is told that there was nothing to do
    let again = cluster.ask(&cluster.subjects.app_import(), &body).await;
    let again = &again["apps"][0];
    assert_eq!(
        (&again["changed"], &again["version"]),
        (&json!(false), &json!(1))
    );
    // the app is kept running as before
    cluster
        .app("scale", "web", json!({ "v": 1, "instances": 5 }))
        .await;
    let after = cluster.each_once("web", 5).await;
    assert!(before.iter().all(|(index, id)| after[index] == *id));
    // another app of the same name is not taken for the stored one
    let mut other = body.clone();
    other["apps"][0]["uid"] = json!("00000001");
    let refused = cluster.ask(&cluster.subjects.app_import(), &other).await;
    let error = &refused["apps"][0]["error"];
    assert_eq!(error["code"], "invalid_request", "{refused}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("is stored with uid"), "{message}");
}

#[tokio::test]
async fn a_restart_of_the_server_costs_nothing_that_runs() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let _cells = cluster.cells(2).await;
    let _manager = cluster.manager("m1").await;
    cluster.put(web(4)).await;
    let before = cluster.each_once("web", 4).await;
    cluster.server.stop();
    cluster.server.restart().await;
    cluster
        .app("scale", "web", json!({ "v": 1, "instances": 5 }))
        .await;
    let after = cluster.each_once("web", 5).await;
    assert!(before.iter().all(|(index, id)| after[index] == *id));
}

#[tokio::test]
async fn what_a_cell_still_has_of_a_deleted_app_is_stopped_by_a_manager_that_knew_neither() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _cells = cluster.cells(1).await;
    let first = cluster.manager("m1").await;
    let heartbeats = cluster.subjects.cell("cell-0", "heartbeat");
    let mut heartbeats = cluster.client.subscribe(heartbeats).await.unwrap();
    cluster.put(web(1)).await;
    let ids = cluster.each_once("web", 1).await;
    let mut list = Value::Null;
    while list["instances"][0]["instance"] != ids[&0].as_str() {
        let heartbeat = tokio::time::timeout(PATIENCE, heartbeats.next()).await;
        list = serde_json::from_slice(&heartbeat.unwrap().unwrap().payload).unwrap();
    }
    cluster.app("delete", "web", json!({})).await;
    eventually_within(PATIENCE, "nothing to be left of the app", async || {
        let listed = cluster.ask(&cluster.subjects.app_list(), &json!({})).await;
        (listed["total"] == 0)
            .then_some(())
            .ok_or(listed.to_string())
    })
    .await;
    first.leave().await;
    let _second = cluster.manager("m2").await;
    // a cell that was silent all the time
    list["cell"] = json!("away");
    let mut stops = cluster
        .client
        .subscribe(cluster.subjects.cell("away", "stop"))
        .await
        .unwrap();
    let heartbeat = cluster.subjects.cell("away", "heartbeat");
    let body = serde_json::to_vec(&list).unwrap();
    let stop = eventually_within(PATIENCE, "a stop", async || {
        let publish = cluster
            .client
            .publish(heartbeat.clone(), body.clone().into());
        publish.await.unwrap();
        let stop = tokio::time::timeout(std::time::Duration::from_millis(200), stops.next()).await;
        stop.ok().flatten().ok_or("none")
    })
    .await;
    let stop: Value = serde_json::from_slice(&stop.payload).unwrap();
    assert_eq!(stop["app"], "web");
    assert_eq!(stop["instances"], json!([ids[&0]]));
}
