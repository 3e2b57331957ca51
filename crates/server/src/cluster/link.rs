//! Fills the ports to the other servers.

use std::sync::Arc;

use axum::Router;
use tidings_api::{ListFuture, OrderFuture};
use tidings_edge::Publisher;
use tidings_hub::{Hub, Relay};
use tidings_protocol::{Order, Target};
use tidings_types::{DeviceId, DeviceNumber};
use tokio::sync::watch;

use super::pass::by_caller;
use super::peers::{Notice, PeerLink, name_of};
use super::publisher::ClusterPublisher;
use crate::link::{Done, Link};
use crate::listeners::Routes;

impl Link for PeerLink {
    fn name(&self) -> String {
        name_of(self.peers.process())
    }

    fn relay(&self) -> Arc<dyn Relay> {
        self.outbox()
    }

    fn publisher(
        &self,
        journal: Arc<dyn Publisher>,
        hub: Arc<Hub>,
        leading: watch::Receiver<Option<Routes>>,
    ) -> Arc<dyn Publisher> {
        Arc::new(ClusterPublisher { journal, hub, link: self.clone(), leading })
    }

    fn seen(&self, device: DeviceId) -> Done {
        let link = self.clone();
        Box::pin(async move { link.tell_seen(device).await })
    }

    fn announce(&self, device: DeviceNumber) -> Done {
        let link = self.clone();
        Box::pin(async move { link.await_announced(device).await })
    }

    fn revoke(&self, device: DeviceNumber, close: bool, sequence: u64) {
        self.tell(Notice::Revoke { device, close, sequence });
    }

    fn order(&self, target: Target, order: Order) -> OrderFuture {
        let link = self.clone();
        Box::pin(async move { link.have_all_do(target, order).await })
    }

    fn connections(&self, target: Target) -> ListFuture {
        let link = self.clone();
        Box::pin(async move { link.list_all(target).await })
    }

    fn by_caller(&self, public: Router, internal: Router) -> Router {
        by_caller(public, internal, self.secret.clone())
    }
}
