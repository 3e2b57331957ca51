//! The server under attack.

use std::path::PathBuf;

use tidings_trial::launcher::{self, Server};

use crate::{API_KEY, TOKEN_SECRET};

/// WebSockets and streams of one address.
pub(crate) const ADDRESS_CONNECTIONS_MAX: usize = 2000;

/// The program that is attacked.
pub(crate) fn program() -> PathBuf {
    launcher::program(env!("CARGO_BIN_EXE_tidings"))
}

/// Starts it with `more` settings and returns when it listens. It may open so many files, sockets among them.
pub(crate) async fn start(more: &str, open_files_max: u32) -> Server {
    let mut server = Server::new("the server", program());
    server.configure(&(configuration() + more));
    server.process().limit_open_files(open_files_max);
    server.start().await;
    server
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
