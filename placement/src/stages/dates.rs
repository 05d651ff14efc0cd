//! Dates that operators set, as milliseconds since the Unix epoch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch of an RFC 3339 date or a day such as `2026-12-01`; none when it
/// is neither.
pub fn date_ms(text: &str) -> Option<i64> {
    let parsed = if text.len() == 10 {
        humantime::parse_rfc3339(&format!("{text}T00:00:00Z"))
    } else {
        humantime::parse_rfc3339_weak(text)
    };
    parsed.ok().and_then(epoch_ms)
}

/// A platform stamp, `YYYYMMDDTHHMMSSZ`; none when it is not one.
pub(crate) fn stamp_ms(stamp: &str) -> Option<i64> {
    let digits = |range: std::ops::Range<usize>| {
        let part = stamp.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then_some(part)
    };
    let shape = stamp.len() == 16 && stamp.get(8..9) == Some("T") && stamp.ends_with('Z');
    if !shape {
        return None;
    }
    let (year, month, day) = (digits(0..4)?, digits(4..6)?, digits(6..8)?);
    let (hour, minute, second) = (digits(9..11)?, digits(11..13)?, digits(13..15)?);
    date_ms(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

/// A span such as `"2h"`; none when it is not one.
pub(crate) fn span(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

fn epoch_ms(time: SystemTime) -> Option<i64> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).ok(),
        Err(before) => i64::try_from(before.duration().as_millis())
            .ok()
            .map(|ms| -ms),
    }
}

/// The planned reboot, unless it is past: before now, or before the last boot.
pub(crate) fn planned_reboot_ms(cell: &crate::Cell, now_ms: i64) -> Option<i64> {
    let planned = date_ms(cell.next_reboot.as_deref()?)?;
    let booted = cell.last_boot.as_deref().and_then(date_ms);
    (planned >= now_ms && booted.is_none_or(|booted| planned >= booted)).then_some(planned)
}
