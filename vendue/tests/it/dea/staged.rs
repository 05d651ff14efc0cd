//! Apps that a Cloud Controller has staged by a script on a cell.

use std::{fs, path::PathBuf, time::Duration};

use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::NatsServer;

use super::{
    Cluster,
    outward::{SCRIPT_SHA1, Said, has_room, rep_settings, serve, start},
};
use crate::common::until;

/// Fails for the app `bad`, and does not end for the app `slow`. Its droplet is the content of [`serve`].
const STAGING: &str = r#"
[ "$(stat -c %a staging.json)" = 600 ] || exit 4
grep -q '"download_uri":"http://me:s3cret@127.0.0.1' "$STAGING_REQUEST" || exit 5
if env | grep -q s3cret; then exit 6; fi
echo "-----> staging $APP"
case $APP in
bad) echo 'no buildpack takes it'; exit 3 ;;
slow) exec sleep 1000 ;;
esac
printf '{"droplet_sha1":"%s",\n "detected_buildpack":"Script","procfile":{"web":"x"}}' SHA1 > "$STAGING_RESULT"
"#;

/// Writes the settings of a rep that runs droplets and stages apps to a file.
pub(crate) fn stager_settings(files: &TempDir, cell: &str) -> PathBuf {
    let file = rep_settings(files, cell);
    let script = files.path().join("staging.sh");
    fs::write(&script, STAGING.replace("SHA1", SCRIPT_SHA1)).unwrap();
    let settings = fs::read_to_string(&file).unwrap();
    // room for two tasks at once, as the first one's share is known to be free only a little later
    let settings = settings.replace("= 1024", "= 8192");
    let more = format!("staging-script = \"{}\"\n", script.display());
    fs::write(&file, more + &settings).unwrap();
    file
}

/// Has an app staged; returns the replies.
pub(crate) async fn stage(
    cloud_controller: &Client,
    dea: &str,
    app: &str,
    port: u16,
) -> Subscriber {
    let mut index_0: Value = serde_json::from_str(&start(port, "")).unwrap();
    (index_0["droplet"], index_0["sha1"]) = (json!(app), Value::Null);
    let body = json!({"app_id": app, "stack": "cflinuxfs2", "task_id": format!("of-{app}"),
        "properties": {"services": [], "environment": ["KEY=s3cret"], "resources": {"memory": 256}},
        "download_uri": format!("http://me:s3cret@127.0.0.1:{port}/a"), "upload_uri": format!("http://me:s3cret@127.0.0.1:{port}/b"),
        "buildpack_cache_download_uri": null, "buildpack_cache_upload_uri": null,
        "start_message": index_0, "admin_buildpacks": [], "egress_network_rules": []});
    let inbox = cloud_controller.new_inbox();
    let replies = cloud_controller.subscribe(inbox.clone()).await.unwrap();
    let subject = format!("staging.{dea}.start");
    let sent = cloud_controller.publish_with_reply(subject, inbox, body.to_string().into());
    sent.await.unwrap();
    replies
}

pub(crate) async fn reply(replies: &mut Subscriber) -> Value {
    let reply = tokio::time::timeout(Duration::from_secs(60), replies.next());
    serde_json::from_slice(&reply.await.unwrap().unwrap().payload).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_controller_has_apps_staged_on_a_cell() {
    let estate = NatsServer::start().await;
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let (said, listener) = Said::on(estate.client().await).await;
    let (heard, cluster_listener) = Said::on_all(server.client().await).await;
    let settings = stager_settings(&cluster.files, "c1");
    let _rep = cluster.role(&["rep", "--config", settings.to_str().unwrap()]);
    let url = estate.url();
    let mut args = vec!["advertiser", "dea-out", "--cells", "c1"];
    args.extend(["--dea-server", &url, "--advertise", "500ms"]);
    args.extend(["--heartbeat", "500ms", "--staging-memory", "512M"]);
    let _facades = cluster.role(&args);
    let dea = said.wait("staging.advertise", has_room(8_192)).await;
    let mut keys: Vec<&String> = dea.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["available_disk", "available_memory", "id", "stacks"]);
    let dea = dea["id"].as_str().unwrap();
    let (port, cloud_controller) = (serve(), estate.client().await);

    let mut replies = stage(&cloud_controller, dea, "orders", port).await;
    let begun = json!({"task_id": "of-orders", "task_streaming_log_url": null, "error": null});
    assert_eq!(reply(&mut replies).await, begun);
    let done = json!({"task_id": "of-orders", "detected_buildpack": "Script", "buildpack_key": null,
        "droplet_sha1": SCRIPT_SHA1, "detected_start_command": null, "procfile": {"web": "x"},
        "task_log": "-----> staging orders\n"});
    assert_eq!(reply(&mut replies).await, done);
    // then the same DEA starts index 0
    let runs = |beat: &Value| {
        let all = beat["droplets"].as_array();
        all.is_some_and(|all| all.iter().any(|i| i["state"] == "RUNNING"))
    };
    let beat = said.wait("dea.heartbeat", runs).await;
    assert_eq!(beat["droplets"][0]["droplet"], "orders");

    let mut replies = stage(&cloud_controller, dea, "bad", port).await;
    assert_eq!(reply(&mut replies).await["error"], Value::Null);
    let failed = reply(&mut replies).await;
    assert_eq!(failed["error"], "Error staging: exit 3");
    assert_eq!(
        failed["task_log"],
        "-----> staging bad\nno buildpack takes it\n"
    );

    let mut replies = stage(&cloud_controller, dea, "slow", port).await;
    assert_eq!(reply(&mut replies).await["error"], Value::Null);
    // staging takes the configured resources, and runs beside index 0 of the first app
    said.wait("staging.advertise", has_room(8_192 - 256 - 512))
        .await;
    let stop = json!({"app_id": "slow"}).to_string();
    cloud_controller
        .publish("staging.stop", stop.into())
        .await
        .unwrap();
    let stopped = json!({"task_id": "of-slow", "error": "Error staging: task stopped"});
    assert_eq!(reply(&mut replies).await, stopped);
    said.wait("staging.advertise", has_room(8_192 - 256)).await;
    until("the end of the task to be told", || {
        let last = heard.last("vendue.cell.c1.result");
        let stopped = last.clone().filter(|result| result["stopped"] == true);
        stopped.ok_or(format!("{last:?}"))
    })
    .await;
    heard.nowhere_but("vendue.cell.c1.start", "s3cret");
    listener.abort();
    cluster_listener.abort();
}
