//! Detects another auctioneer of the same name: each would take the other's echoes for its own, and answers to one
//! would reach both. It happens when two start at the same moment, or when one stood still while the other started. The
//! one with the lower random token leaves.

use crate::ids::EchoToken;

/// How long another token must be heard: an echo of our own earlier run may still be on its way.
const HEARD_MS: u64 = 1_000;
/// The longest pause between two of its echoes, which come ten times a second.
const PAUSE_MS: u64 = 500;

/// What is heard on the subject of our echo.
#[derive(Debug)]
pub(crate) struct Namesake {
    token: EchoToken,
    other: Option<Other>,
    leaves: bool,
}

#[derive(Debug)]
struct Other {
    token: EchoToken,
    first_ms: u64,
    last_ms: u64,
}

impl Namesake {
    pub(crate) fn new(token: EchoToken) -> Self {
        Self {
            token,
            other: None,
            leaves: false,
        }
    }

    /// Returns the token in our echoes.
    pub(crate) fn token(&self) -> EchoToken {
        self.token
    }

    /// Returns whether this auctioneer must leave.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves
    }

    /// Handles an echo under our name. Returns whether it is our own.
    pub(crate) fn heard(&mut self, now_ms: u64, token: EchoToken) -> bool {
        if token == self.token {
            return true;
        }
        let before = self.other.take();
        // after a pause the second starts again: that one may have left, and a third one may have come
        let before = before.filter(|o| o.token == token && now_ms <= o.last_ms + PAUSE_MS);
        let first_ms = before.map_or(now_ms, |other| other.first_ms);
        // both compare the same two numbers, so exactly one of them leaves
        self.leaves |= token > self.token && now_ms >= first_ms + HEARD_MS;
        self.other = Some(Other {
            token,
            first_ms,
            last_ms: now_ms,
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when the one with token 5 leaves if these tokens are heard in turn at this interval.
    fn leaves_at(tokens: &[u64], interval_ms: u64) -> Option<u64> {
        let mut namesake = Namesake::new(EchoToken::new(5));
        for (n, token) in (0..30).zip(tokens.iter().cycle()) {
            let now_ms = 7_000 + n * interval_ms;
            namesake.heard(now_ms, EchoToken::new(*token));
            if namesake.leaves() {
                return Some(now_ms - 7_000);
            }
        }
        None
    }

    #[test]
    fn the_lower_token_leaves_when_the_other_one_was_heard_for_a_second() {
        for (tokens, interval_ms, expected) in [
            (&[9][..], 100, Some(1_000)),
            (&[9, 5], 100, Some(1_000)),
            (&[9], 500, Some(1_000)),
            (&[9], 501, None),
            (&[9, 8], 100, None),
            (&[4], 100, None),
            (&[5], 100, None),
        ] {
            assert_eq!(
                leaves_at(tokens, interval_ms),
                expected,
                "{tokens:?} {interval_ms}"
            );
        }
    }
}
