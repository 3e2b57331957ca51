//! Chromium without a window, and tabs in it. What is on a page is not known here.
//!
//! It is driven by its own DevTools protocol over a pair of pipes. WebDriver would need a second program (chromium-driver)
//! and a client crate with its dependencies, for the ten commands that are used here. Pipes need no port and no WebSocket,
//! and Chromium ends by itself when they are closed: also when the test is killed.
//!
//! A run has one Chromium, which starts when the first tab is opened. Each tab has cookies of its own. Its profile is empty,
//! and what it would call by itself is switched off.

use std::collections::HashMap;
use std::fs::{self, File};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// It reads commands from descriptor 3 and writes answers to descriptor 4.
const WIRING: &str = r#"exec chromium "$@" 3<&0 4>&1 </dev/null >/dev/null"#;
const WORDS: [&str; 11] = [
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--window-size=1280,900",
    "--remote-debugging-pipe",
];
/// Only root cannot have the sandbox.
const NO_SANDBOX: &str = "--no-sandbox";
/// How long a command may take. The first one waits until Chromium has started, perhaps beside a build.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The Chromium of a run, started or not.
#[derive(Default)]
pub(crate) struct Chromium(OnceCell<Running>);

struct Running {
    line: Arc<Line>,
    child: tokio::sync::Mutex<Child>,
    /// Reads answers.
    _reader: JoinSet<()>,
    _profile: TempDir,
}

/// The way to it.
struct Line {
    commands: tokio::sync::Mutex<ChildStdin>,
    waiting: Mutex<Waiting>,
}

/// Who waits for an answer, by the number of the command. At most one per command that is under way.
#[derive(Default)]
struct Waiting {
    last_id: u64,
    answers: HashMap<u64, oneshot::Sender<Value>>,
    /// It has ended, and answers nobody any more.
    is_over: bool,
}

/// A tab that shows a page.
pub(crate) struct Tab {
    line: Arc<Line>,
    context: String,
    session: String,
}

impl Chromium {
    /// A new tab, in which nobody has been anywhere.
    pub(crate) async fn tab(&self) -> Tab {
        let line = self.0.get_or_init(Running::start).await.line.clone();
        let context = text(&line.must("Target.createBrowserContext", json!({})).await["browserContextId"]);
        let blank = json!({ "url": "about:blank", "browserContextId": context });
        let target = line.must("Target.createTarget", blank).await["targetId"].take();
        let attached = line.must("Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await;
        Tab { line, context, session: text(&attached["sessionId"]) }
    }

    /// Ends it, if it was started.
    pub(crate) async fn end(&self) {
        let Some(Running { line, child, .. }) = self.0.get() else { return };
        let _ = line.ask(None, "Browser.close", json!({})).await; // It may end before it answers.
        let mut child = child.lock().await;
        if timeout(END_TIMEOUT, child.wait()).await.is_err() {
            child.kill().await.expect("it is ours");
        }
    }
}

impl Running {
    async fn start() -> Self {
        let profile = tempfile::tempdir().expect("the system has a folder for temporary files");
        let said = profile.path().join("said");
        let mut command = Command::new("sh");
        command.args(["-c", WIRING, "sh"]).args(WORDS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        if rustix::process::geteuid().is_root() {
            command.arg(NO_SANDBOX);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&said).expect("the folder is ours"));
        let mut child = command.kill_on_drop(true).spawn().expect("the system has a shell");
        let commands = tokio::sync::Mutex::new(child.stdin.take().expect("it is a pipe"));
        let line = Arc::new(Line { commands, waiting: Mutex::default() });
        let mut reader = JoinSet::new();
        reader.spawn(line.clone().read(child.stdout.take().expect("it is a pipe")));
        if let Err(error) = line.ask(None, "Browser.getVersion", json!({})).await {
            let said = fs::read_to_string(said).unwrap_or_default();
            panic!("Chromium is needed, and does not start (Debian: apt-get install chromium): {error}\n{said}");
        }
        Self { line, child: tokio::sync::Mutex::new(child), _reader: reader, _profile: profile }
    }
}

impl Line {
    /// What Chromium answers to a command, to a tab's or its own; why it does not carry it out.
    async fn ask(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value, String> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            if waiting.is_over {
                return Err("Chromium has ended".to_owned());
            }
            waiting.last_id += 1;
            let id = waiting.last_id;
            waiting.answers.insert(id, answer);
            id
        };
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = json!(session);
        }
        let frame = format!("{command}\0");
        let answer = timeout(ANSWER_TIMEOUT, async {
            self.commands.lock().await.write_all(frame.as_bytes()).await.ok()?;
            answered.await.ok()
        });
        match answer.await {
            Err(_) => Err(format!("{method}: no answer within {} s", ANSWER_TIMEOUT.as_secs())),
            Ok(None) => Err(format!("{method}: Chromium has ended")),
            Ok(Some(mut answer)) if answer["error"].is_null() => Ok(answer["result"].take()),
            Ok(Some(answer)) => Err(format!("{method}: {}", answer["error"]["message"])),
        }
    }

    async fn must(&self, method: &str, params: Value) -> Value {
        self.ask(None, method, params).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Hands answers to those who wait for them, until Chromium ends. What it tells unasked is not needed.
    async fn read(self: Arc<Self>, answers: ChildStdout) {
        let (mut answers, mut frame) = (BufReader::new(answers), Vec::new());
        while answers.read_until(0, &mut frame).await.is_ok_and(|count| count > 1) {
            let message: Value = serde_json::from_slice(&frame[..frame.len() - 1]).unwrap_or_default();
            let waiting = message["id"].as_u64().and_then(|id| self.waiting().answers.remove(&id));
            if let Some(waiting) = waiting {
                let _ = waiting.send(message); // It may have given up.
            }
            frame.clear();
        }
        let mut waiting = self.waiting();
        waiting.is_over = true;
        waiting.answers.clear();
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tab {
    async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        self.line.ask(Some(&self.session), method, params).await
    }

    /// Loads an address.
    pub(crate) async fn go(&self, url: &str) {
        let answer = self.ask("Page.navigate", json!({ "url": url })).await;
        let answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
    }

    /// The scripts of pages do not run any more. [`Tab::run`] works all the same.
    pub(crate) async fn forbid_scripts(&self) {
        let answer = self.ask("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
        answer.unwrap_or_else(|error| panic!("{error}"));
    }

    /// What an expression of JavaScript gives or resolves to in the page; what it throws. While the tab goes to another page,
    /// that is an error too.
    pub(crate) async fn run(&self, expression: &str) -> Result<Value, String> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.ask("Runtime.evaluate", params).await?;
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].take()),
            thrown => Err(text(&thrown["exception"]["description"])),
        }
    }

    /// The page from its top to its bottom, as PNG.
    pub(crate) async fn picture(&self) -> Result<Vec<u8>, String> {
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.ask("Page.captureScreenshot", params).await?;
        BASE64_STANDARD.decode(text(&answer["data"])).map_err(|error| error.to_string())
    }

    /// Closes it, with its cookies.
    pub(crate) async fn close(self) {
        let context = json!({ "browserContextId": self.context });
        let _ = self.line.ask(None, "Target.disposeBrowserContext", context).await; // It may have ended.
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
