//! Bids, starts, stops and drains of a cell with a simulated executor.

use std::time::Duration;

use placement::{Kind, Span};
use rep::{ExecutorKind, RepError, RepExit, SimulatedConfig};
use serde_json::{Value, json as value};
use shared::wire::{InstanceState, InstancesAnswer, Stop, StopAnswer, Work};
use shared::{InstanceId, clock::CellTime};
use testkit::{NatsServer, eventually};
use uuid::Uuid;

use crate::harness::{
    Cell, bus, config, field, from, json, next, next_where, subjects, subscribe, work,
};

#[tokio::test]
async fn it_advertises_starts_stops_and_withdraws() {
    let server = NatsServer::start().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let cell = Cell::start(&server, config("a")).await;

    let first = next(&mut adverts).await;
    assert_eq!(first["cell"], "a");
    assert_eq!(first["zone"], "z1");
    assert_eq!(first["ttl"], "15s");
    assert_eq!(first["v"], 1);
    assert!(serde_json::to_vec(&first).unwrap().len() < 450);

    let web = work("web", 0);
    let id = web.instance;
    let answer = cell.must_start(vec![web]).await;
    assert_eq!(answer.accepted, [id]);
    assert_eq!(answer.apps["web"], 1);
    assert_eq!(answer.available.memory_mb, 900);
    let seq = answer.seq;
    let after = next_where(&mut adverts, |a| a["seq"].as_u64() >= Some(seq)).await;
    assert_eq!(after["apps"]["web"], 1);
    assert_eq!(field::<Vec<InstanceId>>(&after, "recent"), [id]);
    cell.wait_for(id, InstanceState::Running).await;

    let stop = Stop {
        v: shared::VERSION,
        app: "web".into(),
        indices: vec![],
        instances: vec![],
        claim: None,
    };
    let stopped: StopAnswer = serde_json::from_value(cell.ask("stop", json(&stop)).await).unwrap();
    assert_eq!(stopped.stopped.len(), 1);
    let gone = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(gone.ended.as_deref(), Some("stopped"));
    next_where(&mut adverts, |a| a["available"]["memory_mb"] == 1_000).await;

    assert_eq!(cell.end().await, RepExit::Shutdown);
    next_where(&mut adverts, |a| a["ttl"] == "0s").await;
}

#[tokio::test]
async fn a_bid_is_short_if_the_last_advertisement_is_still_right() {
    let server = NatsServer::start().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let cell = Cell::start(&server, config("a")).await;
    let heard = next(&mut adverts).await;
    let auction = Uuid::new_v4();
    let question = json(&value!({"v": 1, "auction": auction}));
    let bid = async || -> Value {
        let answer = cell.client.request(subjects().bid(), question.clone());
        from(&answer.await.unwrap().payload)
    };
    let short = bid().await;
    assert_eq!(short["unchanged"], true);
    assert_eq!(short["seq"], heard["seq"]);
    assert_eq!(field::<Uuid>(&short, "auction"), auction);
    assert!(short.get("total").is_none(), "{short}");

    cell.must_start(vec![work("web", 0)]).await;
    // whatever has been advertised by then, the bid has the version of the ledger
    let seq = cell.state().await["seq"].clone();
    let bid = bid().await;
    assert_eq!(bid["seq"], seq);
    assert!(bid["unchanged"] == true || bid["apps"]["web"] == 1, "{bid}");
    cell.end().await;
}

#[tokio::test]
async fn a_start_repeated_is_accepted_with_nothing_new() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let start = cell.start_of(vec![work("web", 0), work("web", 1)]).await;
    let first = cell.send(&start).await;
    let again = cell.send(&start).await;
    assert_eq!(first.accepted, again.accepted);
    assert_eq!(again.apps["web"], 2);
    assert_eq!(again.available.memory_mb, 800);
    assert_eq!(cell.instances().await.len(), 2);
    cell.end().await;
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_its_reason() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let reasons =
        async |start: &shared::wire::CellStart| -> Vec<(String, Option<i64>, Option<i64>)> {
            let answer = cell.send(start).await;
            let all = answer.refused.into_iter();
            all.map(|r| (r.reason, r.needs, r.has)).collect()
        };
    let fine = cell.start_of(vec![work("web", 0)]).await;

    let mut late = fine.clone();
    late.expires_ms = CellTime::default();
    assert_eq!(reasons(&late).await, [("stale".into(), None, None)]);

    let mut other_life = fine.clone();
    other_life.incarnation = Uuid::new_v4().into();
    assert_eq!(
        reasons(&other_life).await,
        [("restarted".into(), None, None)]
    );

    let mut large = fine.clone();
    large.work[0].memory_mb = 1_001;
    large.work[0].disk_mb = 2_000;
    let text = "insufficient resources: disk, memory".into();
    assert_eq!(reasons(&large).await, [(text, Some(2_000), Some(1_000))]);

    assert_eq!(reasons(&fine).await, []);
    let mut believed_none = cell.start_of(vec![work("web", 1), work("web", 2)]).await;
    believed_none.work[0].believed = Some(0);
    believed_none.work[1].believed = Some(1);
    let refused = reasons(&believed_none).await;
    assert_eq!(refused[0], ("changed".into(), Some(0), Some(1)));
    // the second one was right about what is there by then
    assert_eq!(refused.len(), 1);
    cell.end().await;
}

