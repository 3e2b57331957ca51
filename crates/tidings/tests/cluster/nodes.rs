//! The servers of a cluster, as processes of the real program.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use tidings_cluster::lease::{BEAT, SILENCE};
use tokio::time::{interval, timeout};

use crate::brokers::{Brokers, free_ports};
use crate::http::Caller;
use crate::proxy::Proxy;
use crate::{API_KEY, TOKEN_SECRET};

/// Nothing that is waited for takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// After this a lease that nobody renews is taken by the next server that may take it.
pub(crate) const LEASE_OVER: Duration = SILENCE.saturating_add(BEAT.saturating_mul(2));
/// Between two looks.
pub(crate) const PULSE: Duration = Duration::from_millis(20);
/// How long a server may take to say how it is; one that stands still does not.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
const LOG_LINES_SHOWN: usize = 30;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// What `/ready` says of a server that follows. It is ready, too, when it serves clients.
pub(crate) const STANDBY: &str = "standby";
/// What it says of a server that has no store yet, or has given it up to begin anew.
pub(crate) const JOINING: &str = "joining";

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pulse = interval(PULSE);
    let asked = async {
        loop {
            pulse.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// What `/ready` answers: its status, and what it says that the server is.
pub(crate) async fn readiness(addr: SocketAddr) -> Option<(u16, String)> {
    let mut caller = Caller::new(addr);
    let answer = timeout(LOOK_TIMEOUT, caller.call(Method::GET, "/ready", None)).await.ok()?.ok()?;
    let said = serde_json::from_slice::<Value>(&answer.body).ok();
    let said = said.as_ref().and_then(|said| said["status"].as_str());
    let said = said.unwrap_or_else(|| panic!("/ready tells no status, but {}: {:?}", answer.status, answer.body));
    Some((answer.status, said.to_owned()))
}

/// Whether this is what `/ready` answers of a server that leads, or is alone. It may be degraded.
pub(crate) fn leads((status, said): (u16, String)) -> bool {
    status == 200 && said != STANDBY
}

/// The servers, and NATS.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) nats: Brokers,
}

impl Cluster {
    /// Three servers on so many NATS servers, of which one leads and the others stand by.
    pub(crate) async fn start(broker_count: usize) -> Self {
        Self::start_with(broker_count, "").await
    }

    /// The same, with this at the end of the servers' configuration.
    pub(crate) async fn start_with(broker_count: usize, more: &str) -> Self {
        Self::start_as(broker_count, |node| more.clone_into(&mut node.more)).await
    }

    /// The same, with servers that are changed before they start.
    pub(crate) async fn start_as(broker_count: usize, change: impl Fn(&mut Node)) -> Self {
        let nats = Brokers::start(broker_count);
        let ports = nats.ports.clone();
        let mut cluster = Self { nodes: NAMES.map(Node::prepare).into(), nats };
        for node in &mut cluster.nodes {
            change(node);
            node.configure(Some(&ports));
            node.start();
        }
        cluster.settle().await;
        cluster
    }

    /// As [`Cluster::start`], on three NATS servers. Each server reaches them through a proxy of its own.
    pub(crate) async fn start_behind_proxies() -> (Self, Vec<Proxy>) {
        let nats = Brokers::start(3);
        let mut cluster = Self { nodes: NAMES.map(Node::prepare).into(), nats };
        let mut proxies = Vec::new();
        for node in &mut cluster.nodes {
            let proxy = Proxy::start(&cluster.nats.ports).await;
            node.configure(Some(&proxy.ports));
            node.start();
            proxies.push(proxy);
        }
        (cluster, proxies)
    }

    /// Waits until one server leads and the others stand by; returns the one that leads.
    pub(crate) async fn settle(&mut self) -> usize {
        let leader = self.leader_besides(None).await;
        for index in (0..self.nodes.len()).filter(|index| *index != leader) {
            self.nodes[index].until_it_says(STANDBY).await;
        }
        leader
    }

    /// Waits until a server leads, another one than this.
    pub(crate) async fn leader_besides(&mut self, other: Option<usize>) -> usize {
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
    pub(crate) async fn move_to(&mut self, to: usize) {
        let (from, name) = (self.leader_besides(Some(to)).await, self.nodes[to].name);
        let moved = self.nodes[to].ask_cluster(&["move", "--to", name]).await;
        assert_eq!((&moved["from"], &moved["leader"]), (&self.nodes[from].name.into(), &name.into()), "{moved}");
        self.nodes[to].until_it_leads().await;
        self.nodes[from].until_it_says(STANDBY).await;
    }

    /// Waits until each server has read the log to its end. Nothing may be posted meanwhile.
    pub(crate) async fn until_all_have_read(&mut self) {
        self.until_they_have_read(&NAMES).await;
    }

    /// As [`Cluster::until_all_have_read`], of these servers; the first is asked.
    pub(crate) async fn until_they_have_read(&mut self, names: &[&str]) {
        let asked = self.nodes.iter().find(|node| node.name == names[0]).expect("it is one of them");
        until("they have read the log", async || {
            let status = asked.ask_cluster(&["status"]).await;
            let nodes = status["nodes"].as_array().expect("it names the servers");
            let has_read = |node: &&Value| {
                names.iter().any(|name| node["node"] == *name) && node["sequence"] == status["log"]["last"]
            };
            (nodes.iter().filter(has_read).count() == names.len()).then_some(())
        })
        .await;
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.addr).collect()
    }
}

/// A server.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) addr: SocketAddr,
    folder: tempfile::TempDir,
    child: Option<Child>,
    /// The end of its configuration.
    more: String,
    pub(crate) may_lead: bool,
}

