//! Which device a connection is, proven, and when that ends.
//!
//! Who a client claims to be is checked once, when it connects; a claim that is not proven is ignored, so nobody can
//! answer for another's phone. The check may read a disk, so the directory returns a future: the connection is answered
//! after it, and the loop serves the others meanwhile. From then on the connection's channels count it among their proven
//! devices, and the hub's receipts know while its app is visible. All of that ends with the connection, or earlier by
//! [`Edge::revoke`](crate::Edge::revoke): a device whose credential was replaced or that was logged out answers for itself
//! no more. A revocation during the check may be of the very credential that is being checked, so it counts for the outcome.
//!
//! Bounds: a connection makes one check and waits for it at most [`PROOF_TIMEOUT`]; how many checks read at a time, the
//! directory says. Each loop keeps one ordered set of its proven devices, 16 bytes a connection, so that a revocation does
//! not look through all; a check under way keeps a set of the devices that were revoked meanwhile.

use std::time::Duration;

use tidings_protocol::{DeviceClaim, Disconnect};
use tidings_types::{DeviceNumber, Timestamp};

use crate::edge_loop::{EdgeLoop, LoopState};
use crate::revocations::Revoked;
use crate::shared::ProveFuture;
use crate::subscribers::Key;

/// How long a proof may take: a client waits no longer for its connection because a disk is slow.
pub(crate) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

impl EdgeLoop {
    /// Begins to prove what a client claims to be; then [`EdgeLoop::introduce`]. Without pings a device could not answer,
    /// so nothing is proven.
    pub(crate) fn begin_proof(
        &self,
        state: &mut LoopState,
        key: Key,
        claim: Option<DeviceClaim>,
    ) -> Option<ProveFuture> {
        let claim = claim.filter(|_| self.timing.is_some())?;
        state.proving.insert(key, Revoked::default());
        Some(self.shared.devices.prove(claim))
    }

    /// The client is in and has said what it is; `proven` is what became of the proof, if there was one.
    pub(crate) fn introduce(
        &self,
        state: &mut LoopState,
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

    /// Takes their proof from the connections of revoked devices.
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
