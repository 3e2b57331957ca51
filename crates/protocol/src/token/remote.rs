//! The keys of a JWKS endpoint, as sessions see them: a snapshot that a driver fetches and replaces.
//!
//! A session never waits for a fetch. When a token names a key that is not in the snapshot, the driver is asked for a new
//! one, and the client is told to come back:
//!
//! | The snapshot | The client gets | What SDKs do |
//! |---|---|---|
//! | may be outdated, or there is none yet | error 100, which is temporary | try again with the same token, and find the new key |
//! | was fetched a moment ago, and the key is not in it | error 109, token expired | ask the application for a new token |
//!
//! A disconnect with 3500 (invalid token) would be final: SDKs do not come back after it. Then the first clients after
//! each change of the key would be lost.
//!
//! Made-up key ids cost nothing: the driver decides how often it fetches, and while a snapshot is fresh nobody is asked.

use std::sync::{Arc, PoisonError, RwLock};

use tidings_types::Timestamp;

use super::error::TokenError;
use super::key::TokenKey;

/// The current keys of an endpoint. Clones share them.
#[derive(Clone)]
pub struct RemoteKeys(Arc<Shared>);

struct Shared {
    snapshot: RwLock<Snapshot>,
    ask: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Snapshot {
    keys: Arc<[TokenKey]>,
    /// From when until when a key that is not here does not exist.
    fresh: Option<(Timestamp, Timestamp)>,
}

impl RemoteKeys {
    /// No keys yet. `ask` is called when a token names an unknown key. It is called on the thread of a session, so it
    /// must not block.
    pub fn new(ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { snapshot: RwLock::default(), ask: Box::new(ask) }))
    }

    /// Takes the keys of an endpoint. From `now` until `fresh_until`, a key that is not among them counts as removed.
    pub fn replace(&self, keys: Vec<TokenKey>, now: Timestamp, fresh_until: Timestamp) {
        let new = Snapshot { keys: keys.into(), fresh: Some((now, fresh_until)) };
        *self.0.snapshot.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    pub(super) fn keys(&self) -> Arc<[TokenKey]> {
        self.0.snapshot.read().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// What is said of a token whose key is not here.
    pub(super) fn miss(&self, now: Timestamp) -> TokenError {
        let fresh = self.0.snapshot.read().unwrap_or_else(PoisonError::into_inner).fresh;
        if fresh.is_some_and(|(from, until)| (from..until).contains(&now)) {
            return TokenError::Expired;
        }
        (self.0.ask)();
        TokenError::KeyPending
    }
}
