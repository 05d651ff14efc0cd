//! Sources: archives that instances are made from.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, words::shorten};

/// The longest address, in bytes.
const MAX_URL: usize = 2_048;
/// The longest part of an address that messages show, in bytes.
const MAX_SHOWN: usize = 100;
/// The number of digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

/// An archive that an instance is made from: its cell fetches it, checks it, and unpacks it into the instance's
/// directory before the command runs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSource {
    /// The address: `http://…` or `https://…`. It may contain credentials, so no message or log shows it unchanged: see
    /// [`RunSource::shown_url`].
    pub url: String,
    /// The SHA-256 of the content: 64 lower-case hexadecimal digits. Also its name among the cells' cached blobs.
    pub sha256: String,
}

impl RunSource {
    /// Rejects addresses other than `http` and `https`, and invalid SHA-256s. `field` is its name in the request. The
    /// errors do not show the address.
    pub(crate) fn check(&self, field: &str) -> Result<(), Invalid> {
        check_url(|| format!("{field}.url"), &self.url)?;
        if !is_sha256(&self.sha256) {
            let expected = "64 hexadecimal digits in lower case, as sha256sum prints them";
            return Err(Invalid::new(
                format!("{field}.sha256"),
                shorten(&self.sha256),
                expected,
            ));
        }
        Ok(())
    }

    /// Returns the address in a form that may be shown; see [`shown_url`].
    pub fn shown_url(&self) -> String {
        shown_url(&self.url)
    }
}

/// Omits the full address, which may contain credentials.
impl fmt::Debug for RunSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.shown_url();
        let mut shown = f.debug_struct("RunSource");
        shown.field("url", &url).field("sha256", &self.sha256);
        shown.finish()
    }
}

/// Rejects addresses that cannot be fetched by `http` or `https`. The error does not show the address.
pub(crate) fn check_url(field: impl FnOnce() -> String, url: &str) -> Result<(), Invalid> {
    if url.len() <= MAX_URL && is_url(url) {
        return Ok(());
    }
    let value = format!("a text of {} bytes", url.len());
    let expected = format!(
        "an address of at most {MAX_URL} bytes that begins with http:// or https:// and a host, without spaces"
    );
    Err(Invalid::new(field(), value, expected))
}

/// Returns an address without credentials, query and fragment, cut to 100 bytes, for messages.
pub fn shown_url(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = bare.split_once("://") else {
        return "no address".into();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if !is_host(host_of(authority)) {
        return "no address".into(); // the rest may be of a password
    }
    let mut shown = format!("{scheme}://{}{path}", host_of(authority));
    if shown.len() > MAX_SHOWN {
        let end = (0..=MAX_SHOWN).rev().find(|at| shown.is_char_boundary(*at));
        shown.truncate(end.unwrap_or(0));
        shown.push('…');
    }
    shown
}

/// Returns whether a text is a SHA-256 in lower-case hexadecimal digits.
pub fn is_sha256(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == SHA256_DIGITS && text.bytes().all(hex)
}

fn is_url(url: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b);
    let schemes = ["http://", "https://"];
    let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        url.bytes().all(allowed) && is_host(host_of(authority))
    })
}

/// Returns what follows the credentials.
fn host_of(authority: &str) -> &str {
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host)
}

/// Returns whether it is a name or an IP address, with a port if there is a colon. It is strict about the port, so that
/// credentials with a `/` or a `?` are not mistaken for a host.
fn is_host(text: &str) -> bool {
    let end = text.find(']').unwrap_or(0);
    let colon = text[end..].find(':').map(|at| end + at);
    let (host, port) = match colon {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let in_brackets = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let fine = if let Some(address) = in_brackets {
        address.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        !host.is_empty() && host.bytes().all(plain)
    };
    let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    fine && port.is_none_or(|port| digits(port) && port.parse::<u16>().is_ok_and(|p| p > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str) -> RunSource {
        RunSource {
            url: url.into(),
            sha256: "0f".repeat(32),
        }
    }

    #[test]
    fn addresses_are_http_or_https_with_a_host() {
        for url in [
            "http://a",
            "https://example.org:8443/web.tar.gz?token=x#y",
            "http://me:secret@127.0.0.1:80/@scope/a",
            "http://[::1]:80/a",
            "http://[::1]/a",
        ] {
            assert_eq!(source(url).check("s"), Ok(()), "{url}");
        }
        for url in [
            "",
            "a.tar.gz",
            "file:///etc/shadow",
            "ftp://a/b",
            "http://",
            "http:///a",
            "http://me:secret@/a",
            "http://a b",
            "http://a/b\n",
            "http://a\\b",
            "http://a:/b",
            "http://a:0/b",
            "http://a:99999/b",
            "http://a:+1/b",
            "http://me:secret/x@host/a",
            "http://me:secret?x@host/a",
            "http://[::1/a",
        ] {
            let refused = source(url).check("run.source").unwrap_err();
            assert_eq!(refused.field, "run.source.url", "{url}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        let long = format!("http://a/{}", "x".repeat(MAX_URL));
        assert!(source(&long).check("s").is_err());
    }

    #[test]
    fn a_sum_is_64_digits_in_lower_case() {
        for sha256 in [
            String::new(),
            "0F".repeat(32),
            "0g".repeat(32),
            "0f".repeat(33),
        ] {
            let wrong = RunSource {
                sha256,
                ..source("http://a")
            };
            assert_eq!(wrong.check("s").unwrap_err().field, "s.sha256");
        }
    }

    #[test]
    fn messages_show_no_credentials() {
        for (url, shown) in [
            ("http://a/b.tar", "http://a/b.tar"),
            (
                "https://me:secret@a:8443/b?key=secret#secret",
                "https://a:8443/b",
            ),
            ("http://secret@a?secret", "http://a"),
            ("http://se@cret@a/@b", "http://a/@b"),
            ("http://me:se/cret@a/b", "no address"),
        ] {
            let source = source(url);
            assert_eq!(source.shown_url(), shown);
            assert!(!format!("{source:?}").contains("secret"));
        }
        let long = source(&format!("http://a/{}", "x".repeat(500))).shown_url();
        assert!(
            long.len() <= MAX_SHOWN + 3 && long.ends_with("x…"),
            "{long}"
        );
    }
}
