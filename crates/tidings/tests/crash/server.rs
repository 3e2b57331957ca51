//! The server under test: the real program as a child process, always on the same port and folder.
//!
//! What it logs goes to one file for all of its lives; the end of that is shown when something is wrong.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use hyper::Method;
use tokio::time::{Instant, interval, timeout};

use crate::API_KEY;
use crate::http::Caller;
use crate::simulators::Simulators;

/// How long it may take to answer on `/health`, or to stop when asked to.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_LINES_SHOWN: usize = 40;

pub(crate) struct Server {
    folder: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// Writes configuration, with the providers' and `more` sections, and keys into `folder` and starts it there.
    pub(crate) async fn start(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        let mut server = Self::prepare(folder, simulators, more);
        server.start_again().await;
        server
    }

    /// Writes configuration, with the providers' and `more` sections, and keys into `folder`.
    pub(crate) fn prepare(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).unwrap().port();
        let text = configuration(port, folder) + &simulators.sections(folder) + more;
        fs::write(folder.join("tidings.toml"), text).unwrap();
        Self { folder: folder.to_owned(), addr: (Ipv4Addr::LOCALHOST, port).into(), child: None }
    }

    /// Starts the process and returns when it is healthy: how long that took.
    pub(crate) async fn start_again(&mut self) -> Duration {
        let began = Instant::now();
        self.launch();
        let ready = timeout(START_TIMEOUT, self.ready()).await;
        assert!(ready.is_ok(), "not healthy within {START_TIMEOUT:?}\n{}", self.log_end());
        began.elapsed()
    }

    /// Starts the process, and returns how long it took to be healthy or, after `patience`, `None`.
    pub(crate) async fn begin_to_start(&mut self, patience: Duration) -> Option<Duration> {
        let began = Instant::now();
        self.launch();
        timeout(patience, self.ready()).await.ok().map(|()| began.elapsed())
    }

    fn launch(&mut self) {
        assert!(self.child.is_none(), "one at a time");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let program = std::env::var_os("TIDINGS_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidings").into());
        let child = Command::new(program)
            .args(["serve", "--config", "tidings.toml"])
            .current_dir(&self.folder)
            .env_clear() // Settings of whoever runs the test are not the test's.
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the server's program starts"));
    }

    async fn ready(&mut self) {
        let mut caller = Caller::new(self.addr);
        let mut pulse = interval(Duration::from_millis(2));
        while !caller.call(Method::GET, "/health", None).await.is_ok_and(|answer| answer.status == 200) {
            self.check_alive();
            pulse.tick().await;
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.check_alive();
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; returns how it ended.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.check_alive();
        let child = self.child.as_mut().expect("it runs");
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(told.expect("there is a program `kill`").success());
        let began = Instant::now();
        let mut pulse = interval(Duration::from_millis(5));
        loop {
            pulse.tick().await;
            if let Some(status) = child.try_wait().unwrap() {
                self.child = None;
                return status;
            }
            assert!(began.elapsed() < START_TIMEOUT, "it does not stop within {START_TIMEOUT:?}");
        }
    }

    /// Fails when it ended by itself.
    pub(crate) fn check_alive(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
        if let Some(status) = ended {
            self.child = None;
            panic!("the server ended by itself: {status}\n{}", self.log_end());
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The last lines it logged.
    pub(crate) fn log_end(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn configuration(port: u16, folder: &Path) -> String {
    let topics =
        crate::TOPICS.map(|topic| format!("[topics.{topic}]\ntitle = \"{topic}\"\nbody = \"Number %{{number}}\"\n"));
    let topics = topics.join("\n");
    // Given as a whole path: where the server starts must not matter.
    let data = folder.join("data").display().to_string();
    format!(
        r#"
data_dir = '{data}'

[http]
listen = "127.0.0.1:{port}"

[[api.keys]]
name = "campaign"
key = "{API_KEY}"
scopes = ["publish", "read", "devices", "metrics", "operate"]

[client]
allow_anonymous = true
recovery_count_max = 10000
reply_bytes_max = "64MiB"

[channel.namespaces.match]
durable = true
history_size = 10000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

{topics}
"#
    )
}

/// Copies a folder with everything in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            let mut source = File::open(entry.path()).unwrap();
            std::io::copy(&mut source, &mut File::create(target).unwrap()).unwrap();
        }
    }
}
