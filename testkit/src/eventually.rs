//! Waits for a condition.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// How long [`eventually`] waits. Generous: only a failing test waits this long.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(20);

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// The result of one check: the value, or what was found instead.
pub trait Check {
    /// What [`eventually`] returns.
    type Value;
    /// Returns the value, or what was found in its place.
    fn found(self) -> Result<Self::Value, String>;
}

impl<T> Check for Option<T> {
    type Value = T;
    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "None".into())
    }
}

impl<T, E: Display> Check for Result<T, E> {
    type Value = T;
    fn found(self) -> Result<T, String> {
        // the alternate form of an anyhow error is its whole chain
        self.map_err(|e| format!("{e:#}"))
    }
}

impl Check for bool {
    type Value = ();
    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".into()) }
    }
}

/// Repeats `look` until it finds what it looks for (`Some`, `Ok` or `true`), for at most 20 seconds; then panics,
/// saying `what` was awaited and what was last seen.
///
/// ```no_run
/// # async fn count() -> usize { 3 }
/// # async fn test() {
/// testkit::eventually("three cells", async || match count().await {
///     3 => Ok(()),
///     n => Err(format!("{n} cells")),
/// })
/// .await;
/// # }
/// ```
#[track_caller]
pub fn eventually<R: Check>(
    what: &str,
    look: impl AsyncFnMut() -> R,
) -> impl Future<Output = R::Value> {
    eventually_within(DEFAULT_DEADLINE, what, look)
}

/// Like [`eventually`], for at most `deadline`. A look that hangs counts as having seen nothing.
#[track_caller]
pub fn eventually_within<R: Check>(
    deadline: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> R,
) -> impl Future<Output = R::Value> {
    let caller = std::panic::Location::caller();
    async move {
        let end = Instant::now() + deadline;
        let mut last = "nothing: the first look did not end".to_string();
        while let Ok(seen) = timeout_at(end, look()).await {
            match seen.found() {
                Ok(value) => return value,
                Err(seen) => last = seen,
            }
            if Instant::now() >= end {
                break;
            }
            sleep(PAUSE).await;
        }
        panic!("{caller}: waited {deadline:?} for {what}; last seen: {last}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_what_comes_true() {
        let mut looks = 0;
        let value = eventually("the third look", async || {
            looks += 1;
            (looks == 3).then_some("here")
        })
        .await;
        assert_eq!((value, looks), ("here", 3));
        eventually("true", async || true).await;
    }

    #[tokio::test]
    #[should_panic(expected = "for four; last seen: only 3")]
    async fn a_failure_shows_what_was_last_seen() {
        let look = async || Err::<(), _>("only 3");
        eventually_within(Duration::from_millis(30), "four", look).await;
    }

    #[tokio::test]
    #[should_panic(expected = "the first look did not end")]
    async fn a_look_that_hangs_does_not_hang_the_test() {
        let look = async || std::future::pending::<bool>().await;
        eventually_within(Duration::from_millis(30), "an end", look).await;
    }
}