#[tokio::test]
async fn a_stop_by_id_before_the_start_refuses_the_start() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let web = work("web", 0);
    let stop = value!({"v": 1, "app": "web", "instances": [web.instance]});
    let client = &cell.client;
    let answer = client.request(subjects().cells_stop(), json(&stop)).await;
    let answer: StopAnswer = from(&answer.unwrap().payload);
    assert_eq!((answer.cell.as_str(), answer.stopped.len()), ("a", 0));
    let refused = cell.send(&cell.start_of(vec![web]).await).await.refused;
    assert_eq!(refused[0].reason, "stopped");
    cell.must_start(vec![work("web", 0)]).await;
    cell.end().await;
}

#[tokio::test]
async fn drain_takes_nothing_new_stops_the_rest_and_ends() {
    let server = NatsServer::start().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let mut events = subscribe(&server, "vendue.event.>").await;
    let cell = Cell::start(&server, config("a")).await;
    let web = work("web", 0);
    let id = web.instance;
    cell.must_start(vec![web]).await;
    cell.wait_for(id, InstanceState::Running).await;

    let answer = cell
        .ask("drain", json(&value!({"deadline": "300ms", "exit": true})))
        .await;
    assert_eq!(answer["instances"], 1);
    assert_eq!(answer["deadline"], "300ms");
    assert_eq!(
        (&answer["exit"], &answer["kept"]),
        (&true.into(), &false.into())
    );
    next_where(&mut adverts, |a| a["evacuating"] == true).await;
    let question = json(&value!({"auction": Uuid::new_v4()}));
    let start = cell.start_of(vec![work("web", 1)]).await;
    assert_eq!(cell.send(&start).await.refused[0].reason, "draining");
    let bid = cell.client.request(subjects().bid(), question).await;
    let bid: Value = from(&bid.unwrap().payload);
    assert!(
        bid["unchanged"] == true || bid["evacuating"] == true,
        "{bid}"
    );

    assert_eq!(cell.task.await.unwrap().unwrap(), RepExit::Drained);
    next_where(&mut adverts, |a| a["ttl"] == "0s").await;
    next_where(&mut events, |e| e["kind"] == "cell-draining").await;
    let stopped = next_where(&mut events, |e| e["kind"] == "stopped").await;
    assert_eq!(
        field::<InstanceId>(&stopped["instances"][0], "instance"),
        id
    );
}

#[tokio::test]
async fn the_second_cell_of_a_name_does_not_start() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let incarnation: String = field(&cell.state().await, "incarnation");
    let second = rep::run(
        config("a"),
        bus(&server.url()).await,
        subjects(),
        cell.shutdown.clone(),
    );
    match second.await {
        Err(e @ RepError::NameTaken { .. }) => {
            let text = e.to_string();
            assert!(
                text.contains("\"a\"") && text.contains(&incarnation),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    cell.end().await;
}

#[tokio::test]
async fn a_task_ends_and_is_remembered() {
    let server = NatsServer::start().await;
    let mut config = config("a");
    config.executor = ExecutorKind::Simulated(SimulatedConfig {
        task: Some(Span::default()),
        ..SimulatedConfig::default()
    });
    let cell = Cell::start(&server, config).await;
    let task = Work {
        kind: Kind::Task,
        ..work("job", 0)
    };
    let id = task.instance;
    let start = cell.start_of(vec![task]).await;
    cell.send(&start).await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("exit 0"));
    assert_eq!(cell.send(&start).await.accepted, [id]);
    assert_eq!(cell.state().await.get("tasks"), None);
    assert_eq!(cell.instances().await.len(), 1);
    cell.end().await;
}

#[tokio::test]
async fn events_are_gathered_per_app() {
    let server = NatsServer::start().await;
    let mut events = subscribe(&server, "vendue.event.running.web.a").await;
    let cell = Cell::start(&server, config("a")).await;
    cell.must_start((0..5).map(|i| work("web", i)).collect())
        .await;
    let event = next(&mut events).await;
    assert_eq!(event["count"], 5);
    assert_eq!(event["indices"], "0-4");
    assert_eq!((&event["cell"], &event["by"]), (&"a".into(), &"a".into()));
    assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");
    cell.end().await;
}

#[tokio::test]
async fn without_a_server_instances_continue_and_are_advertised_afterwards() {
    let mut server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let web = work("web", 0);
    let id = web.instance;
    cell.must_start(vec![web]).await;
    cell.wait_for(id, InstanceState::Running).await;
    let before = cell.state().await;
    server.restart().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let after = next(&mut adverts).await;
    assert_eq!(after["incarnation"], before["incarnation"]);
    assert_eq!(after["apps"]["web"], 1);
    eventually("the cell's answer", async || {
        let answer = cell.client.request(subjects().instances(), "".into()).await;
        answer.map(|a| from::<InstancesAnswer>(&a.payload).instances.len() == 1)
    })
    .await;
    cell.wait_for(id, InstanceState::Running).await;
    cell.end().await;
}

#[tokio::test]
async fn of_two_cells_of_one_name_that_start_together_one_goes() {
    let server = NatsServer::start().await;
    let client = server.client().await;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let mut config = config("a");
        config.interval = Span(Duration::from_millis(500));
        tasks.push(Cell::start_through(&server.url(), client.clone(), config).await);
    }
    let second = tasks.pop().unwrap();
    let first = tasks.pop().unwrap();
    let (mut one, mut two) = (first.task, second.task);
    let (gone, left, shutdown) = tokio::select! {
        gone = &mut one => (gone, two, second.shutdown),
        gone = &mut two => (gone, one, first.shutdown),
    };
    let gone = gone.unwrap();
    assert!(matches!(gone, Err(RepError::NameTaken { .. })), "{gone:?}");
    assert!(!left.is_finished());
    client
        .request(subjects().cell("a", "state"), "".into())
        .await
        .unwrap();
    shutdown.cancel();
    assert_eq!(left.await.unwrap().unwrap(), RepExit::Shutdown);
}

