//! The pool feed: the cells' reports, how long they are valid, and the debits for work that was sent and that no report
//! shows yet. Keeps the [`Pool`] (last reports less debits) up to date.
//!
//! Pure: the time is an argument, and nothing is sent.

mod answering;
mod apps;
mod cells;
mod debits;
mod former;
mod known;
mod received;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placement::{Kind, Pool};
use shared::{
    clock::{CellTime, millis},
    wire::{Advert, Envelope, WireError, code, parse_cell, parse_change},
};

use self::{
    apps::RunningApps,
    cells::Cells,
    former::Former,
    known::{builds_on, lease_ms},
    received::Reported,
};
use crate::{counters::Counters, ids::PoolVersion, limits::Limits, pool_time::PoolTime};
pub use known::{Debit, Known};
pub use received::{LostCell, Received, ReportKind};

/// The largest report of a cell, in bytes.
pub const MAX_REPORT_BYTES: usize = 256 * 1024;
/// The most apps in a report.
pub const MAX_APPS: usize = 10_000;
/// The most cells.
pub const MAX_CELLS: usize = 50_000;

/// All cells of the pool and what is known of each.
#[derive(Debug)]
pub struct Feed {
    cells: Cells,
    pool: Pool,
    time: PoolTime,
    /// Cells to which nothing is sent for now; for some this may already be over.
    unreachable: BTreeSet<Arc<str>>,
    former: Former,
    apps: RunningApps,
    version: u64,
    /// The longest ttl that is honoured, in milliseconds; longer ones are cut to it.
    max_ttl_ms: u64,
    /// Cells that have never answered a question: in a full pool they make room for cells that do.
    unproven: BTreeSet<Arc<str>>,
    /// When a cell for which there is no room may be asked again.
    ask_newcomer_ms: u64,
}

impl Default for Feed {
    fn default() -> Self {
        Self::new(Limits::default().max_ttl_ms)
    }
}

impl Feed {
    /// Creates an empty pool. A ttl longer than `max_ttl_ms` is cut to it.
    pub fn new(max_ttl_ms: u64) -> Self {
        Self {
            cells: Cells::default(),
            pool: Pool::default(),
            time: PoolTime::default(),
            unreachable: BTreeSet::new(),
            former: Former::default(),
            apps: RunningApps::default(),
            version: 0,
            max_ttl_ms,
            unproven: BTreeSet::new(),
            ask_newcomer_ms: 0,
        }
    }

    /// Returns the cells less all debits.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Like [`Feed::pool`], for planning (which leaves it unchanged).
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Returns the cells, sorted by name.
    pub fn cells(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.cells.by_name()
    }

    /// Returns the cells in any order.
    pub(crate) fn cells_unordered(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.cells.unordered()
    }

    /// Returns one cell.
    pub fn get(&self, cell: &str) -> Option<&Known> {
        self.cells.get(cell)
    }

    /// Returns whether any of the app may run on some cell, according to advertisements up to a few seconds old.
    pub(crate) fn may_run(&mut self, now_ms: u64, app: &str, kind: Kind) -> bool {
        self.apps.may_run(now_ms, &self.pool, app, kind)
    }

    /// Returns the version, which increases whenever a cell joins or changes: waiting work may fit now.
    pub fn version(&self) -> PoolVersion {
        PoolVersion::new(self.version)
    }

    /// Returns how many milliseconds remain until a cell's report expires, provided that messages keep arriving.
    pub fn left_ms(&self, known: &Known) -> u64 {
        known.expires_at_ms.saturating_sub(self.time.now_ms())
    }

    /// Records that a message arrived, which lets pool time pass. After an interruption every lease begins again.
    pub fn evidence(&mut self, now_ms: u64) {
        // cells kept advertising while we heard nothing: the silence was ours
        if !self.time.evidence(now_ms) {
            let pool_ms = self.time.now_ms();
            for (_, known) in self.cells.unordered_mut() {
                known.expires_at_ms = known.expires_at_ms.max(pool_ms + lease_ms(known.ttl_ms));
            }
        }
    }