impl Node {
    pub(crate) fn prepare(name: &'static str) -> Self {
        let addr = (Ipv4Addr::LOCALHOST, free_ports(1)[0]).into();
        Self { name, addr, folder: tempfile::tempdir().unwrap(), child: None, more: String::new(), may_lead: true }
    }

    /// Writes its configuration: a server alone, or one of a cluster on the NATS servers at these ports.
    pub(crate) fn configure(&self, ports: Option<&[u16]>) {
        let mut text = configuration(self.addr, &self.data()) + &self.more;
        if let Some(ports) = ports {
            let servers: Vec<_> = ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
            let (servers, node, replicas, may_lead) = (servers.join(", "), self.name, ports.len(), self.may_lead);
            text += &format!(
                "\n[cluster]\nservers = [{servers}]\nnode = \"{node}\"\naddress = \"http://{}\"\nreplicas = {replicas}\n\
                 may_lead = {may_lead}\nlog_bytes_max = \"64MiB\"\n",
                self.addr
            );
        }
        fs::write(self.folder.path().join("tidings.toml"), text).unwrap();
    }

    fn program(&self) -> Command {
        let program = std::env::var_os("TIDINGS_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidings").into());
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env_clear().stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = self.program();
        command.args(["serve", "--config", "tidings.toml"]).stdout(log.try_clone().unwrap()).stderr(log);
        assert!(self.child.replace(command.spawn().expect("the program starts")).is_none(), "it runs already");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        assert!(self.is_running(), "{} runs", self.name);
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

    /// SIGTERM.
    pub(crate) async fn stop(&mut self) {
        assert!(self.is_running(), "{} runs", self.name);
        self.signal("TERM");
        let child = self.child.as_mut().expect("it runs");
        let status: ExitStatus = until("the server stops", async || child.try_wait().unwrap()).await;
        assert!(status.success(), "{} ended with {status}", self.name);
        self.child = None;
    }

    /// Whether it was started and not stopped. Fails if it has ended by itself.
    fn is_running(&mut self) -> bool {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
        assert_eq!(ended, None, "{} ended by itself: {}", self.name, self.log().lines().last().unwrap_or_default());
        self.child.is_some()
    }

    async fn leads(&self) -> bool {
        readiness(self.addr).await.is_some_and(leads)
    }

    pub(crate) async fn until_it_leads(&mut self) {
        let what = format!("{} leads", self.name);
        until(&what, async || (self.is_running() && self.leads().await).then_some(())).await;
    }

    /// Waits until it says that it is this. A standby must serve clients; what is neither that nor leads must not be ready.
    pub(crate) async fn until_it_says(&mut self, wanted: &str) {
        let status = if wanted == STANDBY { 200 } else { 503 };
        self.until_it_answers(status, wanted).await;
    }

    /// Waits until `/ready` answers with this status, and says that the server is this.
    pub(crate) async fn until_it_answers(&mut self, status: u16, wanted: &str) {
        let what = format!("{} says {wanted} with {status}", self.name);
        let wanted = Some((status, wanted.to_owned()));
        until(&what, async || (self.is_running() && readiness(self.addr).await == wanted).then_some(())).await;
    }

    /// The value of a metric without labels; `None`: the server does not tell it in time.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let mut caller = Caller::new(self.addr);
        let answer = timeout(LOOK_TIMEOUT, caller.call(Method::GET, "/metrics", None)).await.ok()?.ok()?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        assert!(value.is_some() || answer.status != 200, "{} tells no {name}", self.name);
        value
    }

    /// What `tidings cluster …` says, which must work.
    pub(crate) async fn ask_cluster(&self, arguments: &[&str]) -> Value {
        let output = self.run_cluster(&[arguments, &["--config", "tidings.toml"]].concat()).await;
        let (told, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {told} {complaint}");
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{arguments:?} tells no JSON: {error}: {told}"))
    }

    pub(crate) async fn run_cluster(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::from(self.program());
        command.arg("cluster").args(arguments).arg("--json").kill_on_drop(true);
        command.output().await.expect("the program starts")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// As an operator does so that it begins with a copy.
    pub(crate) fn move_store_away(&self) {
        fs::rename(self.data().join("store"), self.folder.path().join("store-before")).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill().and_then(|()| child.wait()); // It may have ended by itself.
        }
        let log = self.log();
        if std::thread::panicking() {
            let lines: Vec<&str> = log.lines().collect();
            let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
            println!("\nThe last words of {}:\n{shown}", self.name);
        } else {
            assert!(!log.contains("panicked"), "{} has panicked:\n{log}", self.name);
        }
    }
}

fn configuration(addr: SocketAddr, data: &Path) -> String {
    let data = data.display();
    format!(
        r#"
data_dir = '{data}'

[http]
listen = "{addr}"

[[api.keys]]
name = "test"
key = "{API_KEY}"
scopes = ["publish", "read", "devices", "operate", "metrics"]

[client]
allow_anonymous = true
reply_bytes_max = "64MiB"
recovery_count_max = 10000
token.hmac_secret = "{TOKEN_SECRET}"

[channel.namespaces.match]
durable = true
allow_publish_for_subscriber = true
history_size = 50000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_history_for_subscriber = true
allow_presence_for_subscriber = true
presence = true
join_leave = true
force_push_join_leave = true

[channel.namespaces.room]
history_size = 50000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_history_for_subscriber = true
allow_presence_for_subscriber = true
presence = true
join_leave = true
force_push_join_leave = true

[channel.namespaces.live]
allow_subscribe_for_client = true
allow_publish_for_subscriber = true

[topics.goal]
title = "goal"
body = "Number %{{number}}"
"#
    )
}