#[tokio::test]
async fn a_start_that_waited_out_a_blocked_link_never_runs() {
    let server = NatsServer::start().await;
    let link = testkit::Link::to(server.port()).await;
    let client = server.client().await;
    let mut config = config("a");
    config.interval = Span(Duration::from_millis(200));
    let cell = Cell::start_through(&link.url(), client, config).await;
    eventually("the cell's state", async || {
        let own = subjects().cell("a", "state");
        cell.client.request(own, "".into()).await
    })
    .await;
    let mut start = cell.start_of(vec![work("web", 0)]).await;
    start.expires_ms = CellTime::from_ms(start.expires_ms.as_ms() - 4_800);
    link.block();
    let blocked = std::time::Instant::now();
    let inbox = cell.client.new_inbox();
    let mut answers = cell.client.subscribe(inbox.clone()).await.unwrap();
    let own = subjects().cell("a", "start");
    let sent = cell.client.publish_with_reply(own, inbox, json(&start));
    sent.await.unwrap();
    cell.client.flush().await.unwrap();
    eventually("the start to expire", async || {
        blocked.elapsed() > Duration::from_millis(300)
    })
    .await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    link.unblock();
    let answer = next(&mut answers).await;
    assert_eq!(answer["refused"][0]["reason"], "stale", "{answer}");
    assert_eq!(cell.instances().await, []);
    next(&mut adverts).await;
    cell.must_start(vec![work("web", 0)]).await;
    cell.end().await;
}

/// It was cut off when another rep started under its name: the older one leaves, however late it comes back.
#[tokio::test]
async fn a_rep_that_was_replaced_while_it_was_cut_off_leaves() {
    let server = NatsServer::start().await;
    let link = testkit::Link::to(server.port()).await;
    let client = server.client().await;
    let mut config = config("a");
    config.interval = Span(Duration::from_millis(200));
    config.ttl = Span(Duration::from_secs(1));
    let old = Cell::start_through(&link.url(), client.clone(), config.clone()).await;
    eventually("the cell's state", async || {
        let own = subjects().cell("a", "state");
        client.request(own, "".into()).await
    })
    .await;
    let first: String = field(&old.state().await, "incarnation");
    link.block();
    let new = Cell::start_through(&server.url(), client, config).await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    // it is no longer new, as otherwise it would give way to the older one
    let later = |a: &Value| a["incarnation"] != *first && a["clock_ms"].as_u64() > Some(600);
    next_where(&mut adverts, later).await;
    link.unblock();
    let gone = old.task.await.unwrap();
    assert!(matches!(gone, Err(RepError::NameTaken { .. })), "{gone:?}");
    assert!(!new.task.is_finished());
    // the server may still know the old rep's subscription and choose that
    eventually("the new one's state", async || {
        let asked = async_nats::Request::new().timeout(Some(Duration::from_millis(500)));
        let state = new
            .client
            .send_request(subjects().cell("a", "state"), asked);
        let state = state.await.map_err(|e| e.to_string())?;
        let state: Value = serde_json::from_slice(&state.payload).map_err(|e| e.to_string())?;
        if field::<String>(&state, "incarnation") == first {
            return Err("the old one answers".to_owned());
        }
        Ok(())
    })
    .await;
    assert_eq!(new.end().await, RepExit::Shutdown);
}
