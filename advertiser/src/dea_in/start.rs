//! Starts of the cluster: what is refused before any DEA hears of it, and what is sent.

use std::collections::{BTreeMap, BTreeSet};

use placement::{Invalid, Kind, Request, Run};
use shared::{
    AuctionId, Incarnation, InstanceId,
    wire::{Acceptance, CellStart, Refusal, WireError, Work, code, parse, reason},
};

use super::{
    cells::{CellService, CellsOutput, DeaCells, Waiting},
    held::{Held, droplet_id},
};
use crate::dea::{BridgeInput, DeaStart, DropletInstance, DropletRun};

/// The most instances in one start for a cell.
const MAX_WORK: usize = 10_000;

impl DeaCells {
    /// Sends the instances of a start to the cell's DEA. The answer follows as an output with this ticket, within 800
    /// ms. Returns an error if the start is malformed.
    pub(crate) fn start(
        &mut self,
        now_ms: u64,
        name: &str,
        ticket: u64,
        body: &[u8],
    ) -> Result<Vec<CellsOutput>, WireError> {
        let start: CellStart = parse(body, &mut Vec::new())?;
        if start.work.len() > MAX_WORK {
            let message = format!(
                "work: {} entries; expected at most {MAX_WORK}",
                start.work.len()
            );
            return Err(WireError::new(code::INVALID_REQUEST, message));
        }
        for (i, work) in start.work.iter().enumerate() {
            check(work).map_err(|mut invalid| {
                invalid.field = format!("work[{i}].{}", invalid.field);
                WireError::from(invalid)
            })?;
        }
        let mut out = Vec::new();
        self.waiting.insert(
            ticket,
            Waiting {
                cell: name.to_owned(),
                apps: start.work.iter().map(|work| work.app.clone()).collect(),
                // prevents an answer before all instances are judged
                open: BTreeMap::from([(String::new(), InstanceId::nil())]),
                accepted: Vec::new(),
                refused: Vec::new(),
            },
        );
        // as they are before this start: what it brings was not there when it was decided
        let shown = self.shown(now_ms, name);
        let apps: BTreeSet<&String> = start.work.iter().map(|work| &work.app).collect();
        let here: BTreeMap<&String, u32> = apps
            .into_iter()
            .map(|app| (app, shown.as_ref().map_or(0, |shown| shown.count_of(app))))
            .collect();
        for work in &start.work {
            let here = here.get(&work.app).copied().unwrap_or(0);
            match self.judge(now_ms, name, (&start, work, here)) {
                Judged::New(droplet) => {
                    let claim = work.claim.unwrap_or(start.auction);
                    self.send(now_ms, (name, ticket), work, claim, *droplet, &mut out);
                }
                Judged::There => self.decided(ticket, work, None),
                Judged::Refused(refusal) => self.decided(ticket, work, Some(refusal)),
                Judged::OnItsWay => self.wait_for(ticket, work),
                // instances that are missing in the answer are unknown
                Judged::Unknown => {}
            }
        }
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.open.remove("");
        }
        self.finish(now_ms, ticket, &mut out);
        Ok(out)
    }

    /// Returns the answer to a start for a cell that does not exist because its DEA is gone.
    pub(crate) fn refusal_without_cell(name: &str, body: &[u8]) -> Result<Acceptance, WireError> {
        let start: CellStart = parse(body, &mut Vec::new())?;
        let refused = start.work.iter().take(MAX_WORK);
        Ok(Acceptance {
            v: shared::VERSION,
            cell: name.to_owned(),
            incarnation: Incarnation::from(uuid::Uuid::nil()),
            seq: 0,
            available: placement::Resources::default(),
            apps: BTreeMap::new(),
            accepted: Vec::new(),
            refused: refused
                .map(|work| refuse(work, reason::RESTARTED))
                .collect(),
        })
    }

    fn judge(
        &mut self,
        now_ms: u64,
        name: &str,
        (start, work, here): (&CellStart, &Work, u32),
    ) -> Judged {
        let Some(cell) = self.cells.get_mut(name) else {
            return Judged::Refused(refuse(work, reason::RESTARTED));
        };
        // known ids first: a repeat gets the first answer
        if let Some(held) = cell.held.get_mut(&work.instance) {
            held.claimed(work.claim.unwrap_or(start.auction));
            return if self.tickets.contains_key(&*held.id) {
                Judged::OnItsWay
            } else if self.bridge.has_shown(&held.id) {
                Judged::There
            } else {
                Judged::Unknown
            };
        }
        let was_stopped = self.stopped.contains_key(&work.instance);
        let refused = match cell.how_it_ended(&work.instance) {
            Some(false) => return Judged::There,
            Some(true) => reason::STOPPED,
            None if was_stopped => reason::STOPPED,
            None if start.incarnation != cell.incarnation => reason::RESTARTED,
            None if now_ms > start.expires_ms.as_ms() => reason::STALE,
            None if cell.service == CellService::Cordoned => reason::CORDONED,
            None if cell.service != CellService::Open => reason::DRAINING,
            None => return self.judge_new(now_ms, name, work, here),
        };
        Judged::Refused(refuse(work, refused))
    }

    fn judge_new(&self, now_ms: u64, name: &str, work: &Work, here: u32) -> Judged {
        if work.believed.is_some_and(|believed| here > believed) {
            return Judged::Refused(Refusal {
                needs: work.believed.map(i64::from),
                has: Some(i64::from(here)),
                ..refuse(work, reason::CHANGED)
            });
        }
        // if two auctioneers have begun the same request, the second one learns that it need not start it
        let holder = self.bridge.holder(&droplet_id(work));
        if let Some(other) = holder.filter(|holder| holder != name) {
            return Judged::Refused(refuse(work, &format!("{other} has it")));
        }
        let shown = self.shown(now_ms, name);
        let stack = shown.as_ref().and_then(|shown| shown.stacks.first());
        match dea_start(work, stack.map_or("", String::as_str)) {
            Ok(start) => Judged::New(Box::new(start)),
            Err(why) => Judged::Refused(refuse(work, &why)),
        }
    }

    fn send(
        &mut self,
        now_ms: u64,
        (name, ticket): (&str, u64),
        work: &Work,
        claim: AuctionId,
        start: DeaStart,
        out: &mut Vec<CellsOutput>,
    ) {
        let id = droplet_id(work);
        if let Some(cell) = self.cells.get_mut(name) {
            let held = Held::sent(now_ms, &id, work, claim);
            cell.held.insert(work.instance, held);
        }
        self.wait_for(ticket, work);
        let told = self.bridge.handle(
            now_ms,
            BridgeInput::Start {
                cell: name,
                id: &id,
                start: Box::new(start),
            },
        );
        self.touch(now_ms, name);
        self.carry_out(now_ms, told, out);
    }

    fn wait_for(&mut self, ticket: u64, work: &Work) {
        let id = droplet_id(work);
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.open.insert(id.clone(), work.instance);
        }
        let tickets = self.tickets.entry(id).or_default();
        if !tickets.contains(&ticket) {
            tickets.push(ticket);
        }
    }

    fn decided(&mut self, ticket: u64, work: &Work, refusal: Option<Refusal>) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        match refusal {
            None => waiting.accepted.push(work.instance),
            Some(refusal) => {
                self.counters.refused += 1;
                waiting.refused.push(refusal);
            }
        }
    }
}

