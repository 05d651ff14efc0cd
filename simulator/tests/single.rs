//! Never do two auctioneers with `--single` accept requests at the same time: the machines of both sides under delays, losses,
//! clocks of their own, programs that stand still, and managers that change.
#![allow(clippy::unwrap_used)] // a test may panic

use auctioneer::{Grant, Standing};
use manager::Grants;
use placement::random::SplitMix64;
use shared::wire::{GrantAnswer, GrantRequest};

const STEP_MS: u64 = 10;

/// A clock: where it began, and how fast it is in thousandths.
#[derive(Clone, Copy, Debug)]
struct Drifting(u64, u64);

impl Drifting {
    fn ms(self, now_ms: u64) -> u64 {
        self.0 + now_ms * self.1 / 1_000
    }
}

struct Auctioneer {
    clock: Drifting,
    grant: Grant,
    run: u64,
    /// It stands still until then.
    frozen_until_ms: u64,
}

struct Manager {
    clock: Drifting,
    grants: Grants,
}

enum Message {
    Asked(usize, u64, GrantRequest),
    Answered(usize, u64, u64, GrantAnswer),
}

/// What may go wrong.
#[derive(Clone, Copy)]
struct Faults {
    /// The longest delay of a message.
    delay_ms: u64,
    /// One of so many is lost.
    loss: u64,
    /// How long a manager is in office at most; none = for ever.
    office_ms: Option<u64>,
}

