//! The server under test: the real program as a child process, always on the same port and folder; or several of them as a
//! cluster (`fleet.rs`), of which one leads.
//!
//! What a process logs goes to one file for all of its lives; the end of that is shown when something is wrong.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use hyper::Method;
use tokio::time::{Instant, interval, timeout};

use crate::API_KEY;
use crate::brokers::free_ports;
use crate::fleet::Fleet;
use crate::http::{Answer, Caller};
use crate::simulators::Simulators;

/// How long it may take to answer on `/health`, or to stop when asked to.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_LINES_SHOWN: usize = 40;

/// The server, or the servers of a cluster.
pub(crate) struct Server {
    nodes: Vec<Node>,
    /// The one that leads, or led last.
    leading: usize,
    /// What makes a cluster of them.
    fleet: Option<Fleet>,
}

impl Server {
    /// Writes configuration, with the providers' and `more` sections, and keys into `folder` and starts it there.
    pub(crate) async fn start(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        let mut server = Self::prepare(folder, simulators, more);
        server.start_again().await;
        server
    }

    /// As [`Server::start`], for a cluster of three.
    pub(crate) async fn start_cluster(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        let fleet = Fleet::start().await;
        let nodes = ["a", "b", "c"].map(|name| {
            let folder = folder.join(name);
            fs::create_dir_all(&folder).unwrap();
            let addr = free_addr();
            Node::prepare(&folder, addr, simulators, &(more.to_owned() + &fleet.section(name, addr)))
        });
        let mut server = Self { nodes: nodes.into(), leading: 0, fleet: Some(fleet) };
        server.start_again().await;
        server
    }

    /// Writes configuration, with the providers' and `more` sections, and keys into `folder`.
    pub(crate) fn prepare(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        Self { nodes: vec![Node::prepare(folder, free_addr(), simulators, more)], leading: 0, fleet: None }
    }

    /// Starts what does not run, and returns when the server takes requests: how long that took.
    pub(crate) async fn start_again(&mut self) -> Duration {
        let began = Instant::now();
        self.nodes.iter_mut().filter(|node| node.child.is_none()).for_each(Node::launch);
        let ready = timeout(START_TIMEOUT, self.ready()).await;
        assert!(ready.is_ok(), "not ready within {START_TIMEOUT:?}\n{}", self.log_end());
        began.elapsed()
    }

    /// Starts the process, and returns how long it took to be ready or, after `patience`, `None`.
    pub(crate) async fn begin_to_start(&mut self, patience: Duration) -> Option<Duration> {
        assert!(self.fleet.is_none(), "a cluster is not killed while it starts");
        let began = Instant::now();
        self.nodes[0].launch();
        timeout(patience, self.ready()).await.ok().map(|()| began.elapsed())
    }

    async fn ready(&mut self) {
        if let Some(fleet) = &mut self.fleet {
            fleet.go_on(&self.nodes);
        }
        let mut callers: Vec<_> = self.nodes.iter().map(|node| Caller::new(node.addr)).collect();
        let mut pulse = interval(Duration::from_millis(2));
        loop {
            for (index, caller) in callers.iter_mut().enumerate() {
                if caller.call(Method::GET, "/ready", None).await.is_ok_and(|answer| leads(&answer)) {
                    self.leading = index;
                    if let Some(fleet) = &mut self.fleet {
                        fleet.lead_to(self.nodes[index].addr);
                    }
                    return;
                }
                self.nodes[index].check_alive();
            }
            pulse.tick().await;
        }
    }

    /// SIGKILL. The other servers of a cluster stand still until this one is started again.
    pub(crate) fn kill(&mut self) {
        let leading = self.leading;
        if let Some(fleet) = &mut self.fleet {
            let others = self.nodes.iter().enumerate().filter(|(index, _)| *index != leading);
            fleet.stand_still(others.map(|(_, node)| node));
        }
        self.nodes[leading].kill();
    }

    /// SIGTERM; returns how the leading one ended, which is the last one.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        for index in (0..self.nodes.len()).filter(|index| *index != self.leading) {
            let status = self.nodes[index].stop().await;
            assert!(status.success(), "a standby ended with {status}\n{}", self.log_end());
        }
        self.nodes[self.leading].stop().await
    }

    /// Fails when one ended by itself.
    pub(crate) fn check_alive(&mut self) {
        self.nodes.iter_mut().for_each(Node::check_alive);
    }

    /// Where requests go.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.fleet.as_ref().map_or(self.nodes[0].addr, Fleet::addr)
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.nodes[self.leading].folder.join("data")
    }

    /// The last lines they logged.
    pub(crate) fn log_end(&self) -> String {
        self.nodes.iter().map(Node::log_end).collect::<Vec<_>>().join("\n\n")
    }
}

/// A process.
pub(crate) struct Node {
    folder: PathBuf,
    addr: SocketAddr,
    child: Option<Child>,
}

impl Node {
    fn prepare(folder: &Path, addr: SocketAddr, simulators: &Simulators, more: &str) -> Self {
        let text = configuration(addr, folder) + &simulators.sections(folder) + more;
        fs::write(folder.join("tidings.toml"), text).unwrap();
        Self { folder: folder.to_owned(), addr, child: None }
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

    fn kill(&mut self) {
        self.check_alive();
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends it a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let child = self.child.as_ref().expect("it runs");
        let told = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(told.expect("there is a program `kill`").success());
    }

    async fn stop(&mut self) -> ExitStatus {
        self.check_alive();
        self.signal("TERM");
        let child = self.child.as_mut().expect("it runs");
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

    /// Whether it was not killed.
    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    fn check_alive(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
        if let Some(status) = ended {
            self.child = None;
            panic!("the server ended by itself: {status}\n{}", self.log_end());
        }
    }

    fn log_end(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether this answer of `/ready` is one of a server that leads, or is alone. It may be degraded. A standby is ready, too.
fn leads(answer: &Answer) -> bool {
    answer.status == 200 && answer.json()["status"] != "standby"
}

fn free_addr() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_ports(1)[0]).into()
}

fn configuration(addr: SocketAddr, folder: &Path) -> String {
    let topics =
        crate::TOPICS.map(|topic| format!("[topics.{topic}]\ntitle = \"{topic}\"\nbody = \"Number %{{number}}\"\n"));
    let topics = topics.join("\n");
    // Given as a whole path: where the server starts must not matter.
    let data = folder.join("data").display().to_string();
    format!(
        r#"
data_dir = '{data}'

[http]
listen = "{addr}"

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
