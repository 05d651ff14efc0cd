//! Events about apps: one message per kind, app and auction, however many instances it covers.

use std::{collections::hash_map::Entry, sync::Arc};

use placement::{FastMap, Unplaced};
use shared::wire::{Event, EventInstance, format_indices};

use shared::{AuctionId, InstanceId, RequestId};

/// The most instances listed in one event.
const LISTED: usize = 100;

/// The results of an app's instances in an auction, until all of them are known.
#[derive(Debug, Default)]
struct AppReport {
    pending: usize,
    kinds: Vec<(&'static str, Lines)>,
}

/// One event being assembled.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    indices: Vec<u32>,
    listed: Vec<EventInstance>,
    why: Option<Arc<Unplaced>>,
    requests: Vec<RequestId>,
}

/// One instance in an event.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) request: RequestId,
    pub(crate) index: u32,
    pub(crate) instance: InstanceId,
    pub(crate) cell: Option<Arc<str>>,
    pub(crate) why: Option<Arc<Unplaced>>,
    pub(crate) traceparent: Option<String>,
}

impl Lines {
    pub(crate) fn add(&mut self, line: Line) {
        if self.indices.is_empty() {
            // most events are about one instance, and a new vector takes room for four
            self.indices.reserve_exact(1);
            self.listed.reserve_exact(1);
            self.requests.reserve_exact(1);
        }
        self.indices.push(line.index);
        if self.listed.len() < LISTED {
            self.listed.push(EventInstance {
                index: line.index,
                instance: Some(line.instance),
                cell: line.cell.map(|cell| cell.as_ref().to_owned()),
                traceparent: line.traceparent,
                ..EventInstance::default()
            });
        }
        // instances of one request come together, so comparing with the last one is enough
        if self.requests.last() != Some(&line.request) {
            self.requests.push(line.request);
        }
        // one reason is enough for an event: the reply has all of them
        if self.why.is_none() {
            self.why = line.why;
        }
    }

    pub(crate) fn event(self, kind: &str, app: &str, auction: Option<AuctionId>) -> Event {
        let mut event = Event::app(kind, app);
        event.auction = auction;
        event.count = self.indices.len();
        event.indices = Some(format_indices(self.indices));
        event.instances = self.listed;
        // with several requests none is named, as it would be taken for the request of all
        if let [request] = self.requests.as_slice() {
            event.request = Some(request.clone());
        }
        if let Some(why) = self.why {
            event.reason = Some(why.reason.clone());
            event.tally.clone_from(&why.tally);
        }
        event
    }
}

/// Events that wait for the last answer for their auction and app.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    auctions: FastMap<(AuctionId, Arc<str>), AppReport>,
}

impl Reports {
    /// Records that an instance of the app was sent to a cell in this auction.
    pub(crate) fn sent(&mut self, auction: AuctionId, app: Arc<str>) {
        self.auctions.entry((auction, app)).or_default().pending += 1;
    }

    /// Records the result of an instance that was sent. The last result returns the events.
    pub(crate) fn record(
        &mut self,
        auction: AuctionId,
        app: &Arc<str>,
        kind: &'static str,
        line: Line,
    ) -> Vec<Event> {
        let Entry::Occupied(mut report) = self.auctions.entry((auction, Arc::clone(app))) else {
            return Vec::new();
        };
        let AppReport { pending, kinds } = report.get_mut();
        let known = kinds.iter_mut().find(|(known, _)| *known == kind);
        if let Some((_, lines)) = known {
            lines.add(line);
        } else {
            let mut lines = Lines::default();
            lines.add(line);
            kinds.reserve_exact(1);
            kinds.push((kind, lines));
        }
        *pending = pending.saturating_sub(1);
        if *pending > 0 {
            return Vec::new();
        }
        let mut kinds = report.remove().kinds;
        // sorted by kind: which cell answered first must not change the order of events
        kinds.sort_by_key(|(kind, _)| *kind);
        let event = |(kind, lines): (&str, Lines)| lines.event(kind, app, Some(auction));
        kinds.into_iter().map(event).collect()
    }
}
