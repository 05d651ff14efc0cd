//! Requests in transit, and the counts of messages.

use super::{
    super::{AuctionSettings, auction::QuestionKind},
    World,
    state::{Answering, Event, OpenAuction, Question},
};

impl World<'_> {
    /// Sends a request to cells. Returns until when to wait for answers (in microseconds), and whether the request
    /// reaches none of them.
    pub(super) fn send(
        &mut self,
        number: u32,
        open: &OpenAuction,
        ask: QuestionKind,
        cells: &[u32],
    ) -> (u64, bool) {
        let AuctionSettings { rules, network, .. } = self.settings;
        let timeout_us = u64::try_from(rules.timeout.as_micros()).unwrap_or(u64::MAX);
        let (mut longest_us, mut lost) = (0, true);
        for cell in cells {
            let there_us = network.latency.sample_us(&mut self.network);
            let back_us = network.latency.sample_us(&mut self.network);
            let there_lost = self.network.chance(network.loss);
            let back_lost = self.network.chance(network.loss);
            let busy_us = match ask {
                QuestionKind::Run => rules.run.sample_us(&mut self.network),
                _ => 0,
            };
            let took_us = there_us + busy_us + back_us;
            let answering = match (back_lost, took_us <= timeout_us) {
                (true, _) => Answering::Lost,
                (false, false) => Answering::Late,
                (false, true) => Answering::InTime,
            };
            let in_time = !there_lost && answering == Answering::InTime;
            longest_us = longest_us.max(if in_time { took_us } else { timeout_us });
            lost &= there_lost;
            let bytes = match ask {
                QuestionKind::Run => open.run_bytes,
                _ => open.info_bytes,
            };
            self.count(MessageKind::question(ask), bytes, !there_lost);
            if !there_lost {
                let question = Question {
                    instance: number,
                    cell: *cell,
                    ask,
                    step: open.step,
                    answering,
                    busy_us,
                };
                self.events
                    .add(self.now_us + there_us, Event::Arrive(question));
            }
        }
        self.instances[number as usize].communications +=
            u32::try_from(cells.len()).unwrap_or(u32::MAX);
        (self.now_us + longest_us, lost)
    }

    pub(super) fn count(&mut self, kind: MessageKind, bytes: u64, delivered: bool) {
        let traffic = &mut self.messages[kind as usize];
        traffic.sent += 1;
        if delivered {
            traffic.delivered += 1;
            traffic.bytes += bytes;
        }
    }

    /// Releases reservations that may exist: a cell that was asked to reserve but whose answer did not arrive gets a
    /// release, without waiting for its answer.
    pub(super) fn release_unanswered(&mut self, number: u32, open: &OpenAuction) {
        let answered = |cell: &u32| open.answers.iter().any(|answer| answer.cell == *cell);
        let cells: Vec<u32> = open
            .asked
            .iter()
            .copied()
            .filter(|cell| !answered(cell))
            .collect();
        self.send(number, open, QuestionKind::Release, &cells);
    }
}

/// The kinds of messages; each answer follows its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    BidRequest,
    Bid,
    Reserve,
    ReserveAnswer,
    Release,
    ReleaseAnswer,
    Run,
    RunAnswer,
    Stop,
    StopAnswer,
}

impl MessageKind {
    pub(super) const COUNT: usize = Self::NAMES.len();
    /// Their names in reports, in the same order.
    pub(super) const NAMES: [&str; 10] = [
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

    fn question(ask: QuestionKind) -> Self {
        match ask {
            QuestionKind::Bid => Self::BidRequest,
            QuestionKind::Reserve => Self::Reserve,
            QuestionKind::Release => Self::Release,
            QuestionKind::Run => Self::Run,
        }
    }

    pub(super) fn answer(ask: QuestionKind) -> Self {
        match ask {
            QuestionKind::Bid => Self::Bid,
            QuestionKind::Reserve => Self::ReserveAnswer,
            QuestionKind::Release => Self::ReleaseAnswer,
            QuestionKind::Run => Self::RunAnswer,
        }
    }
}
