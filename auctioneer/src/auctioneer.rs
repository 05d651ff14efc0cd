//! The auctioneer's state machine: passes every input to the part that handles it, and does what is due.
//!
//! Pure: the time is an argument, random numbers come from the given seed, and outputs are returned.
//!
//! A start request passes through `requests` (it is opened), `lookups` (the cells are asked first if necessary),
//! `bidding` (when the auction is held), `auction` (it is decided and sent) and `answers` (the cells' answers).

use std::time::Duration;

use placement::{Span, random::SplitMix64};
use shared::wire::{Event, kind};

use crate::{
    answers,
    auction::{self, Planned},
    bidding::Bidding,
    cell_events::CellEvents,
    claims,
    counters::Counters,
    dispatches::Dispatches,
    feed::{Feed, LostCell, Received, ReportKind},
    ids::{EchoToken, ReplyKey},
    io::{AuctioneerInput, AuctioneerOutput, Rejected, StartMessage},
    lookups::Lookups,
    namesake::Namesake,
    parts::{Parts, Settings},
    past_auctions::PastAuctions,
    questions, rejections,
    report::Reports,
    requests::Requests,
    sim::SimulatedInput,
    stops::Stops,
    ticket::Place,
    turn::Turn,
};

/// How often leases are checked.
const EXPIRE_MS: u64 = 100;

/// The longest normal pause between two messages; the auctioneer sends an echo to itself ten times a second. After a
/// longer pause it stood still or heard nothing, so messages of others may be read only after the requests that
/// followed them.
const MAX_PAUSE_MS: u64 = 1_000;
/// After a longer pause, starts that it had not read may have been given up: whoever sends starts of stored requests
/// waits for 10 s.
const MAX_STILL_MS: u64 = 9_000;
/// An echo that arrives this long after the pause was sent after it, so everything that had piled up has been read.
const CAUGHT_UP_MS: u64 = 500;

/// The machine.
#[derive(Debug)]
pub struct Auctioneer {
    pub(crate) parts: Parts,
    bidding: Bidding,
    /// Decided, but not sent yet.
    planned: Option<Planned>,
    lookups: Lookups,
    stops: Stops,
    namesake: Namesake,
    joined_events: CellEvents,
    lost_events: CellEvents,
    /// Whether the initial cells are known: a new one has joined.
    warm: bool,
    next_expire_ms: u64,
    /// When the last message arrived.
    last_message_ms: u64,
    /// When the first message arrived after it stood still; none once everything from before has been read.
    woke_ms: Option<u64>,
}

impl Auctioneer {
    /// Creates a machine with an empty pool.
    pub fn new(settings: Settings) -> Self {
        // not the number that seeds and ids are derived from, because the token is published
        let token = EchoToken::new(SplitMix64::new(!settings.seed).draw());
        Self {
            parts: Parts {
                random: SplitMix64::new(settings.seed),
                feed: Feed::new(settings.limits.max_ttl_ms),
                requests: Requests::new(settings.name.clone(), settings.limits.max_queue_ms),
                dispatches: Dispatches::default(),
                reports: Reports::default(),
                past_auctions: PastAuctions::default(),
                turn: Turn {
                    now_ms: 0,
                    max_payload: settings.max_payload,
                    counters: Counters::default(),
                    out: Vec::new(),
                },
                settings,
            },
            bidding: Bidding::default(),
            planned: None,
            lookups: Lookups::default(),
            stops: Stops::default(),
            namesake: Namesake::new(token),
            joined_events: CellEvents::default(),
            lost_events: CellEvents::default(),
            warm: false,
            next_expire_ms: 0,
            last_message_ms: 0,
            woke_ms: None,
        }
    }

    /// Takes one input and does what is due: [`Auctioneer::take`], then [`Auctioneer::run`].
    pub fn handle(&mut self, now_ms: u64, input: AuctioneerInput) -> Vec<AuctioneerOutput> {
        self.take(now_ms, input);
        self.run(now_ms)
    }

