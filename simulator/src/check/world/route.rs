//! The routes of messages: from a node to the server, and from there to all that listen.

use super::{Arrival, Arrived, Happening, World};
use crate::check::bus::Message;

impl World<'_> {
    /// Sends a message from a node.
    pub(super) fn send(&mut self, n: usize, mut message: Message) {
        let now_ms = self.now_ms();
        if self
            .meddle
            .is_some_and(|meddle| !meddle(now_ms, &mut message))
        {
            return;
        }
        let travel_us = 100 + self.random.below(400);
        let place = &mut self.places[n];
        if place.cut > 0 {
            if !place.unsent_is_lost || place.noticed {
                place.unsent.push(message);
            }
            return;
        }
        place.up_us = place.up_us.max(self.now_us + travel_us + place.slow_us);
        self.queue.add(place.up_us, Happening::Sent(message));
    }

    /// Delivers a message from the server to all that listen.
    pub(super) fn route(&mut self, message: &Message) {
        let mut heard = false;
        let mut group: Vec<(usize, usize)> = Vec::new();
        for n in 0..self.places.len() {
            if self.places[n].noticed || !self.places[n].alive {
                continue;
            }
            for s in 0..self.places[n].subscriptions.len() {
                let subscription = &self.places[n].subscriptions[s];
                if !subscription.matches(&message.subject) {
                    continue;
                }
                heard = true;
                if subscription.group.is_some() {
                    group.push((n, s));
                } else {
                    self.deliver(n, s, message);
                }
            }
        }
        if !group.is_empty() {
            let (n, s) = group[self.random.place(group.len())];
            self.deliver(n, s, message);
        }
        if let (false, Some(reply)) = (heard, &message.reply) {
            let mut nobody = Message::new(reply.clone(), "");
            nobody.no_responders = true;
            self.route(&nobody);
        }
    }

    fn deliver(&mut self, n: usize, subscription: usize, message: &Message) {
        let twice = self.random.below(1_000) < self.script.duplicates;
        for _ in 0..=u32::from(twice) {
            let travel_us = 100 + self.random.below(400);
            let overtake_us = self.random.below(self.script.overtake_us + 1);
            let place = &mut self.places[n];
            if place.dropping > 0 && self.random.below(3) == 0 {
                place.dropped = true;
                continue;
            }
            place.down_us = place.down_us.max(self.now_us + travel_us + place.slow_us);
            let last_us = &mut place.subscription_us[subscription];
            *last_us = (*last_us).max(place.down_us + overtake_us);
            let arrival = Arrival {
                to: n,
                life: place.life,
                what: Arrived::Message(subscription, message.clone()),
            };
            self.queue
                .add(*last_us, Happening::Arrives(Box::new(arrival)));
        }
    }

    pub(super) fn arrives(&mut self, arrival: Arrival) {
        let place = &mut self.places[arrival.to];
        if place.life != arrival.life || !place.alive {
            return;
        }
        match &arrival.what {
            Arrived::Message(..) if place.cut > 0 => return,
            Arrived::State(answer) if place.link.cut > 0 => {
                return self.state_unheard(arrival.to, answer);
            }
            _ => {}
        }
        if place.frozen > 0 {
            place.waiting.push(arrival);
            return;
        }
        if let (Arrived::Message(_, message), false) = (&arrival.what, place.fails()) {
            let now_ms = self.now_us / 1_000;
            self.open_starts.arrived(now_ms, arrival.to, message);
        }
        self.act(arrival.to, |node, now_ms, out| match arrival.what {
            Arrived::Message(_, message) => node.receive(now_ms, &message, out),
            Arrived::State(answer) => node.state_says(now_ms, answer, out),
        });
    }
}
