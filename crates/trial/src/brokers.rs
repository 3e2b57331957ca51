//! Real NATS servers, as processes that are killed. They do not tell clients of each other, so that nobody goes around a proxy.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper::Method;
use tempfile::TempDir;

use crate::caller::Caller;
use crate::ports::{free_port, local};
use crate::process::Process;
use crate::wait::until;

/// NATS servers that form a cluster, or a single one.
#[derive(Debug)]
pub struct Brokers {
    processes: Vec<Process>,
    /// Where clients connect, by broker.
    pub ports: Vec<u16>,
    /// Where each says how it is.
    monitors: Vec<SocketAddr>,
    #[expect(dead_code, reason = "is removed with the brokers, after the processes")]
    folder: Option<TempDir>,
}

impl Brokers {
    /// Starts so many, from the program that the variable `NATS_SERVER` names, in a temporary folder.
    pub fn start(count: usize) -> Self {
        let program = std::env::var_os("NATS_SERVER").expect("NATS_SERVER names the program nats-server");
        let folder = tempfile::tempdir().expect("the system has a folder");
        let mut brokers = Self::prepare(Path::new(&program), folder.path(), count).expect("their folders can be made");
        (0..count).for_each(|index| brokers.restart(index));
        Self { folder: Some(folder), ..brokers }
    }

    /// Writes the configurations of so many into this folder. Nothing is started yet.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn prepare(program: &Path, folder: &Path, count: usize) -> io::Result<Self> {
        let draw = || -> Vec<u16> { (0..count).map(|_| free_port()).collect() };
        let (ports, routes, monitors) = (draw(), draw(), draw());
        let mut processes = Vec::new();
        for index in 0..count {
            let place = folder.join(format!("nats-{}", index + 1));
            let mut process = Process::new(format!("NATS server {}", index + 1), program, &place);
            process.write("nats.conf", configuration(index, &ports, &routes, &monitors, &place.join("data")))?;
            process.set_arguments(["--config", "nats.conf"]);
            processes.push(process);
        }
        Ok(Self { processes, ports, monitors: monitors.into_iter().map(local).collect(), folder: None })
    }

    /// Starts one that was killed, or not started yet.
    pub fn restart(&mut self, index: usize) {
        self.processes[index].start().expect("nats-server starts");
    }

    /// Waits until each of them can be used.
    pub async fn until_they_are_healthy(&self) {
        for monitor in &self.monitors {
            let mut caller = Caller::new(*monitor, "");
            until("a NATS server is healthy", async || {
                caller.call(Method::GET, "/healthz", None).await.ok().filter(|answer| answer.status == 200)
            })
            .await;
        }
    }

    /// Where clients connect, by broker.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.ports.iter().copied().map(local).collect()
    }

    /// The folder with all that it keeps.
    pub fn data(&self, index: usize) -> PathBuf {
        self.processes[index].folder().join("data")
    }

    /// Kills it as a power switch would, except that the disk keeps what it was given.
    pub fn kill(&mut self, index: usize) {
        let ended = self.processes[index].ended();
        assert!(ended.is_none() && self.processes[index].is_started(), "broker {index} does not run: {ended:?}");
        self.processes[index].kill();
    }

    /// The process, for callers that do not want to panic.
    pub fn process(&mut self, index: usize) -> &mut Process {
        &mut self.processes[index]
    }

    /// All of them.
    pub fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }

    /// Where this one says how it is (`/healthz`).
    pub fn monitor(&self, index: usize) -> SocketAddr {
        self.monitors[index]
    }
}

fn configuration(index: usize, ports: &[u16], routes: &[u16], monitors: &[u16], data: &Path) -> String {
    let cluster = match routes {
        [_] => String::new(),
        _ => format!(
            "cluster {{ name: trial, listen: \"127.0.0.1:{}\", routes: [{}], no_advertise: true }}\n",
            routes[index],
            urls(routes),
        ),
    };
    format!(
        "server_name: n{index}\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\njetstream {{ store_dir: {data:?}, \
         sync_interval: always, max_file_store: 1GB }}\n{cluster}",
        ports[index], monitors[index],
    )
}

/// These NATS servers, as configurations name them.
pub fn urls(ports: &[u16]) -> String {
    ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect::<Vec<_>>().join(", ")
}
