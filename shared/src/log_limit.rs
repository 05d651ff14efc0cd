//! Limits log lines about something that strangers can cause as often as they like.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The period in which lines are counted.
const PERIOD: Duration = Duration::from_secs(1);

/// A limit of lines per second, which counts how many were left out.
#[derive(Debug)]
pub struct LogLimit {
    a_second: u32,
    second: Mutex<Second>,
}

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
}

impl LogLimit {
    /// Creates a limit of `a_second` lines per second.
    pub fn new(a_second: u32) -> Self {
        Self {
            a_second,
            second: Mutex::default(),
        }
    }

    /// Returns whether the next line is logged, and how many were left out in the second before, which the first line
    /// of a second should report.
    pub fn next(&self, now: Instant) -> (bool, u32) {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        let over = |began: Instant| now.duration_since(began) >= PERIOD;
        if second.began.is_none_or(over) {
            left_out = second.lines.saturating_sub(self.a_second);
            *second = Second {
                began: Some(now),
                lines: 0,
            };
        }
        second.lines += 1;
        (second.lines <= self.a_second, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines_and_the_next_tells_what_was_left_out() {
        let limit = LogLimit::new(20);
        let start = Instant::now();
        let logged = (0..25).filter(|_| limit.next(start).0).count();
        assert_eq!(logged, 20);
        assert_eq!(limit.next(start + Duration::from_secs(1)), (true, 5));
        assert_eq!(limit.next(start + Duration::from_secs(3)), (true, 0));
    }
}
