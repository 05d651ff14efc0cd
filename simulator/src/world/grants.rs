//! `single = true`: the auctioneers are run with `--single`. The manager that grants is in office all the time, and does
//! nothing else.

use manager::GRANT_MS;
use shared::wire::{GrantAnswer, GrantRequest};

use super::{
    Event, World,
    traffic::{Kind, written},
};

/// A question of an auctioneer, in one of its lives, on its way to the manager or back.
#[derive(Debug)]
pub(super) struct Asked<T> {
    node: usize,
    life: u32,
    number: u64,
    message: T,
}

impl World<'_> {
    /// The auctioneer asks for the grant, if it is run with `--single` and that is due.
    pub(super) fn ask_for_grant(&mut self, n: usize) {
        let now_ms = self.now_ms();
        let node = &mut self.nodes[n];
        let (joined, life) = (node.joined, node.life);
        let asks = node
            .grant
            .as_mut()
            .and_then(|grant| grant.ask(now_ms, joined));
        let Some((number, message)) = asks else {
            return;
        };
        self.counts.sent(Kind::GrantRequest, 1);
        if self.away == 0
            && let Some(at_us) = self.travel()
        {
            let asked = Asked {
                node: n,
                life,
                number,
                message,
            };
            self.at(at_us, Event::GrantAsked(Box::new(asked)));
        }
    }

    /// The manager hears it, and answers.
    pub(super) fn grant_asked(&mut self, asked: &Asked<GrantRequest>) {
        if self.away > 0 {
            return;
        }
        let bytes = written(&asked.message);
        self.counts.delivered(Kind::GrantRequest, 1, bytes);
        // it gained the lease long before the run
        let its_ms = self.now_ms() + GRANT_MS;
        let (node, request) = (asked.node, &asked.message);
        let name = format!("auctioneer-{node}");
        let reply = self.grants.ask(its_ms, &name, &request.run, request.ask);
        let message = reply.answer("manager");
        self.counts.sent(Kind::GrantAnswer, 1);
        if let Some(at_us) = self.travel() {
            let (life, number) = (asked.life, asked.number);
            let answer = Asked {
                node,
                life,
                number,
                message,
            };
            self.at(at_us, Event::GrantAnswered(Box::new(answer)));
        }
    }

    /// The auctioneer hears the answer.
    pub(super) fn grant_answered(&mut self, answer: &Asked<GrantAnswer>) {
        let node = &mut self.nodes[answer.node];
        if self.away > 0 || node.life != answer.life || !node.is_up() {
            return;
        }
        self.counts
            .delivered(Kind::GrantAnswer, 1, written(&answer.message));
        if let Some(grant) = &mut node.grant {
            grant.answered(answer.number, &answer.message);
        }
        self.step(answer.node, None);
    }
}
