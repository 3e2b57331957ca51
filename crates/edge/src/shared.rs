//! What all loops share: the settings, the hub, the metrics, and what the edge needs from other components.
//!
//! Everything here is handed to [`Edge::start`](crate::Edge::start) once, and each loop holds one reference to it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use serde::{Deserialize, Serialize};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{
    ClientInfo, DeviceClaim, EmulationRequest, ErrorCode, HookAnswer, HookCall, HookHeaders, SessionConfig, SessionId,
};
use tidings_types::{ChannelName, DeviceNumber, Language, Variant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::config::EdgeConfig;
use crate::error::HandshakeError;
use crate::metrics::EdgeMetrics;
use crate::networks::{ClientNetwork, NetworkPlace, Networks};
use crate::orders::Posted;
use crate::shares::{Asker, Holdings};
use crate::takeover::Socket;
use crate::users::Users;

/// Where clients' publications go that the hub of this process cannot take itself.
///
/// The client is told an error by its code; `Internal` and `TooManyRequests` invite the client to try again.
pub trait Publisher: Send + Sync + 'static {
    /// Whether the hub of this process takes publications into memory channels. If not, they go to [`Publisher::publish`] as
    /// those into durable channels do.
    fn is_home(&self) -> bool;

    /// Publishes and resolves when the publication is durable, or the memory channel's home has it. The publication has no
    /// offset yet.
    fn publish(&self, channel: ChannelName, new: NewPublication) -> PublishFuture;
}

/// See [`Publisher`].
pub type PublishFuture = Pin<Box<dyn Future<Output = Result<(), ErrorCode>> + Send>>;

/// The other servers of a cluster, which have connections, too.
pub trait Others: Send + Sync + 'static {
    /// Who is in the channel there; `None`: there are no other servers. The future yields `None` if they take more than
    /// `bytes_max` in an answer. It must end by itself within seconds.
    fn presence(&self, channel: &ChannelName, bytes_max: usize) -> Option<PresenceFuture>;

    /// How many connections are in the channel there, and how many users; a user of two servers counts twice. As
    /// [`Others::presence`].
    fn presence_stats(&self, channel: &ChannelName) -> Option<StatsFuture>;

    /// Hands commands to the server that the request names; `None`: there are no other servers.
    fn emulate(&self, emulation: EmulationRequest) -> Option<EmulationFuture>;

    /// A connection of this server takes the place of all others of its user that have a smaller number. Numbers of all
    /// servers can be compared. Must not wait.
    fn replace(&self, user: &str, number: u64);
}

/// What became of commands that came in a request of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Emulation {
    /// Their session has them, or is gone.
    Taken,
    /// There is no room for them now.
    Full,
    /// The session is of a server that is not known.
    Unknown,
}

/// See [`Others::emulate`].
pub type EmulationFuture = Pin<Box<dyn Future<Output = Emulation> + Send>>;

/// See [`Others::presence`].
pub type PresenceFuture = Pin<Box<dyn Future<Output = Option<Vec<ClientInfo>>> + Send>>;

/// See [`Others::presence_stats`].
pub type StatsFuture = Pin<Box<dyn Future<Output = (u64, u64)> + Send>>;

/// The server is alone.
#[derive(Debug)]
pub struct Alone;

impl Others for Alone {
    fn emulate(&self, _: EmulationRequest) -> Option<EmulationFuture> {
        None
    }

    fn presence(&self, _: &ChannelName, _: usize) -> Option<PresenceFuture> {
        None
    }

    fn presence_stats(&self, _: &ChannelName) -> Option<StatsFuture> {
        None
    }

    fn replace(&self, _: &str, _: u64) {}
}

/// The directory of devices.
pub trait DeviceDirectory: Send + Sync + 'static {
    /// Looks the device up and checks the claim. Called on a connection's loop, so neither the call nor the future may
    /// block. The future is dropped after 5 seconds; then the device is not proven.
    fn prove(&self, claim: DeviceClaim) -> ProveFuture;
}

/// See [`DeviceDirectory`]: the device's number. `None`: no such device, or a wrong credential.
pub type ProveFuture = Pin<Box<dyn Future<Output = Option<DeviceNumber>> + Send>>;

