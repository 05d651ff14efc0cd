//! A headless Chromium, controlled over two pipes (`--remote-debugging-pipe`: JSON messages, each terminated by a zero
//! byte).

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

/// If an answer takes longer than this, the browser is taken to hang; nothing else waits for this long.
const HANGS: Duration = Duration::from_secs(120);

/// Finds the browser: `VENDUE_TEST_CHROMIUM`, else the first of the usual names in `PATH`. Returns `None`, with a
/// message, if there is none; in CI (`CI=true`) that is a failure.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("VENDUE_TEST_CHROMIUM").filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        let advice = "no chromium in PATH and VENDUE_TEST_CHROMIUM is not set (Debian: apt-get install \
                      chromium)";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("SKIPPED: {advice}");
    }
    found
}

/// One page in one browser; both end when this is dropped.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    next_id: u64,
    /// Messages other than answers, in order: console, exceptions, network.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it with an empty page, reporting everything.
    pub(crate) fn start(chromium: &PathBuf) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // the browser reads commands from descriptor 3 and answers on 4
        let mut child = Command::new("sh")
            .arg("-c")
            .arg("exec \"$@\" 3<&0 4>&1 </dev/null >&2")
            .arg("sh")
            .arg(chromium)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-component-update",
                "--disable-extensions",
                "--disable-sync",
            ])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                match out.read_until(0, &mut message) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => message.pop(),
                };
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            to,
            from,
            session: String::new(),
            next_id: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        attached["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and returns its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let mut message = json!({"id": self.next_id, "method": method});
        message["params"] = params;
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        self.to.flush().unwrap();
        loop {
            let answer = self.read(method);
            if answer["id"] == json!(self.next_id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn read(&mut self, waiting_for: &str) -> Value {
        self.from
            .recv_timeout(HANGS)
            .unwrap_or_else(|e| panic!("the browser does not answer {waiting_for}: {e}"))
    }

    /// Opens a file and waits until it has loaded.
    pub(crate) fn open(&mut self, file: &std::path::Path) {
        self.events.clear();
        self.call(
            "Page.navigate",
            json!({"url": format!("file://{}", file.display())}),
        );
        while !self
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let event = self.read("Page.loadEventFired");
            self.events.push(event);
        }
    }

    /// Returns the value of a JavaScript expression; promises are awaited.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Sets the size of the window in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
    }

    /// Waits for two frames, after which whatever was observed, resized or requested is drawn.
    pub(crate) fn settle(&mut self) {
        self.eval(
            "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))",
        );
    }

    /// Returns what the page wrote to the console, threw, was refused, or requested from the network.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.events
            .iter()
            .filter_map(|event| {
                let params = &event["params"];
                match event["method"].as_str()? {
                    "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                        Some(event.to_string())
                    }
                    "Network.requestWillBeSent" if params["type"] != "Document" => {
                        Some(event.to_string())
                    }
                    _ => None,
                }
            })
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
