//! The servers under test, each in a folder of its own.
//!
//! A scenario has one server or, as a cluster, three: then the first one leads in the beginning, apps use a server that does not
//! lead, back ends the other one, and people with consoles and terminals the one that back ends use. Who leads after a death
//! is known by what the servers say. The servers of a cluster share one NATS server.
//!
//! A server alone listens on whatever port is free, another one in each of its lives; one of a cluster keeps its port, which
//! the others know.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_trial::brokers::Brokers;
use tidings_trial::fleet::{section, until_they_have_read};
use tidings_trial::launcher;
use tidings_trial::ports::free_addr;

use crate::phone::{APP, Crowd, Phone, Provider};
use crate::wait::until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidings");
/// How long it may take to begin to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
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
    nodes: Vec<launcher::Server>,
    /// Which of them leads.
    leader: usize,
    #[expect(dead_code, reason = "ends with the servers")]
    brokers: Option<Brokers>,
}

impl Server {
    pub(crate) async fn start<'a>(setup: Setup<'_, impl Iterator<Item = &'a Phone>>) -> Self {
        let Setup { count, folder, provider, phones, crowd, connect_hook, more } = setup;
        assert!([1, CLUSTER_SIZE].contains(&count), "no scenario has {count} servers");
        let brokers = (count > 1).then(|| Brokers::start(1));
        let mut nodes = Vec::new();
        for (index, name) in NAMES[..count].iter().enumerate() {
            let place = if index == 0 { folder.to_owned() } else { folder.join(name) };
            if index > 0 {
                copy_files(folder, &place);
            }
            let mut configuration = configuration(provider, connect_hook) + more;
            let mut node = launcher::Server::in_folder(name, PROGRAM, &place);
            if let Some(brokers) = &brokers {
                node.addr = free_addr();
                configuration = configuration.replacen(ANY_PORT, &format!("listen = \"{}\"", node.addr), 1);
                configuration += &section(&node, &brokers.ports);
            }
            prepare(&node, provider, &configuration);
            nodes.push(node);
        }
        let crowd = crowd.into_iter().flat_map(Crowd::seeds);
        let seed = json!({ "devices": phones.map(Phone::seed).chain(crowd).collect::<Vec<_>>() });
        fs::write(folder.join("seed.json"), seed.to_string()).unwrap();
        if let Some(brokers) = &brokers {
            brokers.until_they_are_healthy().await; // A server that finds nobody there tries again a second later.
        }
        // The first one leads, as it is alone until then. Only it has the seed: who leads later must not register them anew.
        nodes[0].launch(&["--seed", "seed.json"]);
        nodes[0].until_it_listens(START_TIMEOUT).await;
        nodes.iter_mut().skip(1).for_each(|node| node.launch(&[]));
        let mut server = Self { nodes, leader: 0, brokers };
        server.until_others_follow().await;
        server
    }

    /// Makes its configuration from one of Centrifugo and starts it in `folder`; what the import said about it.
    pub(crate) async fn start_imported(folder: &Path, centrifugo: &Value) -> (Self, String) {
        fs::write(folder.join("centrifugo.json"), centrifugo.to_string()).unwrap();
        let mut import = Command::new(PROGRAM);
        import.args(["config", "import", "centrifugo.json", "--secrets", "secrets"]).current_dir(folder).env_clear();
        let made = import.output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "the import fails: {said}");
        fs::write(folder.join("tidings.toml"), made.stdout).unwrap();
        let mut node = launcher::Server::in_folder(NAMES[0], PROGRAM, folder);
        node.start().await;
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
        self.nodes[self.leader].stop_well().await;
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
            return node.start().await;
        }
        node.launch(&[]);
        self.follow_lead().await;
    }

    /// Waits until another server leads, and the others follow it.
    async fn follow_lead(&mut self) {
        let nodes = &mut self.nodes;
        let leading = until("another server leads", START_TIMEOUT, async || {
            let mut running = nodes.iter_mut().enumerate();
            running.find_map(|(index, node)| (node.is_running() && node.listening().is_some()).then_some(index))
        });
        self.leader = leading.await;
        self.until_others_follow().await;
    }

    /// Waits until those that run and do not lead serve clients, and know who leads.
    async fn until_others_follow(&mut self) {
        let leader = self.nodes[self.leader].name().to_owned();
        for (_, node) in self.nodes.iter_mut().enumerate().filter(|(index, _)| *index != self.leader) {
            if node.is_running() {
                node.until_it_follows(&leader).await;
            }
        }
    }

    /// Waits until all servers have read what the one that leads has acknowledged. Nothing may be acknowledged meanwhile.
    pub(crate) async fn until_all_have_read(&self) {
        if self.nodes.len() > 1 {
            let running: Vec<_> = self.running().map(launcher::Server::name).collect();
            until_they_have_read(&self.nodes[self.leader], &running).await;
        }
    }

    /// Makes a backup of it, while it runs.
    pub(crate) fn back_up(&self) {
        let url = format!("http://{}", self.alone().addr);
        self.store(&["backup", "--out", "all.backup", "--url", &url, "--api-key", VAULT_KEY]);
    }

    /// All it has on disk is lost, and made anew of the backup.
    pub(crate) async fn restore(&mut self) {
        self.nodes[0].kill();
        fs::remove_dir_all(self.alone().path("data")).expect("its data are there");
        self.store(&["restore", "--from", "all.backup", "--data", "data"]);
        self.nodes[0].start().await;
    }

    /// The server of a scenario that has one.
    fn alone(&self) -> &launcher::Server {
        assert_eq!(self.nodes.len(), 1, "this says nothing about a cluster: tag the scenario @one");
        &self.nodes[0]
    }

    fn store(&self, words: &[&str]) {
        let (is_done, told) = self.run(&[&["store"], words].concat());
        assert!(is_done, "{words:?}: {told}");
    }

    /// Runs the program with these words in the folder of the server that leads. Whether it did its work, and what it said.
    pub(crate) fn run(&self, words: &[&str]) -> (bool, String) {
        run(&self.nodes[self.leader], words)
    }

    /// The same in the folder of each server. Fails if it does not do its work.
    pub(crate) fn run_in_each(&self, words: &[&str]) {
        for node in &self.nodes {
            let (is_done, told) = run(node, words);
            assert!(is_done, "{words:?}: {told}");
        }
    }

    /// The first place with this text in one of its files gets another one, on each server.
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        for node in &self.nodes {
            let text = text(node, file);
            assert!(text.contains(from), "{file} has no {from:?}: {text}");
            node.write(file, text.replacen(from, to, 1));
        }
    }

    /// What is in one of the files of the server that leads.
    pub(crate) fn text(&self, file: &str) -> String {
        text(&self.nodes[self.leader], file)
    }

    /// Fails when one ended by itself or panicked.
    pub(crate) fn check(&mut self) {
        for node in &mut self.nodes {
            node.check_alive();
            let log = node.log();
            let panicked = log.lines().find(|line| line.contains("panicked at"));
            assert!(panicked.is_none(), "the {} server panicked: {panicked:?}", node.name());
        }
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
        assert!(node.is_started(), "the {} server is gone", node.name());
        node.addr
    }

    /// Those that run, and last the one that leads.
    fn addrs(&self) -> Vec<SocketAddr> {
        let leader = self.nodes[self.leader].addr;
        self.running().map(|node| node.addr).filter(|addr| *addr != leader).chain([leader]).collect()
    }

    fn running(&self) -> impl Iterator<Item = &launcher::Server> {
        self.nodes.iter().filter(|node| node.is_started())
    }

    /// The last lines they said.
    pub(crate) fn log_end(&self) -> String {
        let end = |node: &launcher::Server| match self.nodes.len() {
            1 => node.log_end(),
            _ => format!("--- the {} server, {}\n{}\n", node.name(), node.addr, node.log_end()),
        };
        self.nodes.iter().map(end).collect()
    }
}

fn run(node: &launcher::Server, words: &[&str]) -> (bool, String) {
    let output = node.command(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn text(node: &launcher::Server, file: &str) -> String {
    fs::read_to_string(node.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
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
fn prepare(node: &launcher::Server, provider: &Provider, configuration: &str) {
    fs::create_dir_all(node.path("locales/pl/LC_MESSAGES")).unwrap();
    node.write("locales/pl/LC_MESSAGES/messages.po", POLISH);
    node.write("ca.pem", provider.ca_pem());
    node.write("key.p8", provider.key_pem());
    node.configure(configuration);
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
