//! The six processes: three NATS servers and three servers of the cluster, in a temporary folder.
//!
//! Each process has a folder with its configuration, its data and its log. A process is in a process group of its own, so
//! that Ctrl-C on the terminal reaches only the demo, which then ends the others.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;
use tidings_config::toml_text;
use tidings_server::command_error::{CommandError, failed, failed_by};

use super::plan::Member;
use super::stage::{NAMESPACE, NODE_COUNT, TOPIC, node_name};

/// Lines of each log that are shown when something is wrong.
const LOG_LINES_SHOWN: usize = 12;

/// The ports of the processes are among these.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How many are tried until one is free.
const PORT_TRY_COUNT: usize = 1000;

/// The largest log of the cluster. Each NATS server must have so much room on its disk.
const LOG_BYTES_MAX: &str = "256MiB";

/// All processes. They are killed when this is dropped, and the folder is removed.
pub(super) struct Fleet {
    servers: Vec<Process>,
    brokers: Vec<Process>,
    /// Where the servers answer.
    pub(super) addrs: Vec<SocketAddr>,
    /// Where the NATS servers say how they are.
    pub(super) monitors: Vec<SocketAddr>,
    pub(super) key: String,
    #[expect(dead_code, reason = "removed when dropped, after the processes")]
    folder: TempDir,
}

impl Fleet {
    /// Writes all configurations. Nothing is started yet.
    pub(super) fn prepare(nats_server: &Path) -> Result<Self, CommandError> {
        let made = tempfile::Builder::new().prefix("tidings-demo-").tempdir();
        let folder = made.map_err(|error| failed_by("cannot make a temporary folder", &error))?;
        let ports = Ports::free().map_err(|error| failed_by("cannot find free ports", &error))?;
        let program = std::env::current_exe().map_err(|error| failed_by("cannot find this program", &error))?;
        let key = uuid::Uuid::new_v4().to_string();
        let (mut servers, mut brokers) = (Vec::new(), Vec::new());
        for index in 0..NODE_COUNT {
            let name = node_name(index);
            let place = folder.path().join(format!("nats-{}", index + 1));
            let text = broker_config(index, &ports, &place);
            brokers.push(Process::prepare(format!("NATS server {}", index + 1), nats_server, &[], place, &text)?);
            let place = folder.path().join(name);
            let text = server_config(index, &ports, &place, &key);
            let mut server = Process::prepare(format!("server {name}"), &program, &["serve"], place, &text)?;
            server.is_bare = true;
            servers.push(server);
        }
        let [addrs, monitors] = [&ports.servers, &ports.monitors].map(|ports| ports.iter().map(local).collect());
        Ok(Self { servers, brokers, addrs, monitors, key, folder })
    }

    pub(super) fn start_brokers(&mut self) -> Result<(), CommandError> {
        self.brokers.iter_mut().try_for_each(Process::start)
    }

    pub(super) fn start(&mut self, member: Member) -> Result<(), CommandError> {
        self.process(member).start()
    }

    /// Kills a process as `kill -9` does.
    pub(super) fn kill(&mut self, member: Member) {
        self.process(member).kill();
    }

    /// Fails if a process has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), CommandError> {
        for process in self.brokers.iter_mut().chain(&mut self.servers) {
            if let Some(status) = process.ended() {
                return Err(failed(format!("{} ended by itself: {status}", process.name)));
            }
        }
        Ok(())
    }

    /// The name of a process, such as `server a`.
    pub(super) fn name(&self, member: Member) -> &str {
        match member {
            Member::Server(index) => &self.servers[index].name,
            Member::Nats(index) => &self.brokers[index].name,
        }
    }

    /// The ends of all logs.
    pub(super) fn log_ends(&self) -> String {
        self.servers.iter().chain(&self.brokers).map(Process::log_end).collect::<Vec<_>>().join("\n")
    }

    fn process(&mut self, member: Member) -> &mut Process {
        match member {
            Member::Server(index) => &mut self.servers[index],
            Member::Nats(index) => &mut self.brokers[index],
        }
    }
}

/// One process, through all its lives.
struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<&'static str>,
    folder: PathBuf,
    /// Without the demo's environment, whose settings are not meant for it.
    is_bare: bool,
    child: Option<Child>,
}

