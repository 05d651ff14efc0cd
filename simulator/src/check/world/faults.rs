//! How a fault of a node begins and ends.

use super::{Arrived, Happening, World};
use crate::check::script::Fault;

impl World<'_> {
    pub(super) fn fail(&mut self, n: usize, fault: Fault) {
        self.open_starts.fails(n);
        let place = &mut self.places[n];
        match fault {
            Fault::Freeze => place.frozen += 1,
            Fault::Restart => {
                place.down += 1;
                place.starts = false;
                place.node.die();
                place.ends();
            }
            Fault::Cut { noticed_ms, lost } => {
                place.cut += 1;
                if place.cut == 1 {
                    place.unsent_is_lost = lost;
                    let at_us = self.now_us + noticed_ms * 1_000;
                    self.queue.add(at_us, Happening::Noticed(n));
                }
            }
            Fault::Slow { by_ms } => place.slow_us += by_ms * 1_000,
            Fault::Drop => place.dropping += 1,
            Fault::NoBucket => place.link.cut += 1,
        }
    }

    pub(super) fn mend(&mut self, n: usize, fault: Fault) {
        let place = &mut self.places[n];
        match fault {
            Fault::Freeze => {
                place.frozen -= 1;
                if place.frozen == 0 {
                    self.thaw(n);
                }
            }
            Fault::Restart => {
                place.down -= 1;
                // a program that starts without a connection waits for one
                place.starts = place.down == 0 && place.cut > 0;
                if place.down == 0 && place.cut == 0 {
                    self.revive(n);
                }
            }
            Fault::Cut { .. } => {
                place.cut -= 1;
                if place.cut == 0 && !place.alive {
                    place.noticed = false;
                    if std::mem::take(&mut place.starts) {
                        self.revive(n);
                    }
                } else if place.cut == 0 {
                    self.notice(n, true);
                    self.notice(n, false);
                    for message in std::mem::take(&mut self.places[n].unsent) {
                        self.send(n, message);
                    }
                }
            }
            Fault::Slow { by_ms } => place.slow_us -= by_ms * 1_000,
            Fault::NoBucket => {
                place.link.cut -= 1;
                if place.link.cut == 0 {
                    self.link_mended(n);
                }
            }
            Fault::Drop => {
                place.dropping -= 1;
                if place.dropping == 0 && std::mem::take(&mut place.dropped) && place.alive {
                    self.act(n, |node, now_ms, out| node.missed(now_ms, out));
                }
            }
        }
    }

    /// Delivers what waited for the program, in the order of each subscription.
    fn thaw(&mut self, n: usize) {
        for arrival in std::mem::take(&mut self.places[n].waiting) {
            let overtake_us = self.random.below(self.script.overtake_us + 1);
            let place = &mut self.places[n];
            let mut at_us = self.now_us;
            if let Arrived::Message(subscription, _) = &arrival.what {
                let last_us = &mut place.subscription_us[*subscription];
                *last_us = (*last_us).max(self.now_us + overtake_us);
                at_us = *last_us;
            }
            self.queue.add(at_us, Happening::Arrives(Box::new(arrival)));
        }
        let at_us = self.now_us + self.random.below(2_000);
        self.places[n].wake_us = at_us;
        self.queue.add(at_us, Happening::Wake(n));
        if std::mem::take(&mut self.places[n].unnoticed) && self.places[n].alive {
            self.act(n, |node, now_ms, out| node.connected(now_ms, false, out));
            if !self.places[n].noticed {
                self.act(n, |node, now_ms, out| node.connected(now_ms, true, out));
            }
        }
    }

    pub(super) fn revive(&mut self, n: usize) {
        let place = &mut self.places[n];
        place.life += 1;
        place.alive = true;
        (place.noticed, place.unnoticed) = (false, false);
        place.wake_us = u64::MAX;
        place.link.watch = None;
        let life = place.life;
        self.act(n, |node, now_ms, out| node.begin(now_ms, life, out));
    }

    /// Lets both sides notice the end of a connection (true) or its return.
    pub(super) fn notice(&mut self, n: usize, down: bool) {
        let place = &mut self.places[n];
        if place.noticed == down
            || !place.alive
            || (down && place.cut == 0 && place.unsent.is_empty())
        {
            return;
        }
        place.noticed = down;
        place.unnoticed = place.frozen > 0;
        if !place.unnoticed {
            self.act(n, |node, now_ms, out| node.connected(now_ms, !down, out));
        }
    }
}

/// Describes the fault in the timeline.
pub(super) fn text(fault: Fault) -> String {
    match fault {
        Fault::Freeze => "its program stands still".to_owned(),
        Fault::Restart => "its program is down".to_owned(),
        Fault::Cut { noticed_ms, lost } => {
            let then = if lost { "lost" } else { "said later" };
            format!(
                "no connection, noticed after {noticed_ms} ms; what it says until then is {then}"
            )
        }
        Fault::Slow { by_ms } => format!("messages to and from it take {by_ms} ms"),
        Fault::Drop => "one of three messages to it is lost".to_owned(),
        Fault::NoBucket => "it cannot reach the bucket".to_owned(),
    }
}
