//! Helpers for hand-written SVG and text.

use std::fmt;

use super::number::clean;

/// Appends formatted text to a `String`; that cannot fail.
macro_rules! w {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}
pub(super) use w;

/// Text from a scenario, escaped for use inside an element or a quoted attribute.
pub(super) struct Esc<'a>(pub(super) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in clean(self.0, true).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A length in an image, with at most two decimals and no trailing zeros.
pub(super) struct Len(pub(super) f64);

impl fmt::Display for Len {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            return f.write_str("0");
        }
        let text = format!("{:.2}", self.0);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(if text == "-0" { "0" } else { text })
    }
}

/// Returns JSON that is safe inside a `script` element: without `<`, nothing in it can end the element.
pub(super) fn json_in_script(value: &serde_json::Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        assert_eq!(
            Esc("</script><img onerror='x' alt=\"&\">\0").to_string(),
            "&lt;/script&gt;&lt;img onerror=&#39;x&#39; alt=&quot;&amp;&quot;&gt;\u{fffd}"
        );
        let json = json_in_script(&serde_json::json!({"</script>": "<!--"}));
        assert!(!json.contains('<'));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json).unwrap(),
            serde_json::json!({"</script>": "<!--"})
        );
    }

    #[test]
    fn lengths_are_short() {
        for (value, shown) in [
            (1.0, "1"),
            (0.125, "0.12"),
            (100.0, "100"),
            (-0.001, "0"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(Len(value).to_string(), shown);
        }
    }
}
