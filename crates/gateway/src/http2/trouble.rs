//! What goes wrong with a gateway's connections: each method writes the log line and counts it, so that the two agree.

use std::time::Duration;

use tidings_push::Reason;
use tidings_telemetry::chain;
use tracing::{error, warn};

use super::connection::GatewayContext;
use crate::error::ConnectError;

impl GatewayContext {
    pub(super) fn on_cannot_connect(&self, slot: usize, attempt: u32, error: &ConnectError) {
        self.metrics.connect_failures.inc();
        let Self { provider, pool, .. } = self;
        warn!(provider, pool, slot, attempt, error = chain(error), "Cannot connect");
    }

    pub(super) fn on_credential_refused(&self, slot: usize, reason: &str) {
        self.metrics.credential_refused.inc();
        self.health.on_refused();
        let Self { provider, pool, .. } = self;
        error!(provider, pool, slot, reason, "Provider refuses the credential");
    }

    pub(super) fn on_pause(&self, reason: Reason, pause: Duration, per_minute: Option<u64>) {
        self.metrics.pauses.inc();
        let Self { provider, pool, .. } = self;
        let (reason, pause) = (reason.as_str(), pause.as_secs_f64());
        warn!(provider, pool, reason, pause, per_minute, "Provider asks for a pause");
    }

    pub(super) fn on_no_window(&self, slot: usize, bytes: usize) {
        self.metrics.without_window.inc();
        let Self { provider, pool, .. } = self;
        warn!(provider, pool, slot, bytes, "Connection has no window");
    }

    pub(super) fn on_stalled(&self, slot: usize, count: u32) {
        self.metrics.silent.inc();
        let Self { provider, pool, .. } = self;
        warn!(provider, pool, slot, count, "Connection stalled");
    }
}
