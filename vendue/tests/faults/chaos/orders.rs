//! The user's orders to managers, drawn from a seed.

use std::time::Duration;

use super::script::{ROUND, Step, Writer};

/// Maximum number of apps at a time.
pub(crate) const APPS: usize = 4;
/// Maximum number of instances of an app, such that there is room for two of each with a cell gone.
const MOST: u32 = 4;
/// Number of tasks and durable requests that are stored in a round.
const STORED: u32 = 3;
/// The bucket is lost once in this many rounds.
const LOSSES: usize = 8;

/// One order. A number says for which app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A new app, or a new version of it.
    Put {
        app: usize,
        instances: u32,
    },
    Scale {
        app: usize,
        instances: u32,
    },
    Restart {
        app: usize,
    },
    Delete {
        app: usize,
    },
    /// The apps are exported, the bucket is deleted, and after a moment they are restored.
    LoseBucket {
        lease: bool,
    },
}

/// The number of instances of each app; none if there is no such app.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    apps: [Option<u32>; APPS],
    rounds: usize,
    stored: usize,
}

impl Orders {
    /// Writes a round of three seconds: in the first one every app is put, in later ones there are up to two changes.
    pub(crate) fn round(&mut self, writer: &mut Writer, begin: Duration) {
        self.rounds += 1;
        for nth in 0..STORED {
            let at = begin + ROUND * nth / STORED;
            writer.add(at, Step::Store(self.stored));
            self.stored += 1;
        }
        if self.rounds == 1 {
            for app in 0..APPS {
                let order = self.put(writer, app);
                writer.add(begin, Step::Order(order));
            }
            return;
        }
        for _ in 0..writer.below(3) {
            let order = self.draw(writer);
            let at = begin + writer.millis(0, 3_000);
            writer.add(at, Step::Order(order));
        }
        if self.rounds % LOSSES == LOSSES / 2 {
            let lease = writer.below(2) == 0;
            writer.add(begin, Step::Order(Order::LoseBucket { lease }));
        }
    }

    fn put(&mut self, writer: &mut Writer, app: usize) -> Order {
        let instances = self.apps[app].unwrap_or_else(|| some(writer));
        self.apps[app] = Some(instances);
        Order::Put { app, instances }
    }

    fn draw(&mut self, writer: &mut Writer) -> Order {
        let app = writer.below(APPS);
        if self.apps[app].is_none() {
            return self.put(writer, app);
        }
        match writer.below(8) {
            0..=2 => {
                let instances = some(writer);
                self.apps[app] = Some(instances);
                Order::Scale { app, instances }
            }
            3..=5 => self.put(writer, app),
            6 => Order::Restart { app },
            _ => {
                self.apps[app] = None;
                Order::Delete { app }
            }
        }
    }
}

fn some(writer: &mut Writer) -> u32 {
    1 + u32::try_from(writer.below(MOST as usize)).expect("a small number")
}
