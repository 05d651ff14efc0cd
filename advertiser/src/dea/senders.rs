//! Senders of malformed and odd messages, counted separately up to a limit.

use std::collections::BTreeMap;

use placement::Invalid;

use super::{DeaMalformed, DeaOddities};

/// How many senders are counted separately; messages of further ones are counted together.
pub const MAX_SENDERS: usize = 256;

/// The malformed and odd messages of one sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddSender {
    /// Messages that could not be used.
    pub malformed: u64,
    /// Messages that could be used although some field was odd.
    pub odd: u64,
    /// The subject of the last of them.
    pub subject: &'static str,
    /// What was wrong with it; the first of several odd fields.
    pub why: Invalid,
}

/// The senders of malformed and odd messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OddSenders {
    by_sender: BTreeMap<Option<String>, OddSender>,
    /// The number of such messages from senders beyond the limit.
    pub of_others: u64,
}

impl OddSenders {
    /// Returns the senders by name; none stands for messages that name no sender.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &OddSender)> {
        let senders = self.by_sender.iter();
        senders.map(|(name, sender)| (name.as_deref(), sender))
    }

    /// Returns the number of unusable messages from all senders that are counted separately.
    pub fn malformed(&self) -> u64 {
        self.by_sender.values().map(|sender| sender.malformed).sum()
    }

    pub(super) fn malformed_of(&mut self, subject: &'static str, malformed: DeaMalformed) {
        if let Some(sender) = self.sender(malformed.sender, subject, malformed.why) {
            sender.malformed += 1;
        }
    }

    /// Counts an odd message that could be used; an empty name stands for no sender.
    pub(super) fn odd_of(&mut self, subject: &'static str, sender: &str, odd: &DeaOddities) {
        let Some(why) = odd.first.first() else {
            return;
        };
        let name = (!sender.is_empty()).then(|| sender.to_owned());
        if let Some(sender) = self.sender(name, subject, why.clone()) {
            sender.odd += 1;
        }
    }

    fn sender(
        &mut self,
        name: Option<String>,
        subject: &'static str,
        why: Invalid,
    ) -> Option<&mut OddSender> {
        if self.by_sender.len() >= MAX_SENDERS && !self.by_sender.contains_key(&name) {
            self.of_others += 1;
            return None;
        }
        let new = OddSender {
            malformed: 0,
            odd: 0,
            subject,
            why: why.clone(),
        };
        let sender = self.by_sender.entry(name).or_insert(new);
        (sender.subject, sender.why) = (subject, why);
        Some(sender)
    }
}
