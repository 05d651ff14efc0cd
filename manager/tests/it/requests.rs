//! Requests to a manager, from the first put to the deletion.

use serde_json::{Value, json};
use testkit::eventually_within;

use crate::harness::{Cluster, PATIENCE, web};

fn fields(changes: &Value) -> Vec<&str> {
    let changes = changes.as_array().unwrap().iter();
    changes.map(|c| c["field"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_app_is_put_scaled_updated_and_deleted() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _cells = cluster.cells(2).await;
    let manager = cluster.manager("m1").await;
    let put = cluster.put(web(3)).await;
    assert_eq!(
        (&put["created"], &put["version"]),
        (&json!(true), &json!(1)),
        "{put}"
    );
    cluster.runs("web", 3).await;
    let first = cluster.each_once("web", 3).await;
    assert_eq!(cluster.put(web(3)).await["changed"], false);
    let scaled = cluster
        .app("scale", "web", json!({ "v": 1, "instances": 5 }))
        .await;
    assert_eq!(fields(&scaled["changes"]), ["instances"], "{scaled}");
    cluster.runs("web", 5).await;
    let five = cluster.each_once("web", 5).await;
    assert!(first.iter().all(|(index, id)| five[index] == *id));

    let mut second = web(5);
    second["run"]["env"]["KEY"] = "0ther".into();
    let asked = json!({ "v": 1, "definition": second.clone(), "dry_run": true });
    let tried = cluster.app("put", "web", asked).await;
    assert_eq!(fields(&tried["changes"]), ["run.env.KEY"], "{tried}");
    assert_eq!(cluster.app("show", "web", json!({})).await["version"], 1);
    assert_eq!(cluster.put(second).await["version"], 2);
    eventually_within(PATIENCE, "the rollout to be done", async || {
        let shown = cluster.app("show", "web", json!({})).await;
        let done = shown["status"]["rollout"] == "done" && shown["status"]["complete"] == 5;
        done.then_some(()).ok_or(shown.to_string())
    })
    .await;
    let replaced = cluster.each_once("web", 5).await;
    assert!(
        replaced
            .values()
            .all(|id| !five.values().any(|old| old == id))
    );

    let history = cluster.app("history", "web", json!({})).await;
    assert_eq!(history["versions"][0]["version"], 2, "{history}");
    assert_eq!(history["versions"][1]["undo"], true, "{history}");
    assert!(history["versions"][1]["time"].is_string(), "{history}");
    let exported = cluster.app("export", "web", json!({ "version": 1 })).await;
    assert_eq!(exported["definition"]["run"]["env"]["KEY"], "s3cret");
    let shown = cluster.app("show", "web", json!({})).await;
    assert_eq!(shown["definition"]["run"]["env"], json!(["KEY"]));
    let told = format!("{put} {scaled} {tried} {history} {shown}");
    assert!(
        !told.contains("s3cret") && !told.contains("0ther"),
        "{told}"
    );

    cluster.app("stop", "web", json!({ "v": 1 })).await;
    cluster.each_once("web", 0).await;
    cluster.app("start", "web", json!({ "v": 1 })).await;
    cluster.each_once("web", 5).await;
    let deleted = cluster.app("delete", "web", json!({ "v": 1 })).await;
    assert_eq!(deleted["changed"], true, "{deleted}");
    eventually_within(PATIENCE, "the app to be forgotten", async || {
        let shown = cluster.app("show", "web", json!({})).await;
        let gone = shown["error"]["code"] == "not_found";
        gone.then_some(()).ok_or(shown.to_string())
    })
    .await;
    assert_eq!(cluster.put(web(1)).await["created"], true);
    cluster.each_once("web", 1).await;
    manager.leave().await;
}

#[tokio::test]
async fn errors_say_what_is_wrong() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _manager = cluster.manager("m1").await;
    let unknown = cluster
        .app("scale", "web", json!({ "v": 1, "instances": 2 }))
        .await;
    assert_eq!(unknown["error"]["code"], "not_found", "{unknown}");
    assert_eq!(unknown["error"]["field"], "app", "{unknown}");
    let other = json!({ "v": 1, "definition": web(1) });
    let wrong = cluster.app("put", "db", other).await;
    assert_eq!(wrong["error"]["field"], "app", "{wrong}");
    for verb in ["stop", "delete", "put", "scale", "restart", "undo"] {
        let empty = cluster
            .try_ask(&cluster.subjects.app(verb, "web"), b"")
            .await;
        assert_eq!(empty.unwrap()["error"]["code"], "invalid_request", "{verb}");
    }
    let mut bad = web(1);
    bad["update"]["max_in_flight"] = 0.into();
    let bad = cluster.put(bad).await;
    assert_eq!(bad["error"]["field"], "update.max_in_flight", "{bad}");
}

#[tokio::test]
async fn pages_and_messages_have_bounds() {
    let Some(cluster) = Cluster::with("max_payload: 8192").await else {
        return;
    };
    let _manager = cluster.manager("m1").await;
    let apps: Vec<Value> = (0..60)
        .map(|n| {
            let mut app = web(1);
            app["app"] = format!("app-{n:02}").into();
            json!({ "definition": app })
        })
        .collect();
    cluster.put(apps[0]["definition"].clone()).await;
    for some in apps.chunks(20) {
        let body = json!({ "v": 1, "apps": some });
        let imported = cluster.ask(&cluster.subjects.app_import(), &body).await;
        let results = imported["apps"].as_array().unwrap();
        assert!(results.iter().all(|one| one["version"] == 1), "{imported}");
    }
    let (mut names, mut after, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let mut body = json!({ "v": 1 });
        if after.is_string() {
            body["after"] = after.clone();
        }
        let page = cluster.ask(&cluster.subjects.app_list(), &body).await;
        assert_eq!(page["total"], 60, "{page}");
        pages += 1;
        let apps = page["apps"].as_array().unwrap().iter();
        names.extend(apps.map(|app| app["app"].as_str().unwrap().to_owned()));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    let expected: Vec<String> = (0..60).map(|n| format!("app-{n:02}")).collect();
    assert_eq!(names, expected);
    assert!(pages > 1, "{pages}");
    let mut large = web(1);
    large["run"]["env"]["KEY"] = "x".repeat(4_000).into();
    let large = cluster.put(large).await;
    let message = large["error"]["message"].as_str().unwrap();
    assert!(message.contains("max_payload"), "{message}");
}

#[tokio::test]
async fn the_counters_are_told_and_so_is_who_it_is() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _manager = cluster.manager("m1").await;
    cluster.put(web(1)).await;
    let info = cluster.ask("$SRV.INFO.vendue-manager", &json!({})).await;
    assert_eq!(info["metadata"]["name"], "m1", "{info}");
    eventually_within(PATIENCE, "the counters", async || {
        let stats = cluster.ask("$SRV.STATS.vendue-manager", &json!({})).await;
        let endpoints = stats["endpoints"].as_array().unwrap();
        let put = endpoints.iter().find(|e| e["name"] == "put").unwrap();
        let data = &put["data"];
        let told = data["apps"] == 1 && data["acting"] == 1 && data["dropped_malformed"] == 0;
        told.then_some(()).ok_or(put.to_string())
    })
    .await;
}

#[tokio::test]
async fn what_two_people_put_at_once_is_answered_and_one_of_them_counts() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _managers = [cluster.manager("m1").await, cluster.manager("m2").await];
    cluster.put(web(1)).await;
    let put = async |n: u32| {
        let mut definition = web(n + 1);
        definition["tags"] = json!({ "n": n.to_string() });
        cluster.put(definition).await
    };
    let answers = futures_util::future::join_all((0..8).map(put)).await;
    let mut versions: Vec<u64> = Vec::new();
    for answer in &answers {
        match answer["version"].as_u64() {
            Some(version) => versions.push(version),
            None => assert_eq!(answer["error"]["code"], "conflict", "{answer}"),
        }
    }
    versions.sort_unstable();
    let mut once = versions.clone();
    once.dedup();
    assert_eq!(
        versions, once,
        "each change is a version of its own: {answers:?}"
    );
    // both managers see the last version
    let last = *versions.last().unwrap();
    for _ in 0..10 {
        eventually_within(PATIENCE, "the last version", async || {
            let shown = cluster.app("show", "web", json!({})).await;
            (shown["version"] == last)
                .then_some(())
                .ok_or(shown.to_string())
        })
        .await;
    }
}
