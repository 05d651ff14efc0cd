//! The files of `vendue auth`, and that a server accepts what is generated from them.

use std::{fs, os::unix::fs::PermissionsExt};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use nkeys::KeyPair;
use serde_json::{Value, json};
use testkit::NatsServer;

use super::cluster::{Secure, auth};
use crate::common::{end, until, vendue};

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    auth(&dir, &["add-cell", "c1"]).expect(2, &["roster.json", "vendue auth init"]);
    auth(&dir, &["init", "--nats", "nats://t0k@h"]).expect(2, &["--nats"]);
    auth(&dir, &["init", "--prefix", "a b"]).expect(2, &["prefix"]);
    auth(&dir, &["init"]).expect(0, &["vendue-auth.conf"]);
    auth(&dir, &["init"]).expect(2, &["already"]);
    auth(&dir, &["add-cell", "c1", "c2"]).expect(0, &["c1.nk", "c2.json"]);
    let before = fs::read(dir.join("roster.json")).unwrap();
    auth(&dir, &["add-user", "c1"]).expect(2, &["NAME \"c1\"", "cell"]);
    auth(&dir, &["add-user", "a.b"]).expect(2, &["NAME"]);
    auth(&dir, &["add-user", "x", "--role", "boss"]).expect(2, &["--role", "operator"]);
    auth(&dir, &["remove", "c3"]).expect(2, &["c3", "did you mean"]);
    assert_eq!(fs::read(dir.join("roster.json")).unwrap(), before);
    fs::write(dir.join("roster.json"), "{\"v\":1}").unwrap();
    auth(&dir, &["print"]).expect(2, &["roster.json", "prefix"]);
}

#[test]
fn seeds_are_their_owners_alone_and_never_shown() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    auth(&dir, &["init"]).expect(0, &[]);
    let added = auth(
        &dir,
        &["add-user", "alice", "--output", "json", "--log", "trace"],
    );
    let key = added.expect(0, &[]).json()["added"][0]["key"].clone();
    let seed = fs::read_to_string(key.as_str().unwrap()).unwrap();
    let printed = auth(&dir, &["print", "--log", "trace"]);
    for said in [&added, printed.expect(0, &["# user alice"])] {
        assert!(!format!("{said:?}").contains(seed.trim()));
    }
    for entry in fs::read_dir(dir.join("keys")).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let config = fs::read_to_string(dir.join("vendue-auth.conf")).unwrap();
    assert_eq!(config.trim_end(), auth(&dir, &["print"]).out.trim_end());
    let broken = dir.join("broken.nk");
    fs::write(&broken, format!("X{seed}")).unwrap();
    let mut ps = vendue();
    ps.args(["ps", "--nkey"]).arg(&broken);
    let said = end(&mut ps);
    said.expect(2, &["broken.nk", "SU"]);
    assert!(!said.err.contains(seed.trim()), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_enough_and_a_removed_identity_is_refused() {
    let mut secure = Secure::server().await;
    let _auctioneer = secure.auctioneer();
    let _rep = secure.rep("cell-a");
    secure.healthy(1).await;
    let context = secure.dir.join("contexts/alice.json");
    let with_context = |secure: &Secure| {
        let mut health = vendue();
        // the address is given, as that of the directory is the default one
        health.args(["health", "--nats", &secure.server.url(), "--context"]);
        end(health.arg(&context))
    };
    with_context(&secure).expect(0, &["1 cell"]);
    let old = fs::read_to_string(secure.key("alice")).unwrap();
    let text = fs::read_to_string(&context).unwrap();
    auth(&secure.dir, &["remove", "alice"]).expect(0, &["alice"]);
    auth(&secure.dir, &["add-user", "alice"]).expect(0, &["alice"]);
    secure.server.restart().await;
    // auctioneer and rep have lost their connections too
    until("the new key to be taken", || {
        let said = with_context(&secure);
        let taken = said.code == Some(0) && said.out.contains("1 cell");
        taken.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
    assert_eq!(fs::read_to_string(&context).unwrap(), text);
    fs::write(secure.key("alice"), old).unwrap();
    with_context(&secure).expect(1, &["other credentials"]);
    with_context(&secure);
}

/// Returns a token of the kind that servers with an operator read.
fn token(signer: &KeyPair, mut claims: Value) -> String {
    claims["iss"] = json!(signer.public_key());
    claims["iat"] = json!(1_700_000_000);
    claims["jti"] = json!("x");
    claims["nats"]["version"] = json!(2);
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let text = format!("{head}.{}", encode(claims.to_string().as_bytes()));
    let signature = encode(&signer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_operator_takes_the_scoped_signing_keys() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    auth(&dir, &["init"]).expect(0, &[]);
    let printed = auth(&dir, &["print", "--format", "jwt"]);
    let mut scopes = printed.expect(0, &[]).json();
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let mut signers = std::collections::BTreeMap::new();
    for scope in scopes.as_array_mut().unwrap() {
        let signer = KeyPair::new_account();
        scope["key"] = json!(signer.public_key());
        signers.insert(scope["role"].as_str().unwrap().to_owned(), signer);
    }
    let operator_token = token(
        &operator,
        json!({"name": "O", "sub": operator.public_key(), "nats": {"type": "operator"}}),
    );
    let limits = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                        "wildcards": true, "conn": -1, "leaf": -1});
    let account_token = token(
        &operator,
        json!({"name": "A", "sub": account.public_key(), "nats": {
            "type": "account", "limits": limits, "signing_keys": scopes}}),
    );
    let server = NatsServer::with_config(&format!(
        "operator: \"{operator_token}\"\nresolver: MEMORY\nresolver_preload {{ {}: \"{account_token}\" }}\n",
        account.public_key()
    ))
    .await;
    let creds = |role: &str, name: &str| {
        let user = KeyPair::new_user();
        let claims = json!({"name": name, "sub": user.public_key(), "nats": {
            "type": "user", "issuer_account": account.public_key()}});
        let token = token(&signers[role], claims);
        let file = dir.join(format!("{name}.creds"));
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&file, text).unwrap();
        file
    };
    let program = |creds: &std::path::Path, args: &[&str]| {
        let mut command = vendue();
        command.args(args).env("NATS_URL", server.url());
        command.arg("--creds").arg(creds);
        command
    };
    let _auctioneer =
        crate::roles::Role::start(&mut program(&creds("auctioneer", "auc-0"), &["auctioneer"]));
    let rep = ["rep", "--cell", "cell-a", "--memory", "64", "--simulated"];
    let cell_a = creds("cell", "cell-a");
    let _rep = crate::roles::Role::start(&mut program(&cell_a, &rep));
    let alice = creds("user", "alice");
    crate::common::until("the cell to be known", || {
        let said = end(&mut program(&alice, &["health"]));
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
    let run = ["run", "web", "--memory", "16", "--disk", "1"];
    let mut run = program(&alice, &run);
    end(run.args(["--", "true"])).expect(0, &["placed"]);
    let refused = end(&mut program(&alice, &["drain", "cell-a"]));
    refused.expect(1, &["not permitted to publish to vendue.cell.cell-a.drain"]);
    let as_other = ["rep", "--cell", "cell-b", "--memory", "64", "--simulated"];
    let refused = end(&mut program(&cell_a, &as_other));
    refused.expect(1, &["not permitted to", "vendue.cell.cell-b."]);
}
