//! What the server's permissions refuse. A server reports this on the connection, not to whoever published or
//! subscribed, so without this a refused operation would look like one that nobody answers.

use std::{collections::VecDeque, fmt, sync::Arc};

use tokio::sync::watch;

/// The attempted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Publishing.
    Publish,
    /// Subscribing.
    Subscribe,
}

/// An operation that the server's permissions do not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionViolation {
    /// The attempted operation.
    pub act: Act,
    /// The subject.
    pub subject: String,
}

impl PermissionViolation {
    /// Parses a server's report; none if it is about something else.
    fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let act = match lower.strip_prefix("permissions violation for ")? {
            rest if rest.starts_with("publish") => Act::Publish,
            rest if rest.starts_with("subscription") => Act::Subscribe,
            _ => return None,
        };
        let mut quoted = text.split('"');
        let subject = quoted.nth(1)?.to_owned();
        Some(Self { act, subject })
    }
}

impl fmt::Display for PermissionViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Publish => "publish to",
            Act::Subscribe => "subscribe to",
        };
        write!(f, "not permitted to {act} {}", self.subject)
    }
}

/// How many violations are remembered.
const REMEMBERED: usize = 64;

/// The violations of one or more connections: the last ones, and their number.
#[derive(Clone, Debug)]
pub struct PermissionViolations(Arc<watch::Sender<Refused>>);

#[derive(Debug, Default)]
struct Refused {
    count: u64,
    last: VecDeque<PermissionViolation>,
}

impl Default for PermissionViolations {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Refused::default())))
    }
}

impl PermissionViolations {
    /// Reads a server's report; returns the violation, if it is one.
    pub(super) fn take(&self, report: &str) -> Option<PermissionViolation> {
        let violation = PermissionViolation::parse(report)?;
        self.0.send_modify(|refused| {
            refused.count += 1;
            if refused.last.len() == REMEMBERED {
                refused.last.pop_front();
            }
            refused.last.push_back(violation.clone());
        });
        Some(violation)
    }

    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.0.borrow().count
    }

    /// Returns the first of the remembered ones, if any.
    pub fn remembered(&self) -> Option<PermissionViolation> {
        self.0.borrow().last.front().cloned()
    }

    /// Waits for a violation for which `counts` returns true, among those remembered and those to come.
    pub async fn first(
        &self,
        counts: impl Fn(&PermissionViolation) -> bool,
    ) -> PermissionViolation {
        let mut changes = self.0.subscribe();
        loop {
            let found = {
                let refused = changes.borrow_and_update();
                refused
                    .last
                    .iter()
                    .find(|violation| counts(violation))
                    .cloned()
            };
            if let Some(violation) = found {
                return violation;
            }
            // the sender belongs to us, so it is not closed
            let _ = changes.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_reports_is_read() {
        for (text, expected) in [
            (
                "Permissions Violation for Publish to \"vendue.cell.c1.drain\"",
                Some((Act::Publish, "vendue.cell.c1.drain")),
            ),
            (
                "Permissions Violation for Subscription to \"vendue.start\" using queue \"auctioneers\"",
                Some((Act::Subscribe, "vendue.start")),
            ),
            ("Maximum Payload Violation", None),
            ("Permissions Violation", None),
        ] {
            let read = PermissionViolation::parse(text);
            let read = read.as_ref().map(|r| (r.act, r.subject.as_str()));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_found_whether_it_was_there_or_comes() {
        let violations = PermissionViolations::default();
        assert!(violations.take("Authentication Timeout").is_none());
        assert_eq!((violations.count(), violations.remembered()), (0, None));
        let waiting = violations.clone();
        let waits = tokio::spawn(async move { waiting.first(|r| r.subject == "b").await });
        for subject in ["a", "b"] {
            let text = format!("Permissions Violation for Publish to \"{subject}\"");
            violations.take(&text).unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(waits.await.unwrap().subject, "b");
        assert_eq!(violations.first(|_| true).await.subject, "a");
        for n in 0..100 {
            let text = format!("Permissions Violation for Publish to \"{n}\"");
            violations.take(&text).unwrap();
        }
        assert_eq!(violations.count(), 102);
        assert_eq!(violations.remembered().unwrap().subject, "36");
    }
}
