//! Simulated DEAs on a nats-server of their own. They say everything more often than real ones.

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
    /// So many DEAs of 1,024 MB, `d0` and so on, in two zones.
    pub(crate) async fn of(count: usize) -> Self {
        let server = NatsServer::start().await;
        let client = server.client().await;
        Self::on(server, client, count).await
    }

    /// The same, on this connection of the server.
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

    /// A further DEA, or one that was started again, with another id.
    pub(crate) fn add(&self, n: usize, id: &str) {
        let seed = u64::try_from(n).unwrap();
        let mut options = FacadeOptions::new(id, "10.0.0.1", vec!["cflinuxfs2".into()], seed);
        options.zone = format!("z{}", n % 2);
        (options.advertise_ms, options.heartbeat_ms) = (300, 500);
        self.deas
            .act(|deas, now_ms| deas.add(now_ms, options, 1_024).unwrap());
    }

    /// The first instance of a DEA fails.
    pub(crate) fn crash(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.crash(now_ms, dea));
    }

    /// A DEA is emptied.
    pub(crate) fn evacuate(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.evacuate(now_ms, dea));
    }

    /// A DEA stands still, until it thaws.
    pub(crate) fn freeze(&self, dea: &str) {
        self.deas.act(|deas, _| {
            deas.freeze(dea);
            Vec::new()
        });
    }

    /// How many starts the frozen DEA was told.
    pub(crate) fn unheard_starts(&self, dea: &str) -> usize {
        self.deas.look(|deas| deas.unheard_starts(dea))
    }

    pub(crate) fn thaw(&self, dea: &str) {
        self.deas.act(|deas, now_ms| deas.thaw(now_ms, dea));
    }

    /// The machine of a DEA is gone.
    pub(crate) fn vanish(&self, dea: &str) {
        self.deas.act(|deas, _| {
            deas.vanish(dea);
            Vec::new()
        });
    }

    /// What runs, with its DEA.
    pub(crate) fn running(&self) -> Vec<(String, DeaStart)> {
        self.deas.look(|deas| {
            assert!(deas.least_memory_mb >= 0, "memory was promised twice");
            let all = deas.instances();
            all.map(|(dea, start)| (dea.to_owned(), start.clone()))
                .collect()
        })
    }

    /// How many instances were ever started.
    pub(crate) fn started(&self) -> u64 {
        self.deas.look(|deas| deas.started)
    }

    /// How many instances run.
    pub(crate) fn count(&self) -> usize {
        self.running().len()
    }
}
