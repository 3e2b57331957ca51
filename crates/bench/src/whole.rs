//! A whole server as a process on one core: `tidings serve`, or Centrifugo 5 or 6 with the same rules. All keep their channels
//! in memory, take the same requests and speak the same protocol. And the bare loop beside them, which only answers.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_client::ServerUrl;
use tidings_http1::{Client, ClientConfig, Origin, Request};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_telemetry::process::{TICKS_PER_SECOND, memory_bytes, stat_field};
use tidings_trial::ports::free_addr;
use tidings_trial::process::Process as Child;
use tokio::time::{Instant, sleep};

use crate::args::PeerRole;
use crate::load::TIMEOUT;
use crate::peer::Peer;
use crate::process::pin_thread;
use crate::report::Report;
use crate::swarm::{data, until};

/// How long a server may take to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// A server rests that has used so little CPU for so long; it has its own pulse.
const REST: Duration = Duration::from_millis(300);
const REST_CPU_MAX: Duration = Duration::from_millis(10);
/// The API key of all.
const API_KEY: &str = "0123456789abcdef0123456789abcdef";
/// Where `conformance/peers.sh` and `cargo xtask bench` put Centrifugo, by its major version.
const CENTRIFUGOS: [(u8, &str); 2] = [(5, "go/bin/centrifugo"), (6, "go/bin/centrifugo6")];

/// Which server.
#[derive(Debug, Clone)]
pub(super) enum Which {
    Tidings,
    Centrifugo(Centrifugo),
    /// What the system takes for a request and its answer.
    Bare,
}

/// A program of Centrifugo.
#[derive(Debug, Clone)]
pub(super) struct Centrifugo {
    program: PathBuf,
    major: u8,
    /// Such as `6.9.1`.
    version: String,
}

impl Which {
    /// Ours, and each Centrifugo in this folder; of a missing one the report says that it is missing.
    pub(super) fn servers(peers_folder: &Path, report: &mut Report) -> Result<Vec<Self>, CommandError> {
        let mut all = vec![Self::Tidings];
        for (major, path) in CENTRIFUGOS {
            let program = peers_folder.join(path);
            if program.is_file() {
                let version = built_version(&fs::read(&program)?, major);
                let version = version
                    .ok_or_else(|| failed(format!("{} is no program of Centrifugo {major}", program.display())))?;
                all.push(Self::Centrifugo(Centrifugo { program, major, version }));
            } else {
                report.note(format!(
                    "{} is not there, so Centrifugo {major} is left out; conformance/peers.sh builds it.",
                    program.display()
                ));
            }
        }
        Ok(all)
    }
}

/// The version of Centrifugo that a program was built from. Go writes the versions of all modules into a program; Centrifugo's
/// own answer is 0.0.0 unless its own scripts build it.
fn built_version(program: &[u8], major: u8) -> Option<String> {
    let module = format!("\tgithub.com/centrifugal/centrifugo/v{major}\tv");
    let at = memchr::memmem::find(program, module.as_bytes())? + module.len();
    let version: Vec<u8> = program[at..].iter().copied().take_while(|byte| !byte.is_ascii_whitespace()).collect();
    String::from_utf8(version).ok().filter(|version| version.split('.').count() == 3)
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tidings => f.write_str("Tidings"),
            Self::Centrifugo(Centrifugo { version, .. }) => write!(f, "Centrifugo {version}"),
            Self::Bare => f.write_str("bare loop"),
        }
    }
}

/// A running server. Its folder is removed when this is dropped.
pub(super) struct Whole {
    process: Process,
    addr: SocketAddr,
}

enum Process {
    Server { child: Child, _folder: TempDir },
    Bare(Peer),
}

