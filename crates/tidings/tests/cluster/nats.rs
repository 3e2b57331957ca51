//! Real NATS servers as processes. Unlike `brokers`, their folders can be copied, and they do not tell clients of each other, so
//! that nobody goes around a proxy.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::nodes::free_ports;

/// NATS servers that form a cluster, or a single one.
pub(crate) struct Nats {
    folder: tempfile::TempDir,
    /// Where clients connect, by server.
    pub(crate) ports: Vec<u16>,
    routes: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl Nats {
    /// Starts so many, from the program that the variable `NATS_SERVER` names.
    pub(crate) fn start(count: usize) -> Self {
        let mut ports = free_ports(2 * count);
        let routes = ports.split_off(count);
        let folder = tempfile::tempdir().unwrap();
        let mut nats = Self { folder, ports, routes, running: (0..count).map(|_| None).collect() };
        (0..count).for_each(|index| nats.restart(index));
        nats
    }

    /// Starts one that does not run.
    pub(crate) fn restart(&mut self, index: usize) {
        let place = self.folder.path().join(format!("n{index}"));
        fs::create_dir_all(&place).unwrap();
        let (file, log) = (place.join("nats.conf"), File::options().create(true).append(true).open(place.join("log")));
        fs::write(&file, self.configuration(index)).unwrap();
        let program = std::env::var_os("NATS_SERVER").expect("NATS_SERVER names the program nats-server");
        let started =
            Command::new(program).arg("--config").arg(file).stdout(Stdio::null()).stderr(log.unwrap()).spawn();
        assert!(self.running[index].replace(started.expect("nats-server starts")).is_none(), "it runs already");
    }

    fn configuration(&self, index: usize) -> String {
        let mut text = format!(
            "server_name: n{index}\nlisten: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?}, sync_interval: always }}\n",
            self.ports[index],
            self.data(index),
        );
        if self.routes.len() > 1 {
            let urls: Vec<_> = self.routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
            let (listen, urls) = (self.routes[index], urls.join(", "));
            text += &format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{listen}\", routes: [{urls}], no_advertise: true }}\n"
            );
        }
        text
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

impl Drop for Nats {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill().and_then(|()| child.wait()); // It may have ended by itself.
        }
    }
}
