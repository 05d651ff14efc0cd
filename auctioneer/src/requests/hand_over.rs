//! Without the grant of `--single` nothing new is begun here, and what waits is given up once another auctioneer has it.

use super::Requests;
use crate::{
    grant::Standing,
    ticket::{State, because},
    turn::Turn,
};

/// Why what waits is given up.
const GIVEN_UP: &str = "this auctioneer no longer holds the grant (--single); send it again";

impl Requests {
    /// Whether auctions may be held from now on.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Whether auctions may be held.
    pub(crate) fn holds_auctions(&self) -> bool {
        self.standing == Standing::Holds
    }

    /// No auction can be held. What waits goes on waiting, until its deadline or the end of its queue timeout. Once another
    /// auctioneer has the grant, or this one leaves, it is given up at once: it may be sent to the other one.
    pub(crate) fn hand_over(&mut self, turn: &mut Turn) {
        if self.waiting() == 0 {
            return;
        }
        let all = self.standing == Standing::Other || self.closing;
        let now_ms = turn.now_ms;
        // what is queued is ended with its queue timeout; not so what waits for an auction
        for key in self.keys(|ticket| all || (ticket.replied && ticket.queue_end_ms <= now_ms)) {
            self.give_up_all(turn, key, |instance| {
                let unsent = matches!(instance.state, State::Waiting | State::Held(_));
                unsent.then(|| because(GIVEN_UP))
            });
        }
    }
}
