//! `vendue app` if nothing answers, and with invalid apps.

use std::fs;

use testkit::NatsServer;

use crate::common::{checkout, end, run, vendue};

#[test]
fn a_bad_file_needs_no_cluster_to_be_refused() {
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = files.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let nowhere = ["--nats", "127.0.0.1:1"];
    let put = |file: &str| run(&[&["app", "put", file][..], &nowhere].concat());
    let task = r#"{"app":"a","kind":"task","memory_mb":1,"disk_mb":1,"run":{"command":["x"]}}"#;
    for (name, text, said) in [
        ("a.json", "{", "a.json: "),
        ("a.json", "[]", "a.json: no app in it"),
        ("a.json", task, "a.json: kind: \"task\" is not allowed"),
        (
            "a.toml",
            "app = \"a\"\nmemory_mb = 1",
            "missing field `disk_mb`\n",
        ),
        ("a.toml", "[[apps]]\napp = \"a b\"", "a.toml: apps[0]."),
    ] {
        put(&write(name, text)).expect(2, &[said]);
    }
    put("/no/such/file.toml").expect(2, &["/no/such/file.toml: "]);
    let web = "examples/apps/web.toml";
    run(&["app", "put", web, web]).expect(2, &["app \"shop\" is in", "once"]);
    run(&["app", "import", "examples/web.json"])
        .expect(2, &["vendue app export", "vendue app put"]);
    for (line, said) in [
        ("app scale a.b 3", "APP"),
        ("app scale web 0", "expected a number from 1 to 100000"),
        ("app wait", "APP...: missing"),
        ("app restart web --half --one-by-one", "--one-by-one"),
        ("app put x.json --dry-run --wait", "--wait"),
        ("app stop web --timeout 3s", "--timeout"),
        ("app export", "--file FILE: missing"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        run(&args).expect(2, &[said]);
    }
}

#[test]
fn every_example_is_an_app() {
    let nowhere = ["--nats", "127.0.0.1:1", "--output", "json"];
    let mut count = 0;
    for file in fs::read_dir(checkout().join("examples/apps")).unwrap() {
        let file = file.unwrap().path();
        let args = [&["app", "put", file.to_str().unwrap()][..], &nowhere].concat();
        // the file is read, and then there is no server
        let said = run(&args);
        assert_eq!(said.expect(1, &[]).json()["error"]["code"], "unreachable");
        count += 1;
    }
    assert!(count >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manager_every_command_says_what_to_do() {
    let server = NatsServer::start().await;
    let files = tempfile::tempdir().unwrap();
    let exported = files.path().join("exported.json");
    let app = fs::read_to_string(checkout().join("examples/web.json")).unwrap();
    fs::write(
        &exported,
        format!(r#"{{"v":1,"apps":[{{"definition":{app}}}]}}"#),
    )
    .unwrap();
    let import = format!("import {}", exported.display());
    let export = format!("export --file {}", files.path().join("out.json").display());
    for line in [
        "put examples/apps/web.toml",
        "put examples/apps/web.toml --dry-run",
        "list",
        "show web",
        "scale web 3",
        "stop web",
        "start web",
        "restart web",
        "restart web --half",
        "delete web",
        "history web",
        "undo web",
        "pause web",
        "resume web",
        "wait web",
        &export,
        &import,
    ] {
        let ask = |output: &str| {
            let mut command = vendue();
            command
                .args(["--output", output, "app"])
                .args(line.split(' '));
            end(command.env("NATS_URL", server.url()))
        };
        ask("table").expect(
            1,
            &["no manager answers", "`vendue manager`", "`vendue up`"],
        );
        assert_eq!(ask("json").json()["error"]["code"], "unreachable", "{line}");
    }
}
