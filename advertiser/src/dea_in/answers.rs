//! Answers of a bridge's cells, and where they go.

use std::time::Instant;

use async_nats::Message;
use bytes::Bytes;
use shared::{AnswerTo, may_answer, wire::WireError};

use super::{
    asked::{OF_CELL, Question, Topic},
    cells::CellsOutput,
    shell::Shell,
};

impl Shell {
    /// Handles a message of the cluster.
    pub(super) fn asked(&mut self, message: &Message) {
        let subject = message.subject.as_str();
        let of_all = [
            (self.subjects.discover(), Topic::Discover),
            (self.subjects.bid(), Topic::Bid),
            (self.subjects.instances(), Topic::Instances),
            (self.subjects.cells_stop(), Topic::StopAll),
        ];
        if let Some((_, topic)) = of_all.iter().find(|(known, _)| known == subject) {
            return self.answer_for(message, None, *topic);
        }
        let cell = self.subjects.cell_of(subject).map(str::to_owned);
        let what = subject.rsplit('.').next().unwrap_or_default();
        let topic = OF_CELL.iter().find(|(known, _)| *known == what);
        if let (Some(cell), Some((_, topic))) = (cell, topic) {
            self.answer_for(message, Some(&cell), *topic);
        }
    }

    fn answer_for(&mut self, message: &Message, cell: Option<&str>, topic: Topic) {
        self.ticket += 1;
        let ticket = self.ticket;
        // a sender that wants no answer gets none
        if topic == Topic::Start
            && let Some(cell) = cell
            && let Some(reply) = self.answer_to(message, cell)
        {
            self.asked.insert(ticket, reply);
        }
        let question = Question {
            topic,
            cell,
            body: &message.payload,
            ticket,
            max_bytes: self.max_bytes(),
        };
        let now_ms = self.now_ms();
        match self.cells.asked(now_ms, &question) {
            Ok(out) => {
                for output in out {
                    match output {
                        CellsOutput::Reply { cell, body } => self.answer(message, &cell, body),
                        other => self.carry_out(vec![other]),
                    }
                }
            }
            Err(error) => {
                self.asked.remove(&ticket);
                self.refuse(message, cell, &error);
            }
        }
    }

    fn refuse(&mut self, message: &Message, cell: Option<&str>, error: &WireError) {
        self.malformed += 1;
        let subject = message.subject.as_str();
        if let Some(times) = self.seldom.happened(Instant::now(), 1) {
            tracing::warn!(subject, %error, times, "malformed message");
        }
        // not for a broadcast, to which every cell would answer the same
        if let Some(cell) = cell
            && let Some(to) = self.answer_to(message, cell)
        {
            self.to_cluster.error(to, error);
        }
    }

    fn answer(&mut self, message: &Message, cell: &str, body: Bytes) {
        if let Some(to) = self.answer_to(message, cell) {
            self.to_cluster.publish(to, body);
        }
    }

    /// Returns where a cell's answer to a message goes: below its own subject if the message says so, else to its reply
    /// subject, if that is an inbox.
    fn answer_to(&mut self, message: &Message, cell: &str) -> Option<String> {
        if let Ok(Some(to)) = AnswerTo::of(message) {
            return Some(self.subjects.cell_answer(cell, &to));
        }
        let reply = message.reply.as_deref()?;
        if may_answer(reply) || self.subjects.is_answer_of_cell(reply, cell) {
            return Some(reply.to_owned());
        }
        self.forbidden += 1;
        None
    }
}
