//! The auctioneer's state machine: passes every input to the part that it concerns, and does what
//! is due.
//!
//! Pure: the time is an argument, random numbers come from the given seed, and outputs are
//! returned.
//! A start request passes through `requests` (opened), `lookups` (what the cells must be asked
//! first), `bidding` (when the auction is held), `auction` (decided and sent) and `answers` (the
//! cells' answers).

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

/// Between two messages, one of them its echo to itself ten times a second. After a longer pause it stood
/// still or heard nothing: then what others said meanwhile may come only now, after what is asked of it.
const MAX_PAUSE_MS: u64 = 1_000;
/// After a longer one, starts that it had not read may have been given up: whoever sends those of stored requests waits
/// for 10 s.
const MAX_STILL_MS: u64 = 9_000;
/// An echo that comes so long after the pause was sent after it, and what had not been read came before.
const CAUGHT_UP_MS: u64 = 500;

/// The machine.
#[derive(Debug)]
pub struct Auctioneer {
    pub(crate) parts: Parts,
    bidding: Bidding,
    /// Decided, and not sent yet.
    planned: Option<Planned>,
    lookups: Lookups,
    stops: Stops,
    namesake: Namesake,
    joined_events: CellEvents,
    lost_events: CellEvents,
    /// The initial cells are known: a further one has joined.
    warm: bool,
    next_expire_ms: u64,
    /// When the last message came.
    last_message_ms: u64,
    /// When the first one came after it had stood still; none once it has read what came meanwhile.
    woke_ms: Option<u64>,
}

