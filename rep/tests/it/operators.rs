//! Attributes that operators change while a cell runs.

use serde_json::json;
use testkit::NatsServer;

use crate::harness::{Cell, config, json as body, next, next_where, subjects, work};

#[tokio::test]
async fn a_change_is_advertised_at_once_and_kept_over_a_restart() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("not/yet/there/attributes.json");
    let configured = || {
        let mut config = config("a");
        config.attributes.rack = Some("r0".into());
        config.attributes_file = Some(file.clone());
        // no advertisement is due by itself during this test
        config.interval = placement::Span(std::time::Duration::from_secs(600));
        config.ttl = placement::Span(std::time::Duration::from_secs(1200));
        config
    };
    let client = server.client().await;
    let mut adverts = client
        .subscribe(subjects().cell("a", "advert"))
        .await
        .unwrap();
    client.flush().await.unwrap();
    let cell = Cell::start(&server, configured()).await;
    let first = next(&mut adverts).await;
    assert_eq!(first["rack"], "r0");
    cell.must_start(vec![work("web", 0)]).await;

    let set = json!({"v":1,"set":{"next_reboot":"2026-12-01","traits.ssd":true,"rack":"r1"}});
    let answer = cell.ask("set", body(&set)).await;
    assert_eq!(answer["kept"], true, "{answer}");
    assert_eq!(answer["changed"], set["set"]);
    let told = next_where(&mut adverts, |a| a["seq"] == answer["seq"]).await;
    assert_eq!(
        (&told["rack"], &told["traits"]["ssd"]),
        (&json!("r1"), &json!(true))
    );
    assert_eq!(
        (&told["apps"]["web"], &told["available"]["memory_mb"]),
        (&json!(1), &json!(900))
    );

    // nothing new, so no new version
    let again = cell.ask("set", body(&set)).await;
    assert_eq!(again["seq"], answer["seq"]);
    cell.end().await;

    let cell = Cell::start(&server, configured()).await;
    let state = cell.state().await;
    assert_eq!(
        (&state["rack"], &state["next_reboot"]),
        (&json!("r1"), &json!("2026-12-01"))
    );
    let answer = cell.ask("set", body(&json!({"set":{"rack":null}}))).await;
    assert_eq!(answer["changed"].get("rack"), None, "{answer}");
    assert_eq!(cell.state().await["rack"], "r0");
    cell.end().await;
}

#[tokio::test]
async fn an_invalid_change_changes_nothing() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let before = cell.state().await;
    for (set, field, said) in [
        (
            json!({"rack":"r1","rak":"r1"}),
            "attribute",
            "did you mean \"rack\"?",
        ),
        (
            json!({"rack":"r1","next_reboot":"soon"}),
            "next_reboot",
            "2026-12-01",
        ),
        (
            json!({"rack":"r1","reserved":"maybe"}),
            "reserved",
            "true or false",
        ),
    ] {
        let answer = cell.ask("set", body(&json!({ "set": set }))).await;
        assert_eq!(answer["error"]["field"], field, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(said),
            "{answer}"
        );
    }
    for nonsense in ["", "{}", "[]", r#"{"set":[]}"#] {
        let answer = cell.ask("set", nonsense).await;
        assert_eq!(answer["error"]["code"], "invalid_request", "{nonsense}");
    }
    let after = cell.state().await;
    assert_eq!((&after["seq"], after.get("rack")), (&before["seq"], None));
    let answer = cell.ask("set", body(&json!({"set":{"rack":"r1"}}))).await;
    assert_eq!(
        answer["kept"], false,
        "a cell without a file says so: {answer}"
    );
    cell.end().await;
}

#[tokio::test]
async fn an_unusable_file_is_reported_at_the_start() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("attributes.json");
    for text in ["nonsense", r#"{"rak":"r1"}"#, r#"{"reserved":3}"#] {
        std::fs::write(&file, text).unwrap();
        let mut config = config("a");
        config.attributes_file = Some(file.clone());
        let cell = Cell::start_through(&server.url(), server.client().await, config).await;
        let error = cell.task.await.unwrap().unwrap_err();
        assert!(matches!(error, rep::RepError::Config(_)), "{text}: {error}");
    }
}
