//! Which device a connection has proven to be, and when that ends.
//!
//! A client's claim to be a device is checked once, when it connects. A claim that is not proven is ignored, so nobody
//! can answer for another person's phone. The check may read from disk, so the directory returns a future: the
//! connection gets its answer after it, and meanwhile the loop serves the others. From then on the connection's
//! channels count it among their proven devices, and the hub's receipts know while its app is visible.
//!
//! The proof ends with the connection, or earlier by [`Edge::revoke`](crate::Edge::revoke): when the device's
//! credential was replaced or the device was logged out. A revocation that arrives during the check may be about the
//! credential that is being checked, so it makes the check fail.
//!
//! Bounds: a connection makes one check and waits for it at most [`PROOF_TIMEOUT`]. The directory bounds the number of
//! checks that read at a time. Each loop keeps one ordered set of its proven devices, 16 bytes a connection, so that a
//! revocation need not look at all connections. A running check keeps a set of the devices that were revoked since it
//! began.

use std::time::Duration;

use tidings_protocol::{DeviceClaim, Disconnect};
use tidings_types::{DeviceNumber, Timestamp};

use crate::edge_loop::{EdgeLoop, LoopState};
use crate::revocations::Revoked;
use crate::shared::ProveFuture;
use crate::subscribers::Key;

/// How long a proof may take. With a slow disk the client is connected after this time, without a proof.
pub(crate) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

impl EdgeLoop {
    /// Begins to prove what a client claims to be; then [`EdgeLoop::introduce`] is called. Without pings, or on a
    /// unidirectional transport, a device could not answer, so nothing is proven.
    pub(crate) fn begin_proof(
        &self,
        state: &mut LoopState,
        key: Key,
        claim: Option<DeviceClaim>,
    ) -> Option<ProveFuture> {
        let is_answering = !state.connections[key].session.variant().transport.is_unidirectional();
        let claim = claim.filter(|_| self.timing.is_some() && is_answering)?;
        state.proving.insert(key, Revoked::default());
        Some(self.shared.devices.prove(claim))
    }

    /// The client is connected; `proven` is the result of the proof, if there was one.
    pub(crate) fn introduce(
        &self,
        state: &mut LoopState,
        key: Key,
        proven: Option<DeviceNumber>,
        visible: Option<Timestamp>,
    ) {
        let revoked = state.proving.remove(&key).unwrap_or_default();
        if state.connections[key].is_closing() {
            return; // Nothing to do: it has left its channels already.
        }
        let device = proven.filter(|device| !revoked.devices.contains(device.0));
        state.connections[key].identity.device = device;
        state.devices.extend(device.map(|device| (device, key)));
        device.iter().for_each(|device| self.shared.hub.receipts().on_connected(*device));
        self.set_visible(state, key, visible);
        device.iter().for_each(|device| self.shared.hub.receipts().settle(*device));
        if proven.is_some_and(|device| revoked.closed.contains(device.0)) {
            self.close_in(state, key, &Disconnect::INVALID_TOKEN);
        }
    }

    /// Ends the proof of the connections of revoked devices.
    pub(crate) fn revoke(&self, revoked: &Revoked) {
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
}