/// The decision on an instance of a start.
enum Judged {
    New(Box<DeaStart>),
    There,
    /// It was sent, and has not been answered yet.
    OnItsWay,
    /// It was sent and answered as unknown, and its DEA has not shown it.
    Unknown,
    Refused(Refusal),
}

fn refuse(work: &Work, reason: &str) -> Refusal {
    Refusal {
        instance: work.instance,
        reason: reason.to_owned(),
        needs: None,
        has: None,
    }
}

/// Rejects invalid work, as cells do.
fn check(work: &Work) -> Result<(), Invalid> {
    let mut request = Request::new(work.app.clone(), work.memory_mb, work.disk_mb);
    request.cpu_millis = work.cpu_millis;
    request.extra.clone_from(&work.extra);
    request.check()?;
    work.run.as_deref().map_or(Ok(()), Run::check)
}

/// Returns the start for the DEA, or why it cannot run this work.
fn dea_start(work: &Work, stack: &str) -> Result<DeaStart, String> {
    let run = work.run.as_deref();
    let droplet = run.and_then(|run| run.droplet.as_deref());
    let (Some(run), Some(droplet), Kind::Lrp) = (run, droplet, work.kind) else {
        return Err("the cell runs only droplets".to_owned());
    };
    let lacking = [
        ("devices", !work.devices.is_empty()),
        ("cpu", work.cpu_millis > 0),
        ("extra", work.extra.values().any(|amount| *amount > 0)),
    ];
    let lacking: Vec<&str> = lacking
        .iter()
        .filter(|(_, asked)| *asked)
        .map(|(name, _)| *name)
        .collect();
    if !lacking.is_empty() {
        return Err(format!("insufficient resources: {}", lacking.join(", ")));
    }
    let instance = DropletInstance {
        app: &work.app,
        index: work.index,
        memory_mb: work.memory_mb,
        disk_mb: work.disk_mb,
    };
    let droplet = DropletRun::of(droplet).map_err(|invalid| invalid.to_string())?;
    let mut start = droplet.start(instance, stack);
    let variables = run
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    start.env.0.extend(variables);
    Ok(start)
}
