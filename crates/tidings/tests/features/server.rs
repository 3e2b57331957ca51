//! The servers under test: the real program as child processes, each in a folder of its own.
//!
//! A scenario has one server or, as a cluster, three: then the first one leads in the beginning, apps use a server that does not
//! lead, back ends the other one, and people with consoles and terminals the one that back ends use. Who leads after a death
//! is known by what the servers say. The servers of a cluster share one NATS server.
//!
//! A server alone listens on whatever port is free, another one in each of its lives; one of a cluster keeps its port, which
//! the others know. What a server says goes to a file per life.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tidings_client::ServerUrl;
use tokio::net::TcpStream;

use crate::brokers::Brokers;
use crate::phone::{APP, Crowd, Phone, Provider};
use crate::wait::{try_until, until};

/// How long it may take to begin to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of its log that are shown where something is wrong.
const LOG_LINES_SHOWN: usize = 40;
/// The line of the configuration that a server of a cluster replaces.
const ANY_PORT: &str = "listen = \"127.0.0.1:0\"";

/// Publications that a channel keeps.
pub(crate) const HISTORY_SIZE: usize = 100;
/// What connection tokens are signed with.
pub(crate) const TOKEN_SECRET: &str = "a-secret-of-the-backend-and-the-server";
/// The key of the backend, for everything.
pub(crate) const BACKEND_KEY: &str = "key-of-the-backend-0123456789";
/// A key for events that reach ten devices at most.
pub(crate) const SMALL_KEY: &str = "key-for-small-events-0123456789";
pub(crate) const AUDITOR_KEY: &str = "key-of-the-auditor-0123456789";
/// A key for backups and nothing else.
pub(crate) const VAULT_KEY: &str = "key-for-backups-only-0123456789";
/// A key for devices and nothing else.
pub(crate) const DEVICES_KEY: &str = "key-for-devices-only-0123456789";

/// The translators' work; English is in the configuration.
const POLISH: &str = r#"msgid ""
msgstr ""
"Language: pl\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=3; plural=n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;\n"

#, ruby-format
msgid "Goal for %{team}!"
msgstr "Gol: %{team}!"

#, ruby-format
msgid "Derby goal for %{team}!"
msgstr "Derby: %{team}!"

msgid "Open the app to see it again."
msgstr "Otwórz aplikację, aby zobaczyć go jeszcze raz."

#, ruby-format
msgid "%{team} play at %{at}"
msgstr "%{team} gra o %{at}"

msgctxt "team"
msgid "Sweden"
msgstr "Szwecja"

msgid "Red card!"
msgstr "Czerwona kartka!"

msgctxt "|female"
msgid "Red card!"
msgstr "Wyrzucona z boiska!"

msgctxt "|male"
msgid "Red card!"
msgstr "Wyrzucony z boiska!"

#, ruby-format
msgid "%{goals} goal"
msgid_plural "%{goals} goals"
msgstr[0] "%{goals} gol"
msgstr[1] "%{goals} gole"
msgstr[2] "%{goals} goli"
"#;

/// How many servers a cluster has here.
pub(crate) const CLUSTER_SIZE: usize = 3;
/// How they are called in their cluster.
const NAMES: [&str; CLUSTER_SIZE] = ["first", "second", "third"];
/// Where ports of servers are looked for: below those that tests with NATS servers draw, and those that the system gives to
/// whoever asks for any.
const PORTS: std::ops::Range<u16> = 5_000..10_000;
/// The port that was handed out last; 0: none.
static LAST_PORT: Mutex<u16> = Mutex::new(0);

/// A server of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Whichever leads at that moment.
    Leading,
    /// The one that was started in this place, counted from 0.
    Started(usize),
}

/// What a scenario's servers are started with.
pub(crate) struct Setup<'a, P> {
    /// 1, or [`CLUSTER_SIZE`].
    pub(crate) count: usize,
    /// For the first one. The others copy its files.
    pub(crate) folder: &'a Path,
    pub(crate) provider: &'a Provider,
    /// Known from the beginning, and these too.
    pub(crate) phones: P,
    pub(crate) crowd: Option<&'a Crowd>,
    /// The hook that is asked who may connect.
    pub(crate) connect_hook: Option<&'a str>,
    /// The end of the configuration.
    pub(crate) more: &'a str,
}

