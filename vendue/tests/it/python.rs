//! A cluster used from any NATS client: nats-py, without any code of ours.

use std::{path::PathBuf, process::Command};

use crate::common::{Up, checkout, end};

/// Returns a Python with nats-py: `VENDUE_TEST_PYTHON`, else the one created by `make tools`.
fn python() -> Option<PathBuf> {
    let made = checkout().join(".tools/venv/bin/python");
    let python = std::env::var_os("VENDUE_TEST_PYTHON").map_or(made, PathBuf::from);
    let import = Command::new(&python).args(["-c", "import nats"]).status();
    if import.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let missing = "nats-py is missing: `make tools` gets it";
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
    eprintln!("\n#### SKIPPED: {missing}\n");
    None
}

#[test]
fn a_client_in_python_starts_watches_and_stops() {
    let Some(python) = python() else { return };
    let up = Up::start();
    let script = checkout().join("vendue/tests/it/client.py");
    let said = end(Command::new(python).arg(script).arg(&up.url));
    let seen = said.expect(0, &[]).json();
    assert_eq!(seen["reply"]["outcome"], "placed");
    assert_eq!(seen["reply"]["instances"].as_array().unwrap().len(), 3);
    assert_eq!(seen["bad"]["body"]["error"]["field"], "memory_mb");
    assert_eq!(seen["bad"]["headers"]["Nats-Service-Error-Code"], "400");
    let text = seen["bad"]["headers"]["Nats-Service-Error"]
        .as_str()
        .unwrap();
    assert!(text.starts_with("memory_mb: -1"), "{text}");
    assert_eq!(seen["broken"]["error"]["code"], "invalid_request");
    assert_eq!(seen["outcome"]["outcome"], "placed");
    assert_eq!(seen["outcome"]["id"], "by-hand");
    assert_eq!(seen["instances"].as_array().unwrap().len(), 3);
    let cells = ["z1-cell-0", "z1-cell-1", "z2-cell-0", "z2-cell-1"];
    assert_eq!(
        seen["cells"],
        serde_json::json!(cells),
        "every cell answers, also with nothing"
    );
    let mut services = vec!["vendue-auctioneer"];
    services.extend(["vendue-cell"; 4]);
    // if the server is too old for a manager, the cluster works without one
    if up.said["manager"] != false {
        services.push("vendue-manager");
    }
    assert_eq!(seen["services"], serde_json::json!(services));
    assert!(
        seen["auctioneer"]["metadata"].to_string().contains("diego"),
        "{}",
        seen["auctioneer"]
    );
    assert_eq!(
        (&seen["stop"]["outcome"], &seen["stop"]["count"]),
        (&"stopped".into(), &3.into())
    );
    assert_eq!(seen["none"]["outcome"], "none");
    let events = seen["events"].as_array().unwrap();
    assert!(
        !events.iter().any(|e| e.to_string().contains("sleep")),
        "commands stay out of events"
    );
}
