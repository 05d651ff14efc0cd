//! Contexts of the `nats` tool: `~/.config/nats/context/NAME.json`, and the name of the selected one in
//! `~/.config/nats/context.txt`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use async_nats::ConnectOptions;
use serde::Deserialize;

use super::{BusError, TlsOptions, nkey_seed};

/// A context, as in its file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) url: String,
    pub(super) token: String,
    pub(super) user: String,
    password: String,
    pub(super) creds: String,
    pub(super) nkey: String,
    pub(super) user_jwt: String,
    user_seed: String,
    cert: String,
    pub(super) key: String,
    ca: String,
    tls_first: bool,
    pub(super) inbox_prefix: String,
}

/// Fields that have no use here: they do not say how to connect, or only concern JetStream or Windows.
const OF_NO_USE: [&str; 10] = [
    "description",
    "color_scheme",
    "jetstream_domain",
    "jetstream_api_prefix",
    "jetstream_event_prefix",
    "windows_cert_store",
    "windows_cert_match",
    "windows_cert_match_by",
    "windows_ca_certs_match",
    "name",
];

/// Returns the names of all contexts, sorted.
pub fn context_names() -> Vec<String> {
    let files = fs::read_dir(home().join("context")).into_iter().flatten();
    let name = |path: PathBuf| {
        let is_context = path.extension().is_some_and(|end| end == "json");
        let name = path.file_stem().filter(|_| is_context)?;
        Some(name.to_string_lossy().into_owned())
    };
    let mut names: Vec<String> = files.flatten().filter_map(|f| name(f.path())).collect();
    names.sort();
    names
}

/// Returns the context that `nats context select` chose.
pub fn selected_context() -> Option<String> {
    let name = fs::read_to_string(home().join("context.txt")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns where the `nats` tool keeps its settings.
fn home() -> PathBuf {
    let given = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty());
    let config = given.map(PathBuf::from);
    let config = config.or_else(|| Some(user_home()?.join(".config")));
    config.unwrap_or_default().join("nats")
}

fn user_home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// Expands `~` and `~/...` as a shell does.
pub(super) fn path(text: &str) -> PathBuf {
    match (text.strip_prefix('~'), user_home()) {
        (Some(""), Some(home)) => home,
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => PathBuf::from(text),
    }
}

pub(super) fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "json")
}

/// Returns the file of the context with this name.
pub(super) fn file(name: &str) -> PathBuf {
    if is_file(name) {
        path(name)
    } else {
        home().join("context").join(format!("{name}.json"))
    }
}

/// Reads the context with this name or in this file (`….json`), and returns it with the fields that have no effect.
pub(super) fn read(name: &str) -> Result<(Context, Vec<String>), BusError> {
    let is_file = is_file(name);
    let file = file(name);
    let refuse = |why: String| BusError::Options {
        what: format!("context {name} ({})", file.display()),
        why,
    };
    if !is_file && (name.is_empty() || name.contains(['/', '\\']) || name.contains("..")) {
        return Err(refuse(
            "a context's name has no / and no ..; a file's name ends with .json".to_owned(),
        ));
    }
    let text = fs::read_to_string(&file).map_err(|e| {
        if is_file {
            return refuse(e.to_string());
        }
        let known = context_names();
        let hint = match known.as_slice() {
            [] => "there are no contexts".to_owned(),
            known => format!("there are {}", known.join(", ")),
        };
        refuse(format!("{e}; {hint}"))
    })?;
    parse(&text).map_err(refuse)
}

fn parse(text: &str) -> Result<(Context, Vec<String>), String> {
    let mut unknown = Vec::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let read: Result<Context, _> = serde_ignored::deserialize(&mut json, |field| {
        unknown.push(field.to_string());
    });
    let context = read.and_then(|context| json.end().map(|()| context));
    let context = context.map_err(|e| e.to_string())?;
    // the tool writes all of its fields, most of them empty
    let fields: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    unknown.retain(|field| {
        let empty = [serde_json::Value::Null, "".into(), false.into()];
        !OF_NO_USE.contains(&field.as_str()) && !empty.contains(&fields[field])
    });
    Ok((context, unknown))
}

impl Context {
    /// Returns whether it contains a secret, and not only the name of a file with one.
    pub(super) fn has_secret(&self) -> bool {
        let secrets = [&self.token, &self.password, &self.user_seed];
        secrets.iter().any(|secret| !secret.is_empty()) || self.url.contains('@')
    }

    /// Applies its user, credentials, nkey or token, in the order in which the tool looks for them.
    pub(super) async fn authenticate(
        &self,
        connect: ConnectOptions,
    ) -> Result<ConnectOptions, BusError> {
        let refuse = |what: &str, file: &Path, why: std::io::Error| BusError::Options {
            what: format!("{what} file {}", file.display()),
            why: why.to_string(),
        };
        if let Some(user) = non_empty(&self.user) {
            return Ok(connect.user_and_password(user.to_owned(), self.password.clone()));
        }
        if let Some(creds) = non_empty(&self.creds).map(path) {
            let with = connect.credentials_file(&creds).await;
            return with.map_err(|e| refuse("credentials", &creds, e));
        }
        let nkey = non_empty(&self.nkey).map(path);
        let nkey = nkey.map(|file| nkey_seed(&file)).transpose()?;
        if let Some(jwt) = non_empty(&self.user_jwt) {
            let seed = non_empty(&self.user_seed).or(nkey.as_deref());
            let with = connect.credentials(&as_creds(jwt, seed.unwrap_or_default()));
            return with.map_err(|e| BusError::Options {
                what: "user_jwt with user_seed or nkey".to_owned(),
                why: e.to_string(),
            });
        }
        Ok(match (nkey, non_empty(&self.token)) {
            (Some(seed), _) => connect.nkey(seed),
            (None, Some(token)) => connect.token(token.to_owned()),
            (None, None) => connect,
        })
    }

    /// Returns its TLS files and how TLS starts.
    pub(super) fn tls(&self) -> TlsOptions {
        TlsOptions {
            ca: non_empty(&self.ca).map(path),
            cert: non_empty(&self.cert).map(path),
            key: non_empty(&self.key).map(path),
            first: self.tls_first,
        }
    }
}

/// Formats a JWT and a seed like a credentials file.
fn as_creds(jwt: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt.trim(),
        seed.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_named_unless_it_is_empty_or_of_no_use() {
        let text = r#"{"description":"mine","url":"nats://h","token":"","nsc":"","socks_proxy":"x:1",
                       "jetstream_domain":"d","tls_first":true,"colour":"red"}"#;
        let (context, unknown) = parse(text).unwrap();
        assert_eq!(
            (context.url.as_str(), context.tls_first),
            ("nats://h", true)
        );
        assert_eq!(unknown, ["socks_proxy", "colour"]);
        assert!(
            parse("{\"url\":3}")
                .unwrap_err()
                .contains("expected a string")
        );
        assert!(parse("{} x").is_err());
    }

    #[test]
    fn a_name_leads_to_no_other_directory() {
        for name in ["", "../x", "a/b", ".."] {
            let error = read(name).unwrap_err().to_string();
            assert!(error.contains("a context's name"), "{name}: {error}");
        }
    }

    #[test]
    fn paths_begin_at_home() {
        let home = user_home().unwrap();
        assert_eq!(path("~/a/b.creds"), home.join("a/b.creds"));
        assert_eq!(path("~"), home);
        for text in ["/etc/x", "x", "~other/x"] {
            assert_eq!(path(text), PathBuf::from(text), "{text}");
        }
    }
}
