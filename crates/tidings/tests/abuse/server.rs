//! The server under attack: the real program in a folder of its own. The soak uses it, too.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::time::{Instant, interval};

use crate::net::PATIENCE;
use crate::{API_KEY, PULSE, TOKEN_SECRET};

const LOG_LINES_SHOWN: usize = 20;
/// WebSockets and streams of one address.
pub(crate) const ADDRESS_CONNECTIONS_MAX: usize = 2000;

pub(crate) struct Server {
    folder: TempDir,
    child: Child,
    pub(crate) addr: SocketAddr,
}

/// The program that is attacked.
pub(crate) fn program() -> OsString {
    std::env::var_os("TIDINGS_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidings").into())
}

impl Server {
    /// Starts it with `more` settings and returns when it listens. It may open so many files, sockets among them.
    pub(crate) async fn start(more: &str, open_files_max: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidings.toml"), configuration() + more).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new("/bin/sh")
            .args(["-c", &format!("ulimit -n {open_files_max} && exec \"$0\" serve --config tidings.toml")])
            .arg(program())
            .current_dir(&folder)
            .env_clear() // Settings of whoever runs the test are not the test's.
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("there is a shell");
        let mut server = Self { folder, child, addr: ([127, 0, 0, 1], 0).into() };
        let (deadline, mut pulse) = (Instant::now() + PATIENCE, interval(PULSE));
        server.addr = loop {
            let log = server.log();
            if let Some((_, rest)) = log.split_once("listening on http://") {
                break rest.split(' ').next().unwrap_or_default().parse().expect("it says where it listens");
            }
            assert!(server.is_alive() && Instant::now() < deadline, "it does not start:\n{log}");
            pulse.tick().await;
        };
        server
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What holds its memory: `/proc/ID/status`.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.log().contains("panicked at")
    }

    pub(crate) fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("log")).unwrap_or_default()).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The resident memory of a process; none when it has ended.
pub(crate) fn memory_mib(process_id: u32) -> Option<u64> {
    Some(tidings_telemetry::process::memory_bytes(process_id, "VmRSS")? >> 20)
}

fn configuration() -> String {
    format!(
        r#"
data_dir = "data"

[[api.keys]]
name = "campaign"
key = "{API_KEY}"
scopes = ["publish", "read", "devices", "metrics", "operate", "backup"]

[client]
address_connection_count_max = {ADDRESS_CONNECTIONS_MAX}
allow_anonymous = true
sse = true
http_stream = true
uni_http_stream = true
token.hmac_secret = "{TOKEN_SECRET}"

[apps]
enabled = true

[limits]
app_per_second = 0
address_per_second = 0

[topics.goal]
title = "Goal!"
body = "A goal."

# Events.
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

# What clients may write to.
[channel.namespaces.chat]
durable = true
history_size = 10
history_ttl = "1h"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_client = true
allow_publish_for_anonymous = true

# Everything else that clients may do, in memory.
[channel.namespaces.score]
history_size = 300
history_ttl = "1h"
allow_recovery = true
presence = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_history_for_client = true
allow_history_for_anonymous = true
allow_presence_for_client = true
allow_presence_for_anonymous = true

# Last, so that an attack may add to it.
[http]
listen = "127.0.0.1:0"
"#
    )
}
