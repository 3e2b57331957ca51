//! Devices that lose their proof, queued for a loop.
//!
//! Bound: a revocation waits as one bit of a set of device numbers. The loop takes the whole set.

use std::sync::Mutex;

use roaring::RoaringBitmap;
use tidings_telemetry::panics::lock;
use tidings_types::DeviceNumber;
use tokio::sync::Notify;

/// Devices whose proof a loop has to end.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    waiting: Mutex<Revoked>,
    notify: Notify,
}

/// See [`Revocations`]; `closed` are among `devices`.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    pub(crate) devices: RoaringBitmap,
    pub(crate) closed: RoaringBitmap,
}

impl Revocations {
    /// The device's connections lose their proof; with `close` they are closed as well.
    pub(crate) fn add(&self, device: DeviceNumber, close: bool) {
        let mut waiting = lock(&self.waiting);
        waiting.devices.insert(device.0);
        if close {
            waiting.closed.insert(device.0);
        }
        drop(waiting);
        self.notify.notify_one();
    }

    /// Waits until there may be revocations.
    ///
    /// # Cancel safety
    /// Cancel safe: a wake-up that came is kept for the next call.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Takes all revocations.
    pub(crate) fn take(&self) -> Revoked {
        std::mem::take(&mut lock(&self.waiting))
    }
}
