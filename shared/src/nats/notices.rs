//! What a role logs about its connection.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_nats::ConnectError;

use crate::log_limit::LogLimit;

use super::PermissionViolation;

/// The first interval between two log lines about an unreachable server; below, the longest one.
const NOTICE_FIRST: Duration = Duration::from_secs(2);
const NOTICE_MAX: Duration = Duration::from_secs(60);

/// Logs changes of a role's connection. The client retries several times a second for ever, so the first failure is
/// logged at once and later ones at growing intervals.
#[derive(Debug)]
pub(super) struct Notices {
    /// The addresses without secrets.
    url: String,
    state: Mutex<NoticeState>,
    /// Bounds the lines about permission violations.
    violations: LogLimit,
}

/// Violations logged per second.
const VIOLATIONS_LOGGED: u32 = 5;

#[derive(Debug, Default)]
struct NoticeState {
    /// When the next failure is logged, and the interval after that; if none, at once.
    next: Option<(Instant, Duration)>,
    /// The last reason with its source, which only the first attempt knows; below, what may help.
    detailed: String,
    hint: &'static str,
}

impl Notices {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            state: Mutex::default(),
            violations: LogLimit::new(VIOLATIONS_LOGGED),
        }
    }

    /// Records that the first attempt has failed.
    pub(super) fn failed_at_first(&self, error: &ConnectError, hint: &'static str) {
        let mut state = self.lock();
        state.detailed = error.to_string();
        state.hint = hint;
        drop(state);
        self.failed(&error.to_string());
    }

    /// Records that an attempt has failed.
    pub(super) fn failed(&self, reason: &str) {
        let Some((reason, hint)) = self.lock().failure_due(Instant::now(), reason) else {
            return;
        };
        let url = &self.url;
        tracing::warn!(url, reason, hint, "cannot connect to NATS; trying again");
    }

    pub(super) fn connected(&self) {
        *self.lock() = NoticeState::default();
        tracing::info!(url = self.url, "connected to NATS");
    }

    pub(super) fn disconnected(&self) {
        tracing::warn!(url = self.url, "NATS disconnected; reconnecting");
    }

    /// Logs that the server's permissions do not allow something.
    pub(super) fn refused(&self, violation: &PermissionViolation) {
        let (logged, left_out) = self.violations.next(Instant::now());
        if logged {
            let url = &self.url;
            tracing::warn!(url, left_out, "{violation}: the NATS server refuses it");
        }
    }

    fn lock(&self) -> MutexGuard<'_, NoticeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NoticeState {
    /// Returns the reason to log and what may help, if a line is due.
    fn failure_due(&mut self, now: Instant, reason: &str) -> Option<(String, &'static str)> {
        let wait = match self.next {
            Some((at, _)) if now < at => return None,
            Some((_, wait)) => (wait * 2).min(NOTICE_MAX),
            None => NOTICE_FIRST,
        };
        self.next = Some((now + wait, wait));
        // "IO error" says less than "IO error: Connection refused"
        if !self.detailed.starts_with(reason) {
            reason.clone_into(&mut self.detailed);
            self.hint = if reason.contains("authorization") || reason.contains("nonce") {
                "check the token, the user or the credentials"
            } else {
                "is a NATS server running there? check the address"
            };
        }
        Some((self.detailed.clone(), self.hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_at_once_then_less_often() {
        let mut state = NoticeState::default();
        let start = Instant::now();
        let logged: Vec<u64> = (0..200)
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                state.failure_due(now, "IO error").is_some()
            })
            .collect();
        assert_eq!(logged, [0, 2, 6, 14, 30, 62, 122, 182]);
    }

    #[test]
    fn a_reason_keeps_its_detail() {
        let mut state = NoticeState::default();
        let start = Instant::now();
        let refused = "IO error: Connection refused";
        assert!(state.failure_due(start, refused).is_some());
        let reason = |due: Option<(String, &str)>| due.map(|(reason, _)| reason);
        let later = start + NOTICE_FIRST;
        assert_eq!(
            reason(state.failure_due(later, "IO error")).as_deref(),
            Some(refused)
        );
        let later = later + NOTICE_MAX;
        let other = state.failure_due(later, "authorization violation");
        let (other, hint) = other.unwrap();
        assert_eq!(other, "authorization violation");
        assert!(hint.contains("credentials"), "{hint}");
    }
}
