//! Only for the simulator: counts advertisements without news instead of simulating them, and lets cells have instances
//! from the start. A rep needs none of this.

use advertiser::Trigger;
use shared::wire::Work;

use crate::machine::CellMachine;

impl CellMachine {
    /// Like [`crate::machine::CellInput::Tick`], but the end of an interval causes no
    /// advertisement. The first advertisement of a cell counts as news.
    pub fn tick_without_renewal(&mut self, now_ms: u64) {
        self.ledger.tick(now_ms);
        let news_ms = self.advertiser.next_news_ms();
        if news_ms.is_some_and(|at_ms| at_ms <= now_ms) || !self.advertiser.has_advertised() {
            self.advertise(now_ms, Trigger::Tick);
        }
    }

    /// Returns when [`CellMachine::tick_without_renewal`] must be called next.
    pub fn next_news_ms(&self) -> Option<u64> {
        let first = self.advertiser.next_ms();
        let first = first.filter(|_| !self.advertiser.has_advertised());
        [
            self.advertiser.next_news_ms().or(first),
            self.ledger.next_ms(),
            self.events.due_ms(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reserves this work without checks.
    pub fn adopt(&mut self, works: impl Iterator<Item = Work>) {
        self.ledger.adopt(works);
    }
}
