//! Messages with start requests: each gets one reply once all of its requests are answered.

use placement::FastMap;

use crate::{
    ids::{GroupId, ReplyKey},
    reply,
    ticket::{Answer, Place},
    turn::Turn,
};

/// The messages that have no reply yet.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    open: FastMap<GroupId, Group>,
    next: u64,
}

/// The answers that one message waits for.
#[derive(Debug)]
struct Group {
    reply: Option<ReplyKey>,
    array: bool,
    answers: Vec<Option<Answer>>,
    missing: usize,
}

impl Groups {
    /// Opens a group for a message with this many requests.
    pub(crate) fn open(
        &mut self,
        requests: usize,
        array: bool,
        reply: Option<ReplyKey>,
    ) -> GroupId {
        self.next += 1;
        let id = GroupId::new(self.next);
        let group = Group {
            reply,
            array,
            answers: vec![None; requests],
            missing: requests,
        };
        self.open.insert(id, group);
        id
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Drops a message that was answered in another way.
    pub(crate) fn forget(&mut self, id: GroupId) {
        self.open.remove(&id);
    }

    /// Adds the answer to one request of a message; the last one sends the reply.
    pub(crate) fn fill(&mut self, turn: &mut Turn, place: Place, answer: Answer) {
        let Some(group) = self.open.get_mut(&place.group) else {
            return;
        };
        // a later answer to the same request replaces the first and counts once
        if group.answers[place.position].replace(answer).is_none() {
            group.missing -= 1;
        }
        if group.missing > 0 {
            return;
        }
        let Some(group) = self.open.remove(&place.group) else {
            return;
        };
        let answers: Vec<Answer> = group.answers.into_iter().flatten().collect();
        let body = if group.array {
            reply::array(&answers, turn.max_payload)
        } else {
            Ok(answers
                .into_iter()
                .next()
                .map(|a| a.body)
                .unwrap_or_default())
        };
        turn.reply(group.reply, body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{counters::Counters, io::AuctioneerOutput};
    use shared::wire::Outcome;

    fn answer() -> Answer {
        Answer {
            id: "r".parse().unwrap(),
            app: "web".into(),
            outcome: Outcome::Placed,
            body: "{}".into(),
        }
    }

    #[test]
    fn a_message_is_answered_after_its_last_request_unless_it_is_forgotten() {
        for (forgotten, replies) in [(false, 1), (true, 0)] {
            let mut turn = Turn {
                now_ms: 0,
                max_payload: 1 << 20,
                counters: Counters::default(),
                out: Vec::new(),
            };
            let mut groups = Groups::default();
            let other = groups.open(1, false, Some(ReplyKey::new(1)));
            let group = groups.open(2, true, Some(ReplyKey::new(2)));
            // the same place twice is one request
            for position in [0, 0] {
                groups.fill(&mut turn, Place { group, position }, answer());
                assert!(turn.out.is_empty());
            }
            if forgotten {
                groups.forget(group);
            }
            groups.fill(&mut turn, Place { group, position: 1 }, answer());
            assert_eq!(turn.out.len(), replies);
            let (group, position) = (other, 0);
            groups.fill(&mut turn, Place { group, position }, answer());
            let last = turn.out.last();
            assert!(
                matches!(last, Some(AuctioneerOutput::Reply { to, .. }) if *to == ReplyKey::new(1))
            );
            assert_eq!(groups.count(), 0);
        }
    }
}
