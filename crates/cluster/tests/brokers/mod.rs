//! Real NATS servers, as processes that tests kill. They do not tell clients of each other, so that nobody goes around a proxy.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// NATS servers that form a cluster, or a single one.
pub(crate) struct Brokers {
    program: PathBuf,
    folder: tempfile::TempDir,
    /// Where clients connect, by broker.
    pub(crate) ports: Vec<u16>,
    routes: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl Brokers {
    /// Starts so many, from the program that the variable `NATS_SERVER` names.
    pub(crate) fn start(count: usize) -> Self {
        let program = std::env::var_os("NATS_SERVER").expect("NATS_SERVER names the program nats-server");
        let ports = free_ports(2 * count);
        let (ports, routes) = (ports[..count].to_vec(), ports[count..].to_vec());
        let folder = tempfile::tempdir().unwrap();
        let running = (0..count).map(|_| None).collect();
        let mut brokers = Self { program: program.into(), folder, ports, routes, running };
        (0..count).for_each(|index| brokers.restart(index));
        brokers
    }

    /// Starts one that was killed.
    pub(crate) fn restart(&mut self, index: usize) {
        let place = self.folder.path().join(format!("n{index}"));
        let urls: Vec<_> = self.routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let cluster = match self.routes.len() {
            1 => String::new(),
            _ => format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{}\", routes: [{}], no_advertise: true }}",
                self.routes[index],
                urls.join(", ")
            ),
        };
        let configuration = format!(
            "server_name: n{index}\nlisten: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?}, sync_interval: always, max_file_store: 1GB }}\n{cluster}\n",
            self.ports[index],
            self.data(index),
        );
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("nats.conf"), configuration).unwrap();
        let log = fs::File::options().create(true).append(true).open(place.join("log")).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(place.join("nats.conf")).stdout(Stdio::null()).stderr(log);
        self.running[index] = Some(command.spawn().expect("nats-server starts"));
    }

    /// The folder with all that it keeps.
    pub(crate) fn data(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("n{index}/data"))
    }

    /// Kills it as a power switch would, except that the disk keeps what it was given.
    pub(crate) fn kill(&mut self, index: usize) {
        let mut child = self.running[index].take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill().and_then(|()| child.wait()); // It may have ended by itself.
        }
    }
}

/// Ports that nobody uses at the moment. They are below those that the system gives to outgoing connections, so that no connection
/// takes one while its server does not run. None is given twice: tests run side by side, and kill the servers at these ports.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = Vec::new();
    while ports.len() < count {
        let port = rand::random_range(10_000..32_000);
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            ports.push(port);
        }
    }
    ports
}
