//! Simulated DEAs on their own nats-server. They send everything more often than real ones.

use advertiser::{
    SimulatedEstate,
    dea::{DeaStart, FacadeOptions, SimulatedDeas},
};
use testkit::NatsServer;

pub(crate) struct Estate {
    pub(crate) server: NatsServer,
    pub(crate) deas: SimulatedEstate,
}

impl Estate {
    /// Starts `count` DEAs of 1,024 MB, named `d0` and so on, in two zones.
    pub(crate) async fn of(count: usize) -> Self {
        let server = NatsServer::start().await;
        let client = server.client().await;
        Self::on(server, client, count).await
    }

    /// Does the same on this connection of the server.
    pub(crate) async fn on(server: NatsServer, client: async_nats::Client, count: usize) -> Self {
        let deas = SimulatedEstate::start(client, SimulatedDeas::default()).await;
        let estate = Self {
            server,
            deas: deas.unwrap(),
        };
        for n in 0..count {
            estate.add(n, &format!("d{n}"));
        }
        estate
    }

    /// Adds a DEA, possibly one that was restarted and has another id.
    pub(crate) fn add(&self, n: usize, id: &str) {
        let seed = u64::try_from(n).unwrap();
        let mut options = FacadeOptions::new(id, "10.0.0.1", vec!["cflinuxfs2".into()], seed);
        options.zone = format!("z{}", n % 2);
        (options.advertise_ms, options.heartbeat_ms) = (300, 500);
        self.deas
            .act(|deas, now_ms| deas.add(now_ms, options, 1_024).unwrap());
    }

    /// Makes the first instance of a DEA fail.
    pub(crate) fn crash(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.crash(now_ms, dea));
    }

    /// Evacuates a DEA.
    pub(crate) fn evacuate(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.evacuate(now_ms, dea));
    }

    /// Freezes a DEA until it thaws.
    pub(crate) fn freeze(&self, dea: &str) {
        self.deas.act(|deas, _| {
            deas.freeze(dea);
            Vec::new()
        });
    }

    /// Returns how many starts were sent to the frozen DEA.
    pub(crate) fn unheard_starts(&self, dea: &str) -> usize {
        self.deas.look(|deas| deas.unheard_starts(dea))
    }

    pub(crate) fn thaw(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.thaw(now_ms, dea));
    }

    /// Removes the machine of a DEA.
    pub(crate) fn vanish(&self, dea: &str) {
        self.deas.act(|deas, _| {
            deas.vanish(dea);
            Vec::new()
        });
    }

    /// Returns what runs, with its DEA.
    pub(crate) fn running(&self) -> Vec<(String, DeaStart)> {
        self.deas.look(|deas| {
            assert!(deas.least_memory_mb >= 0, "memory was promised twice");
            let all = deas.instances();
            all.map(|(dea, start)| (dea.to_owned(), start.clone()))
                .collect()
        })
    }

    /// Returns how many instances were ever started.
    pub(crate) fn started(&self) -> u64 {
        self.deas.look(|deas| deas.started)
    }

    /// Returns how many instances run.
    pub(crate) fn count(&self) -> usize {
        self.running().len()
    }
}
