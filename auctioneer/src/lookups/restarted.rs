//! What was started although it may have been begun before.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use shared::RequestId;

use crate::ticket::Begun;

/// The most requests.
const MAX_RESTARTED: usize = 10_000;

/// The requests that were begun here after the cells were asked for them; the oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Restarted {
    pub(super) begun: BTreeMap<RequestId, Arc<Begun>>,
    order: VecDeque<RequestId>,
    /// A cell has joined: they are looked for again.
    pub(super) look: bool,
}

impl Restarted {
    pub(super) fn add(&mut self, id: RequestId, begun: Arc<Begun>) {
        if self.begun.insert(id.clone(), begun).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_RESTARTED
            && let Some(oldest) = self.order.pop_front()
        {
            self.begun.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RequestId {
        RequestId::new(&format!("r{number}")).unwrap()
    }

    #[test]
    fn of_too_many_the_oldest_is_forgotten() {
        let begun = Arc::new(Begun {
            app: "web".into(),
            instances: Vec::new(),
        });
        let mut restarted = Restarted::default();
        for number in 0..MAX_RESTARTED {
            restarted.add(id(number), Arc::clone(&begun));
        }
        // known already
        restarted.add(id(1), Arc::clone(&begun));
        assert_eq!(restarted.begun.len(), MAX_RESTARTED);
        restarted.add(id(MAX_RESTARTED), begun);
        assert_eq!(restarted.begun.len(), MAX_RESTARTED);
        let known = [0, 1, MAX_RESTARTED].map(|number| restarted.begun.contains_key(&id(number)));
        assert_eq!(known, [false, true, true]);
    }
}