/// One server, or those of a cluster.
pub(crate) struct Server {
    /// In the order in which they were started for the first time.
    nodes: Vec<Node>,
    /// Which of them leads.
    leader: usize,
    #[expect(dead_code, reason = "ends with the servers")]
    brokers: Option<Brokers>,
}

/// A server, running or not.
struct Node {
    name: &'static str,
    folder: PathBuf,
    child: Option<Child>,
    addr: SocketAddr,
    /// How often it was started.
    life: usize,
}

impl Server {
    pub(crate) async fn start<'a>(setup: Setup<'_, impl Iterator<Item = &'a Phone>>) -> Self {
        let Setup { count, folder, provider, phones, crowd, connect_hook, more } = setup;
        assert!([1, CLUSTER_SIZE].contains(&count), "no scenario has {count} servers");
        let brokers = (count > 1).then(|| Brokers::start(1));
        if let Some(brokers) = &brokers {
            // A server that finds nobody there tries again a second later.
            let is_there = async || TcpStream::connect((Ipv4Addr::LOCALHOST, brokers.ports[0])).await.ok();
            until("the NATS server listens", START_TIMEOUT, is_there).await;
        }
        let mut nodes: Vec<Node> = NAMES[..count].iter().map(|name| Node::new(name, folder)).collect();
        for node in nodes.iter_mut().skip(1) {
            node.folder = folder.join(node.name);
            copy_files(folder, &node.folder);
        }
        for node in &mut nodes {
            let mut configuration = configuration(provider, connect_hook) + more;
            if let Some(brokers) = &brokers {
                node.addr = (Ipv4Addr::LOCALHOST, free_port()).into();
                configuration = configuration.replacen(ANY_PORT, &format!("listen = \"{}\"", node.addr), 1);
                configuration += &node.cluster_settings(brokers.ports[0]);
            }
            prepare(&node.folder, provider, &configuration);
        }
        let crowd = crowd.into_iter().flat_map(Crowd::seeds);
        let seed = json!({ "devices": phones.map(Phone::seed).chain(crowd).collect::<Vec<_>>() });
        fs::write(folder.join("seed.json"), seed.to_string()).unwrap();
        // The first one leads, as it is alone until then. Only it has the seed: who leads later must not register them anew.
        nodes[0].launch(&["--seed", "seed.json"]).await;
        nodes.iter_mut().skip(1).for_each(|node| node.spawn(&[]));
        let mut server = Self { nodes, leader: 0, brokers };
        server.until_others_follow().await;
        server
    }

    /// Makes its configuration from one of Centrifugo and starts it in `folder`; what the import said about it.
    pub(crate) async fn start_imported(folder: &Path, centrifugo: &Value) -> (Self, String) {
        fs::write(folder.join("centrifugo.json"), centrifugo.to_string()).unwrap();
        let mut import = Command::new(env!("CARGO_BIN_EXE_tidings"));
        import.args(["config", "import", "centrifugo.json", "--secrets", "secrets"]).current_dir(folder).env_clear();
        let made = import.output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "the import fails: {said}");
        fs::write(folder.join("tidings.toml"), made.stdout).unwrap();
        let mut node = Node::new(NAMES[0], folder);
        node.launch(&[]).await;
        (Self { nodes: vec![node], leader: 0, brokers: None }, said)
    }

    /// `kill -9` to the one that leads; one of the others takes over.
    pub(crate) async fn die(&mut self) {
        assert!(self.nodes.len() > 1, "nobody takes over");
        self.check();
        self.nodes[self.leader].kill();
        self.follow_lead().await;
    }

    /// The one that leads is told to stop, as for an upgrade, and ends; one of the others takes over.
    pub(crate) async fn stop(&mut self) {
        assert!(self.nodes.len() > 1, "nobody takes over");
        self.check();
        self.nodes[self.leader].stop().await;
        self.follow_lead().await;
    }

    /// `kill -9`, and another life on the same folder. Without the seed: what it knows is what it has kept. In a cluster it
    /// is the one that leads, and another one may lead then.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.check();
        let is_alone = self.nodes.len() == 1;
        let node = &mut self.nodes[self.leader];
        node.kill();
        if is_alone {
            return node.launch(&[]).await;
        }
        node.spawn(&[]);
        self.follow_lead().await;
    }

    /// Waits until another server leads, and the others follow it.
    async fn follow_lead(&mut self) {
        let nodes = &mut self.nodes;
        let leading = until("another server leads", START_TIMEOUT, async || {
            let mut running = nodes.iter_mut().enumerate().filter(|(_, node)| node.child.is_some());
            running.find_map(|(index, node)| node.listening().map(|_| index))
        });
        self.leader = leading.await;
        self.until_others_follow().await;
    }

    /// Waits until those that run and do not lead serve clients, and know who leads.
    async fn until_others_follow(&mut self) {
        let leader = self.nodes[self.leader].name;
        for (_, node) in self.nodes.iter_mut().enumerate().filter(|(index, _)| *index != self.leader) {
            if node.child.is_some() {
                node.until_it_follows(leader).await;
            }
        }
    }

    /// Waits until all servers have read what the one that leads has acknowledged. Nothing may be acknowledged meanwhile.
    pub(crate) async fn until_all_have_read(&self) {
        if self.nodes.len() == 1 {
            return;
        }
        until("all have read the log", START_TIMEOUT, async || {
            let (is_done, told) = self.run(&["cluster", "status", "--config", "tidings.toml", "--json"]);
            assert!(is_done, "{told}");
            let told: Value = serde_json::from_str(&told).expect("it tells JSON");
            let nodes = told["nodes"].as_array().expect("it names the servers");
            let count = nodes.iter().filter(|node| node["sequence"] == told["log"]["last"]).count();
            (count == self.nodes.iter().filter(|node| node.child.is_some()).count()).then_some(())
        })
        .await;
    }

    /// Makes a backup of it, while it runs.
    pub(crate) fn back_up(&self) {
        let url = format!("http://{}", self.alone().addr);
        self.store(&["backup", "--out", "all.backup", "--url", &url, "--api-key", VAULT_KEY]);
    }

    /// All it has on disk is lost, and made anew of the backup.
    pub(crate) async fn restore(&mut self) {
        self.nodes[0].kill();
        fs::remove_dir_all(self.alone().folder.join("data")).expect("its data are there");
        self.store(&["restore", "--from", "all.backup", "--data", "data"]);
        self.nodes[0].launch(&[]).await;
    }

    /// The server of a scenario that has one.
    fn alone(&self) -> &Node {
        assert_eq!(self.nodes.len(), 1, "this says nothing about a cluster: tag the scenario @one");
        &self.nodes[0]
    }

    fn store(&self, words: &[&str]) {
        let (is_done, told) = self.run(&[&["store"], words].concat());
        assert!(is_done, "{words:?}: {told}");
    }

    /// Runs the program with these words in the folder of the server that leads. Whether it did its work, and what it said.
    pub(crate) fn run(&self, words: &[&str]) -> (bool, String) {
        self.nodes[self.leader].run(words)
    }

    /// The same in the folder of each server. Fails if it does not do its work.
    pub(crate) fn run_in_each(&self, words: &[&str]) {
        for node in &self.nodes {
            let (is_done, told) = node.run(words);
            assert!(is_done, "{words:?}: {told}");
        }
    }

    /// The first place with this text in one of its files gets another one, on each server.
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        for node in &self.nodes {
            let text = node.text(file);
            assert!(text.contains(from), "{file} has no {from:?}: {text}");
            fs::write(node.folder.join(file), text.replacen(from, to, 1)).unwrap();
        }
    }

    /// What is in one of the files of the server that leads.
    pub(crate) fn text(&self, file: &str) -> String {
        self.nodes[self.leader].text(file)
    }

    /// Fails when one ended by itself or panicked.
    pub(crate) fn check(&mut self) {
        self.nodes.iter_mut().for_each(Node::check);
    }

    /// Where apps connect.
    pub(crate) fn app_addr(&self) -> SocketAddr {
        self.addrs()[0]
    }

    /// What back ends, and people with consoles and terminals, use: another server than apps do, if there is one.
    pub(crate) fn addr(&self) -> SocketAddr {
        let addrs = self.addrs();
        addrs[1.min(addrs.len() - 1)]
    }

    pub(crate) fn addr_of(&self, place: Place) -> SocketAddr {
        let node = match place {
            Place::Leading => &self.nodes[self.leader],
            Place::Started(index) => self.nodes.get(index).unwrap_or_else(|| panic!("there is no server {index}")),
        };
        assert!(node.child.is_some(), "the {} server is gone", node.name);
        node.addr
    }

    /// Those that run, and last the one that leads.
    fn addrs(&self) -> Vec<SocketAddr> {
        let running =
            self.nodes.iter().enumerate().filter(|(index, node)| node.child.is_some() && *index != self.leader);
        running.map(|(_, node)| node.addr).chain([self.nodes[self.leader].addr]).collect()
    }

    /// The last lines they said.
    pub(crate) fn log_end(&self) -> String {
        let end = |node: &Node| match self.nodes.len() {
            1 => end_of(&node.log()),
            _ => format!("--- the {} server, {}\n{}\n", node.name, node.addr, end_of(&node.log())),
        };
        self.nodes.iter().map(end).collect()
    }
}