impl Whole {
    /// Starts it on a free port and on this core.
    pub(super) async fn start(which: &Which, core: usize) -> Result<Self, CommandError> {
        if matches!(which, Which::Bare) {
            let (peer, addr) = Peer::start(PeerRole::BareHttp, &[core])?;
            return Ok(Self { process: Process::Bare(peer), addr });
        }
        let folder = TempDir::with_prefix("tidings-bench-")?;
        let addr = free_addr();
        let mut child = match which {
            Which::Centrifugo(which) => centrifugo(which, folder.path(), addr.port())?,
            _ => ours(folder.path(), addr.port())?,
        };
        let started = tokio::task::spawn_blocking(move || {
            // On a thread of its own, which ends: the process stays where the thread was when it started.
            let thread = std::thread::spawn(move || pin_thread(&[core]).and_then(|()| child.start()).map(|()| child));
            thread.join().expect("starting a process does not panic")
        });
        let child = started.await.expect("starting a process does not panic");
        let mut child = child.map_err(|error| failed_by(&format!("cannot start {which}"), &error))?;
        let began = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if let Some(status) = child.ended() {
                return Err(failed(format!("{which} ended too early ({status}): {}", child.log().trim())));
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(failed(format!("{which} does not accept connections: {}", child.log().trim())));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { process: Process::Server { child, _folder: folder }, addr })
    }

