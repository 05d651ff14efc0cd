//! How a cell finds out whether an instance is healthy and whether it is ready.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, times::Span, words::shorten};

const fn seconds(s: u64) -> Span {
    Span(Duration::from_secs(s))
}

/// The longest duration in a check.
const MOST: Span = seconds(7 * 24 * 3_600);
/// The longest time that a cell waits for one answer.
const MOST_TIMEOUT: Span = seconds(60);
/// The longest path.
const MAX_PATH: usize = 1_024;

/// What is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// Its process exists.
    #[default]
    Process,
    /// Its port accepts a connection.
    Port,
    /// A GET of `path` on its port is answered with 2xx or 3xx.
    Http,
}

/// A check of an instance's health or readiness. Every field has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthCheck {
    /// What is checked.
    pub kind: CheckKind,
    /// The port, for instances that use a fixed one; none means the one that the cell gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path, for `http`.
    pub path: String,
    /// The interval between checks once one has passed.
    pub interval: Span,
    /// How long an answer may take.
    pub timeout: Span,
    /// How many failures in a row count, once a check has passed.
    pub failures: u32,
    /// How long a start may take until the first check passes; has no effect on `ready`.
    pub start_timeout: Span,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            kind: CheckKind::Process,
            port: None,
            path: "/".into(),
            interval: seconds(30),
            timeout: seconds(1),
            failures: 3,
            start_timeout: seconds(60),
        }
    }
}

impl HealthCheck {
    /// Rejects a check that cannot be done or is absurd. `field` is its name in the request; `has_port` tells whether
    /// the cell gives the instance a port.
    pub fn check(&self, field: &str, has_port: bool) -> Result<(), Invalid> {
        let needs_port = self.kind != CheckKind::Process && self.port.is_none();
        if needs_port && !has_port {
            let kind = match self.kind {
                CheckKind::Http => "\"http\" without a port",
                _ => "\"port\" without a port",
            };
            let expected = format!("run.port true, or {field}.port");
            return Err(Invalid::new(format!("{field}.kind"), kind, expected));
        }
        if self.port == Some(0) {
            let expected = "a number from 1 to 65535";
            return Err(Invalid::new(format!("{field}.port"), 0, expected));
        }
        // the first line of a request cannot contain spaces or line ends in the path
        let plain = self.path.bytes().all(|b| b.is_ascii_graphic());
        if !self.path.starts_with('/') || self.path.len() > MAX_PATH || !plain {
            let expected =
                format!("a path of at most {MAX_PATH} visible ASCII characters that begins with /");
            let value = shorten(&self.path);
            return Err(Invalid::new(format!("{field}.path"), value, expected));
        }
        let second = seconds(1);
        within(field, "interval", self.interval, (second, MOST))?;
        let least = Span(Duration::from_millis(10));
        within(field, "timeout", self.timeout, (least, MOST_TIMEOUT))?;
        within(field, "start_timeout", self.start_timeout, (second, MOST))?;
        if (1..=100).contains(&self.failures) {
            return Ok(());
        }
        let expected = "a number from 1 to 100";
        Err(Invalid::new(
            format!("{field}.failures"),
            self.failures,
            expected,
        ))
    }
}

fn within(
    field: &str,
    name: &str,
    value: Span,
    (least, most): (Span, Span),
) -> Result<(), Invalid> {
    if value.0 >= least.0 && value.0 <= most.0 {
        return Ok(());
    }
    let expected = format!("a duration from {least} to {most}");
    Err(Invalid::new(format!("{field}.{name}"), value, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> HealthCheck {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_field_has_a_default() {
        let check = read("{}");
        assert_eq!(check, HealthCheck::default());
        assert_eq!(check.check("health", false), Ok(()));
        assert_eq!(read(&serde_json::to_string(&check).unwrap()), check);
    }

    #[test]
    fn a_check_of_a_port_needs_one() {
        for json in [r#"{"kind":"port"}"#, r#"{"kind":"http"}"#] {
            let refused = read(json).check("ready", false).unwrap_err();
            assert_eq!(refused.field, "ready.kind");
            assert_eq!(read(json).check("ready", true), Ok(()));
        }
        let own = read(r#"{"kind":"port","port":5432}"#);
        assert_eq!(own.check("health", false), Ok(()));
    }

    #[test]
    fn limits_are_exact() {
        let long = format!(r#"{{"path":"/{}"}}"#, "x".repeat(MAX_PATH - 1));
        let fine = [
            r#"{"interval":"1s","timeout":"10ms","start_timeout":"1s","failures":1}"#,
            r#"{"interval":"7d","timeout":"1m","start_timeout":"7d","failures":100}"#,
            r#"{"path":"/up?x=1&y=%20"}"#,
            &long,
        ];
        for json in fine {
            assert_eq!(read(json).check("health", true), Ok(()), "{json}");
        }
        let longer = long.replace("/x", "/xx");
        for (json, field) in [
            (r#"{"interval":"999ms"}"#, "health.interval"),
            (r#"{"interval":"8d"}"#, "health.interval"),
            (r#"{"timeout":"9ms"}"#, "health.timeout"),
            (r#"{"timeout":"61s"}"#, "health.timeout"),
            (r#"{"start_timeout":"0s"}"#, "health.start_timeout"),
            (r#"{"failures":0}"#, "health.failures"),
            (r#"{"failures":101}"#, "health.failures"),
            (r#"{"port":0}"#, "health.port"),
            (r#"{"path":"up"}"#, "health.path"),
            (r#"{"path":""}"#, "health.path"),
            (r#"{"path":"/a b"}"#, "health.path"),
            (r#"{"path":"/a\r\nHost: x"}"#, "health.path"),
            (&longer, "health.path"),
        ] {
            let refused = read(json).check("health", true).unwrap_err();
            assert_eq!(refused.field, field, "{json}: {refused}");
        }
    }
}
