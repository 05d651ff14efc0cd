//! Numbers as text: thousands separated by commas, three significant digits, one unit per row.

use std::borrow::Cow;

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A count, or a number without a unit.
    Count,
    /// Milliseconds.
    Ms,
    /// MiB.
    Mebibytes,
    /// Bytes.
    Bytes,
    /// 0 to 1, shown in per cent.
    Share,
    /// A sum of money: two decimals.
    Money,
}

/// How a row of numbers is shown, all in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    factor: f64,
    /// `ms`, `GiB`, `%`, …; empty for counts.
    pub(super) suffix: &'static str,
    decimals: Option<usize>,
    /// Whether some numbers of the row are not whole, so that all of them show decimals.
    mixed: bool,
}

const KIB: f64 = 1024.0;
const SECOND: f64 = 1000.0;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;

impl Unit {
    /// Returns the scale for a row whose largest number is `largest`.
    pub(super) fn scale(self, largest: f64) -> Scale {
        let largest = largest.abs();
        let steps: &[(f64, f64, &str)] = match self {
            Unit::Count => &[(0.0, 1.0, "")],
            Unit::Money => &[(0.0, 1.0, "")],
            Unit::Share => &[(0.0, 0.01, "%")],
            Unit::Ms => &[
                (0.0, 1.0, "ms"),
                (SECOND, SECOND, "s"),
                (2.0 * MINUTE, MINUTE, "min"),
                (2.0 * HOUR, HOUR, "h"),
                (96.0 * HOUR, 24.0 * HOUR, "d"),
            ],
            Unit::Mebibytes => &[
                (0.0, 1.0, "MiB"),
                (KIB, KIB, "GiB"),
                (10.0 * KIB * KIB, KIB * KIB, "TiB"),
            ],
            Unit::Bytes => &[
                (0.0, 1.0, "B"),
                (10.0 * KIB, KIB, "KiB"),
                (10.0 * KIB * KIB, KIB * KIB, "MiB"),
                (10.0 * KIB * KIB * KIB, KIB * KIB * KIB, "GiB"),
            ],
        };
        let (_, factor, suffix) = steps
            .iter()
            .rev()
            .find(|(from, _, _)| largest >= *from)
            .unwrap_or(&steps[0]);
        let decimals = (self == Unit::Money).then_some(2);
        Scale {
            factor: *factor,
            suffix,
            decimals,
            mixed: false,
        }
    }

    /// Formats a number with its unit, on its own scale.
    pub(super) fn show(self, value: f64) -> String {
        let scale = self.scale(value);
        scale.name(&scale.number(value))
    }

    /// Formats it without trailing zeros.
    pub(super) fn short(self, value: f64) -> String {
        let scale = self.scale(value);
        scale.name(&scale.short(value))
    }
}

impl Scale {
    /// Returns the scale of a row with just these numbers.
    pub(super) fn of_row(unit: Unit, numbers: impl Iterator<Item = f64> + Clone) -> Scale {
        let largest = numbers.clone().fold(0.0_f64, |most, n| most.max(n.abs()));
        let mut scale = unit.scale(largest);
        scale.mixed = numbers
            .into_iter()
            .any(|n| (n / scale.factor).fract() != 0.0);
        scale
    }

    /// Formats a number without its unit.
    pub(super) fn number(&self, value: f64) -> String {
        let value = value / self.factor;
        match self.decimals {
            Some(decimals) => fixed(value, decimals),
            None if self.mixed && value.abs() >= 1.0 => three_digits(value),
            None => significant(value),
        }
    }

    /// Formats it without trailing zeros.
    pub(super) fn short(&self, value: f64) -> String {
        short(value / self.factor)
    }

    /// Appends the unit of this scale to a number.
    pub(super) fn name(&self, number: &str) -> String {
        if self.suffix.is_empty() {
            number.to_owned()
        } else {
            format!("{number}\u{a0}{}", self.suffix)
        }
    }
}

/// Formats with three significant digits, at most three after the point; whole numbers as such.
pub(super) fn significant(value: f64) -> String {
    let size = value.abs();
    if size > 0.0 && size < 0.000_5 {
        // a number above 0 is never shown as 0
        return "<0.001".to_owned();
    }
    if value.fract() == 0.0 {
        fixed(value, 0)
    } else {
        three_digits(value)
    }
}

/// Formats with three digits, at most three of them after the point.
fn three_digits(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    fixed(value, decimals)
}

/// Formats like [`significant`] without trailing zeros, for the bounds of classes and the ticks of axes.
pub(super) fn short(value: f64) -> String {
    let shown = significant(value);
    if shown.contains('.') {
        shown.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        shown
    }
}

/// Formats with a fixed number of decimals, thousands separated by commas; `–` if not finite.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, part) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut shown = String::with_capacity(plain.len() + 8);
    if value < 0.0 && plain.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        shown.push('−');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if !part.is_empty() {
        shown.push('.');
        shown.push_str(part);
    }
    shown
}

