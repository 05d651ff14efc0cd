//! A model of core NATS with one server: subjects, wildcards, queue groups, replies, `no responders`.
//!
//! Like NATS, it delivers at most once, and in order from each publisher to each subscription. What can go wrong (a
//! lost connection, a suspended program, delay, loss) is listed in [`super::script::Fault`]. Messages of different
//! subscriptions of one program may overtake each other, because each subscription has its own task in a real program.

use bytes::Bytes;

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) reply: Option<String>,
    pub(super) body: Bytes,
    /// Whether it says that nobody listened to what was sent with this reply subject.
    pub(super) no_responders: bool,
}

impl Message {
    pub(super) fn new(subject: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            subject: subject.into(),
            reply: None,
            body: body.into(),
            no_responders: false,
        }
    }

    pub(super) fn with_reply(self, reply: impl Into<String>) -> Self {
        Self {
            reply: Some(reply.into()),
            ..self
        }
    }

    /// Returns the last token of the subject.
    pub(super) fn last_token(&self) -> &str {
        self.subject.rsplit('.').next().unwrap_or_default()
    }
}

/// What a program listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pattern: String,
    /// Position of its first wildcard.
    wildcard: Option<usize>,
    /// Of the subscriptions of one group, one gets each message.
    pub(super) group: Option<&'static str>,
}

impl Subscription {
    fn new(pattern: String, group: Option<&'static str>) -> Self {
        Self {
            wildcard: pattern.find(['*', '>']),
            pattern,
            group,
        }
    }

    pub(super) fn to(pattern: impl Into<String>) -> Self {
        Self::new(pattern.into(), None)
    }

    pub(super) fn of_group(pattern: impl Into<String>, group: &'static str) -> Self {
        Self::new(pattern.into(), Some(group))
    }

    /// Returns whether messages on this subject are for it.
    pub(super) fn matches(&self, subject: &str) -> bool {
        // most have no wildcard, and most of the others differ before it
        let Some(wildcard) = self.wildcard else {
            return self.pattern == subject;
        };
        if !subject.starts_with(&self.pattern[..wildcard]) {
            return false;
        }
        let mut tokens = subject.split('.');
        for wanted in self.pattern.split('.') {
            match (wanted, tokens.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (wanted, Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
        tokens.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_nats() {
        for (pattern, subject, matches) in [
            ("a.b", "a.b", true),
            ("a.b", "a", false),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
        ] {
            let subscription = Subscription::to(pattern);
            assert_eq!(
                subscription.matches(subject),
                matches,
                "{pattern} {subject}"
            );
        }
    }
}