impl Node {
    /// One in this folder that was never started.
    fn new(name: &'static str, folder: &Path) -> Self {
        let addr = (Ipv4Addr::LOCALHOST, 0).into(); // It says where it listens.
        Self { name, folder: folder.to_owned(), child: None, addr, life: 0 }
    }

    /// Its part of the cluster whose NATS server listens at this port.
    fn cluster_settings(&self, port: u16) -> String {
        let Self { name, addr, .. } = self;
        format!(
            "\n[cluster]\nservers = [\"nats://127.0.0.1:{port}\"]\nreplicas = 1\nnode = \"{name}\"\naddress = \
             \"http://{addr}\"\nlog_bytes_max = \"64MiB\"\n"
        )
    }

    /// Starts the program and returns when it listens, and does all the work.
    async fn launch(&mut self, words: &[&str]) {
        self.spawn(words);
        let listening = try_until(START_TIMEOUT, async || self.listening()).await;
        self.addr = listening.unwrap_or_else(|| panic!("the server does not listen\n{}", end_of(&self.log())));
    }

    /// Starts the program.
    fn spawn(&mut self, words: &[&str]) {
        self.life += 1;
        let log = File::create(self.log_path(self.life)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(["serve", "--config", "tidings.toml"])
            .args(words)
            .current_dir(&self.folder)
            .env_clear() // Settings of whoever runs the features are not theirs.
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the server's program starts"));
    }

    /// Where it says that it listens: when it leads, or is alone.
    fn listening(&mut self) -> Option<SocketAddr> {
        self.expect_life();
        let said = self.said(self.life);
        let (_, rest) = said.split_once("listening on http://")?;
        let (addr, _) = rest.split_once(' ')?;
        Some(addr.parse().expect("it says where it listens"))
    }

    /// Waits until it serves clients, and says that this server leads.
    async fn until_it_follows(&mut self, leader: &str) {
        let (url, what) =
            (ServerUrl::of_listener(self.addr), format!("the {} server follows the {leader} one", self.name));
        until(&what, START_TIMEOUT, async || {
            self.expect_life();
            // Before it listens there is no answer, and at first an empty one.
            let (status, told) = url.request(Method::GET, "/ready", None, None).await.ok()?;
            let told: Value = serde_json::from_slice(&told).ok()?;
            let is_so = status == 200 && told["status"] == "standby" && told["leader"]["node"] == leader;
            is_so.then_some(())
        })
        .await;
    }

    /// Fails when it ended by itself.
    fn expect_life(&mut self) {
        let ended = self.child.as_mut().expect("it was started").try_wait().unwrap();
        assert!(ended.is_none(), "the {} server ended by itself: {ended:?}\n{}", self.name, end_of(&self.log()));
    }

    /// Fails when it ended by itself or panicked.
    fn check(&mut self) {
        if self.child.is_some() {
            self.expect_life();
        }
        let panicked = self.log().lines().find(|line| line.contains("panicked at")).map(str::to_owned);
        assert!(panicked.is_none(), "the {} server panicked: {panicked:?}", self.name);
    }

    fn run(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        let output = command.args(words).current_dir(&self.folder).env_clear().output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn log(&self) -> String {
        (1..=self.life).map(|life| self.said(life)).collect()
    }

    fn said(&self, life: usize) -> String {
        let bytes = fs::read(self.log_path(life)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self, life: usize) -> PathBuf {
        self.folder.join(format!("log-{life}"))
    }

    /// SIGTERM.
    async fn stop(&mut self) {
        let child = self.child.as_mut().expect("it runs");
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(told.expect("there is a program `kill`").success());
        let status = until("it ends", START_TIMEOUT, async || child.try_wait().unwrap()).await;
        assert!(status.success(), "it ended with {status}\n{}", end_of(&self.log()));
        self.child = None;
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // It may have ended by itself.
            let _ = child.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody has, another one for each who asks: scenarios run side by side, and a server takes its port later.
fn free_port() -> u16 {
    let mut last = LAST_PORT.lock().unwrap_or_else(PoisonError::into_inner);
    if *last == 0 {
        *last = rand::random_range(PORTS); // Another run has others.
    }
    loop {
        *last = if *last + 1 < PORTS.end { *last + 1 } else { PORTS.start };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, *last)).is_ok() {
            return *last;
        }
    }
}

/// What settings of the scenario name, beside what all servers have.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let files = fs::read_dir(from).unwrap().map(Result::unwrap);
    for file in files.filter(|entry| entry.file_type().unwrap().is_file()) {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Writes what a server needs into its folder.
fn prepare(folder: &Path, provider: &Provider, configuration: &str) {
    let polish = folder.join("locales/pl/LC_MESSAGES");
    fs::create_dir_all(&polish).unwrap();
    fs::write(polish.join("messages.po"), POLISH).unwrap();
    fs::write(folder.join("ca.pem"), provider.ca_pem()).unwrap();
    fs::write(folder.join("key.p8"), provider.key_pem()).unwrap();
    fs::write(folder.join("tidings.toml"), configuration).unwrap();
}

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

fn configuration(provider: &Provider, connect_hook: Option<&str>) -> String {
    let connect_hook = connect_hook.map(|name| format!("connect_hook = \"{name}\"\n")).unwrap_or_default();
    let (port, key_id, team_id) = (provider.port(), provider.key_id(), provider.team_id());
    format!(
        r#"
data_dir = "data"

[http]
{ANY_PORT}

[[api.keys]]
name = "backend"
key = "{BACKEND_KEY}"

[[api.keys]]
name = "devices"
key = "{DEVICES_KEY}"
scopes = ["devices"]

[[api.keys]]
name = "vault"
key = "{VAULT_KEY}"
scopes = ["backup"]

[[api.keys]]
name = "auditor"
key = "{AUDITOR_KEY}"
scopes = ["audit"]

[[api.keys]]
name = "small"
key = "{SMALL_KEY}"
audience_max = 10

[client]
{connect_hook}sse = true
uni_sse = true
token.hmac_secret = "{TOKEN_SECRET}"
connection_count_max = 64

[edge]
loops = 1

[channel.namespaces.match]
durable = true
event_texts = true
history_size = {HISTORY_SIZE}
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true

[channel.namespaces.room]
history_size = {HISTORY_SIZE}
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_tags_filter = true
presence = true
join_leave = true
force_push_join_leave = true

[channel.namespaces.map]
history_size = {HISTORY_SIZE}
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_thinning = true
latest_key = "thing"

[topics.goal]
title = "Goal for %{{team}}!"
body = "Open the app to see it again."

[topics.score]
title = "%{{goals}} goal"
title_plural = "%{{goals}} goals"
body = "Open the app to see it again."
count = "goals"

[topics.kick-off]
title = "%{{team}} play at %{{at}}"
body = "Open the app to see it again."

[topics.red-card]
title = "Red card!"
body = "Open the app to see it again."
select = "gender"
values = ["female", "male"]

[topics.derby]
title = "Derby goal for %{{team}}!"
body = "Open the app to see it again."
missing = "skip"

[translations]
dir = "locales"
source_locale = "en"

[apns.simulator]
host = "127.0.0.1"
port = {port}
key_id = "{key_id}"
team_id = "{team_id}"
key_file = "key.p8"
ca_file = "ca.pem"
apps = ["{APP}"]
connection_count = 1
connection_count_max = 1
stream_count_max = 100
lake_capacity = 100
"#
    )
}