impl Auctioneer {
    /// A machine with an empty pool.
    pub fn new(settings: Settings) -> Self {
        // not the number from which seeds and ids follow, because it is published
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
        // these two come from this process: they prove nothing about messages
        if !matches!(input, Input::Connected(_) | Input::Shutdown) {
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
                // a bid in time, a joined cell and settled instances all come with a report, however it arrived
                self.reported(kind, received);
            }
            Input::Simulated(SimulatedInput::Report { kind, report }) => {
                let counters = &mut parts.turn.counters;
                let received = parts.feed.receive_parsed(now_ms, kind, report, counters);
                self.reported(kind, received);
            }
            Input::Simulated(SimulatedInput::Unchanged { auction, except }) => {
                parts.feed.renew_all(now_ms, auction.is_none(), &except);
                self.bidding.unchanged(auction, except);
            }
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
            Input::Shutdown => parts.requests.close(&mut parts.turn),
        }
        self.forget_ended();
    }

    /// Messages flow. After a pause some may have been missed.
    fn evidence(&mut self, now_ms: u64) {
        self.parts.feed.evidence(now_ms);
        let pause_ms = now_ms.saturating_sub(self.last_message_ms);
        // not at the first message: after a start every id is unsure anyway
        if std::mem::replace(&mut self.last_message_ms, now_ms) > 0 && pause_ms > MAX_PAUSE_MS {
            self.missed(now_ms);
            if pause_ms > MAX_STILL_MS {
                self.woke_ms = Some(now_ms);
                self.parts.requests.stood_still(true);
            }
        }
    }

    /// An echo, of this program or of another one of its name. What comes after its own was sent a moment ago.
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

    /// Does what is due: deadlines, leases, the next auction. Returns all outputs since the last
    /// run. For drivers whose time does not pass meanwhile: [`Auctioneer::plan`], then [`Auctioneer::send`].
    pub fn run(&mut self, now_ms: u64) -> Vec<AuctioneerOutput> {
        self.plan(now_ms);
        self.send(now_ms)
    }

    /// Does what is due, up to the decision of the next auction, which may take long.
    /// [`Auctioneer::send`] must follow at once.
    pub fn plan(&mut self, now_ms: u64) {
        let parts = &mut self.parts;
        parts.turn.now_ms = now_ms;
        // before the auction: what is over must not be placed once more in it
        answers::unanswered(parts);
        parts.requests.due(&mut parts.turn);
        self.forget_ended();
        let parts = &mut self.parts;
        self.lookups.run(parts);
        self.stops.end_due(&mut parts.turn);
        // a cell whose lease is over must not win below
        if now_ms >= self.next_expire_ms {
            self.expire(now_ms);
        }
        let parts = &mut self.parts;
        // all of the above may have made room, or changed the pool for what is queued
        parts.requests.requeue(now_ms, parts.feed.version());
        // last, so that all inputs and deadlines of this moment share one auction
        self.planned = self.bidding.hold_auction(parts);
    }

    /// Sends what was decided: the time of its starts runs from now. Returns all outputs since the last call.
    pub fn send(&mut self, now_ms: u64) -> Vec<AuctioneerOutput> {
        self.parts.turn.now_ms = now_ms;
        if let Some(planned) = self.planned.take() {
            auction::send_planned(&mut self.parts, planned);
        }
        self.forget_ended();
        std::mem::take(&mut self.parts.turn.out)
    }

    /// What the last [`Auctioneer::send`] returned is sent now: the wait for the cells' answers begins. For drivers whose
    /// time passes while the machine decides.
    pub fn sent(&mut self, now_ms: u64) {
        self.parts.dispatches.sent(now_ms);
    }

    /// When [`Auctioneer::run`] must be called at the latest.
    pub fn next_wake_ms(&self) -> u64 {
        self.next_work_ms().min(self.next_expire_ms)
    }

    /// As [`Auctioneer::next_wake_ms`], without the check of leases ten times a second. Only for the
    /// simulator, which skips hours in which no lease can end.
    pub fn next_work_ms(&self) -> u64 {
        let parts = &self.parts;
        [
            parts.requests.next_requeue_ms(parts.feed.version()),
            self.bidding.next_ms(parts.requests.for_auction() > 0),
            parts.dispatches.next_ms(),
            parts.requests.next_due_ms(),
            self.lookups.next_ms(),
            self.stops.next_ms(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// From now on a cell that advertises for the first time is reported as joined: earlier ones
    /// were there before this auctioneer.
    pub fn warmed_up(&mut self) {
        self.warm = true;
    }

    /// What its echoes to itself say.
    pub fn token(&self) -> EchoToken {
        self.namesake.token()
    }

    /// Whether it must leave, because another auctioneer has its name.
    pub fn has_namesake(&self) -> bool {
        self.namesake.leaves()
    }

    /// For a simulator, which hears everything, and in which no id was used before: none is looked for
    /// because its outcome may have been missed.
    pub fn trust_ids(&mut self) {
        self.parts.requests.trust_ids();
    }

    /// The largest message that the server accepts now, bytes.
    pub fn set_max_payload(&mut self, max_payload: usize) {
        self.parts.turn.max_payload = max_payload;
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let mut counters = self.parts.turn.counters.clone();
        counters.dropped_outcomes = self.parts.requests.forgotten();
        counters
    }

    /// The pool.
    pub fn feed(&self) -> &Feed {
        &self.parts.feed
    }

    /// Whether no request is open.
    pub fn is_idle(&self) -> bool {
        self.parts.requests.is_empty() && self.stops.is_empty()
    }

    /// The ids of the open requests, and whether something of each waits for an auction or is queued.
    pub fn open_requests(&self) -> impl Iterator<Item = (&str, bool)> {
        let open = self.parts.requests.tickets();
        open.map(|ticket| (ticket.id.as_str(), ticket.waits()))
    }

    /// How many jobs wait for an auction or are queued.
    pub fn waiting(&self) -> usize {
        self.parts.requests.waiting()
    }

    /// Messages may have been missed: what waits here may run already.
    fn missed(&mut self, now_ms: u64) {
        let unsure = self.parts.requests.missed(now_ms);
        // without the missed answers a lookup would conclude that nobody has the instances
        self.lookups.ask_again();
        self.lookups.check(unsure);
        // a cell may have been lost to others, and be back
        self.lookups.compare(&self.parts);
    }

    /// A start message: each request is taken, repeated or rejected by itself.
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
            // the group would wait for answers that never come
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

    /// A message that is invalid as a whole: it is answered with one error.
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
        // the cells of the first seconds were there before this auctioneer: reported, they would look like news
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
        // whatever waits for its answer would wait for the whole deadline
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

    /// Forgets what was asked for requests that have ended.
    fn forget_ended(&mut self) {
        let ended = self.parts.requests.take_ended();
        self.lookups.forget(&ended);
    }
}

/// Reports what a lost cell was running, for whatever replaces instances. As many apps as fit into
/// `max_bytes`.
fn lost_event(lost: LostCell, why: String, max_bytes: usize) -> Event {
    let mut event = Event::cell(kind::CELL_LOST, lost.name.as_ref());
    event.reason = Some(why);
    let lrps: u64 = lost.apps.values().map(|count| u64::from(*count)).sum();
    event.count = usize::try_from(lrps + u64::from(lost.tasks)).unwrap_or(usize::MAX);
    event.tasks = lost.tasks;
    let (mut bytes, all) = (0, lost.apps.len());
    let fits = lost.apps.into_iter().take_while(|(app, _)| {
        // quotes, colon, count and comma beside the name
        bytes += app.len() + 16;
        bytes <= max_bytes
    });
    event.apps = fits.collect();
    event.more = event.apps.len() < all;
    event
}