/// Returns a part in per cent of the whole, with one decimal; `–` if the whole is 0.
pub(super) fn percent(part: i64, whole: i64) -> String {
    if whole <= 0 {
        return "–".to_owned();
    }
    format!("{}\u{a0}%", fixed(part as f64 / whole as f64 * 100.0, 1))
}

/// Formats a whole number, thousands separated by commas.
pub(super) fn whole(value: u64) -> String {
    fixed(value as f64, 0)
}

/// Formats a count: `1 cell`, `2 cells`.
pub(super) fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{}\u{a0}{one}{plural}", whole(count))
}

/// Makes text of a scenario harmless to a terminal and a page: control characters and those that change the direction
/// of writing are replaced; line ends and tabs stay if `lines` is set.
pub(super) fn clean(text: &str, lines: bool) -> Cow<'_, str> {
    let bad = |c: char| {
        (c.is_control() && !(lines && (c == '\n' || c == '\t')))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    if text.contains(bad) {
        Cow::Owned(
            text.chars()
                .map(|c| if bad(c) { '\u{fffd}' } else { c })
                .collect(),
        )
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns a step for the ticks of an axis from 0 to `largest`: 1, 2, 2.5 or 5 times a power of ten, with at most
/// `most` steps.
pub(super) fn nice_step(largest: f64, most: usize) -> f64 {
    let least = largest / most.max(1) as f64;
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// Returns the same for time in milliseconds, in steps that are usual on clocks.
pub(super) fn nice_time_step(largest_ms: f64, most: usize) -> f64 {
    const STEPS: [f64; 22] = [
        1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4,
        3e5, 6e5, 18e5, 36e5, 72e5, 216e5,
    ];
    let least = largest_ms / most.max(1) as f64;
    let days = 24.0 * HOUR;
    STEPS
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or_else(|| {
            let half_days = 12.0 * HOUR;
            if least <= half_days {
                half_days
            } else {
                nice_step(largest_ms / days, most).max(1.0) * days
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_and_three_digits_count() {
        for (value, shown) in [
            (0.0, "0"),
            (1.0, "1"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (250_000.0, "250,000"),
            (1_234_567.8, "1,234,568"),
            (12.345, "12.3"),
            (1.2345, "1.23"),
            (0.012_345, "0.012"),
            (0.000_01, "<0.001"),
            (-1234.0, "−1,234"),
            (-0.0, "0"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(significant(value), shown, "{value}");
        }
    }

    #[test]
    fn a_unit_fits_the_largest_number_of_its_row() {
        for (unit, value, shown) in [
            (Unit::Ms, 12.5, "12.5\u{a0}ms"),
            (Unit::Ms, 1500.0, "1.50\u{a0}s"),
            (Unit::Ms, 172_800_000.0, "48\u{a0}h"),
            (Unit::Mebibytes, 65536.0, "64\u{a0}GiB"),
            (Unit::Mebibytes, 512.0, "512\u{a0}MiB"),
            (Unit::Bytes, 1_048_576.0, "1,024\u{a0}KiB"),
            (Unit::Share, 0.615, "61.5\u{a0}%"),
            (Unit::Money, 1234.5, "1,234.50"),
            (Unit::Count, 5.0, "5"),
        ] {
            assert_eq!(unit.show(value), shown);
        }
        // one scale per row: a value that is small next to the largest keeps the row's unit
        let row = Scale::of_row(Unit::Ms, [5000.0, 20.0].into_iter());
        assert_eq!(row.number(5000.0), "5.00");
        assert_eq!(row.short(20.0), "0.02");
        assert_eq!(row.number(20.0), "0.020");
    }

    #[test]
    fn control_characters_do_not_pass() {
        assert_eq!(clean("a\u{1b}[31mb\n", false), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(clean("a\n\tb\r", true), "a\n\tb\u{fffd}");
        assert_eq!(clean("x\u{202e}y", true), "x\u{fffd}y");
        assert_eq!(clean("köln 東京", false), "köln 東京");
    }

    #[test]
    fn ticks_are_round() {
        assert!((nice_step(97.0, 4) - 25.0).abs() < 1e-9);
        assert!((nice_step(100.0, 5) - 20.0).abs() < 1e-9);
        assert!((nice_step(0.0, 4) - 1.0).abs() < 1e-9);
        assert!((nice_time_step(48.0 * HOUR, 4) - 12.0 * HOUR).abs() < 1e-9);
        assert!((nice_time_step(10.0 * 24.0 * HOUR, 4) - 2.5 * 24.0 * HOUR).abs() < 1e-9);
        assert!((nice_time_step(7000.0, 4) - 2000.0).abs() < 1e-9);
    }
}
