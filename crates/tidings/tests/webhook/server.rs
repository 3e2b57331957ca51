//! The server that tells: the real program, with a folder of its own, killed and started at will.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tidings_http1::{Client, ClientConfig, Origin, Request};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "key-of-the-backend-0123456789";

pub(crate) struct Server {
    folder: tempfile::TempDir,
    child: Child,
    addr: SocketAddr,
    client: Client,
}

impl Server {
    /// With these settings in `[webhook]`.
    pub(crate) async fn start(webhook: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "data_dir = \"data\"\n[http]\nlisten = \"127.0.0.1:0\"\n[[api.keys]]\nname = \"backend\"\nkey = \"{KEY}\"\n\
             [channel.namespaces.match]\ndurable = true\nhistory_size = 10\nhistory_ttl = \"1h\"\n\
             [topics.goal]\ntitle = \"Goal\"\nbody = \"Goal\"\n[webhook]\n{webhook}\n"
        );
        fs::write(folder.path().join("tidings.toml"), config).unwrap();
        fs::write(folder.path().join("secret"), crate::SECRET).unwrap();
        fs::write(folder.path().join("secret-before"), crate::OTHER_SECRET).unwrap();
        let (child, addr, client) = launch(&folder).await;
        Self { folder, child, addr, client }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// All it has said in all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// `kill -9`, and another life.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.addr, self.client) = launch(&self.folder).await;
    }

    /// An orderly stop, and another life.
    pub(crate) async fn restart(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        (self.child, self.addr, self.client) = launch(&self.folder).await;
    }

    /// Accepts an event that concerns nobody, so that it is done at once.
    pub(crate) async fn tell(&self, id: &str) {
        let event = json!({"id": id, "topic": "goal", "subjects": ["match:1"], "push": "never"});
        let request = Request::post("/v1/events").unwrap().header("content-type", "application/json").unwrap();
        let (status, body) = self.call(request.body(event.to_string())).await;
        assert_eq!(status, 202, "{body}");
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Request::get(path).unwrap()).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until a line of `/metrics` is this one.
    pub(crate) async fn shows(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, page) = self.call(Request::get("/metrics").unwrap()).await;
            if page.lines().any(|found| found == line) {
                return;
            }
            let near: Vec<&str> =
                page.lines().filter(|found| found.contains("untold") || found.contains("webhook")).collect();
            assert!(Instant::now() < deadline, "never {line}:\n{}\n{}", near.join("\n"), self.log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the log has this text so often.
    pub(crate) async fn says(&self, text: &str, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.log().matches(text).count() < count {
            assert!(Instant::now() < deadline, "never {text:?}:\n{}", self.log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn call(&self, request: Request) -> (u16, String) {
        let request = request.header("x-api-key", KEY).unwrap();
        let response =
            self.client.send(request, PATIENCE).await.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
        (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

async fn launch(folder: &tempfile::TempDir) -> (Child, SocketAddr, Client) {
    let log = folder.path().join("log");
    let before = fs::read_to_string(&log).map_or(0, |log| log.len());
    let said = OpenOptions::new().create(true).append(true).open(&log).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidings"))
        .args(["serve", "--config", "tidings.toml"])
        .current_dir(folder)
        .env_clear()
        .env("TIDINGS_LOG__FILTER", "info,tidings=debug,tidings_http1=debug,tidings_pool=debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let addr: SocketAddr = loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if let Some((_, rest)) = said[before..].split_once("listening on http://") {
            break rest.split(' ').next().unwrap().parse().unwrap();
        }
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not start:\n{said}");
        sleep(Duration::from_millis(5)).await;
    };
    let origin: Origin = format!("http://{addr}").parse().unwrap();
    (child, addr, Client::start(&origin, ClientConfig::new("test", 1)).unwrap())
}
