//! The cluster's instances on a DEA, as reported to the cluster.

use placement::Kind;
use shared::{
    AuctionId, InstanceId, RequestId,
    wire::{Event, EventInstance, Instance, InstanceState, Work, instance_id},
};

use crate::dea::BridgeInstanceState;

/// The longest request id that travels with a droplet. If it is longer, only the instance's own id is known after a
/// restart of the bridge.
const MAX_REQUEST: usize = 90;

/// Returns the id of an instance on its DEA. From this, its app and its index, everything that the cluster must know
/// can be derived, even after a restart of the bridge.
pub(super) fn droplet_id(work: &Work) -> String {
    let request = work.request.as_ref().map(RequestId::as_str);
    let request = request.filter(|request| {
        let own = instance_id(request, &work.app, Kind::Lrp, work.index);
        request.len() <= MAX_REQUEST && own == work.instance
    });
    match request {
        Some(request) => format!("r{}-{request}", work.index),
        None => format!("i{}", work.instance.uuid().simple()),
    }
}

/// Returns the instance with this [`droplet_id`] and its request; none if the id is invalid.
pub(super) fn instance_called(
    id: &str,
    app: &str,
    index: u32,
) -> Option<(InstanceId, Option<RequestId>)> {
    if let Some(rest) = id.strip_prefix('r') {
        let (_, request) = rest.split_once('-')?;
        let request = RequestId::new(request).ok()?;
        let instance = instance_id(request.as_str(), app, Kind::Lrp, index);
        return Some((instance, Some(request)));
    }
    let instance = id.strip_prefix('i')?.parse().ok()?;
    Some((instance, None))
}

/// An instance of the cluster on a DEA. There are many, so what is seldom known of one has a place of its own.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Its id there.
    pub(super) id: Box<str>,
    pub(super) instance: InstanceId,
    pub(super) app: Box<str>,
    pub(super) index: u32,
    pub(super) state: InstanceState,
    since_ms: u64,
    running_ms: Option<u64>,
    sent: Option<Box<Sent>>,
    ended: Option<Box<Ended>>,
}

/// What a start said of an instance, and no heartbeat says.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// The request, unless the instance's id on the DEA contains it.
    request: Option<RequestId>,
    owner: Option<String>,
    version: Option<String>,
    memory_mb: i64,
    disk_mb: i64,
    claim: Option<AuctionId>,
    traceparent: Option<String>,
}

/// How an instance ended.
#[derive(Clone, Debug)]
struct Ended {
    words: String,
    exit_code: Option<i32>,
}

impl Held {
    /// Creates an instance that is being sent.
    pub(super) fn sent(now_ms: u64, id: &str, work: &Work, claim: AuctionId) -> Self {
        let mut held = Self::heard(now_ms, id, work.instance, (&work.app, work.index));
        held.sent = Some(Box::new(Sent {
            request: work.request.clone(),
            owner: work.owner.clone(),
            version: work.version.clone(),
            memory_mb: work.memory_mb,
            disk_mb: work.disk_mb,
            claim: Some(claim),
            traceparent: work.traceparent.clone(),
        }));
        held
    }

    /// Creates an instance that was heard of, and is starting as far as is known.
    pub(super) fn heard(
        now_ms: u64,
        id: &str,
        instance: InstanceId,
        (app, index): (&str, u32),
    ) -> Self {
        Self {
            id: id.into(),
            instance,
            app: app.into(),
            index,
            state: InstanceState::Starting,
            since_ms: now_ms,
            running_ms: None,
            sent: None,
            ended: None,
        }
    }

    /// Returns the claim with which it was sent; none if that is not known.
    pub(super) fn claim(&self) -> Option<AuctionId> {
        self.sent.as_ref()?.claim
    }

    /// Records a claim: the lower of two counts.
    pub(super) fn claimed(&mut self, claim: AuctionId) {
        let lowest = self.claim().map_or(claim, |own| own.min(claim));
        self.sent.get_or_insert_default().claim = Some(lowest);
    }

    /// Returns the request that it belongs to, if that is known.
    pub(super) fn request(&self) -> Option<RequestId> {
        let sent = self.sent.as_ref();
        let sent = sent.and_then(|sent| sent.request.clone());
        sent.or_else(|| instance_called(&self.id, &self.app, self.index)?.1)
    }

