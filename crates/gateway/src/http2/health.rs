//! The state of a gateway's connection to its provider, for `/ready`.
//!
//! The slots report what happens to connections. From that follows one [`Condition`] with its start. A refused
//! credential counts until the provider accepts a notification or there is another credential, even if connections are
//! up: a provider that checks a token with the first request accepts the connection before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidings_telemetry::unix_now;
use tidings_types::Timestamp;

/// The state of a gateway's connection to its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// No connection is up; the next attempt is running or waits for its turn.
    Connecting,
    /// At least one connection is up.
    Connected,
    /// No connection is up, and every address of the provider failed several times in a row: attempts have become rare.
    BreakerOpen,
    /// The provider refuses the credential. An operator has to act.
    CredentialRefused,
}

/// A condition and since when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Which.
    pub condition: Condition,
    /// When it began.
    pub since: Timestamp,
}

/// Watches a gateway; clones watch the same one, also after its end.
#[derive(Clone)]
pub struct HealthWatch(Arc<Mutex<Seen>>);

struct Seen {
    connection_count: usize,
    is_refused: bool,
    is_broken: bool,
    health: Health,
}

impl HealthWatch {
    pub(crate) fn new() -> Self {
        let health = Health { condition: Condition::Connecting, since: unix_now() };
        Self(Arc::new(Mutex::new(Seen { connection_count: 0, is_refused: false, is_broken: false, health })))
    }

    /// How it stands now.
    pub fn health(&self) -> Health {
        self.seen().health
    }

    pub(crate) fn on_connected(&self) {
        self.change(|seen| (seen.connection_count, seen.is_broken) = (seen.connection_count + 1, false));
    }

    pub(crate) fn on_disconnected(&self) {
        self.change(|seen| seen.connection_count = seen.connection_count.saturating_sub(1));
    }

    /// A connection was not made. `is_broken`: the breakers of all addresses are open.
    pub(crate) fn on_failed(&self, is_broken: bool) {
        self.change(|seen| seen.is_broken = is_broken);
    }

    pub(crate) fn on_refused(&self) {
        self.change(|seen| seen.is_refused = true);
    }

    /// The provider took the credential, or there is another one.
    pub(crate) fn on_taken(&self) {
        self.change(|seen| seen.is_refused = false);
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen();
        change(&mut seen);
        let condition = match *seen {
            Seen { is_refused: true, .. } => Condition::CredentialRefused,
            Seen { connection_count: 1.., .. } => Condition::Connected,
            Seen { is_broken: true, .. } => Condition::BreakerOpen,
            _ => Condition::Connecting,
        };
        if condition != seen.health.condition {
            seen.health = Health { condition, since: unix_now() };
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // No code under this lock can panic, so a poisoned lock guards consistent data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_has_to_mend_goes_before_what_mends_itself() {
        let watch = HealthWatch::new();
        let condition = || watch.health().condition;
        assert_eq!(condition(), Condition::Connecting);
        watch.on_failed(false);
        assert_eq!(condition(), Condition::Connecting);
        watch.on_failed(true);
        assert_eq!(condition(), Condition::BreakerOpen);
        watch.on_connected();
        watch.on_connected();
        watch.on_disconnected();
        assert_eq!(condition(), Condition::Connected, "one of two is still there");
        watch.on_refused();
        watch.on_connected();
        assert_eq!(condition(), Condition::CredentialRefused, "a connection alone proves nothing");
        watch.on_taken();
        assert_eq!(condition(), Condition::Connected);
        watch.on_disconnected();
        watch.on_disconnected();
        assert_eq!(condition(), Condition::Connecting, "that an address failed was before");
    }
}