impl Process {
    /// Makes its folder with this configuration.
    fn prepare(
        name: String,
        program: &Path,
        arguments: &[&'static str],
        folder: PathBuf,
        config: &str,
    ) -> Result<Self, CommandError> {
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("config"), config))
            .map_err(|source| CommandError::File { action: "write", path: folder.join("config"), source })?;
        let (program, arguments) = (program.to_owned(), arguments.to_vec());
        Ok(Self { name, program, arguments, folder, is_bare: false, child: None })
    }

    fn start(&mut self) -> Result<(), CommandError> {
        let child = self.spawn();
        self.child = Some(child.map_err(|error| failed_by(&format!("cannot start {}", self.name), &error))?);
        Ok(())
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = Command::new(&self.program);
        if self.is_bare {
            command.env_clear();
        }
        command.args(&self.arguments).arg("--config").arg(self.folder.join("config")).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait()); // It may have ended by itself.
        }
    }

    /// How it ended, if nobody has killed it.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    fn log_end(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
        format!("--- log of {} ---\n{end}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The ports of all processes.
struct Ports {
    servers: [u16; NODE_COUNT],
    /// Where the servers reach the NATS servers.
    brokers: [u16; NODE_COUNT],
    /// Where the NATS servers reach each other.
    routes: [u16; NODE_COUNT],
    monitors: [u16; NODE_COUNT],
}

impl Ports {
    /// Ports that nobody uses at the moment. They are kept until all are known, so that no two are the same.
    fn free() -> std::io::Result<Self> {
        let mut listeners = Vec::new();
        let mut three = || -> std::io::Result<[u16; NODE_COUNT]> {
            let mut ports = [0; NODE_COUNT];
            for port in &mut ports {
                let listener = listen_somewhere()?;
                *port = listener.local_addr()?.port();
                listeners.push(listener);
            }
            Ok(ports)
        };
        Ok(Self { servers: three()?, brokers: three()?, routes: three()?, monitors: three()? })
    }
}

/// Listens on a port below those that the system gives to outgoing connections, so that none takes it while its process is
/// killed.
fn listen_somewhere() -> std::io::Result<TcpListener> {
    let mut listened = Err(std::io::ErrorKind::AddrInUse.into());
    for _ in 0..PORT_TRY_COUNT {
        listened = TcpListener::bind((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if listened.is_ok() {
            break;
        }
    }
    listened
}

fn local(port: &u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, *port).into()
}

fn broker_config(index: usize, ports: &Ports, folder: &Path) -> String {
    format!(
        "server_name: nats-{number}\n\
         listen: \"127.0.0.1:{port}\"\n\
         http: \"127.0.0.1:{monitor}\"\n\
         jetstream {{ store_dir: {data:?}, sync_interval: always }}\n\
         cluster {{ name: demo, listen: \"127.0.0.1:{route}\", routes: [{routes}] }}\n",
        number = index + 1,
        port = ports.brokers[index],
        monitor = ports.monitors[index],
        data = folder.join("data"),
        route = ports.routes[index],
        routes = quoted_urls(&ports.routes),
    )
}

fn server_config(index: usize, ports: &Ports, folder: &Path, key: &str) -> String {
    let port = ports.servers[index];
    format!(
        "data_dir = {data}\n\
         [http]\nlisten = \"127.0.0.1:{port}\"\n\
         [[api.keys]]\nname = \"demo\"\nkey = \"{key}\"\nscopes = [\"publish\", \"read\"]\n\
         [client]\nallow_anonymous = true\nrecovery_count_max = 10000\nreply_bytes_max = \"64MiB\"\n\
         [channel.namespaces.{NAMESPACE}]\ndurable = true\nhistory_size = 10000\nhistory_ttl = \"1h\"\n\
         force_recovery = true\nallow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
         [topics.{TOPIC}]\ntitle = \"Goal\"\nbody = \"Number %{{number}}\"\n\
         [cluster]\nservers = [{brokers}]\nnode = \"{node}\"\naddress = \"http://127.0.0.1:{port}\"\n\
         log_bytes_max = \"{LOG_BYTES_MAX}\"\n",
        data = toml_text(folder.join("data").display()),
        brokers = quoted_urls(&ports.brokers),
        node = node_name(index),
    )
}

fn quoted_urls(ports: &[u16]) -> String {
    ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_have_valid_configurations_and_different_ports() {
        let ports = Ports::free().unwrap();
        let mut all = [ports.servers, ports.brokers, ports.routes, ports.monitors].concat();
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let text = server_config(index, &ports, Path::new("/tmp/x"), "0123456789abcdef");
            let config = tidings_config::parse("the demo's configuration", &text, []).unwrap().config;
            assert_eq!(config.cluster.node.as_deref(), Some(name));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * NODE_COUNT);
    }

    #[test]
    fn a_process_writes_its_log_and_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let shell = Path::new("/bin/sh");
        let mut process =
            Process::prepare("x".to_owned(), shell, &["-c", "echo said; exec sleep 60"], dir.path().join("x"), "")
                .unwrap();
        process.start().unwrap();
        let began = tokio::time::Instant::now();
        while !process.log_end().contains("said") {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "the log has {:?}", process.log_end());
            std::thread::yield_now();
        }
        assert!(process.ended().is_none());
        process.kill();
        assert!(process.child.is_none());
    }
}