    /// Records that the connection is down: pool time stops.
    pub fn interrupted(&mut self) {
        self.time.interrupted();
    }

    /// Removes and returns the cells whose advertisements have expired.
    pub fn expire(&mut self, now_ms: u64, counters: &mut Counters) -> Vec<LostCell> {
        let pool_ms = self.time.now_ms();
        let ended = self.cells.unordered();
        let ended = ended.filter(|(_, k)| k.expires_at_ms <= pool_ms);
        let mut ended: Vec<Arc<str>> = ended.map(|(name, _)| Arc::clone(name)).collect();
        ended.sort_unstable();
        let lost: Vec<LostCell> = ended.iter().filter_map(|name| self.forget(name)).collect();
        counters.cells_lost += lost.len() as u64;
        // done here because leases are checked often; it need not be exact
        self.former.forget(now_ms);
        lost
    }

    fn forget(&mut self, name: &str) -> Option<LostCell> {
        let (name, known) = self.cells.remove(name)?;
        let has_answered = !self.unproven.remove(&name);
        let cell = self.pool.get(&name);
        let lost = LostCell {
            has_answered,
            apps: cell
                .map(|cell| cell.counts.apps.clone())
                .unwrap_or_default(),
            tasks: cell.map_or(0, |cell| cell.counts.tasks),
            ttl_ms: known.ttl_ms,
            name,
        };
        self.pool.remove(&lost.name);
        Some(lost)
    }

    /// Processes a report. `subject_cell` is the cell named in the subject of an advertisement.
    pub fn receive(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        subject_cell: Option<&str>,
        body: &[u8],
        counters: &mut Counters,
    ) -> Received {
        counters.reports += 1;
        // before parsing, which is what makes a large message expensive
        if body.len() > MAX_REPORT_BYTES {
            counters.dropped_too_large += 1;
            return Received::default();
        }
        let known = subject_cell.and_then(|cell| self.cells.get(cell));
        let (envelope, rest) = match received::read(body, known) {
            Ok(read) => read,
            Err(error) => return Received::malformed(error, counters),
        };
        if subject_cell.is_some_and(|cell| cell != envelope.cell) {
            counters.dropped_wrong_subject += 1;
            return Received::default();
        }
        let whole = || match rest {
            Some(rest) => Ok(rest),
            None if envelope.since.is_some() => Ok(Reported::Change(parse_change(body)?.1)),
            None => Ok(parse_cell(body)?.into()),
        };
        self.take(now_ms, kind, &envelope, whole, counters)
    }

    /// Like [`Feed::receive`], for a report of a driver in the same process, which was never serialised. With `since` it
    /// counts as a change.
    pub fn receive_parsed(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        report: Arc<Advert>,
        since: Option<u64>,
        counters: &mut Counters,
    ) -> Received {
        counters.reports += 1;
        let envelope = Envelope {
            v: report.v,
            cell: report.cell.cell.clone(),
            auction: report.auction,
            incarnation: report.incarnation,
            seq: report.seq,
            since,
            clock_ms: report.clock_ms,
            ttl: Some(report.ttl),
            recent: report.recent.clone(),
            unchanged: false,
        };
        self.take(
            now_ms,
            kind,
            &envelope,
            || Ok(Arc::unwrap_or_clone(report).cell.into()),
            counters,
        )
    }