    /// Takes one input. Several may be taken before the next [`Auctioneer::run`]: then they share
    /// an auction.
    pub fn take(&mut self, now_ms: u64, input: AuctioneerInput) {
        use AuctioneerInput as Input;
        self.parts.turn.now_ms = now_ms;
        if !input.is_own() {
            self.evidence(now_ms);
        }
        let parts = &mut self.parts;
        match input {
            Input::Start(message) => self.start(message),
            Input::CellReport {
                kind,
                subject_cell,
                body,
            } => {
                let counters = &mut parts.turn.counters;
                let cell = subject_cell.as_deref();
                let mut received = parts.feed.receive(now_ms, kind, cell, &body, counters);
                if let Some(error) = received.error.take().map(Box::new) {
                    let (out, cell) = (&mut parts.turn.out, subject_cell);
                    out.push(AuctioneerOutput::Dropped { cell, error });
                }
                // bids in time, joined cells and settled instances all come with a report, whatever its kind
                self.reported(kind, received);
            }
            Input::Simulated(simulated) => self.simulated(now_ms, simulated),
            Input::StartAnswered { dispatch, answer } => {
                answers::answered(parts, dispatch, &answer);
            }
            Input::NoResponders { dispatch } => answers::no_responders(parts, dispatch),
            Input::WrongSubject => parts.turn.counters.dropped_wrong_subject += 1,
            Input::Unreadable => parts.turn.counters.dropped_malformed += 1,
            Input::Outcome { id, body } => {
                claims::outcome(parts, &mut self.lookups, &id, body);
            }
            Input::Announced(announced) => {
                claims::announced(parts, &mut self.lookups, &announced);
            }
            Input::InstancesReported { lookup, answer } => {
                self.lookups.answered(parts, lookup, &answer);
            }
            Input::Stop { stop, reply } => self.stops.begin(parts, stop, reply),
            Input::StopAnswered { stop, answer } => {
                self.stops.answered(&mut parts.turn, stop, *answer);
            }
            Input::DryRun { dry_run, reply } => questions::dry_run(parts, &dry_run, reply),
            Input::Explain { explain, reply } => questions::explain(parts, &explain, reply),
            Input::Pool { page, reply } => questions::pool(parts, &page, reply),
            Input::Queued { queued, reply } => questions::queued(parts, &queued, reply),
            Input::Capacity { size, reply } => questions::capacity(parts, &size, reply),
            Input::Rejected { rejected, reply } => self.reject(&[rejected], reply),
            Input::Echo => self.echo(now_ms, None),
            Input::EchoOf(token) => self.echo(now_ms, Some(token)),
            Input::Missed | Input::Connected(true) => self.missed(now_ms),
            Input::Connected(false) => {
                parts.feed.interrupted();
                self.missed(now_ms);
            }
            Input::Standing(standing) => parts.requests.stand(standing),
            Input::Shutdown => parts.requests.close(&mut parts.turn),
        }
        self.forget_ended();
    }

    fn simulated(&mut self, now_ms: u64, input: SimulatedInput) {
        let feed = &mut self.parts.feed;
        match input {
            SimulatedInput::Report {
                kind,
                report,
                since,
            } => {
                let counters = &mut self.parts.turn.counters;
                let received = feed.receive_parsed(now_ms, kind, report, since, counters);
                self.reported(kind, received);
            }
            SimulatedInput::Unchanged { auction, except } => {
                feed.renew_all(now_ms, auction.is_none(), &except);
                self.bidding.unchanged(auction, except);
            }
        }
    }

    /// Records that messages arrive. After a pause some may have been missed.
    fn evidence(&mut self, now_ms: u64) {
        self.parts.feed.evidence(now_ms);
        let pause_ms = now_ms.saturating_sub(self.last_message_ms);
        // not for the first message: after a start every id is unsure anyway
        if std::mem::replace(&mut self.last_message_ms, now_ms) > 0 && pause_ms > MAX_PAUSE_MS {
            self.missed(now_ms);
            if pause_ms > MAX_STILL_MS {
                self.woke_ms = Some(now_ms);
                self.parts.requests.stood_still(true);
            }
        }
    }

    /// Handles an echo under this auctioneer's name, its own or a namesake's. Whatever follows its own echo was sent a
    /// moment ago.
    fn echo(&mut self, now_ms: u64, token: Option<EchoToken>) {
        if let Some(token) = token
            && !self.namesake.heard(now_ms, token)
        {
            return;
        }
        let caught_up = |at: &mut u64| now_ms >= *at + CAUGHT_UP_MS;
        if self.woke_ms.take_if(caught_up).is_some() {
            self.parts.requests.stood_still(false);
        }
    }

    /// Does what is due: deadlines, leases, the next auction. Returns all outputs since the last run. Drivers whose
    /// clock advances while the machine decides call [`Auctioneer::plan`], then [`Auctioneer::send`].
    pub fn run(&mut self, now_ms: u64) -> Vec<AuctioneerOutput> {
        self.plan(now_ms);
        self.send(now_ms)
    }