    /// Puts it into this state from now on.
    pub(super) fn enter(&mut self, now_ms: u64, state: InstanceState) {
        self.state = state;
        self.since_ms = now_ms;
        if state == InstanceState::Running {
            self.running_ms = Some(now_ms);
        }
    }

    /// Returns it as it is listed.
    pub(super) fn describe(&self, now_ms: u64) -> Instance {
        let mut shown = Instance::new(self.instance, &*self.app, self.index, self.state);
        shown.age_ms = now_ms.saturating_sub(self.since_ms);
        shown.request = self.request();
        if let Some(sent) = &self.sent {
            shown.owner.clone_from(&sent.owner);
            shown.version.clone_from(&sent.version);
            (shown.memory_mb, shown.disk_mb) = (sent.memory_mb, sent.disk_mb);
            shown.claim = sent.claim;
        }
        if let Some(ended) = &self.ended {
            shown.ended = Some(ended.words.clone());
            shown.exit_code = ended.exit_code;
        }
        shown
    }

    /// Records that it has ended in this way.
    pub(super) fn end(&mut self, now_ms: u64, how: &BridgeInstanceState) {
        self.enter(
            now_ms,
            match how {
                BridgeInstanceState::Stopped => InstanceState::Exited,
                _ => InstanceState::Crashed,
            },
        );
        let (words, exit_code) = match how {
            BridgeInstanceState::Stopped => ("stopped".to_owned(), None),
            BridgeInstanceState::Crashed {
                exit_status,
                description,
            } => {
                let code = i32::try_from(*exit_status).ok().filter(|code| *code >= 0);
                let said = match (description.as_str(), code) {
                    ("", Some(code)) => format!("exit {code}"),
                    ("", None) => "crashed".to_owned(),
                    (description, _) => description.to_owned(),
                };
                (said, code)
            }
            _ => ("its DEA no longer lists it".to_owned(), None),
        };
        self.ended = Some(Box::new(Ended { words, exit_code }));
    }

    /// Returns an event about it.
    pub(super) fn event(&self, now_ms: u64, cell: &str, kind: &str) -> Event {
        let is_final = matches!(self.state, InstanceState::Exited | InstanceState::Crashed);
        let ran_ms = self.running_ms.filter(|_| is_final);
        let ran_ms = ran_ms.map(|from| now_ms.saturating_sub(from));
        let traceparent = self.sent.as_ref().and_then(|sent| sent.traceparent.clone());
        Event {
            cell: Some(cell.to_owned()),
            count: 1,
            indices: Some(self.index.to_string()),
            instances: vec![EventInstance {
                index: self.index,
                instance: Some(self.instance),
                ended: self.ended.as_ref().map(|ended| ended.words.clone()),
                is_final,
                ran: ran_ms.map(|ms| placement::Span(std::time::Duration::from_millis(ms))),
                traceparent,
                ..EventInstance::default()
            }],
            ..Event::app(kind, &*self.app)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bridge has 50,000 of them within 100 MiB.
    #[test]
    fn an_instance_takes_little_memory() {
        assert!(size_of::<Held>() <= 104, "{}", size_of::<Held>());
    }

    #[test]
    fn an_instance_is_known_by_how_its_droplet_is_called() {
        let request: RequestId = "w-1".parse().unwrap();
        let instance = instance_id("w-1", "web", Kind::Lrp, 7);
        let mut work = Work::new(instance, "web", 1, 1);
        (work.index, work.request) = (7, Some(request.clone()));
        let id = droplet_id(&work);
        assert_eq!(id, "r7-w-1");
        assert_eq!(
            instance_called(&id, "web", 7),
            Some((instance, Some(request)))
        );
        // not derived from the request, so its own id travels
        for other in [None, Some("x".repeat(91).parse().unwrap())] {
            work.request = other;
            let id = droplet_id(&work);
            assert_eq!(instance_called(&id, "web", 7), Some((instance, None)));
        }
        work.request = Some("w-2".parse().unwrap());
        assert!(droplet_id(&work).starts_with('i'));
        for bad in ["", "x", "r", "r7", "r7-", "i", "i12", "r7-a.b"] {
            assert_eq!(instance_called(bad, "web", 7), None, "{bad}");
        }
    }
}
