//! What a bridge's cells answer about themselves and their instances.

use placement::{Cell, Span};
use shared::{
    AuctionId, InstanceId,
    clock::CellTime,
    wire::{Advert, Bid, Instance, InstanceState, Instances, InstancesAnswer, RunningIds},
};

use super::cells::{CellService, CellsOutput, DeaCells, ENDED_MS, HEARTBEAT_MS, TTL_MS};

/// A cell's answer to a request for a bid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeaBid {
    Unchanged(Bid),
    Full(Box<Advert>),
}

impl DeaCells {
    /// Returns the cell as its DEA last advertised it, less what was started since.
    pub(super) fn shown(&self, now_ms: u64, name: &str) -> Option<Cell> {
        let mut shown = self.bridge.cell(name, now_ms)?;
        let out_of_service = match self.cells.get(name)?.service {
            CellService::Open if self.leaving => Some(true),
            CellService::Open => None,
            CellService::Cordoned => Some(true),
            CellService::Draining(_) => Some(false),
        };
        if let Some(cordoned) = out_of_service {
            // cordoning the cell of a DEA that is being emptied does not make it less so
            shown.cordoned = cordoned && (!shown.evacuating || shown.cordoned);
            shown.evacuating = true;
        }
        Some(shown)
    }

    /// Returns a cell's full state: an advertisement, the answer to a question for its state or, with an auction, a
    /// bid.
    pub(crate) fn state(
        &self,
        now_ms: u64,
        name: &str,
        auction: Option<AuctionId>,
    ) -> Option<Advert> {
        let shown = self.shown(now_ms, name)?;
        self.report(now_ms, auction, shown)
    }

    /// Returns the full state for a cell that is shown like this.
    pub(super) fn report(
        &self,
        now_ms: u64,
        auction: Option<AuctionId>,
        shown: Cell,
    ) -> Option<Advert> {
        let cell = self.cells.get(&shown.cell)?;
        let dea = self.bridge.estate().dea(self.bridge.dea_of(&shown.cell)?)?;
        let ttl_ms = if dea.is_live(now_ms) && !self.leaving {
            dea.expires_in_ms(now_ms)
        } else {
            TTL_MS
        };
        Some(Advert {
            v: shared::VERSION,
            auction,
            incarnation: cell.incarnation,
            seq: cell.seq,
            clock_ms: CellTime::from_ms(now_ms),
            ttl: Span(std::time::Duration::from_millis(ttl_ms)),
            recent: cell.recent.iter().copied().collect(),
            leaving: false,
            cell: shown,
        })
    }

    /// Returns the answer to a request for a bid.
    pub(crate) fn bid(&self, now_ms: u64, name: &str, auction: AuctionId) -> Option<DeaBid> {
        let cell = self.cells.get(name)?;
        if !cell.is_advertised {
            let full = self.state(now_ms, name, Some(auction))?;
            return Some(DeaBid::Full(Box::new(full)));
        }
        Some(DeaBid::Unchanged(Bid {
            v: shared::VERSION,
            auction,
            cell: name.to_owned(),
            incarnation: cell.incarnation,
            seq: cell.seq,
            clock_ms: CellTime::from_ms(now_ms),
            unchanged: true,
        }))
    }

    pub(super) fn heartbeat(&mut self, now_ms: u64, name: &str) -> Option<CellsOutput> {
        let cell = self.cells.get_mut(name)?;
        cell.heartbeat_ms = now_ms + HEARTBEAT_MS;
        let held = cell.held.values().map(|held| held.describe(now_ms));
        let held = held.collect();
        let list = self.list(now_ms, name, held)?;
        Some(CellsOutput::Heartbeat(Box::new(list)))
    }

    fn list(&self, now_ms: u64, name: &str, instances: Vec<Instance>) -> Option<InstancesAnswer> {
        let cell = self.cells.get(name)?;
        Some(InstancesAnswer {
            v: shared::VERSION,
            cell: name.to_owned(),
            zone: self.bridge.cell(name, now_ms)?.zone.clone(),
            incarnation: cell.incarnation,
            seq: cell.seq,
            part: 1,
            parts: 1,
            instances,
            ids: RunningIds::default(),
            more: false,
        })
    }

    /// Returns current and recently ended instances of a cell that match.
    pub(crate) fn instances(
        &self,
        now_ms: u64,
        name: &str,
        filter: &Instances,
    ) -> Option<InstancesAnswer> {
        let cell = self.cells.get(name)?;
        let wanted = |app: &str, id: &InstanceId| {
            filter.app.as_ref().is_none_or(|wanted| wanted == app)
                && (filter.ids.is_empty() || filter.ids.contains(id))
                && (filter.id_prefixes.is_empty() || filter.id_prefixes.match_id(id))
        };
        let held = cell
            .held
            .values()
            .filter(|held| wanted(&held.app, &held.instance));
        if filter.ids_only {
            let running = held.filter(|held| held.state != InstanceState::Stopping);
            let ids = running.map(|held| &held.instance).collect();
            let list = self.list(now_ms, name, Vec::new())?;
            return Some(InstancesAnswer { ids, ..list });
        }
        let held = held.map(|held| held.describe(now_ms));
        let ended = cell.ended.iter().filter(|(at_ms, ended)| {
            at_ms + ENDED_MS > now_ms && wanted(&ended.app, &ended.instance)
        });
        let ended = ended.map(|(at_ms, instance)| Instance {
            age_ms: now_ms.saturating_sub(*at_ms),
            ..instance.clone()
        });
        self.list(now_ms, name, held.chain(ended).collect())
    }
}
