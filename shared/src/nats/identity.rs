//! Who a connection is. A server's permissions are about subjects, so the name must be part of the subjects that belong
//! to the connection: its inboxes, and the answers to its broadcasts.

use std::path::Path;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use placement::check_name;

use super::{
    BusError, Context, NatsOptions, UserInfo,
    context::{non_empty, path},
};

/// The prefix of every inbox: programs answer nowhere else.
const INBOX: &str = "_INBOX";

/// Returns the name that was given, or that of the context's inboxes or of the credentials. Credentials whose name
/// cannot be a token have none.
pub(super) fn given(
    options: &NatsOptions,
    context: &Context,
    userinfo: Option<&UserInfo>,
) -> Result<Option<String>, BusError> {
    if let Some(identity) = &options.identity {
        check_name("identity", identity).map_err(|invalid| BusError::Options {
            what: "identity".to_owned(),
            why: format!(
                "{} is not allowed; expected {}",
                invalid.value, invalid.expected
            ),
        })?;
        return Ok(Some(identity.clone()));
    }
    let of_inbox = inbox_setting(options, context).strip_prefix("_INBOX.");
    let of_inbox = of_inbox.map(|rest| rest.split('.').next().unwrap_or(rest).to_owned());
    let name = of_inbox.or_else(|| of_credentials(options, context, userinfo));
    Ok(name.filter(|name| check_name("identity", name).is_ok()))
}

/// Returns the name of the credentials, in the order in which they are used to connect.
fn of_credentials(
    options: &NatsOptions,
    context: &Context,
    userinfo: Option<&UserInfo>,
) -> Option<String> {
    let of_file = |file: &Path| of_creds(&std::fs::read_to_string(file).ok()?);
    if let Some(file) = &options.creds {
        return of_file(file);
    }
    if let Some(file) = &options.nkey {
        return stem(file);
    }
    if let Some((user, password)) = userinfo {
        // without a password it is a token, which is a secret
        return password.as_ref().map(|_| user.clone());
    }
    if let Some(user) = non_empty(&context.user) {
        return Some(user.to_owned());
    }
    if let Some(file) = non_empty(&context.creds) {
        return of_file(&path(file));
    }
    if let Some(jwt) = non_empty(&context.user_jwt) {
        return of_jwt(jwt);
    }
    stem(Path::new(non_empty(&context.nkey)?))
}

/// Returns the name of an nkey file without its extension.
fn stem(file: &Path) -> Option<String> {
    Some(file.file_stem()?.to_string_lossy().into_owned())
}

/// Returns the setting for inboxes, given here or in the context; empty if none.
fn inbox_setting<'a>(options: &'a NatsOptions, context: &'a Context) -> &'a str {
    let given = options.inbox_prefix.as_deref();
    given.unwrap_or(&context.inbox_prefix)
}

/// Returns the user's name in a credentials file.
fn of_creds(creds: &str) -> Option<String> {
    let mut lines = creds.lines().map(str::trim);
    lines.find(|line| line.contains("BEGIN NATS USER JWT"))?;
    of_jwt(lines.next()?)
}

/// Returns the user's name in a JWT.
fn of_jwt(jwt: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Claims {
        name: String,
    }
    let claims = jwt.trim().split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.as_bytes()).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Some(claims.name)
}

/// Returns the identity of a connection whose options and credentials do not give one.
pub(super) fn of_connection(name: &str) -> String {
    if check_name("identity", name).is_ok() {
        return name.to_owned();
    }
    uuid::Uuid::new_v4().simple().to_string()
}

/// Returns the prefix of the inboxes for answers to our requests.
pub(super) fn inbox_prefix(
    options: &NatsOptions,
    context: &Context,
    identity: &str,
) -> Result<String, BusError> {
    let given = inbox_setting(options, context);
    if given.is_empty() {
        return Ok(format!("{INBOX}.{identity}"));
    }
    let tokens = given.split('.');
    let valid = |token: &str| check_name("inbox_prefix", token).is_ok();
    if given.starts_with(INBOX) && tokens.into_iter().all(valid) {
        return Ok(given.to_owned());
    }
    Err(BusError::Options {
        what: format!("inbox prefix {given:?}"),
        why: format!("nobody answers there; expected one that begins with {INBOX}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(json: &str) -> Context {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_identity_is_what_was_given_else_the_credentials_name() {
        let name = |identity: Option<&str>, json: &str, user: Option<(&str, Option<&str>)>| {
            let options = NatsOptions {
                identity: identity.map(str::to_owned),
                ..NatsOptions::default()
            };
            let user = user.map(|(n, p)| (n.to_owned(), p.map(str::to_owned)));
            given(&options, &context(json), user.as_ref()).unwrap()
        };
        let alice = Some("alice".to_owned());
        assert_eq!(name(None, "{}", None), None);
        assert_eq!(name(None, "{}", Some(("t0ken", None))), None, "a secret");
        assert_eq!(name(None, "{}", Some(("alice", Some("pw")))), alice);
        assert_eq!(name(None, r#"{"nkey":"/etc/alice.nk"}"#, None), alice);
        assert_eq!(name(None, r#"{"user":"alice"}"#, None), alice);
        assert_eq!(name(None, r#"{"user":"a.b"}"#, None), None, "no token");
        let inbox = r#"{"user":"bob","inbox_prefix":"_INBOX.alice"}"#;
        assert_eq!(name(None, inbox, None), alice);
        assert_eq!(name(Some("alice"), r#"{"user":"bob"}"#, None), alice);
        let by_key = NatsOptions {
            nkey: Some("/keys/alice.nk".into()),
            ..NatsOptions::default()
        };
        let other = context(r#"{"user":"bob"}"#);
        assert_eq!(given(&by_key, &other, None).unwrap(), alice);
        let bad = NatsOptions {
            identity: Some("a b".into()),
            ..NatsOptions::default()
        };
        let error = given(&bad, &context("{}"), None).unwrap_err().to_string();
        assert!(error.contains("identity"), "{error}");
    }

    #[test]
    fn a_credentials_file_names_its_user() {
        let claims = BASE64_URL_SAFE_NO_PAD.encode(br#"{"jti":"x","name":"alice","nats":{}}"#);
        let creds = format!("-----BEGIN NATS USER JWT-----\nhead.{claims}.sign\n------END");
        assert_eq!(of_creds(&creds).as_deref(), Some("alice"));
        assert_eq!(of_creds("no file of this kind"), None);
    }

    #[test]
    fn an_inbox_that_nobody_answers_is_refused() {
        let none = NatsOptions::default();
        let prefix = |json: &str| inbox_prefix(&none, &context(json), "alice");
        assert_eq!(prefix("{}").unwrap(), "_INBOX.alice");
        let own = r#"{"inbox_prefix":"_INBOX_of.alice"}"#;
        assert_eq!(prefix(own).unwrap(), "_INBOX_of.alice");
        let given = NatsOptions {
            inbox_prefix: Some("_INBOX.bob".into()),
            ..NatsOptions::default()
        };
        assert_eq!(
            inbox_prefix(&given, &context(own), "alice").unwrap(),
            "_INBOX.bob"
        );
        for bad in ["alice", "vendue.cell.c1", "_INBOX.*", "_INBOX..a"] {
            let json = format!(r#"{{"inbox_prefix":"{bad}"}}"#);
            let error = prefix(&json).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("_INBOX"), "{error}");
        }
    }
}