    fn take<'r>(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        envelope: &Envelope,
        whole: impl FnOnce() -> Result<Reported<'r>, WireError>,
        counters: &mut Counters,
    ) -> Received {
        let (cell, incarnation) = (&envelope.cell, &envelope.incarnation);
        // senders choose the ttl: without a limit one message could keep a cell that does not exist
        let ttl_ms = envelope.ttl.map(|ttl| millis(ttl.0).min(self.max_ttl_ms));
        let valid_ms = ttl_ms.filter(|ttl_ms| *ttl_ms > 0);
        let former = self.former.contains(now_ms, cell, incarnation, valid_ms);
        if ttl_ms == Some(0) && !former {
            return self.leave(now_ms, envelope, counters);
        }
        let known = self.cells.get(cell.as_str());
        let replaced = former || known.is_some_and(|known| known.replaced(now_ms, envelope));
        let same = known.filter(|k| k.incarnation == *incarnation);
        // overtaken by a newer report: it would give back what has been reserved since
        let overtaken = !replaced && same.is_some_and(|known| envelope.seq < known.seq);
        // the state is asked for where a change cannot be used
        let advertised = valid_ms.filter(|_| kind != ReportKind::Bid && !envelope.unchanged);
        if (replaced || overtaken) && !self.goes_on(now_ms, envelope, advertised) {
            counters.dropped_old_incarnation += u64::from(replaced);
            counters.dropped_old_seq += u64::from(overtaken);
            return Received::default();
        }
        let known = self.cells.get(cell.as_str());
        match known.filter(|k| k.incarnation == *incarnation) {
            // a copy
            Some(known) if envelope.seq == known.seq => {
                counters.renewed += 1;
                self.renew(now_ms, kind, envelope, ttl_ms)
            }
            // it refers to a version that never arrived here, so there is nothing to renew
            _ if envelope.unchanged => {
                counters.missed_reports += 1;
                Received {
                    ask_state: Some(envelope.cell.as_str().into()),
                    ..Received::default()
                }
            }
            known
                if !envelope
                    .since
                    .is_none_or(|since| builds_on(known, since, envelope.seq)) =>
            {
                counters.missed_reports += 1;
                self.missed(now_ms, kind, envelope)
            }
            _ => {
                let Some(ttl_ms) = ttl_ms else {
                    let missing = "not a valid message: missing field `ttl`";
                    let error = WireError::new(code::INVALID_REQUEST, missing);
                    return Received::malformed(error, counters);
                };
                let whole = whole().and_then(|whole| {
                    whole.check(self.pool.get(cell))?;
                    Ok(whole)
                });
                match whole {
                    Ok(cell) => self.replace(now_ms, kind, envelope, ttl_ms, cell, counters),
                    Err(error) => Received::malformed(error, counters),
                }
            }
        }
    }

    /// Returns whether the cell has kept advertising for a whole ttl although this report counts as old.
    fn goes_on(&mut self, now_ms: u64, envelope: &Envelope, advertised_ms: Option<u64>) -> bool {
        let pool_ms = self.time.now_ms();
        let known = self.cells.get_mut(&envelope.cell);
        known
            .zip(advertised_ms)
            .is_some_and(|(known, ttl_ms)| known.goes_on(now_ms, pool_ms, envelope, ttl_ms))
    }

    fn leave(&mut self, now_ms: u64, envelope: &Envelope, counters: &mut Counters) -> Received {
        let known = self.cells.named(&envelope.cell);
        // a withdrawal of an unknown or former incarnation: there is no cell to remove
        let Some((name, known)) = known.filter(|(_, k)| k.incarnation == envelope.incarnation)
        else {
            return Received::default();
        };
        counters.cells_lost += 1;
        // the incarnation that it replaced may still be there: of two reps of one name the later one has left
        self.former.clear(name);
        self.former
            .add(now_ms, name, envelope.incarnation, known.ttl_ms);
        Received {
            left: self.forget(&envelope.cell),
            ..Received::default()
        }
    }

    /// Renews the lease for a version that is already known.
    fn renew(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        envelope: &Envelope,
        ttl_ms: Option<u64>,
    ) -> Received {
        let pool_ms = self.time.now_ms();
        let Some((name, known)) = self.cells.named_mut(&envelope.cell) else {
            return Received::default();
        };
        known.touch(now_ms, pool_ms, envelope, ttl_ms);
        if kind == ReportKind::Advert {
            known.advertised();
        } else {
            // whoever answers a question exists; an advertisement alone can be made up
            self.unproven.remove(&name);
        }
        let (removed, settled) = known.drop_shown(None, envelope);
        if !removed.is_empty() {
            self.return_all(&name, &removed);
            // what a debit held is free again: waiting work may fit
            self.version += 1;
        }
        Received {
            from: Some((name, envelope.auction)),
            settled,
            ..Received::default()
        }
    }

    /// Renews the leases of all cells except these, which report no change. Their clocks have advanced as much as ours.
    pub(crate) fn renew_all(&mut self, now_ms: u64, advertised: bool, except: &BTreeSet<Arc<str>>) {
        let pool_ms = self.time.now_ms();
        for (name, known) in self.cells.unordered_mut() {
            if except.contains(name) {
                continue;
            }
            known.expires_at_ms = pool_ms + lease_ms(known.ttl_ms);
            known.clock_ms = known.clock_ms.after(Duration::from_millis(
                now_ms.saturating_sub(known.reported_at_ms),
            ));
            known.reported_at_ms = now_ms;
            known.silent = false;
            if advertised {
                known.advertised();
            }
        }
    }

    /// Takes over a new version, incarnation or cell from the whole report.
    fn replace(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        envelope: &Envelope,
        ttl_ms: u64,
        cell: Reported<'_>,
        counters: &mut Counters,
    ) -> Received {
        if cell.apps() > MAX_APPS {
            counters.dropped_too_large += 1;
            return Received::default();
        }
        let joined = self.cells.get(&envelope.cell).is_none();
        let mut left = None;
        if joined && self.cells.len() >= MAX_CELLS {
            // only a cell that has just answered gets a place, and only that of a cell that never has
            if kind == ReportKind::Advert || self.unproven.is_empty() {
                return self.no_room(now_ms, kind, envelope, counters);
            }
            let displaced = self.unproven.first().cloned();
            left = displaced.and_then(|name| self.forget(&name));
            counters.cells_displaced += 1;
        }
        self.end_earlier(now_ms, envelope);
        counters.cells_joined += u64::from(joined);
        if joined {
            self.apps.outdated();
        }
        let pool_ms = self.time.now_ms();
        let name: Arc<str> = match self.cells.named(&envelope.cell) {
            Some((name, _)) => Arc::clone(name),
            None => envelope.cell.as_str().into(),
        };
        if kind != ReportKind::Advert {
            self.unproven.remove(&name);
        } else if joined {
            self.unproven.insert(Arc::clone(&name));
        }
        let new = || Known::new(now_ms, envelope, ttl_ms);
        let known = self.cells.get_or_insert(&name, new);
        known.touch(now_ms, pool_ms, envelope, Some(ttl_ms));
        known.seq = envelope.seq;
        known.ignored = None;
        known.corrected = false;
        if kind == ReportKind::Advert {
            known.advertised();
        }
        // before the new cell is put in: it shows what was dropped here, and only the remaining debits apply to it
        let (shown, settled) = known.drop_shown(Some(envelope.seq), envelope);
        cell.put_into(&mut self.pool, &name, &shown, &known.debits);
        self.version += 1;
        Received {
            from: Some((name, envelope.auction)),
            joined,
            left,
            settled,
            ..Received::default()
        }
    }

    /// Ends the cell's earlier incarnation, with everything that was sent to it.
    fn end_earlier(&mut self, now_ms: u64, envelope: &Envelope) {
        let known = self.cells.named(&envelope.cell);
        if let Some((name, known)) = known.filter(|(_, k)| k.incarnation != envelope.incarnation) {
            self.former
                .add(now_ms, name, known.incarnation, known.ttl_ms);
            self.cells.remove(&envelope.cell);
        }
    }

    /// Returns the expiry of a start for this cell: `after` from now, on the cell's clock.
    pub fn expires_ms(&self, cell: &str, now_ms: u64, after: Duration) -> CellTime {
        self.cells.get(cell).map_or(CellTime::default(), |known| {
            let since = Duration::from_millis(now_ms.saturating_sub(known.reported_at_ms));
            known.clock_ms.after(since + after)
        })
    }
}
