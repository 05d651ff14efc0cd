//! Questions on their way, and what is counted of them.

use super::{
    super::Setting,
    super::auction::Ask,
    World,
    state::{Back, Event, Open, Question},
};

impl World<'_> {
    /// Sends a question to cells. Tells until when to wait for answers, and whether no question
    /// arrives at all.
    pub(super) fn send(
        &mut self,
        number: u32,
        open: &Open,
        ask: Ask,
        cells: &[u32],
    ) -> (u64, bool) {
        let Setting { rules, network, .. } = self.setting;
        let timeout_us = u64::try_from(rules.timeout.as_micros()).unwrap_or(u64::MAX);
        let (mut longest_us, mut lost) = (0, true);
        for cell in cells {
            let there_us = network.latency.sample_us(&mut self.weather);
            let back_us = network.latency.sample_us(&mut self.weather);
            let there_lost = self.weather.chance(network.loss);
            let back_lost = self.weather.chance(network.loss);
            let busy_us = match ask {
                Ask::Run => rules.run.sample_us(&mut self.weather),
                _ => 0,
            };
            let took_us = there_us + busy_us + back_us;
            let back = match (back_lost, took_us <= timeout_us) {
                (true, _) => Back::Lost,
                (false, false) => Back::Late,
                (false, true) => Back::InTime,
            };
            let in_time = !there_lost && back == Back::InTime;
            longest_us = longest_us.max(if in_time { took_us } else { timeout_us });
            lost &= there_lost;
            let bytes = if ask == Ask::Run {
                open.run_bytes
            } else {
                open.info_bytes
            };
            self.count(Sort::question(ask), bytes, !there_lost);
            if !there_lost {
                let question = Question {
                    job: number,
                    cell: *cell,
                    ask,
                    step: open.step,
                    back,
                    busy_us,
                };
                self.push(self.now_us + there_us, Event::Arrive(question));
            }
        }
        self.jobs[number as usize].communications += u32::try_from(cells.len()).unwrap_or(u32::MAX);
        (self.now_us + longest_us, lost)
    }

    pub(super) fn count(&mut self, sort: Sort, bytes: u64, delivered: bool) {
        let traffic = &mut self.messages[sort.0];
        traffic.sent += 1;
        if delivered {
            traffic.delivered += 1;
            traffic.bytes += bytes;
        }
    }

    /// A cell that was asked to reserve and was not heard of may hold room: it is told to release
    /// it, and nobody waits for its answer.
    pub(super) fn release_unheard(&mut self, number: u32, open: &Open) {
        let heard = |cell: &u32| open.answers.iter().any(|answer| answer.cell == *cell);
        let unheard: Vec<u32> = open.asked.iter().copied().filter(|c| !heard(c)).collect();
        self.send(number, open, Ask::Release, &unheard);
    }
}

/// What a message is: its place among the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort(usize);

/// What all messages are called; a question stands before its answer.
pub(super) const SORTS: [&str; 10] = [
    "bid request",
    "bid",
    "reserve",
    "reserve answer",
    "release",
    "release answer",
    "run",
    "run answer",
    "stop",
    "stop answer",
];
pub(super) const STOP: Sort = Sort(8);

impl Sort {
    fn question(ask: Ask) -> Self {
        Self(match ask {
            Ask::Bid => 0,
            Ask::Reserve => 2,
            Ask::Release => 4,
            Ask::Run => 6,
        })
    }

    pub(super) fn answer(ask: Ask) -> Self {
        Self::question(ask).answered()
    }

    pub(super) fn answered(self) -> Self {
        Self(self.0 + 1)
    }
}
