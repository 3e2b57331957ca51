//! A client: it reads the channel over one connection after the other, and notes everything that it gets.
//!
//! It connects first to a server of its own. When it is not let in, or when the connection breaks, it tries the next
//! server, and resumes from the last publication that it got.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, is_ping};
use tidings_telemetry::chain;
use tidings_types::Format;
use tokio::time::timeout;

use super::stage::{CHANNEL, NODE_COUNT, node_name};
use super::traffic::Shared;

/// How long the client waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After this long without a message, not even a ping, the client takes the connection for broken.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The pause before the client tries the next server.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Whereabouts {
    /// The server that it is connected to, or was last.
    pub(super) server: usize,
    /// Subscriptions that it has made, one on each connection.
    pub(super) connections: u32,
}

/// Says in words which clients had to connect again between two looks.
pub(super) fn describe_moves(before: &[Whereabouts; NODE_COUNT], now: &[Whereabouts; NODE_COUNT]) -> String {
    let mut parts = Vec::new();
    for (client, (before, now)) in before.iter().zip(now).enumerate() {
        let (client, from, to) = (client + 1, node_name(before.server), node_name(now.server));
        if before.server != now.server {
            parts.push(format!("client {client} went from {from} to {to}"));
        } else if before.connections != now.connections {
            parts.push(format!("client {client} had to connect to {to} again"));
        }
    }
    match parts.len() {
        0 => return "all clients stayed connected".to_owned(),
        NODE_COUNT => {}
        _ => parts.push("the others stayed connected".to_owned()),
    }
    parts.join("; ")
}

/// Where the client is in the channel.
struct Position {
    epoch: String,
    offset: u64,
}

/// One client.
pub(super) struct Client {
    shared: Arc<Shared>,
    index: usize,
    position: Option<Position>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index, position: None }
    }

    /// Reads without end.
    pub(super) async fn run(mut self) {
        // The client at home on the first server begins there, and so on.
        for server in (0..NODE_COUNT).cycle().skip(self.index) {
            // Whatever the reason, the client connects again. What it misses for good, the verdict says.
            let _ = self.read(server, self.shared.addrs[server]).await;
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    /// Reads over one connection until it ends.
    async fn read(&mut self, server: usize, addr: SocketAddr) -> Result<(), String> {
        let url = ServerUrl::of_listener(addr);
        let opened = timeout(CONNECT_TIMEOUT, Socket::open(&url, Format::Json)).await;
        let mut socket = opened.map_err(|error| chain(&error))?.map_err(|error| chain(&error))?;
        let connect = json!({ "connect": { "name": "tidings-demo" } });
        let said = socket.say([connect, subscription(self.position.as_ref())]).await;
        let subscribed = said.map_err(|error| chain(&error))?;
        loop {
            let message = timeout(SILENCE_MAX, socket.next()).await.map_err(|error| chain(&error))?;
            let message = message.map_err(|error| chain(&error))?;
            if is_ping(&message) {
                socket.send(tidings_client::PONG).await.map_err(|error| chain(&error))?;
            } else if message["error"].is_object() {
                return Err(message["error"].to_string());
            } else if message["id"] == subscribed {
                self.on_subscribed(server, &message["subscribe"]);
            } else if message["push"]["pub"].is_object() {
                self.on_publication(&message["push"]["pub"]);
            } else if message["push"]["unsubscribe"].is_object() {
                return Err(message["push"].to_string());
            }
        }
    }

    fn on_subscribed(&mut self, server: usize, reply: &Value) {
        let is_first = self.position.is_none();
        if is_first || reply["recovered"] != true {
            let epoch = reply["epoch"].as_str().unwrap_or_default().to_owned();
            self.position = Some(Position { epoch, offset: reply["offset"].as_u64().unwrap_or_default() });
        }
        if !is_first && reply["recovered"] != true {
            self.shared.ledger().note_break(self.index);
        }
        for publication in reply["publications"].as_array().into_iter().flatten() {
            self.on_publication(publication);
        }
        self.shared.note_connection(self.index, server);
    }

    fn on_publication(&mut self, publication: &Value) {
        let offset = publication["offset"].as_u64().unwrap_or_default();
        let number = publication["data"]["number"].as_u64().and_then(|number| usize::try_from(number).ok());
        if let Some(position) = &mut self.position {
            position.offset = offset;
        }
        self.shared.ledger().get(self.index, offset, number);
    }
}

fn subscription(position: Option<&Position>) -> Value {
    let mut subscribe = json!({ "channel": CHANNEL, "recoverable": true });
    if let Some(Position { epoch, offset }) = position {
        subscribe["recover"] = true.into();
        subscribe["epoch"] = epoch.as_str().into();
        subscribe["offset"] = (*offset).into();
    }
    json!({ "subscribe": subscribe })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: usize, connections: u32) -> Whereabouts {
        Whereabouts { server, connections }
    }

    #[test]
    fn it_is_said_which_clients_had_to_connect_again() {
        let before = [at(0, 1), at(1, 1), at(2, 1)];
        assert_eq!(describe_moves(&before, &before), "all clients stayed connected");
        let one = [at(1, 2), at(1, 1), at(2, 1)];
        assert_eq!(describe_moves(&before, &one), "client 1 went from a to b; the others stayed connected");
        let back = [at(0, 1), at(1, 3), at(2, 1)];
        let told = "client 2 had to connect to b again; the others stayed connected";
        assert_eq!(describe_moves(&before, &back), told);
        let all = [at(1, 2), at(2, 2), at(0, 2)];
        let told = "client 1 went from a to b; client 2 went from b to c; client 3 went from c to a";
        assert_eq!(describe_moves(&before, &all), told);
    }
}
