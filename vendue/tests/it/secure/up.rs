//! `vendue up --secure`: every program and its user have a key, and nobody else has access.

use crate::common::{Up, end, is_old_server, run, until, vendue};

#[tokio::test(flavor = "multi_thread")]
async fn up_secure_gives_everybody_a_key() {
    let up = Up::with(&["--secure", "--cells", "2"]);
    up.run(&["health"]).expect(0, &["2 cells"]);
    let args = [
        "run", "web", "--memory", "16", "--disk", "1", "--", "sleep", "1000",
    ];
    up.run(&args).expect(0, &["placed"]);
    up.run(&["wait", "web"]).expect(0, &[]);
    up.run(&["drain", "z1-cell-0", "--deadline", "1s"])
        .expect(0, &[]);
    let mut stranger = vendue();
    end(stranger.args(["health", "--nats", &up.url])).expect(1, &["credentials"]);
    run(&["up", "--secure", "--nats", &up.url]).expect(2, &["--secure"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_up_secure_keeps_apps_running() {
    let up = Up::with(&["--secure", "--cells", "2"]);
    assert_eq!(up.said["manager"], !is_old_server());
    if is_old_server() {
        up.run(&["app", "list"]).expect(1, &["manager"]);
        return;
    }
    let put = ["app", "put", "examples/apps/web.toml"];
    up.run(&[&put[..], &["--dry-run"]].concat())
        .expect(0, &["shop: would be created", "3 placed"]);
    up.run(&[&put[..], &["--wait"]].concat())
        .expect(0, &["3 of 3 running"]);
    for (line, said) in [
        ("app list", "shop"),
        ("app show shop", "3 wanted, 3 running"),
        ("app scale shop 2 --wait", "2 of 2 running"),
        ("app restart shop --wait", "2 of 2 running"),
        ("app history shop", "undo"),
        ("app undo shop --wait", "2 of 2 running"),
        ("app export --file -", "shop"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        up.run(&args).expect(0, &[said]);
    }
    up.run(&["drain", "z1-cell-0", "--deadline", "30s"])
        .expect(0, &[]);
    until("the app to run on the other cell", || {
        let running = up.instances("shop", "running");
        let there = running.iter().all(|i| i["cell"] == "z2-cell-0");
        (there && running.len() == 2)
            .then_some(())
            .ok_or(format!("{running:?}"))
    })
    .await;
    up.run(&["app", "delete", "shop"]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manager_up_secure_does_the_rest() {
    let up = Up::with(&["--secure", "--cells", "1", "--no-manager"]);
    assert_eq!(up.said["manager"], false);
    up.run(&["health"]).expect(0, &["1 cell"]);
    up.run(&["app", "list"]).expect(1, &["manager"]);
}
