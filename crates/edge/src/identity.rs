//! Which device a connection is, proven, and when that ends.
//!
//! Who a client claims to be is checked once, when it connects; a claim that is not proven is ignored, so nobody can
//! answer for another's phone. The check may read a disk, so the directory returns a future: the connection is answered
//! after it, and the loop serves the others meanwhile. From then on the connection's channels count it among their proven
//! devices, and the hub's receipts know while its app is visible. All of that ends with the connection, or earlier by
//! [`Edge::revoke`]: a device whose credential was replaced or that was logged out answers for itself no more. A
//! revocation during the check may be of the very credential that is being checked, so it counts for the outcome.
//!
//! Bounds: a connection makes one check and waits for it at most [`PROOF_TIMEOUT`]; how many checks read at a time, the
//! directory says. A revocation waits per loop as one bit of a set of device numbers, taken whole. Each loop keeps one
//! ordered set of its proven devices, 16 bytes a connection, so that a revocation does not look through all; a check under
//! way keeps a set of the devices that were revoked meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_protocol::{DeviceClaim, Disconnect};
use tidings_telemetry::panics::lock;
use tidings_types::{DeviceNumber, Timestamp};
use tokio::sync::Notify;

use crate::Edge;
use crate::fanout::Key;
use crate::worker::{State, Worker};

/// Who knows the devices.
pub trait DeviceDirectory: Send + Sync + 'static {
    /// Looks the device up and checks what shall prove it. Called on a connection's loop, so neither the call nor the
    /// future may block. The future is given up after a few seconds; then the device is not proven.
    fn prove(&self, claim: DeviceClaim) -> ProveFuture;
}

/// See [`DeviceDirectory`]: the device's number. `None`: no such device, or not its credential.
pub type ProveFuture = Pin<Box<dyn Future<Output = Option<DeviceNumber>> + Send>>;

/// How long a proof may take: a client waits no longer for its connection because a disk is slow.
pub(crate) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

impl Edge {
    /// Takes their proof from the device's connections: none of them is a receipt for it any more. With `close` they are
    /// closed with 3500 as well (log-out). Whoever revokes has made the old credential invalid before; a connection that
    /// has just proven the new one may lose its proof too, and is as good as without until it connects again.
    pub fn revoke(&self, device: DeviceNumber, close: bool) {
        self.revocations.iter().for_each(|revocations| revocations.add(device, close));
    }
}

/// Devices that a loop is to take their proof from.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    waiting: Mutex<Revoked>,
    notify: Notify,
}

/// See [`Revocations`]; `closed` are among `devices`.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    devices: RoaringBitmap,
    closed: RoaringBitmap,
}

impl Revocations {
    fn add(&self, device: DeviceNumber, close: bool) {
        let mut waiting = lock(&self.waiting);
        waiting.devices.insert(device.0);
        if close {
            waiting.closed.insert(device.0);
        }
        drop(waiting);
        self.notify.notify_one();
    }

    /// Waits until there may be some.
    ///
    /// # Cancel safety
    /// Cancel safe: a wake-up that came is kept for the next call.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    fn take(&self) -> Revoked {
        std::mem::take(&mut lock(&self.waiting))
    }
}

impl Worker {
    /// Begins to prove what a client claims to be; then [`Worker::introduce`]. Without pings a device could not answer, so
    /// nothing is proven.
    pub(crate) fn begin_proof(&self, state: &mut State, key: Key, claim: Option<DeviceClaim>) -> Option<ProveFuture> {
        let claim = claim.filter(|_| self.timing.is_some())?;
        state.proving.insert(key, Revoked::default());
        Some(self.shared.devices.prove(claim))
    }

    /// The client is in and has said what it is; `proven` is what became of the proof, if there was one.
    pub(crate) fn introduce(
        &self,
        state: &mut State,
        key: Key,
        proven: Option<DeviceNumber>,
        visible: Option<Timestamp>,
    ) {
        let revoked = state.proving.remove(&key).unwrap_or_default();
        if state.connections[key].is_closing() {
            return; // It has left everything already.
        }
        let device = proven.filter(|device| !revoked.devices.contains(device.0));
        state.connections[key].identity.device = device;
        state.devices.extend(device.map(|device| (device, key)));
        self.set_visible(state, key, visible);
        if proven.is_some_and(|device| revoked.closed.contains(device.0)) {
            self.close_in(state, key, &Disconnect::INVALID_TOKEN);
        }
    }

    /// The client's app is on the screen until then; `None`: it is hidden.
    pub(crate) fn set_visible(&self, state: &mut State, key: Key, until: Option<Timestamp>) {
        let connection = &mut state.connections[key];
        connection.identity.visible_until = until.unwrap_or_default();
        if let Some(device) = connection.identity.device {
            self.shared.hub.receipts().set_visible(device, connection.client(), until);
        }
    }

    /// Takes their proof from the connections of revoked devices.
    pub(crate) fn revoke(&self, revocations: &Revocations) {
        let revoked = revocations.take();
        let state = &mut *self.state();
        for meanwhile in state.proving.values_mut() {
            meanwhile.devices |= &revoked.devices;
            meanwhile.closed |= &revoked.closed;
        }
        for device in revoked.devices.iter().map(DeviceNumber) {
            let keys: Vec<Key> = state.devices.range((device, 0)..=(device, Key::MAX)).map(|(_, key)| *key).collect();
            for key in keys {
                state.fanout.disown(&mut state.connections[key], device);
                self.forget_device(state, key);
                if revoked.closed.contains(device.0) {
                    self.close_in(state, key, &Disconnect::INVALID_TOKEN);
                }
            }
        }
    }

    /// The connection gets nothing more, stands for no device, and what it had still to answer is struck.
    pub(crate) fn leave_in(&self, state: &mut State, key: Key) {
        state.fanout.unsubscribe_all(&mut state.connections, key);
        self.forget_device(state, key);
    }

    fn forget_device(&self, state: &mut State, key: Key) {
        self.set_visible(state, key, None);
        if let Some(device) = state.connections[key].identity.device.take() {
            state.devices.remove(&(device, key));
        }
    }
}