    /// Does what is due, up to deciding the next auction, which may take long. [`Auctioneer::send`] must follow
    /// immediately.
    pub fn plan(&mut self, now_ms: u64) {
        let parts = &mut self.parts;
        parts.turn.now_ms = now_ms;
        // before the auction, which must not place again what is over
        answers::unanswered(parts);
        parts.requests.due(&mut parts.turn);
        self.forget_ended();
        let parts = &mut self.parts;
        self.lookups.run(parts);
        self.stops.end_due(&mut parts.turn);
        // a cell whose lease is over must not win the auction
        if now_ms >= self.next_expire_ms {
            self.expire(now_ms);
        }
        let parts = &mut self.parts;
        if !parts.requests.holds_auctions() {
            return parts.requests.hand_over(&mut parts.turn);
        }
        // all of the above may have made room, or changed the pool for queued work
        parts.requests.requeue(now_ms, parts.feed.version());
        // last, so that all inputs and deadlines of this moment share one auction
        self.planned = self.bidding.hold_auction(parts);
    }

    /// Sends what was decided; starts expire relative to now. Returns all outputs since the last call.
    pub fn send(&mut self, now_ms: u64) -> Vec<AuctioneerOutput> {
        self.parts.turn.now_ms = now_ms;
        if let Some(planned) = self.planned.take() {
            auction::send_planned(&mut self.parts, planned);
        }
        self.forget_ended();
        std::mem::take(&mut self.parts.turn.out)
    }

    /// Records that the outputs of the last [`Auctioneer::send`] leave now: the wait for the cells' answers begins. For
    /// drivers whose clock advances while the machine decides.
    pub fn sent(&mut self, now_ms: u64) {
        self.parts.dispatches.sent(now_ms);
    }

    /// Returns the latest time at which [`Auctioneer::run`] must be called.
    pub fn next_wake_ms(&self) -> u64 {
        self.next_work_ms().min(self.next_expire_ms)
    }

    /// Like [`Auctioneer::next_wake_ms`], without the check of leases ten times a second. Only for the simulator, which
    /// skips hours in which no lease can end.
    pub fn next_work_ms(&self) -> u64 {
        let parts = &self.parts;
        let auction = [
            parts.requests.next_requeue_ms(parts.feed.version()),
            self.bidding.next_ms(parts.requests.for_auction() > 0),
        ];
        let holds = parts.requests.holds_auctions();
        let others = [
            parts.dispatches.next_ms(),
            parts.requests.next_due_ms(),
            self.lookups.next_ms(),
            self.stops.next_ms(),
        ];
        let auction = auction.into_iter().filter(|_| holds);
        let next = auction.chain(others).flatten().min();
        next.unwrap_or(u64::MAX)
    }

    /// Ends warm-up: from now on a cell that advertises for the first time is reported as joined. Earlier ones were
    /// there before this auctioneer.
    pub fn warmed_up(&mut self) {
        self.warm = true;
    }

    /// Returns the token in its echoes to itself.
    pub fn token(&self) -> EchoToken {
        self.namesake.token()
    }

    /// Returns whether it must leave because another auctioneer has its name.
    pub fn has_namesake(&self) -> bool {
        self.namesake.leaves()
    }

    /// Trusts that unknown ids are new. For a simulator, in which every message is heard and no id was used before, so
    /// that no id has to be looked up.
    pub fn trust_ids(&mut self) {
        self.parts.requests.trust_ids();
    }

    /// Sets the largest message that the server accepts, in bytes.
    pub fn set_max_payload(&mut self, max_payload: usize) {
        self.parts.turn.max_payload = max_payload;
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let mut counters = self.parts.turn.counters.clone();
        counters.dropped_outcomes = self.parts.requests.forgotten();
        counters
    }

    /// Returns the pool feed.
    pub fn feed(&self) -> &Feed {
        &self.parts.feed
    }

    /// Returns whether no request is open.
    pub fn is_idle(&self) -> bool {
        self.parts.requests.is_empty() && self.stops.is_empty()
    }

    /// Returns the ids of the open requests, and for each whether any of it waits for an auction or is queued.
    pub fn open_requests(&self) -> impl Iterator<Item = (&str, bool)> {
        let open = self.parts.requests.tickets();
        open.map(|ticket| (ticket.id.as_str(), ticket.waits()))
    }

    /// Returns how many jobs wait for an auction or are queued.
    pub fn waiting(&self) -> usize {
        self.parts.requests.waiting()
    }

    /// Handles the possible loss of messages: what waits here may run already.
    fn missed(&mut self, now_ms: u64) {
        let unsure = self.parts.requests.missed(now_ms);
        // with answers missing, a lookup would conclude that nobody has the instances
        self.lookups.ask_again();
        self.lookups.check(unsure);
        // other auctioneers may have lost a cell that is back by now
        self.lookups.compare(&self.parts);
    }

