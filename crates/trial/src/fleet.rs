//! Servers that form a cluster, and the NATS servers that they share.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::brokers::{Brokers, urls};
use crate::caller::{Readiness, STANDBY, readiness};
use crate::launcher::Server;
use crate::ports::free_addr;
use crate::wait::until;

/// How servers are called in their cluster.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// The servers, and NATS.
#[derive(Debug)]
pub struct Fleet {
    /// In the order of [`NAMES`].
    pub nodes: Vec<Server>,
    /// What they share their log on.
    pub nats: Brokers,
}

/// The section of a server's configuration that makes it one of the cluster on the NATS servers at these ports. It ends with
/// a line, so that more settings may follow.
pub fn section(server: &Server, ports: &[u16]) -> String {
    let (servers, node, addr, replicas) = (urls(ports), server.name(), server.addr, ports.len());
    // The log is small, so that it is trimmed meanwhile.
    format!(
        "\n[cluster]\nservers = [{servers}]\nnode = \"{node}\"\naddress = \"http://{addr}\"\nreplicas = {replicas}\n\
         log_bytes_max = \"64MiB\"\n"
    )
}

impl Fleet {
    /// Three servers, each at an address that it keeps and in a folder of its own, on so many NATS servers, which run. No
    /// server is configured or started.
    pub fn prepare(program: &Path, broker_count: usize) -> Self {
        let nodes = NAMES.map(|name| Server::new(name, program).at(free_addr()));
        Self { nodes: nodes.into(), nats: Brokers::start(broker_count) }
    }

    /// Waits until one server leads and the others stand by; returns the one that leads.
    pub async fn settle(&mut self) -> usize {
        let leader = self.leader_besides(None).await;
        for index in (0..self.nodes.len()).filter(|index| *index != leader) {
            self.nodes[index].until_it_says(STANDBY).await;
        }
        leader
    }

    /// Waits until a server leads, another one than this.
    pub async fn leader_besides(&mut self, other: Option<usize>) -> usize {
        let nodes = &mut self.nodes;
        until("a server leads", async || {
            for (index, node) in nodes.iter_mut().enumerate().filter(|(index, _)| Some(*index) != other) {
                if node.is_running() && node.leads().await {
                    return Some(index);
                }
            }
            None
        })
        .await
    }

    /// Lets this server lead, by the command for that, and waits until the former one stands by.
    pub async fn move_to(&mut self, to: usize) {
        let from = self.leader_besides(Some(to)).await;
        let moved = self.nodes[to].ask_cluster(&["move", "--to", self.nodes[to].name()]).await;
        let (former, name) = (self.nodes[from].name(), self.nodes[to].name());
        assert_eq!((&moved["from"], &moved["leader"]), (&former.into(), &name.into()), "{moved}");
        self.nodes[to].until_it_leads().await;
        self.nodes[from].until_it_says(STANDBY).await;
    }

    /// Waits until each server that runs has read the log to its end. Nothing may be posted meanwhile.
    pub async fn until_all_have_read(&mut self) {
        let running = self.nodes.iter_mut().filter_map(|node| node.is_running().then(|| node.name().to_owned()));
        let names: Vec<String> = running.collect();
        self.until_they_have_read(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// The same of these servers.
    pub async fn until_they_have_read(&self, names: &[&str]) {
        let asked = self.nodes.iter().find(|node| node.name() == names[0]).expect("it is one of them");
        until_they_have_read(asked, names).await;
    }

    /// Where the servers listen.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.addr).collect()
    }
}

/// Waits until these servers have read the log to its end, as the one that is asked says. Nothing may be posted meanwhile.
pub async fn until_they_have_read(asked: &Server, names: &[&str]) {
    until("they have read the log", async || {
        let status = asked.ask_cluster(&["status"]).await;
        let nodes = status["nodes"].as_array().expect("it names the servers");
        let has_read =
            |node: &&Value| names.iter().any(|name| node["node"] == *name) && node["sequence"] == status["log"]["last"];
        (nodes.iter().filter(has_read).count() == names.len()).then_some(())
    })
    .await;
}

/// What concerns a server of a cluster.
impl Server {
    /// Whether it says that it leads.
    pub async fn leads(&self) -> bool {
        readiness(self.addr).await.is_some_and(|ready| ready.leads())
    }

    /// Waits until it leads.
    pub async fn until_it_leads(&mut self) {
        self.until_ready("leads", Readiness::leads).await;
    }

    /// Waits until it says that it is this. A standby must serve clients; what is neither that nor leads must not be ready.
    pub async fn until_it_says(&mut self, wanted: &str) {
        self.until_it_answers(if wanted == STANDBY { 200 } else { 503 }, wanted).await;
    }

    /// Waits until `/ready` answers with this status, and says that the server is this.
    pub async fn until_it_answers(&mut self, status: u16, wanted: &str) {
        let what = format!("says {wanted} with {status}");
        self.until_ready(&what, |ready| ready.http_status == status && ready.said == wanted).await;
    }

    /// Waits until it serves clients, and knows that this server leads.
    pub async fn until_it_follows(&mut self, leader: &str) {
        let what = format!("follows {leader}");
        self.until_ready(&what, |ready| ready.stands_by() && ready.leader.as_deref() == Some(leader)).await;
    }

    async fn until_ready(&mut self, what: &str, is_so: impl Fn(&Readiness) -> bool) {
        let what = format!("{} {what}", self.name());
        until(&what, async || {
            let looked = self.is_running().then_some(readiness(self.addr).await)??;
            is_so(&looked).then_some(())
        })
        .await;
    }

    /// What `tidings cluster …` says, which must work.
    pub async fn ask_cluster(&self, words: &[&str]) -> Value {
        let output = self.run(&[&["cluster"], words, &["--config", "tidings.toml", "--json"]].concat()).await;
        let (told, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {told} {complaint}");
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{words:?} tells no JSON: {error}: {told}"))
    }
}

/// A cluster is also tried for panics that nobody saw.
impl Drop for Fleet {
    fn drop(&mut self) {
        let panicked = self.nodes.iter().find(|node| !std::thread::panicking() && node.has_panicked());
        if let Some(node) = panicked {
            panic!("{} has panicked:\n{}", node.name(), node.log());
        }
    }
}