struct World {
    random: SplitMix64,
    faults: Faults,
    now_ms: u64,
    auctioneers: Vec<Auctioneer>,
    managers: Vec<Manager>,
    /// The manager that acts, and until when; none between two.
    office: Option<usize>,
    change_ms: u64,
    messages: Vec<(u64, Message)>,
    /// Milliseconds in which one of them accepted requests, and how often another one began to.
    held_ms: u64,
    changes: u32,
    last: Option<usize>,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut clock = || Drifting(random.draw() % 1_000_000, 980 + random.draw() % 41);
        let auctioneers = (0..4).map(|n| Auctioneer {
            clock: clock(),
            grant: Grant::new(format!("{n}-0")),
            run: 0,
            frozen_until_ms: 0,
        });
        let auctioneers = auctioneers.collect();
        let managers = (0..3).map(|_| Manager {
            clock: clock(),
            grants: Grants::default(),
        });
        let managers = managers.collect();
        Self {
            random,
            faults,
            now_ms: 0,
            auctioneers,
            managers,
            office: None,
            change_ms: 0,
            messages: Vec::new(),
            held_ms: 0,
            changes: 0,
            last: None,
        }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.draw() % most.max(1)
    }

    fn send(&mut self, message: Message) {
        if self.faults.loss > 0 && self.below(self.faults.loss) == 0 {
            return;
        }
        // mostly soon
        let most = if self.below(3) == 0 {
            self.faults.delay_ms
        } else {
            20
        };
        let at_ms = self.now_ms + self.below(most);
        self.messages.push((at_ms, message));
    }

    /// Somebody else gets the lease, at once or after a while.
    fn change_office(&mut self) {
        if self.now_ms < self.change_ms {
            return;
        }
        let office_ms = self.faults.office_ms.unwrap_or(u64::MAX / 2);
        if self.office.take().is_some() && self.below(2) == 0 {
            self.change_ms = self.now_ms + self.below(15_000);
            return;
        }
        let next = usize::try_from(self.below(3)).unwrap();
        let manager = &mut self.managers[next];
        manager.grants.gained(manager.clock.ms(self.now_ms));
        self.office = Some(next);
        self.change_ms = self.now_ms + 1 + self.below(office_ms);
    }

    /// An auctioneer stands still, is killed and started again, or leaves and comes back.
    fn trouble(&mut self) {
        if self.below(400) != 0 {
            return;
        }
        let n = usize::try_from(self.below(4)).unwrap();
        let (what, long_ms) = (self.below(3), self.below(20_000));
        let auctioneer = &mut self.auctioneers[n];
        if auctioneer.frozen_until_ms > self.now_ms {
            return;
        }
        if what == 0 {
            auctioneer.frozen_until_ms = self.now_ms + long_ms;
            return;
        }
        let returned = (what == 1).then(|| auctioneer.grant.give_back());
        auctioneer.run += 1;
        auctioneer.grant = Grant::new(format!("{n}-{}", auctioneer.run));
        if let Some(request) = returned {
            self.send(Message::Asked(n, 0, request));
        }
    }

    fn deliver(&mut self) {
        let now_ms = self.now_ms;
        let frozen = |auctioneers: &[Auctioneer], message: &Message| match message {
            Message::Asked(..) => false,
            Message::Answered(n, ..) => auctioneers[*n].frozen_until_ms > now_ms,
        };
        let mut at = 0;
        while at < self.messages.len() {
            let (due_ms, message) = &self.messages[at];
            if *due_ms > now_ms || frozen(&self.auctioneers, message) {
                at += 1;
                continue;
            }
            match self.messages.remove(at).1 {
                Message::Asked(n, number, request) => self.asked(n, number, &request),
                Message::Answered(n, run, number, answer) => {
                    let auctioneer = &mut self.auctioneers[n];
                    if auctioneer.run == run {
                        auctioneer.grant.answered(number, &answer);
                    }
                }
            }
        }
    }

    fn asked(&mut self, n: usize, number: u64, request: &GrantRequest) {
        let Some(manager) = self.office.map(|m| &mut self.managers[m]) else {
            return;
        };
        let its_ms = manager.clock.ms(self.now_ms);
        let name = format!("a{n}");
        let reply = manager.grants.ask(its_ms, &name, &request.run, request.ask);
        let answer = reply.answer("m");
        // of the run that has asked
        let run = request.run.rsplit('-').next().unwrap().parse().unwrap();
        self.send(Message::Answered(n, run, number, answer));
    }

    fn step(&mut self) {
        self.change_office();
        self.trouble();
        self.deliver();
        for n in 0..self.auctioneers.len() {
            let auctioneer = &mut self.auctioneers[n];
            if auctioneer.frozen_until_ms > self.now_ms {
                continue;
            }
            let own_ms = auctioneer.clock.ms(self.now_ms);
            if let Some((number, request)) = auctioneer.grant.ask(own_ms, true) {
                self.send(Message::Asked(n, number, request));
            }
        }
        let holds = |(n, a): (usize, &Auctioneer)| {
            let standing = a.grant.standing(a.clock.ms(self.now_ms));
            (standing == Standing::Holds).then_some(n)
        };
        let holders: Vec<usize> = self
            .auctioneers
            .iter()
            .enumerate()
            .filter_map(holds)
            .collect();
        assert!(holders.len() <= 1, "{} ms: {holders:?}", self.now_ms);
        if let Some(holder) = holders.first() {
            self.held_ms += STEP_MS;
            self.changes += u32::from(self.last.replace(*holder) != Some(*holder));
        }
        self.now_ms += STEP_MS;
    }
}

/// How long one of them accepted requests in all runs, per cent, and how often another one took over.
fn play(seeds: u64, faults: Faults) -> (u64, u32) {
    let (mut held_ms, mut changes, each_ms) = (0, 0, 120_000);
    for seed in 0..seeds {
        let mut world = World::new(seed, faults);
        while world.now_ms < each_ms {
            world.step();
        }
        held_ms += world.held_ms;
        changes += world.changes;
    }
    (held_ms * 100 / (seeds * each_ms), changes)
}

#[test]
fn under_one_manager_there_is_one_at_most_however_long_messages_take() {
    for delay_ms in [50, 1_000, 12_000] {
        let faults = Faults {
            delay_ms,
            loss: 10,
            office_ms: None,
        };
        let (held, changes) = play(60, faults);
        assert!(held > 30 && changes > 60, "{delay_ms}: {held} % {changes}");
    }
}

#[test]
fn when_managers_change_there_is_one_at_most_while_messages_take_less_than_the_margin() {
    for (delay_ms, loss) in [(50, 0), (400, 0), (400, 4)] {
        let faults = Faults {
            delay_ms,
            loss,
            office_ms: Some(30_000),
        };
        let (held, changes) = play(100, faults);
        assert!(held > 20 && changes > 100, "{delay_ms}: {held} % {changes}");
    }
}
