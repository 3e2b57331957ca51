//! What all loops share: the settings, the hub, the metrics, and what the edge needs from other components.
//!
//! Everything here is handed to [`Edge::start`](crate::Edge::start) once, and each loop holds one reference to it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hyper::upgrade::OnUpgrade;
use tidings_hub::Hub;
use tidings_protocol::{ClientInfo, DeviceClaim, ErrorCode, SessionConfig};
use tidings_types::{ChannelName, DeviceNumber, Json, Variant};

use crate::config::EdgeConfig;
use crate::metrics::EdgeMetrics;
use crate::users::Users;

/// Where clients' publications into durable channels go.
///
/// The client is told an error by its code; `Internal` and `TooManyRequests` invite the client to try again.
pub trait DurablePublisher: Send + Sync + 'static {
    /// Publishes and resolves when the publication is durable.
    fn publish(&self, channel: ChannelName, data: Json, info: ClientInfo) -> PublishFuture;
}

/// See [`DurablePublisher`].
pub type PublishFuture = Pin<Box<dyn Future<Output = Result<(), ErrorCode>> + Send>>;

/// The directory of devices.
pub trait DeviceDirectory: Send + Sync + 'static {
    /// Looks the device up and checks the claim. Called on a connection's loop, so neither the call nor the future may
    /// block. The future is dropped after 5 seconds; then the device is not proven.
    fn prove(&self, claim: DeviceClaim) -> ProveFuture;
}

/// See [`DeviceDirectory`]: the device's number. `None`: no such device, or a wrong credential.
pub type ProveFuture = Pin<Box<dyn Future<Output = Option<DeviceNumber>> + Send>>;

/// A client whose handshake is answered; its socket is about to be handed over.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) upgrade: OnUpgrade,
    pub(crate) variant: Variant,
}

/// What all loops share.
pub(crate) struct Shared {
    pub(crate) config: EdgeConfig,
    pub(crate) session: Arc<SessionConfig>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) publisher: Arc<dyn DurablePublisher>,
    pub(crate) devices: Arc<dyn DeviceDirectory>,
    pub(crate) metrics: EdgeMetrics,
    pub(crate) connection_count: AtomicUsize,
    pub(crate) users: Users,
}
