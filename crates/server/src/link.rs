//! The other servers of a cluster, as the rest of this server sees them: ports that `cluster` fills.
//!
//! A server that is alone has no [`Link`]. Nor has a program that is built without the feature `cluster`.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use tidings_api::{ListFuture, OrderFuture};
use tidings_edge::Publisher;
use tidings_hub::{Hub, Relay};
use tidings_protocol::{Order, Target};
use tidings_types::{DeviceId, DeviceNumber};
use tokio::sync::watch;

use crate::listeners::Routes;

/// What ends when something is done.
pub(crate) type Done = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The way to the other servers.
pub(crate) trait Link: tidings_edge::Others + tidings_api::Others {
    /// A new name for the sessions of this server, from which the others know its process.
    fn name(&self) -> String;

    /// Where the hub tells what others must know.
    fn relay(&self) -> Arc<dyn Relay>;

    /// Where clients' publications go: into the journal and the hub while this server leads (then `leading` has something),
    /// else to the leader.
    fn publisher(
        &self,
        journal: Arc<dyn Publisher>,
        hub: Arc<Hub>,
        leading: watch::Receiver<Option<Routes>>,
    ) -> Arc<dyn Publisher>;

    /// Tells the leader that a device was seen. Without a leader nobody is told: it is seen again.
    fn seen(&self, device: DeviceId) -> Done;

    /// Waits until the leader knows that a client on the device is about to be let in, but not for long.
    fn announce(&self, device: DeviceNumber) -> Done;

    /// Tells all others that the device has to prove itself again. Its old credential does not hold any more when the store has
    /// the entry of the log with this number.
    fn revoke(&self, device: DeviceNumber, close: bool, sequence: u64);

    /// Has all other servers carry it out.
    fn order(&self, target: Target, order: Order) -> OrderFuture;

    /// The live connections of all other servers.
    fn connections(&self, target: Target) -> ListFuture;

    /// The routes for a request that another server may have passed on: those of the listener that its caller has reached.
    fn by_caller(&self, public: Router, internal: Router) -> Router;
}