    fn id(&self) -> u32 {
        match &self.process {
            Process::Server { child, .. } => child.id().unwrap_or_default(),
            Process::Bare(peer) => peer.id(),
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// CPU time of all its threads, kernel included, also of those that have ended; in steps of a hundredth of a second.
    pub(super) fn cpu(&self) -> Result<Duration, CommandError> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        let ticks = stat_field(&text, 14).zip(stat_field(&text, 15)).map(|(user, system)| user + system);
        let ticks = ticks.ok_or_else(|| failed("no CPU time in /proc/PID/stat"))?;
        Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
    }

    /// Files and sockets that it has open.
    pub(super) fn file_count(&self) -> Result<usize, CommandError> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Waits until it has closed its clients, so that no more than these files are open, and has stopped working.
    pub(super) async fn rest(&self, file_count: usize) -> Result<(), CommandError> {
        let mut before = self.cpu()?;
        let rests = async || {
            sleep(REST).await;
            let now = self.cpu()?;
            let worked = now - std::mem::replace(&mut before, now);
            Ok(worked <= REST_CPU_MAX && self.file_count()? <= file_count)
        };
        until("the server rests", rests).await
    }

    pub(super) fn resident_bytes(&self) -> Result<u64, CommandError> {
        let bytes = memory_bytes(self.id(), "VmRSS");
        bytes.ok_or_else(|| failed("no VmRSS in /proc/PID/status"))
    }

    /// A client of its API that keeps so many connections, each with one request at a time.
    pub(super) fn api(&self, connection_count: usize) -> Result<Client, CommandError> {
        let url = ServerUrl::of_listener(self.addr).to_string();
        let (origin, _) = Origin::split(&url).map_err(|error| failed_by("the server's address", &error))?;
        let mut config = ClientConfig::new("bench", connection_count);
        config.pool.in_flight_max = 1;
        Client::start(&origin, config).map_err(|error| failed_by("cannot start the client", &error))
    }
}

/// A request to an API of Centrifugo's kind.
pub(super) fn request(path: &str, body: &Value) -> Request {
    let made = Request::post(path).and_then(|request| request.header("x-api-key", API_KEY));
    let made = made.and_then(|request| request.header("content-type", "application/json"));
    made.expect("path and headers are plain").pipeline(false).body(body.to_string())
}

/// Publishes so many to a channel, from this number on, in one request.
pub(super) async fn publish(api: &Client, channel: &str, first: u64, count: u64) -> Result<(), CommandError> {
    let publish = |number| json!({"publish": {"channel": channel, "data": data(number)}});
    let commands: Vec<_> = (first..first + count).map(publish).collect();
    let replies = ask(api, "/api/batch", &json!({"commands": commands})).await?;
    let is_done = |reply: &Value| reply["publish"].is_object();
    match replies["replies"].as_array() {
        Some(replies) if replies.len() as u64 == count && replies.iter().all(is_done) => Ok(()),
        _ => Err(failed(format!("publishing was answered with {replies}"))),
    }
}

/// Asks the API, and reads its answer.
pub(super) async fn ask(api: &Client, path: &str, body: &Value) -> Result<Value, CommandError> {
    let answer = api.send(request(path, body), TIMEOUT).await.map_err(|error| failed_by("the API", &error))?;
    serde_json::from_slice(answer.body()).map_err(|error| failed_by("the API's answer", &error))
}

fn ours(folder: &Path, port: u16) -> Result<Child, CommandError> {
    let data = folder.join("data");
    let text = format!(
        "data_dir = {data:?}
[http]
listen = \"127.0.0.1:{port}\"
address_connection_count_max = 0
[client]
allow_anonymous = true
channel_creations_per_minute = 1000000
[[api.keys]]
name = \"bench\"
key = \"{API_KEY}\"
scopes = [\"publish\", \"read\"]
[channel.namespaces.live]
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[channel.namespaces.kept]
history_size = 100
history_ttl = \"10m\"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
"
    );
    let mut child = Child::new("Tidings", std::env::current_exe()?, folder);
    child.write("tidings.toml", text)?;
    child.set_arguments(["serve", "--config", "tidings.toml"]);
    Ok(child)
}

fn centrifugo(which: &Centrifugo, folder: &Path, port: u16) -> Result<Child, CommandError> {
    let open = json!({
        "name": "live", "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
    });
    let mut kept = open.clone();
    kept["name"] = "kept".into();
    kept["history_size"] = 100.into();
    kept["history_ttl"] = "10m".into();
    kept["force_recovery"] = true.into();
    let namespaces = json!([open, kept]);
    let all = match which.major {
        5 => json!({
            "address": "127.0.0.1", "port": port.to_string(), "api_key": API_KEY, "log_level": "error",
            "allow_anonymous_connect_without_token": true, "namespaces": namespaces,
        }),
        _ => json!({
            "http_server": {"address": "127.0.0.1", "port": port}, "http_api": {"key": API_KEY}, "log": {"level": "error"},
            "client": {"allow_anonymous_connect_without_token": true}, "channel": {"namespaces": namespaces},
        }),
    };
    let mut child = Child::new("Centrifugo", &which.program, folder);
    child.write("config.json", all.to_string())?;
    child.set_arguments(["--config", "config.json"]);
    child.set_variable("GOMAXPROCS", "1");
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_which_centrifugo_it_was_built_from() {
        let program = b"\x00dep\tgithub.com/centrifugal/centrifuge\tv0.38.0\th1:a=\n\
            dep\tgithub.com/centrifugal/centrifugo/v6\tv6.9.1\th1:b=\ndep\tgithub.com/x/y\tv1.0.0\n\x00";
        assert_eq!(built_version(program, 6).as_deref(), Some("6.9.1"));
        assert_eq!((built_version(program, 5), built_version(b"", 6)), (None, None));
        assert_eq!(built_version(b"\tgithub.com/centrifugal/centrifugo/v6\tv", 6), None);
    }

    #[test]
    fn each_centrifugo_is_found_by_itself_and_named_with_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Report::new("test");
        let names = |report: &mut Report| {
            let servers = Which::servers(folder.path(), report);
            servers.map(|servers| servers.iter().map(Which::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names(&mut report).unwrap(), ["Tidings"]);
        let program = folder.path().join("go/bin/centrifugo6");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "\tgithub.com/centrifugal/centrifugo/v6\tv6.9.1\th1:b=").unwrap();
        assert_eq!(names(&mut report).unwrap(), ["Tidings", "Centrifugo 6.9.1"]);
        fs::rename(&program, folder.path().join("go/bin/centrifugo")).unwrap();
        assert!(names(&mut report).unwrap_err().to_string().ends_with("is no program of Centrifugo 5"));
    }
}
