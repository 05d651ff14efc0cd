//! What each role must not do, act by act.

use testkit::eventually;

use super::cluster::{Raw, Secure};

/// Publishing, subscribing, or subscribing in a queue group.
#[derive(Clone, Copy, Debug)]
enum Act {
    Pub(&'static str),
    Sub(&'static str),
    Join(&'static str, &'static str),
}
use Act::{Join, Pub, Sub};

/// A cell speaks only for itself, and hears only what is meant for it.
const CELL: &[Act] = &[
    // as another cell
    Pub("vendue.cell.cell-b.advert"),
    Pub("vendue.cell.cell-b.heartbeat"),
    Pub("vendue.cell.cell-b.state"),
    Pub("vendue.cell.cell-b.answer.alice.n"),
    Pub("vendue.cell.cell-b.answer.auc-0.bid-0-x"),
    Pub("vendue.event.running.web.cell-b"),
    Pub("vendue.event.exited.web.cell-b"),
    Pub("vendue.event.crashed.web.cell-b"),
    Pub("vendue.event.stopped.web.cell-b"),
    Pub("vendue.event.cell-draining.cell-b.cell-b"),
    Pub("vendue.log.web.0.cell-b"),
    // as an auctioneer
    Pub("vendue.auctioneer.auc-0.answer.alice.n"),
    Pub("vendue.auctioneer.auc-0.grant"),
    Pub("vendue.event.asked.web.cell-a"),
    Pub("vendue.event.asked.web.auc-0"),
    Pub("vendue.event.placed.web.cell-a"),
    Pub("vendue.event.cell-lost.cell-b.cell-a"),
    Pub("vendue.event.cell-lost.cell-b.auc-0"),
    Pub("vendue.outcome.r-1"),
    Pub("vendue.echo.auc-0"),
    Pub("vendue.bid"),
    Pub("vendue.discover"),
    Pub("vendue.cells.stop"),
    Pub("vendue.cell.cell-b.start"),
    Pub("vendue.cell.cell-b.stop"),
    // as a user or an operator
    Pub("vendue.start"),
    Pub("vendue.stop"),
    Pub("vendue.pool"),
    Pub("vendue.instances"),
    Pub("vendue.cell.cell-b.drain"),
    Pub("vendue.cell.cell-b.set"),
    Pub("vendue.cell.cell-b.logs"),
    // messages to others
    Sub("vendue.cell.cell-b.start"),
    Join("vendue.cell.cell-b.start", "q"),
    Join("vendue.cell.cell-b.logs", "q"),
    Sub("vendue.cell.*.start"),
    Sub("vendue.cell.>"),
    Sub("vendue.start"),
    Join("vendue.start", "auctioneers"),
    Sub("vendue.cell.*.advert"),
    Sub("vendue.cell.*.answer.auc-0.*"),
    Sub("vendue.outcome.*"),
    Sub("vendue.event.>"),
    Sub("vendue.log.>"),
    Sub("_INBOX.alice.>"),
    Sub("_INBOX.auc-0.>"),
    Sub("_INBOX.>"),
    Sub("vendue.>"),
    Sub(">"),
    // its own requests, without its queue group
    Sub("vendue.cell.cell-a.start"),
    // as a manager, or messages to one
    Pub("vendue.app.put.web"),
    Pub("vendue.app.list"),
    Pub("vendue.manager.mgr-0.echo"),
    Pub("vendue.event.stop-brake.web.cell-a"),
    Join("vendue.app.put.*", "managers"),
    Join("vendue.app.list", "managers"),
    Sub("vendue.app.>"),
    Sub("vendue.auctioneer.*.grant"),
    // state, and the server
    Pub("$KV.vendue-apps.web"),
    Pub("$JS.API.CONSUMER.CREATE.KV_vendue-apps"),
    Pub("$SRV.PING"),
    Pub("$SYS.REQ.SERVER.PING"),
    Sub("$SYS.>"),
];

/// A user asks auctioneers, and reads what concerns that user or everybody.
const USER: &[Act] = &[
    // bypassing the auctioneer
    Pub("vendue.cell.cell-a.start"),
    // apps with their environment, and requests of others to managers
    Pub("vendue.app.export.web"),
    Pub("vendue.app.import"),
    Join("vendue.app.put.*", "managers"),
    Pub("vendue.cell.cell-a.stop"),
    Pub("vendue.cell.cell-a.drain"),
    Pub("vendue.cell.cell-a.set"),
    Pub("vendue.cells.stop"),
    Pub("vendue.bid"),
    Pub("vendue.discover"),
    // as somebody else
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cell.cell-a.heartbeat"),
    Pub("vendue.cell.cell-a.answer.bob.n"),
    Pub("vendue.auctioneer.auc-0.answer.bob.n"),
    Pub("vendue.auctioneer.auc-0.grant"),
    Pub("vendue.auctioneer.alice.grant"),
    Pub("vendue.outcome.r-1"),
    Pub("vendue.echo.auc-0"),
    Pub("vendue.event.asked.web.auc-0"),
    Pub("vendue.event.placed.web.alice"),
    Pub("vendue.event.running.web.cell-a"),
    Pub("vendue.log.web.0.cell-a"),
    Pub("_INBOX.bob.x"),
    // messages to others: requests with their environment, answers, inboxes
    Sub("vendue.start"),
    Join("vendue.start", "auctioneers"),
    Join("vendue.stop", "auctioneers"),
    Sub("vendue.cell.*.start"),
    Sub("vendue.cell.cell-a.start"),
    Join("vendue.cell.cell-a.start", "q"),
    Sub("vendue.cell.*.answer.bob.*"),
    Sub("vendue.cell.*.answer.*.*"),
    Sub("vendue.auctioneer.*.answer.bob.*"),
    Sub("vendue.cell.*.advert"),
    Sub("vendue.outcome.*"),
    Sub("vendue.bid"),
    Sub("_INBOX.bob.>"),
    Sub("_INBOX.*.>"),
    Sub("_INBOX.>"),
    Sub("vendue.>"),
    Sub(">"),
    // a consumer that delivers to a cell, and what it would deliver
    Pub("$JS.API.CONSUMER.CREATE.KV_vendue-apps"),
    Pub("$JS.API.CONSUMER.DURABLE.CREATE.KV_vendue-apps.c"),
    Pub("$JS.API.STREAM.CREATE.mine"),
    Pub("$JS.API.STREAM.PURGE.KV_vendue-apps"),
    Pub("$JS.API.INFO"),
    Pub("$KV.vendue-apps.web"),
    Pub("$SRV.STATS"),
    Pub("$SYS.REQ.SERVER.PING"),
];

const OPERATOR: &[Act] = &[
    Pub("vendue.cell.cell-a.start"),
    Pub("vendue.cell.cell-a.stop"),
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cell.cell-a.answer.alice.n"),
    Pub("vendue.cells.stop"),
    Pub("vendue.bid"),
    Pub("vendue.outcome.r-1"),
    Pub("vendue.event.placed.web.op"),
    Pub("_INBOX.alice.x"),
    Pub("$JS.API.CONSUMER.CREATE.KV_vendue-apps"),
    Sub("vendue.start"),
    Sub("vendue.cell.*.start"),
    Sub("_INBOX.alice.>"),
    Sub(">"),
];

const OBSERVER: &[Act] = &[
    Pub("vendue.start"),
    Pub("vendue.stop"),
    Pub("vendue.pool"),
    Pub("vendue.instances"),
    Pub("vendue.event.placed.web.obs"),
    Pub("vendue.cell.cell-a.drain"),
    Pub("anything"),
    Pub("_INBOX.alice.x"),
    Pub("vendue.app.put.web"),
    Pub("vendue.app.scale.web"),
    Pub("vendue.app.stop.web"),
    Pub("vendue.app.delete.web"),
    Pub("vendue.app.export.web"),
    Pub("vendue.app.import"),
    Pub("$KV.vendue-apps.app.web"),
    Sub("vendue.app.>"),
    Sub("vendue.start"),
    Sub("vendue.log.*.*.*"),
    Sub("vendue.cell.*.answer.alice.*"),
    Sub("_INBOX.alice.>"),
    Sub(">"),
];

const METRICS: &[Act] = &[
    Pub("vendue.start"),
    Pub("vendue.stop"),
    Pub("vendue.instances"),
    Pub("vendue.cell.cell-a.logs"),
    Pub("$SRV.PING"),
    Sub("vendue.log.*.*.*"),
    Sub("vendue.start"),
    Sub("_INBOX.alice.>"),
];

/// A manager asks auctioneers to start, stops on cells, and speaks only for itself.
const MANAGER: &[Act] = &[
    // as a cell
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cell.cell-a.heartbeat"),
    Pub("vendue.cell.cell-a.state"),
    Pub("vendue.cell.cell-a.answer.alice.n"),
    Pub("vendue.cell.mgr-0.advert"),
    Pub("vendue.event.running.web.cell-a"),
    Pub("vendue.event.running.web.mgr-0"),
    Pub("vendue.log.web.0.mgr-0"),
    // as an auctioneer, or bypassing it
    Pub("vendue.cell.cell-a.start"),
    Pub("vendue.auctioneer.auc-0.answer.alice.n"),
    Pub("vendue.auctioneer.auc-0.grant"),
    Pub("vendue.event.placed.web.mgr-0"),
    Pub("vendue.event.cell-lost.cell-a.mgr-0"),
    Pub("vendue.outcome.r-1"),
    Pub("vendue.bid"),
    Pub("vendue.discover"),
    Pub("vendue.cells.stop"),
    Pub("vendue.echo.auc-0"),
    Join("vendue.start", "auctioneers"),
    // as another manager, a user or an operator
    Pub("vendue.manager.mgr-1.echo"),
    Pub("vendue.event.stop-brake.web.mgr-1"),
    Pub("vendue.app.put.web"),
    Pub("vendue.app.list"),
    Pub("vendue.stop"),
    Pub("vendue.cell.cell-a.drain"),
    Pub("vendue.cell.cell-a.set"),
    Pub("vendue.cell.cell-a.logs"),
    // messages to others
    Sub("vendue.app.put.*"),
    Join("vendue.app.put.*", "eavesdroppers"),
    Sub("vendue.auctioneer.*.grant"),
    Join("vendue.auctioneer.*.grant", "mgr-1"),
    Sub("vendue.start"),
    Sub("vendue.cell.*.start"),
    Join("vendue.cell.cell-a.stop", "q"),
    Sub("vendue.cell.*.answer.alice.*"),
    Sub("vendue.log.*.*.*"),
    Sub("vendue.event.>"),
    Sub("_INBOX.alice.>"),
    Sub("_INBOX.mgr-0-state.>"),
    Sub(">"),
    // stored state, over the connection that reaches cells
    Pub("$KV.vendue-apps.app.web"),
    Pub("$KV.vendue-apps-lease.lease"),
    Pub("$JS.API.INFO"),
    Pub("$JS.API.CONSUMER.CREATE.KV_vendue-apps"),
    Pub("$SYS.REQ.SERVER.PING"),
];

/// Its second connection reads and writes its buckets, and nothing else.
const MANAGER_STATE: &[Act] = &[
    Pub("$KV.other.web"),
    Pub("$KV.vendue-apps"),
    Pub("$JS.API.STREAM.CREATE.mine"),
    Pub("$JS.API.STREAM.NAMES"),
    Pub("$JS.API.STREAM.LIST"),
    Pub("$JS.API.STREAM.INFO.KV_other"),
    Pub("$JS.API.STREAM.MSG.GET.KV_other"),
    Pub("$JS.API.CONSUMER.CREATE.KV_other"),
    // stored state is neither purged nor deleted
    Pub("$JS.API.STREAM.UPDATE.KV_vendue-apps"),
    Pub("$JS.API.STREAM.PURGE.KV_vendue-apps"),
    Pub("$JS.API.STREAM.DELETE.KV_vendue-apps"),
    Pub("$JS.API.STREAM.DELETE.KV_vendue-apps-lease"),
    Pub("$JS.API.STREAM.MSG.DELETE.KV_vendue-apps"),
    Pub("$JS.API.STREAM.RESTORE.KV_vendue-apps"),
    Pub("$JS.API.CONSUMER.DURABLE.CREATE.KV_vendue-apps.c"),
    Pub("vendue.start"),
    Pub("vendue.cell.cell-a.stop"),
    Pub("_INBOX.mgr-0.x"),
    Pub("$SYS.REQ.SERVER.PING"),
    Sub("$KV.>"),
    Sub("$JS.>"),
    Sub("_INBOX.mgr-0.>"),
    Sub("vendue.>"),
    Sub(">"),
];

const RECORDER: &[Act] = &[
    Pub("vendue.start"),
    Pub("vendue.stop"),
    Pub("vendue.cell.cell-a.start"),
    Join("vendue.start", "auctioneers"),
    Sub("vendue.cell.*.start"),
    Sub("vendue.log.*.*.*"),
    Sub("_INBOX.alice.>"),
];

/// An auctioneer commands cells, and speaks only for itself.
const AUCTIONEER: &[Act] = &[
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cell.cell-a.heartbeat"),
    Pub("vendue.cell.cell-a.set"),
    Pub("vendue.cell.cell-a.drain"),
    Pub("vendue.cell.cell-a.logs"),
    Pub("vendue.cell.cell-a.answer.alice.n"),
    Pub("vendue.auctioneer.auc-1.answer.alice.n"),
    Pub("vendue.auctioneer.auc-1.grant"),
    Sub("vendue.auctioneer.*.grant"),
    Join("vendue.auctioneer.*.grant", "mgr-0"),
    Pub("vendue.event.asked.web.auc-1"),
    Pub("vendue.event.running.web.auc-0"),
    Pub("vendue.event.running.web.cell-a"),
    Pub("vendue.log.web.0.auc-0"),
    Pub("vendue.echo.auc-1"),
    Pub("vendue.start"),
    Pub("vendue.app.put.web"),
    Pub("vendue.manager.mgr-0.echo"),
    Pub("vendue.event.stop-brake.web.auc-0"),
    Join("vendue.app.put.*", "managers"),
    Pub("$JS.API.CONSUMER.CREATE.KV_vendue-apps"),
    Pub("$KV.vendue-apps.web"),
    Sub("vendue.start"),
    Join("vendue.start", "eavesdroppers"),
    Sub("vendue.queued"),
    Sub("vendue.cell.*.start"),
    Join("vendue.cell.cell-a.start", "q"),
    Sub("vendue.cell.*.answer.alice.*"),
    Sub("vendue.log.>"),
    Sub("_INBOX.alice.>"),
    Sub(">"),
];

/// A bridge speaks for its slots, and for no other cell.
const BRIDGE: &[Act] = &[
    Pub("vendue.cell.dea-2.advert"),
    Pub("vendue.cell.dea.advert"),
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cell.cell-a.heartbeat"),
    Pub("vendue.cell.cell-a.answer.alice.n"),
    Pub("vendue.event.running.web.cell-a"),
    Pub("vendue.event.running.web.dea"),
    Pub("vendue.event.placed.web.dea-0"),
    Pub("vendue.cell.dea-0.start"),
    Pub("vendue.cell.cell-a.start"),
    Pub("vendue.start"),
    Pub("vendue.discover"),
    Pub("vendue.bid"),
    Pub("vendue.outcome.r-1"),
    Pub("vendue.log.web.0.cell-a"),
    Pub("vendue.log.web.0.dea-0"),
    Pub("vendue.cell.dea-0.result"),
    Pub("vendue.cell.dea-2.answer.alice.n"),
    Pub("vendue.cell.cell-a.stop"),
    Pub("vendue.cell.cell-a.state"),
    Pub("vendue.cells.stop"),
    Pub("vendue.app.put.web"),
    Pub("vendue.bridge.dea.state"),
    Pub("$KV.vendue-apps.web"),
    Pub("$JS.API.INFO"),
    Pub("$SRV.PING"),
    Sub("vendue.cell.dea-0.start"),
    Sub("vendue.cell.*.heartbeat"),
    Sub("vendue.cell.*.answer.alice.*"),
    Sub("vendue.bridge.dea.state"),
    Join("vendue.bridge.other.state", "q"),
    Sub("vendue.start"),
    Sub("vendue.app.>"),
    Sub("vendue.log.*.*.*"),
    Sub("$SYS.>"),
    Sub("vendue.cell.*.start"),
    Join("vendue.cell.dea-2.start", "q"),
    Join("vendue.cell.cell-a.start", "q"),
    Join("vendue.start", "auctioneers"),
    Sub("vendue.cell.*.advert"),
    Sub("vendue.event.>"),
    Sub("_INBOX.alice.>"),
    Sub(">"),
];

/// A facade starts and stops only on its own cells.
const FACADE: &[Act] = &[
    Pub("vendue.cell.cell-b.start"),
    Pub("vendue.cell.cell-b.stop"),
    Pub("vendue.cell.cell-a.drain"),
    Pub("vendue.cell.cell-a.set"),
    Pub("vendue.cell.cell-a.advert"),
    Pub("vendue.cells.stop"),
    Pub("vendue.start"),
    Pub("vendue.stop"),
    Pub("vendue.instances"),
    Pub("vendue.event.running.web.out"),
    Pub("vendue.event.running.web.cell-a"),
    Pub("vendue.cell.cell-a.heartbeat"),
    Pub("vendue.cell.cell-a.answer.alice.n"),
    Pub("vendue.cell.cell-a.logs"),
    Pub("vendue.bid"),
    Pub("vendue.app.put.web"),
    Pub("vendue.facade.other.state"),
    Pub("$KV.vendue-apps.web"),
    Pub("$JS.API.INFO"),
    Pub("$SRV.PING"),
    Sub("vendue.event.running.*.cell-b"),
    Sub("vendue.log.*.*.cell-a"),
    Sub("vendue.facade.out.state"),
    Join("vendue.facade.other.state", "q"),
    Sub("vendue.app.>"),
    Sub("vendue.cell.cell-b.heartbeat"),
    Sub("vendue.cell.cell-b.result"),
    Sub("vendue.cell.*.advert"),
    Sub("vendue.cell.cell-a.start"),
    Join("vendue.cell.cell-a.start", "q"),
    Sub("vendue.event.>"),
    Sub("vendue.start"),
    Sub("_INBOX.alice.>"),
    Sub(">"),
];

const TABLE: [(&str, &[Act]); 11] = [
    ("dea", BRIDGE),
    ("out", FACADE),
    ("cell-a", CELL),
    ("alice", USER),
    ("op", OPERATOR),
    ("obs", OBSERVER),
    ("met", METRICS),
    ("rec", RECORDER),
    ("auc-0", AUCTIONEER),
    ("mgr-0", MANAGER),
    ("mgr-0-state", MANAGER_STATE),
];

impl Act {
    async fn attempt(self, raw: &Raw) {
        let client = &raw.client;
        // dropped at once, a subscription would end before the server has read it
        let subscription = match self {
            Pub(subject) => {
                client.publish(subject, "{}".into()).await.unwrap();
                None
            }
            Sub(subject) => Some(client.subscribe(subject).await.unwrap()),
            Join(subject, queue) => {
                let joined = client.queue_subscribe(subject, queue.to_owned()).await;
                Some(joined.unwrap())
            }
        };
        client.flush().await.unwrap();
        drop(subscription);
    }

    fn was_refused(self, raw: &Raw) -> bool {
        match self {
            Pub(subject) => raw.was_refused("publish", subject, None),
            Sub(subject) => raw.was_refused("subscription", subject, None),
            Join(subject, queue) => raw.was_refused("subscription", subject, Some(queue)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_forbidden_act_is_refused() {
    let secure = Secure::server().await;
    let count: usize = TABLE.iter().map(|(_, acts)| acts.len()).sum();
    assert!(count >= 220, "{count}");
    for (who, acts) in TABLE {
        let raw = secure.raw(who).await;
        for act in acts {
            act.attempt(&raw).await;
        }
        eventually(&format!("{who} is refused everything"), async || {
            let left: Vec<_> = acts.iter().filter(|act| !act.was_refused(&raw)).collect();
            left.is_empty().then_some(()).ok_or(format!("{left:?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_connects_without_a_key_of_the_roster() {
    let secure = Secure::server().await;
    let url = secure.server.url();
    let stranger = nkeys::KeyPair::new_user().seed().unwrap();
    for options in [
        async_nats::ConnectOptions::new(),
        async_nats::ConnectOptions::with_token("t0k".into()),
        async_nats::ConnectOptions::with_user_and_password("alice".into(), "alice".into()),
        async_nats::ConnectOptions::with_nkey(stranger),
    ] {
        let error = options.connect(&url).await.unwrap_err();
        let kind = error.kind();
        assert_eq!(kind, async_nats::ConnectErrorKind::AuthorizationViolation);
    }
}
