//! Droplets: work in the form in which DEAs run it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::invalid::Invalid;

/// The most that a droplet takes in a message, bytes.
const MAX_BYTES: usize = 512 << 10;

/// What a cell that runs droplets is told of one: its address, its services, its environment and so on. Nobody on
/// the way there reads it, and it has no text form: it is full of credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Droplet(pub Map<String, Value>);

impl Droplet {
    /// Rejects one that is too large. `field` is its name in the request.
    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        let bytes = serde_json::to_vec(&self.0).map_or(0, |text| text.len());
        if bytes <= MAX_BYTES {
            return Ok(());
        }
        let expected = format!("at most {MAX_BYTES}");
        Err(Invalid::new(field, format!("{bytes} bytes"), expected))
    }
}

impl fmt::Debug for Droplet {
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

    #[test]
    fn a_droplet_has_a_largest_size() {
        let mut droplet = Droplet::default();
        // {"x":"…"}
        droplet
            .0
            .insert("x".into(), "y".repeat(MAX_BYTES - 8).into());
        assert_eq!(droplet.check("d"), Ok(()));
        droplet
            .0
            .insert("x".into(), "y".repeat(MAX_BYTES - 7).into());
        assert_eq!(droplet.check("d").unwrap_err().field, "d");
    }
}