/// The hooks of the application's back end.
pub trait Hooks: Send + Sync + 'static {
    /// Asks a hook for `asker`, who has a fair share of what it can do. Called on a connection's loop, so neither the call
    /// nor the future may block. The connection handles no other command until the future ends, so the future must end
    /// by itself, whatever the back end does.
    fn call(&self, call: HookCall, asker: Asker) -> HookFuture;
}

/// No hooks are configured.
#[derive(Debug)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn call(&self, _: HookCall, _: Asker) -> HookFuture {
        Box::pin(std::future::ready(HookAnswer::Failed(ErrorCode::NotAvailable)))
    }
}

/// See [`Hooks`].
pub type HookFuture = Pin<Box<dyn Future<Output = HookAnswer> + Send>>;

/// A client that a loop is about to serve.
pub(crate) struct Handshake {
    pub(crate) socket: HandedOver,
    pub(crate) variant: Variant,
    /// The name of the session, unless the transport goes in both directions.
    pub(crate) session: Option<SessionId>,
    pub(crate) opening: Opening,
    pub(crate) permit: ConnectionPermit,
}

/// How the HTTP server hands a socket over.
pub(crate) enum HandedOver {
    /// It writes a 101 first.
    Upgrade(OnUpgrade),
    /// It has done so. The loop writes the response.
    Socket(Socket),
}

/// How a connection begins, apart from what comes on a WebSocket.
#[derive(Default)]
pub(crate) struct Opening {
    /// The head of the response, to be written first; empty for a WebSocket.
    pub(crate) head: Vec<u8>,
    /// The client's first message, if its request has it.
    pub(crate) first: Option<Bytes>,
    /// What the client sent of the headers that hooks may get.
    pub(crate) headers: Option<HookHeaders>,
    /// The language that its `Accept-Language` header asks for.
    pub(crate) language: Language,
}

/// One of the connections that may be open at a time.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    /// Where its client is, if that is known.
    pub(crate) network: Option<IpAddr>,
    _place: Option<NetworkPlace>,
}

impl ConnectionPermit {
    /// # Errors
    /// When there are as many connections as there may be, in all or of this network.
    pub(crate) fn new(shared: &Arc<Shared>, network: Option<ClientNetwork>) -> Result<Self, HandshakeError> {
        let EdgeConfig { connection_count_max, address_connection_count_max, .. } = shared.config;
        let count = shared.connection_count.fetch_add(1, Ordering::Relaxed);
        let network = network.map(|ClientNetwork(network)| network);
        let mut permit = Self { shared: shared.clone(), network, _place: None };
        if count >= connection_count_max {
            return Err(HandshakeError::Full);
        }
        if let Some(network) = network {
            let place = shared.networks.enter(network, address_connection_count_max);
            permit._place = Some(place.ok_or(HandshakeError::Address)?);
        }
        Ok(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.shared.connection_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Commands for a session that came in a request of their own.
pub(crate) struct Emulated {
    pub(crate) session: SessionId,
    pub(crate) commands: Vec<u8>,
    /// Its room in the loop's queue.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// What all loops share.
pub(crate) struct Shared {
    pub(crate) config: EdgeConfig,
    pub(crate) session: Arc<SessionConfig>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) others: Arc<dyn Others>,
    pub(crate) devices: Arc<dyn DeviceDirectory>,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) metrics: EdgeMetrics,
    pub(crate) connection_count: AtomicUsize,
    pub(crate) networks: Arc<Networks>,
    pub(crate) users: Users,
    /// The channels that are read, each held by who subscribed first.
    pub(crate) holdings: Arc<Mutex<Holdings>>,
    /// The queues of the loops.
    pub(crate) orders: Vec<mpsc::Sender<Posted>>,
    /// The number of the last client that was let in and may be its user's only one; see [`Shared::next_number`].
    pub(crate) last_number: AtomicU64,
}

impl Shared {
    /// The number of a client that is let in now and may be its user's only one: greater than all before, also than those
    /// that other servers have told of, and the time in microseconds if that is greater. So the numbers of all servers of a
    /// cluster can be compared, as exactly as their clocks agree.
    pub(crate) fn next_number(&self) -> u64 {
        let now = tidings_telemetry::unix_nanos() / 1000;
        let next = |last: u64| now.max(last.saturating_add(1));
        let last = self.last_number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }
}
