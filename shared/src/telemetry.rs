//! Logging to standard error: text at a terminal, JSON in containers.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing_subscriber::EnvFilter;

/// Checks a filter; an error says what is wrong with it and what a filter looks like.
pub fn check(filter: &str) -> Result<(), String> {
    let words = || filter.split(',').map(str::trim);
    // the library takes any word for the name of a module
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_:[]{}.=\"-".contains(c);
        !name.is_empty() && name.chars().all(plain)
    };
    let fault = match EnvFilter::try_new(filter) {
        Err(e) => Some(e.to_string()),
        Ok(_) => words()
            .find(|word| !is_name(word))
            .map(|_| "no filter".to_owned()),
    };
    fault.map_or(Ok(()), |fault| {
        Err(format!(
            "{fault}; expected error, warn, info, debug, trace or off, for all or by part, such as \
             info or warn,rep=debug"
        ))
    })
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text when standard error is a terminal, else JSON.
    #[default]
    Auto,
    /// For people.
    Text,
    /// JSON, one object per line.
    Json,
}

/// Starts logging; `filter` is a tracing directive such as `"info"` or `"rep=debug"`. The NATS client's own lines are
/// suppressed unless the filter names `async_nats`, because our own errors and log lines report the state of the
/// connection. Later calls have no effect.
pub fn init(filter: &str, format: LogFormat) {
    let filter = if filter.contains("async_nats") {
        filter.to_owned()
    } else {
        format!("{filter},async_nats=off")
    };
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let json = format == LogFormat::Json || (format == LogFormat::Auto && !terminal);
    let _ = if json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
}

/// The time between two lines about the same thing.
const SELDOM: Duration = Duration::from_secs(10);

/// Something that strangers can cause as often as they like, and that is rarely logged.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Creates one that has not been logged yet.
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Records that it happened this many times. If the next line is due, returns how often it happened since the last
    /// one.
    pub fn happened(&self, now: Instant, times: u64) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged, since) = &mut *state;
        *since += times;
        let early = logged.is_some_and(|at| now.duration_since(at) < SELDOM);
        if early || *since == 0 {
            return None;
        }
        *logged = Some(now);
        Some(std::mem::take(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_refused_with_what_one_is() {
        for good in [
            "info",
            "off",
            "rep=debug",
            "warn,rep=debug,auctioneer=trace",
            "a::b=info",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["!!", "", "rep=loud", "info,,", "a b"] {
            let error = check(bad).unwrap_err();
            assert!(error.contains("warn,rep=debug"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_happens_often_is_logged_seldom_and_counted() {
        let (seldom, start) = (Seldom::new(), Instant::now());
        assert_eq!(seldom.happened(start, 0), None);
        assert_eq!(seldom.happened(start, 1), Some(1));
        assert_eq!(seldom.happened(start + SELDOM / 2, 3), None);
        assert_eq!(seldom.happened(start + SELDOM, 1), Some(4));
    }
}
