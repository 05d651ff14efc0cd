//! Droplets and their staging: work in the form that DEAs run.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{invalid::Invalid, source::check_url};

/// The largest size of a droplet or its staging in a message, in bytes.
const MAX_BYTES: usize = 512 << 10;

/// What a cell that runs droplets is told about one: its address, services, environment and so on. Nobody on the way
/// reads it, and it has no text form, because it is full of credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Droplet(pub Map<String, Value>);

impl Droplet {
    /// Rejects a droplet that is too large, one without an address that a cell can fetch, and NUL in any text: cells
    /// pass on texts that end with one. `field` is its name in the request; the errors show nothing else of it.
    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        check(&self.0, field, &["uri"])
    }
}

/// What a cell that stages apps is told about one: the address of its source, the address for its droplet, its
/// services, environment and so on. As with a [`Droplet`], nobody on the way reads it, and it has no text form.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Staging(pub Map<String, Value>);

impl Staging {
    /// Rejects the same as [`Droplet::check`], with two addresses.
    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        check(&self.0, field, &["download_uri", "upload_uri"])
    }
}

fn check(map: &Map<String, Value>, field: &str, addresses: &[&str]) -> Result<(), Invalid> {
    let bytes = serde_json::to_vec(map).map_or(0, |text| text.len());
    if bytes > MAX_BYTES {
        let expected = format!("at most {MAX_BYTES}");
        return Err(Invalid::new(field, format!("{bytes} bytes"), expected));
    }
    for address in addresses {
        let uri = map.get(*address).and_then(Value::as_str);
        check_url(|| format!("{field}.{address}"), uri.unwrap_or_default())?;
    }
    for (name, value) in map {
        if name.contains('\0') || has_nul(value) {
            let name = name.replace('\0', "");
            let field = format!("{field}.{}", crate::words::cut(&name));
            return Err(Invalid::new(field, "a text with NUL", "one without"));
        }
    }
    Ok(())
}

/// Returns whether any text in a value contains a NUL. A value is no deeper than its JSON was.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_nul),
        Value::Object(map) => map
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl fmt::Debug for Droplet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_droplet_is_carried_as_it_is_and_never_shown() {
        let text = r#"{"services":[{"credentials":{"uri":"secret"}}],"uri":"http://me:secret@a"}"#;
        let droplet: Droplet = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&droplet).unwrap(), text);
        assert_eq!(format!("{droplet:?}"), "(hidden)");
        assert_eq!(droplet.check("run.droplet"), Ok(()));
        for other in ["[]", "\"x\"", "null", "1"] {
            assert!(serde_json::from_str::<Droplet>(other).is_err(), "{other}");
        }
    }

    fn droplet(text: &str) -> Droplet {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_droplet_has_a_largest_size() {
        let mut droplet = droplet(r#"{"uri":"http://a"}"#);
        let room = MAX_BYTES - r#"{"uri":"http://a","x":""}"#.len();
        droplet.0.insert("x".into(), "y".repeat(room).into());
        assert_eq!(droplet.check("d"), Ok(()));
        droplet.0.insert("x".into(), "y".repeat(room + 1).into());
        assert_eq!(droplet.check("d").unwrap_err().field, "d");
    }

    #[test]
    fn a_droplet_is_at_an_address_that_can_be_fetched() {
        let long = format!("http://a/{}", "x".repeat(3_000));
        for uri in [
            "",
            "a.tgz",
            "file:///etc/shadow",
            "http://x/\u{0}secret",
            "http://x/\nsecret",
            "http://me:se/cret@a/d",
            &long,
        ] {
            let refused = Droplet(serde_json::Map::from_iter([("uri".into(), uri.into())]));
            let refused = refused.check("run.droplet").unwrap_err();
            assert_eq!(refused.field, "run.droplet.uri", "{uri:?}");
            assert!(!refused.to_string().contains("cret"), "{refused}");
        }
        for other in ["{}", r#"{"uri":1}"#, r#"{"uri":null}"#] {
            assert!(droplet(other).check("d").is_err(), "{other}");
        }
    }

    #[test]
    fn staging_has_two_addresses_and_is_never_shown() {
        let text = r#"{"download_uri":"http://me:secret@a","upload_uri":"http://b"}"#;
        let staging: Staging = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&staging).unwrap(), text);
        assert_eq!(format!("{staging:?}"), "(hidden)");
        assert_eq!(staging.check("run.staging"), Ok(()));
        for (lacking, field) in [
            (r#"{"upload_uri":"http://b"}"#, "s.download_uri"),
            (r#"{"download_uri":"http://a"}"#, "s.upload_uri"),
            (
                r#"{"download_uri":"http://a","upload_uri":"file:///b"}"#,
                "s.upload_uri",
            ),
            (
                r#"{"download_uri":"http://a","upload_uri":"http://b","x":["\u0000"]}"#,
                "s.x",
            ),
        ] {
            let staging: Staging = serde_json::from_str(lacking).unwrap();
            assert_eq!(staging.check("s").unwrap_err().field, field, "{lacking}");
        }
    }

    #[test]
    fn no_text_of_a_droplet_has_a_nul() {
        for (more, field) in [
            (r#""start_command":"a\u0000b""#, "d.start_command"),
            (
                r#""services":[{"credentials":{"x":"\u0000"}}]"#,
                "d.services",
            ),
            (r#""environment":{"\u0000":"x"}"#, "d.environment"),
            (r#""debug\u0000":null"#, "d.debug"),
        ] {
            let bad = droplet(&format!(r#"{{"uri":"http://a",{more}}}"#));
            assert_eq!(bad.check("d").unwrap_err().field, field);
        }
    }
}
