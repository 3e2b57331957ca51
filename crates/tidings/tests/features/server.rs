//! The server under test: the real program as a child process in a folder of its own.
//!
//! It listens on whatever port is free, another one in each of its lives; what it says goes to a file per life.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::brokers::Brokers;
use crate::phone::{APP, Crowd, Phone, Provider};
use crate::wait::until;

/// How long it may take to begin to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of its log that are shown where something is wrong.
const LOG_LINES_SHOWN: usize = 40;

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

pub(crate) struct Server {
    folder: PathBuf,
    child: Child,
    addr: SocketAddr,
    /// How often it was started.
    life: usize,
    /// Those that take over, and the NATS servers by which they know of each other.
    standbys: Vec<Standby>,
    brokers: Option<Brokers>,
}

/// A server of a cluster that does not lead.
struct Standby {
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// Writes its configuration, with `more` at the end, into `folder` and starts it there, with these phones known from the
    /// beginning. It asks the hook, if there is one, who may connect.
    pub(crate) async fn start<'a>(
        folder: &Path,
        provider: &Provider,
        phones: impl Iterator<Item = &'a Phone>,
        crowd: Option<&Crowd>,
        connect_hook: Option<&str>,
        more: &str,
    ) -> Self {
        prepare(folder, provider, &(configuration(provider, connect_hook) + more));
        let crowd = crowd.into_iter().flat_map(Crowd::seeds);
        let seed = json!({ "devices": phones.map(Phone::seed).chain(crowd).collect::<Vec<_>>() });
        fs::write(folder.join("seed.json"), seed.to_string()).unwrap();
        let (child, addr) = launch(folder, 1, &["--seed", "seed.json"]).await;
        Self { folder: folder.to_owned(), child, addr, life: 1, standbys: Vec::new(), brokers: None }
    }

    /// As [`Server::start`], and two more that take over when it is gone.
    pub(crate) async fn start_three<'a>(
        folder: &Path,
        provider: &Provider,
        phones: impl Iterator<Item = &'a Phone>,
    ) -> Self {
        let brokers = Brokers::start(1);
        let cluster = |node: &str| {
            let port = brokers.ports[0];
            format!("[cluster]\nservers = [\"nats://127.0.0.1:{port}\"]\nreplicas = 1\nnode = \"{node}\"\n")
        };
        let mut leader = Self::start(folder, provider, phones, None, None, &cluster("first")).await;
        for node in ["second", "third"] {
            let folder = folder.join(node);
            prepare(&folder, provider, &(configuration(provider, None) + &cluster(node)));
            let mut child = spawn(&folder, 1, &[]);
            hears(&folder, 1, &mut child, "follows the log", |said| said.contains("follows the log").then_some(()))
                .await;
            leader.standbys.push(Standby { folder, child });
        }
        leader.brokers = Some(brokers);
        leader
    }

    /// `kill -9`; one of the others takes over.
    pub(crate) async fn die(&mut self) {
        self.check();
        self.kill();
        self.follow_lead().await;
    }

    /// Is told to stop, as for an upgrade, and ends; one of the others takes over.
    pub(crate) async fn stop(&mut self) {
        self.check();
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.expect("there is a program `kill`").success());
        let child = &mut self.child;
        let status = until("it ends", START_TIMEOUT, async || child.try_wait().unwrap()).await;
        assert!(status.success(), "it ended with {status}\n{}", self.log_end());
        self.follow_lead().await;
    }

    /// From now on this is the server that leads.
    async fn follow_lead(&mut self) {
        let standbys = &mut self.standbys;
        let (index, addr) = until("another server leads", START_TIMEOUT, async || {
            let mut logs = standbys.iter().map(|standby| said(&standby.folder, 1)).enumerate();
            logs.find_map(|(index, said)| Some((index, listening(&said)?)))
        })
        .await;
        let Standby { folder, child } = self.standbys.remove(index);
        (self.folder, self.child, self.addr, self.life) = (folder, child, addr, 1);
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
        let (child, addr) = launch(folder, 1, &[]).await;
        (Self { folder: folder.to_owned(), child, addr, life: 1, standbys: Vec::new(), brokers: None }, said)
    }

    /// `kill -9`, and another life on the same folder. Without the seed: what it knows is what it has kept.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.check();
        self.kill();
        self.life += 1;
        (self.child, self.addr) = launch(&self.folder, self.life, &[]).await;
    }

    /// Makes a backup of it, while it runs.
    pub(crate) fn back_up(&self) {
        let url = format!("http://{}", self.addr);
        self.store(&["backup", "--out", "all.backup", "--url", &url, "--api-key", VAULT_KEY]);
    }

    /// All it has on disk is lost, and made anew of the backup.
    pub(crate) async fn restore(&mut self) {
        self.kill();
        fs::remove_dir_all(self.folder.join("data")).expect("its data are there");
        self.store(&["restore", "--from", "all.backup", "--data", "data"]);
        self.life += 1;
        (self.child, self.addr) = launch(&self.folder, self.life, &[]).await;
    }

    fn store(&self, words: &[&str]) {
        let (is_done, told) = self.run(&[&["store"], words].concat());
        assert!(is_done, "{words:?}: {told}");
    }

    /// Runs the program in its folder with these words. Whether it did its work, and what it said.
    pub(crate) fn run(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        let output = command.args(words).current_dir(&self.folder).env_clear().output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The first place with this text in one of its files gets another one.
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        let text = self.text(file);
        assert!(text.contains(from), "{file} has no {from:?}: {text}");
        fs::write(self.folder.join(file), text.replacen(from, to, 1)).unwrap();
    }

    /// What is in one of its files.
    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Fails when it ended by itself or panicked.
    pub(crate) fn check(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the server ended by itself: {ended:?}");
        let panicked = self.log().lines().find(|line| line.contains("panicked at")).map(str::to_owned);
        assert!(panicked.is_none(), "the server panicked: {panicked:?}");
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The last lines it said.
    pub(crate) fn log_end(&self) -> String {
        end_of(&self.log())
    }

    fn log(&self) -> String {
        (1..=self.life).map(|life| said(&self.folder, life)).collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        for Standby { child, .. } in &mut self.standbys {
            let _ = child.kill(); // It may have ended by itself.
            let _ = child.wait();
        }
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

/// Starts the program and returns when it listens.
async fn launch(folder: &Path, life: usize, words: &[&str]) -> (Child, SocketAddr) {
    let mut child = spawn(folder, life, words);
    let addr = hears(folder, life, &mut child, "listens", listening).await;
    (child, addr)
}

fn spawn(folder: &Path, life: usize, words: &[&str]) -> Child {
    let log = File::create(log_path(folder, life)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tidings"))
        .args(["serve", "--config", "tidings.toml"])
        .args(words)
        .current_dir(folder)
        .env_clear() // Settings of whoever runs the features are not theirs.
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("the server's program starts")
}

/// Waits until the server says what is looked for.
async fn hears<T>(folder: &Path, life: usize, child: &mut Child, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
    let what = format!("the server {what}");
    let heard = until(&what, START_TIMEOUT, async || {
        let said = said(folder, life);
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the server does not start: {ended:?}\n{}", end_of(&said));
        find(&said)
    });
    heard.await
}

/// Where it says that it listens.
fn listening(said: &str) -> Option<SocketAddr> {
    let (_, rest) = said.split_once("listening on http://")?;
    let (addr, _) = rest.split_once(' ')?;
    Some(addr.parse().expect("it says where it listens"))
}

fn log_path(folder: &Path, life: usize) -> PathBuf {
    folder.join(format!("log-{life}"))
}

fn said(folder: &Path, life: usize) -> String {
    let bytes = fs::read(log_path(folder, life)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
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
listen = "127.0.0.1:0"

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
