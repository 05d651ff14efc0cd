//! Log lines about auctions, so that each can be replayed; under load only some at level info.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Auctions logged at level info per second; further ones are logged at level debug.
const LOGGED_A_SECOND: u32 = 20;

/// The number of auctions logged in this second.
#[derive(Debug, Default)]
pub(super) struct AuctionLog(Mutex<Second>);

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    auctions: u32,
}

impl AuctionLog {
    /// Whether the next auction is logged at level info; and how many were not in the second
    /// before.
    pub(super) fn next(&self, now: Instant) -> (bool, u32) {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        let over = |began: Instant| now.duration_since(began).as_secs() > 0;
        if second.began.is_none_or(over) {
            left_out = second.auctions.saturating_sub(LOGGED_A_SECOND);
            *second = Second {
                began: Some(now),
                auctions: 0,
            };
        }
        second.auctions += 1;
        (second.auctions <= LOGGED_A_SECOND, left_out)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_per_second_are_limited_and_the_rest_is_counted() {
        let log = AuctionLog::default();
        let start = Instant::now();
        let logged = (0..25).filter(|_| log.next(start).0).count();
        assert_eq!(logged, 20);
        assert_eq!(log.next(start + Duration::from_secs(1)), (true, 5));
        assert_eq!(log.next(start + Duration::from_secs(3)), (true, 0));
    }
}
