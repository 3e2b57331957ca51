//! The server under test, always on the same port and folder; or several of them as a cluster (`fleet.rs`), of which one leads.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tidings_trial::caller::Caller;
use tidings_trial::fleet::NAMES;
use tidings_trial::launcher::{self, program};
use tidings_trial::ports::free_addr;
use tidings_trial::wait::PATIENCE;
use tokio::time::{Instant, interval, timeout};

use crate::API_KEY;
use crate::fleet::Fleet;
use crate::simulators::Simulators;

/// The server, or the servers of a cluster.
pub(crate) struct Server {
    nodes: Vec<launcher::Server>,
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
        let nodes = NAMES.map(|name| {
            let node = node(name, &folder.join(name));
            configure(&node, simulators, &(more.to_owned() + &fleet.section(&node)));
            node
        });
        let mut server = Self { nodes: nodes.into(), leading: 0, fleet: Some(fleet) };
        server.start_again().await;
        server
    }

    /// Writes configuration, with the providers' and `more` sections, and keys into `folder`.
    pub(crate) fn prepare(folder: &Path, simulators: &Simulators, more: &str) -> Self {
        let node = node("the server", folder);
        configure(&node, simulators, more);
        Self { nodes: vec![node], leading: 0, fleet: None }
    }

    /// Starts what does not run, and returns when the server takes requests: how long that took.
    pub(crate) async fn start_again(&mut self) -> Duration {
        let began = Instant::now();
        for node in &mut self.nodes {
            if !node.is_running() {
                node.launch(&[]);
            }
        }
        let ready = timeout(PATIENCE, self.ready()).await;
        assert!(ready.is_ok(), "not ready within {PATIENCE:?}\n{}", self.log_end());
        began.elapsed()
    }

    /// Starts the process, and returns how long it took to be ready or, after `patience`, `None`.
    pub(crate) async fn begin_to_start(&mut self, patience: Duration) -> Option<Duration> {
        assert!(self.fleet.is_none(), "a cluster is not killed while it starts");
        let began = Instant::now();
        self.nodes[0].launch(&[]);
        timeout(patience, self.ready()).await.ok().map(|()| began.elapsed())
    }

    async fn ready(&mut self) {
        if let Some(fleet) = &mut self.fleet {
            fleet.go_on(&mut self.nodes);
        }
        let mut callers: Vec<_> = self.nodes.iter().map(|node| Caller::new(node.addr, API_KEY)).collect();
        let mut pulse = interval(Duration::from_millis(2));
        loop {
            for (index, caller) in callers.iter_mut().enumerate() {
                if caller.readiness().await.is_some_and(|ready| ready.leads()) {
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
            self.nodes[index].stop_well().await;
        }
        self.nodes[self.leading].stop().await
    }

    /// Fails when one ended by itself.
    pub(crate) fn check_alive(&mut self) {
        self.nodes.iter_mut().for_each(launcher::Server::check_alive);
    }

    /// Where requests go.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.fleet.as_ref().map_or(self.nodes[0].addr, Fleet::addr)
    }

    pub(crate) fn data_folder(&self) -> PathBuf {
        self.nodes[self.leading].path("data")
    }

    /// The last lines they logged.
    pub(crate) fn log_end(&self) -> String {
        self.nodes.iter().map(launcher::Server::log_end).collect::<Vec<_>>().join("\n\n")
    }
}

fn node(name: &str, folder: &Path) -> launcher::Server {
    fs::create_dir_all(folder).unwrap();
    launcher::Server::in_folder(name, program(env!("CARGO_BIN_EXE_tidings")), folder).at(free_addr())
}

fn configure(node: &launcher::Server, simulators: &Simulators, more: &str) {
    let folder = node.path("");
    node.configure(&(configuration(node.addr, &folder) + &simulators.sections(&folder) + more));
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