    /// Handles a start message: each of its requests is accepted, repeated or rejected separately.
    fn start(&mut self, message: StartMessage) {
        let parts = &mut self.parts;
        let group = parts.requests.open_group(&message);
        let (count, reply) = (message.requests.len(), message.reply);
        let mut rejected: Vec<(Place, Rejected)> = Vec::new();
        for (position, request) in message.requests.into_iter().enumerate() {
            let place = Place { group, position };
            let taken = request.and_then(|r| parts.requests.take(&mut parts.turn, r, place));
            match taken {
                Ok(Some(opened)) => self.lookups.begin(parts, opened),
                Ok(None) => {}
                Err(why) => rejected.push((place, why)),
            }
        }
        if rejected.is_empty() {
            return;
        }
        if rejected.len() == count {
            // otherwise the group would wait for answers that never come
            parts.requests.reject_group(group);
            let rejected: Vec<Rejected> = rejected.into_iter().map(|(_, why)| why).collect();
            return self.reject(&rejected, reply);
        }
        parts.turn.counters.rejected += 1;
        rejections::report(
            &mut parts.turn,
            rejected.iter().map(|(_, why)| why),
            reply.is_none(),
        );
        for (place, why) in &rejected {
            parts.requests.reject(&mut parts.turn, *place, why);
        }
    }

    /// Rejects a message that is invalid as a whole: it is answered with one error.
    fn reject(&mut self, rejected: &[Rejected], reply: Option<ReplyKey>) {
        let turn = &mut self.parts.turn;
        turn.counters.rejected += 1;
        rejections::report(turn, rejected.iter(), reply.is_none());
        turn.reply(reply, Err(rejections::first_error(rejected)));
    }

    fn reported(&mut self, kind: ReportKind, received: Received) {
        let parts = &mut self.parts;
        if let Some(cell) = received.ask_state {
            parts.turn.out.push(AuctioneerOutput::AskState { cell });
        }
        for instance in received.settled {
            answers::settle(parts, instance, None);
        }
        if let Some(lost) = received.left {
            let why = match &received.from {
                None => "cell withdrew",
                Some(_) => "the pool is full, and it has never answered a question",
            };
            self.lost(lost, why.to_owned());
        }
        let parts = &mut self.parts;
        let Some((cell, auction)) = received.from else {
            return;
        };
        if received.joined {
            self.lookups.cell_joined(parts, &cell);
        }
        // cells that join in the first seconds were there before this auctioneer: an event would make them look new
        if received.joined && self.warm {
            let has_answered = kind != ReportKind::Advert;
            if self.joined_events.admit(parts.turn.now_ms, has_answered) {
                let event = Event::cell(kind::CELL_JOINED, cell.as_ref());
                parts.turn.event(event);
            } else {
                parts.turn.counters.dropped_cell_events += 1;
            }
        }
        self.bidding.reported(parts, &cell, auction, kind);
    }

    fn expire(&mut self, now_ms: u64) {
        self.next_expire_ms = now_ms + EXPIRE_MS;
        let parts = &mut self.parts;
        parts.requests.forget_outcomes(now_ms);
        for lost in parts.feed.expire(now_ms, &mut parts.turn.counters) {
            let ttl = Span(Duration::from_millis(lost.ttl_ms));
            let why = format!("advertisement expired (no message for {ttl})");
            self.lost(lost, why);
        }
    }

    fn lost(&mut self, lost: LostCell, why: String) {
        // whatever waits for its answer would otherwise wait until the deadline
        self.bidding.cell_gone(&lost.name);
        self.lookups.cell_gone(&lost.name);
        self.stops.cell_gone(&lost.name);
        let turn = &mut self.parts.turn;
        if self.lost_events.admit(turn.now_ms, lost.has_answered) {
            turn.event(lost_event(lost, why, turn.max_payload / 2));
        } else {
            turn.counters.dropped_cell_events += 1;
        }
    }

    /// Drops lookups for requests that have ended.
    fn forget_ended(&mut self) {
        let ended = self.parts.requests.take_ended();
        self.lookups.forget(&ended);
    }
}

/// Builds the event about what a lost cell was running, for whatever replaces instances, with as many apps as fit into
/// `max_bytes`.
fn lost_event(lost: LostCell, why: String, max_bytes: usize) -> Event {
    let mut event = Event::cell(kind::CELL_LOST, lost.name.as_ref());
    event.reason = Some(why);
    let lrps: u64 = lost.apps.values().map(|count| u64::from(*count)).sum();
    event.count = usize::try_from(lrps + u64::from(lost.tasks)).unwrap_or(usize::MAX);
    event.tasks = lost.tasks;
    let (mut bytes, all) = (0, lost.apps.len());
    let fits = lost.apps.into_iter().take_while(|(app, _)| {
        // quotes, colon, count and comma next to the name
        bytes += app.len() + 16;
        bytes <= max_bytes
    });
    event.apps = fits.collect();
    event.more = event.apps.len() < all;
    event
}
