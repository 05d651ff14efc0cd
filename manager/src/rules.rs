//! The rules in an app's definition besides the request: crashes and updates. Each has a default and is written only
//! where it differs.

use std::time::Duration;

use placement::{Invalid, Span};
use serde::{Deserialize, Serialize};
use shared::clock::millis;

const fn seconds(s: u64) -> Span {
    Span(Duration::from_secs(s))
}

/// The longest duration that a rule may have.
const MOST: Span = seconds(7 * 24 * 3_600);

/// When an index is started again after it crashed for good on its cell. The defaults are those of Diego.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CrashPolicy {
    /// This many crashes are followed by an immediate start.
    pub immediate: u32,
    /// The wait after the next crash; it doubles with each further one …
    pub wait: Span,
    /// … up to this.
    pub max_wait: Span,
    /// After this many crashes the index is given up; 0 = never.
    pub give_up: u32,
    /// After an instance that ran for longer than this, counting begins again at 1.
    pub reset: Span,
}

impl Default for CrashPolicy {
    fn default() -> Self {
        Self {
            immediate: 2,
            wait: seconds(30),
            max_wait: seconds(16 * 60),
            give_up: 200,
            reset: seconds(5 * 60),
        }
    }
}

impl CrashPolicy {
    /// Returns the count after a crash of an instance that had run for `ran_ms`.
    pub(crate) fn count(&self, before: u32, ran_ms: u64) -> u32 {
        if ran_ms > millis(self.reset.0) {
            return 1;
        }
        before.saturating_add(1)
    }

    /// Returns the milliseconds until the next start after this many crashes; none if the index is given up.
    pub(crate) fn wait_ms(&self, count: u32) -> Option<u64> {
        if self.give_up > 0 && count >= self.give_up {
            return None;
        }
        let Some(doublings) = count.checked_sub(self.immediate + 1) else {
            return Some(0);
        };
        let wait = millis(self.wait.0).saturating_mul(1 << doublings.min(32));
        Some(wait.min(millis(self.max_wait.0)))
    }

    fn check(&self) -> Result<(), Invalid> {
        at_most("crash.immediate", self.immediate, 10)?;
        at_most("crash.give_up", self.give_up, 1_000_000)?;
        within("crash.wait", self.wait, seconds(1))?;
        within("crash.max_wait", self.max_wait, self.wait)?;
        within("crash.reset", self.reset, seconds(1))
    }
}

/// Which of the two instances of an index comes first when it gets a new version or leaves a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// The new one is up before the old one is stopped.
    #[default]
    StartFirst,
    /// The old one is stopped first: for full clusters, and for apps that cannot run twice.
    StopFirst,
}

/// How a new version replaces the old one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpdateRules {
    /// Maximum number of indices that are replaced at once.
    pub max_in_flight: u32,
    /// How long a new instance must have run before the old one is stopped.
    pub min_healthy: Span,
    /// After this long without progress the rollout has failed; 0 = no deadline.
    pub deadline: Span,
    /// Which instance comes first.
    pub order: UpdateOrder,
    /// Whether a failed rollout returns to the version before, once.
    pub auto_revert: bool,
}

impl Default for UpdateRules {
    fn default() -> Self {
        Self {
            max_in_flight: 1,
            min_healthy: seconds(10),
            deadline: seconds(600),
            order: UpdateOrder::StartFirst,
            auto_revert: false,
        }
    }
}

impl UpdateRules {
    fn check(&self) -> Result<(), Invalid> {
        check_in_flight("update.max_in_flight", self.max_in_flight)?;
        within("update.min_healthy", self.min_healthy, seconds(0))?;
        within("update.deadline", self.deadline, seconds(0))
    }
}

/// Checks a number of indices that may be replaced at once.
pub(crate) fn check_in_flight(field: &str, count: u32) -> Result<(), Invalid> {
    if (1..=placement::MAX_INSTANCES).contains(&count) {
        return Ok(());
    }
    let expected = format!("a number from 1 to {}", placement::MAX_INSTANCES);
    Err(Invalid::new(field, count, expected))
}

/// Rejects contradictory or absurd rules.
pub(crate) fn check_rules(crash: &CrashPolicy, update: &UpdateRules) -> Result<(), Invalid> {
    crash.check()?;
    update.check()
}

fn within(field: &str, value: Span, least: Span) -> Result<(), Invalid> {
    if value.0 >= least.0 && value.0 <= MOST.0 {
        return Ok(());
    }
    let expected = format!("a duration from {least} to {MOST}");
    Err(Invalid::new(field, value, expected))
}

fn at_most(field: &str, value: u32, most: u32) -> Result<(), Invalid> {
    if value <= most {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        value,
        format!("a number from 0 to {most}"),
    ))
}
