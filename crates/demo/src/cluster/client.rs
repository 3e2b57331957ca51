//! A client: it reads the channel over one connection after the other, and notes everything that it gets.
//!
//! Each client has a server of its own. It connects to that one. When it is not let in, it tries the next server. When a
//! connection breaks, it begins again with its own server, and resumes from the last publication that it got. So the
//! clients do not gather at one server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, is_ping};
use tidings_telemetry::chain;
use tidings_types::Format;
use tokio::time::timeout;

use super::shared::{Shared, Whereabouts};
use super::stage::{CHANNEL, NODE_COUNT};

/// How long the client waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After this long without a message, not even a ping, the client takes the connection for broken.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The pause before the client connects again.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

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
    connections: u32,
}

impl Client {
    /// The client whose own server has the same index.
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index, position: None, connections: 0 }
    }

    /// Reads without end.
    pub(super) async fn run(mut self) {
        let mut refused_count = 0; // Since the last connection.
        loop {
            let connections = self.connections;
            let server = (self.index + refused_count) % NODE_COUNT;
            // Whatever the reason, the client connects again. What it misses for good, the verdict says.
            let _ = self.read(server, self.shared.addrs[server]).await;
            refused_count = if self.connections > connections { 0 } else { refused_count + 1 };
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
        self.connections += 1;
        self.shared.whereabouts()[self.index] = Whereabouts { server, connections: self.connections };
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
