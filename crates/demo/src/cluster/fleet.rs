//! The six processes: three NATS servers and three servers of the cluster, in a temporary folder.
//!
//! Each process has a folder with its configuration, its data and its log. A process is in a process group of its own, so
//! that Ctrl-C on the terminal reaches only the demo, which then ends the others.

use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;
use tidings_config::toml_text;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_trial::brokers::{Brokers, urls};
use tidings_trial::ports::free_addr;
use tidings_trial::process::Process;

use super::plan::Member;
use super::stage::{NAMESPACE, NODE_COUNT, TOPIC, node_name};

/// Lines of each log that are shown when something is wrong.
const LOG_LINES_SHOWN: usize = 12;

/// The largest log of the cluster. Each NATS server must have so much room on its disk.
const LOG_BYTES_MAX: &str = "256MiB";

/// All processes. They are killed when this is dropped, and the folder is removed.
pub(super) struct Fleet {
    servers: Vec<Process>,
    brokers: Brokers,
    /// Where the servers answer.
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) key: String,
    #[expect(dead_code, reason = "removed when dropped, after the processes")]
    folder: TempDir,
}

impl Fleet {
    /// Writes all configurations. Nothing is started yet.
    pub(super) fn prepare(nats_server: &Path) -> Result<Self, CommandError> {
        let made = tempfile::Builder::new().prefix("tidings-demo-").tempdir();
        let folder = made.map_err(|error| failed_by("cannot make a temporary folder", &error))?;
        let unwritten = |error| failed_by("cannot write the configurations", &error);
        let mut brokers = Brokers::prepare(nats_server, folder.path(), NODE_COUNT).map_err(unwritten)?;
        brokers.processes().iter_mut().for_each(Process::keep_from_terminal);
        let program = std::env::current_exe().map_err(|error| failed_by("cannot find this program", &error))?;
        let addrs: Vec<SocketAddr> = (0..NODE_COUNT).map(|_| free_addr()).collect();
        let (key, mut servers) = (uuid::Uuid::new_v4().to_string(), Vec::new());
        for (index, addr) in addrs.iter().enumerate() {
            let (name, place) = (node_name(index), folder.path().join(node_name(index)));
            let mut server = Process::new(format!("server {name}"), &program, &place);
            let config = server_config(name, *addr, &brokers.ports, &place, &key);
            server.write("tidings.toml", config).map_err(unwritten)?;
            server.set_arguments(["serve", "--config", "tidings.toml"]);
            server.keep_from_terminal();
            servers.push(server);
        }
        Ok(Self { servers, brokers, addrs, key, folder })
    }

    pub(super) fn start_brokers(&mut self) -> Result<(), CommandError> {
        (0..NODE_COUNT).try_for_each(|index| self.start(Member::Nats(index)))
    }

    pub(super) fn start(&mut self, member: Member) -> Result<(), CommandError> {
        let process = self.process(member);
        process.start().map_err(|error| failed_by(&format!("cannot start {}", process.name()), &error))
    }

    /// Kills a process as `kill -9` does.
    pub(super) fn kill(&mut self, member: Member) {
        self.process(member).kill();
    }

    /// Fails if a process has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), CommandError> {
        for process in self.brokers.processes().iter_mut().chain(&mut self.servers) {
            if let Some(status) = process.ended() {
                return Err(failed(format!("{} ended by itself: {status}", process.name())));
            }
        }
        Ok(())
    }

    /// The name of a process, such as `server a`.
    pub(super) fn name(&mut self, member: Member) -> String {
        self.process(member).name().to_owned()
    }

    /// Where a NATS server says how it is.
    pub(super) fn monitor(&self, index: usize) -> SocketAddr {
        self.brokers.monitor(index)
    }

    /// The ends of all logs.
    pub(super) fn log_ends(&mut self) -> String {
        let all = self.servers.iter().chain(&*self.brokers.processes());
        let end =
            |process: &Process| format!("--- log of {} ---\n{}", process.name(), process.log_end(LOG_LINES_SHOWN));
        all.map(end).collect::<Vec<_>>().join("\n")
    }

    fn process(&mut self, member: Member) -> &mut Process {
        match member {
            Member::Server(index) => &mut self.servers[index],
            Member::Nats(index) => self.brokers.process(index),
        }
    }
}

fn server_config(node: &str, addr: SocketAddr, brokers: &[u16], folder: &Path, key: &str) -> String {
    format!(
        "data_dir = {data}\n\
         [http]\nlisten = \"{addr}\"\n\
         [[api.keys]]\nname = \"demo\"\nkey = \"{key}\"\nscopes = [\"publish\", \"read\"]\n\
         [client]\nallow_anonymous = true\nrecovery_count_max = 10000\nreply_bytes_max = \"64MiB\"\n\
         [channel.namespaces.{NAMESPACE}]\ndurable = true\nhistory_size = 10000\nhistory_ttl = \"1h\"\n\
         force_recovery = true\nallow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
         [topics.{TOPIC}]\ntitle = \"Goal\"\nbody = \"Number %{{number}}\"\n\
         [cluster]\nservers = [{brokers}]\nnode = \"{node}\"\naddress = \"http://{addr}\"\n\
         log_bytes_max = \"{LOG_BYTES_MAX}\"\n",
        data = toml_text(folder.join("data").display()),
        brokers = urls(brokers),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_have_valid_configurations() {
        for name in ["a", "b", "c"] {
            let text = server_config(name, free_addr(), &[4222, 4223], Path::new("/tmp/x"), "0123456789abcdef");
            let config = tidings_config::parse("the demo's configuration", &text, []).unwrap().config;
            assert_eq!(config.cluster.node.as_deref(), Some(name));
        }
    }
}
