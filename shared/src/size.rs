//! Sizes of memory and disk as people write them.

/// Why [`parse_mib`] rejected a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a size, or too large.
    #[error("expected a size: a number of MiB such as 512, or one with a unit such as 64M or 1.5G")]
    NotASize,
    /// The unit is unknown.
    #[error("unknown unit {0:?}; expected K, M, G or T (each also as KiB, MiB, ...)")]
    Unit(String),
    /// Not a whole number of MiB.
    #[error("expected a whole number of MiB")]
    Fraction,
}

/// The most characters of an unknown unit that an error shows.
const MAX_UNIT_CHARS: usize = 16;
/// The most digits after the decimal point.
const MAX_DECIMALS: usize = 6;

/// Parses a size and returns MiB: `512`, `64M`, `512MiB`, `1.5G`, `2 TB`.
///
/// Without a unit the number is in MiB. All units are powers of 1024, with or without the `i`, in upper or lower case.
/// Only whole, non-negative numbers of MiB are accepted.
pub fn parse_mib(text: &str) -> Result<i64, SizeError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let readable = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !readable(whole) || !readable(decimals) || decimals.len() > MAX_DECIMALS {
        return Err(SizeError::NotASize);
    }
    let kib = kib_of_unit(unit.trim())?;
    // all digits without the point, to avoid rounding
    let digits: u128 = [whole, decimals]
        .concat()
        .parse()
        .map_err(|_| SizeError::NotASize)?;
    let scaled = digits.checked_mul(kib).ok_or(SizeError::NotASize)?;
    let kib_in_mib = 1_024 * 10_u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
    if scaled % kib_in_mib != 0 {
        return Err(SizeError::Fraction);
    }
    i64::try_from(scaled / kib_in_mib).map_err(|_| SizeError::NotASize)
}

fn kib_of_unit(unit: &str) -> Result<u128, SizeError> {
    let lower = unit.to_ascii_lowercase();
    match lower.as_str() {
        "k" | "kb" | "kib" => Ok(1),
        "" | "m" | "mb" | "mib" => Ok(1_024),
        "g" | "gb" | "gib" => Ok(1_024 * 1_024),
        "t" | "tb" | "tib" => Ok(1_024 * 1_024 * 1_024),
        _ => Err(SizeError::Unit(unit.chars().take(MAX_UNIT_CHARS).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, mib) in [
            ("0", 0),
            ("512", 512),
            ("64M", 64),
            ("64m", 64),
            ("512MiB", 512),
            ("512MB", 512),
            ("1G", 1_024),
            ("1.5G", 1_536),
            ("1.50 GiB", 1_536),
            ("2TB", 2 * 1_024 * 1_024),
            ("2048K", 2),
            (" 7 ", 7),
            ("7.0", 7),
        ] {
            assert_eq!(parse_mib(text), Ok(mib), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_was_expected() {
        for text in [
            "",
            "M",
            "-1",
            "1..5G",
            "1.G",
            ".5G",
            "1.2.3",
            "1.0000001G",
            "x",
        ] {
            assert_eq!(parse_mib(text), Err(SizeError::NotASize), "{text}");
        }
        for text in [
            "9223372036854775808",
            "9223372036854775807G",
            &"9".repeat(60),
        ] {
            assert_eq!(parse_mib(text), Err(SizeError::NotASize), "{text}");
        }
        assert_eq!(parse_mib("9223372036854775807"), Ok(i64::MAX));
        for text in ["100K", "0.5", "1.0001G"] {
            assert_eq!(parse_mib(text), Err(SizeError::Fraction), "{text}");
        }
        assert_eq!(parse_mib("64X"), Err(SizeError::Unit("X".into())));
        assert_eq!(parse_mib("1 gram"), Err(SizeError::Unit("gram".into())));
        let error = parse_mib("64X").unwrap_err().to_string();
        assert!(error.contains("\"X\"") && error.contains("KiB"), "{error}");
    }
}
