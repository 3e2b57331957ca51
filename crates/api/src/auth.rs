//! API keys with scopes. (For apps see `apps`.)
//!
//! Only the SHA-256 of a key is known here. Several keys are valid at a time, so that one can be replaced without a
//! gap. A key in a request is hashed and compared with every known one in constant time. So an attacker can measure
//! neither how much of a key is right nor which key it is. Keys have at least 128 bits of randomness (the configuration
//! requires a length), so a plain hash is enough: nobody can guess such a key.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::Query;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Publish and cancel events, publish into channels.
    Publish,
    /// Read history, presence, the node's state and which pushes are paused.
    Read,
    /// Register and import devices and change their subscriptions.
    Devices,
    /// Read `/metrics`.
    Metrics,
    /// Pause and resume pushes. Not part of [`Scope::Publish`]: an operator must be able to stop the publishers.
    Operate,
    /// Back up the store and export devices, with all tokens and the hashes of all credentials.
    Backup,
    /// Read the audit log. A scope of its own: who is watched by it need not read it, and who reads it need not act.
    Audit,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] =
        [Self::Publish, Self::Read, Self::Devices, Self::Metrics, Self::Operate, Self::Backup, Self::Audit];

    /// Its name in the configuration and in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Read => "read",
            Self::Devices => "devices",
            Self::Metrics => "metrics",
            Self::Operate => "operate",
            Self::Backup => "backup",
            Self::Audit => "audit",
        }
    }

    /// What it allows, for documentation.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Publish => "publish events, cancel them, read their reports, publish into channels",
            Self::Read => "read history, presence, the node's state, and which pushes are paused",
            Self::Devices => "register and import devices, with tokens and credentials; change their subscriptions",
            Self::Metrics => "read /metrics",
            Self::Operate => "pause and resume pushes",
            Self::Backup => "back up the store and export devices, with all tokens",
            Self::Audit => "read the audit log",
        }
    }
}

/// A key that is valid.
#[derive(Clone)]
pub struct ApiKey {
    /// The holder's name, for logs and errors.
    pub name: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// What its holder may do.
    pub scopes: Vec<Scope>,
    /// The most devices of one event of this key; `None`: any number.
    pub audience_max: Option<u64>,
}

// Secrets must never appear in a log, not even as a hash.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("audience_max", &self.audience_max)
            .finish_non_exhaustive()
    }
}

/// All valid keys; cheap to clone. Without keys, every call is refused.
#[derive(Debug, Clone)]
pub struct ApiKeys(Arc<[ApiKey]>);

impl ApiKeys {
    /// Takes the valid keys. If two have the same hash, the first one counts.
    pub fn new(keys: Vec<ApiKey>) -> Self {
        Self(keys.into())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The holder of the request's key. The key is in `X-API-Key`, in `Authorization: apikey …` or `Bearer …`, or, if
    /// `uri` is given, in the query parameter `api_key`. The first valid one counts.
    pub(crate) fn caller(&self, headers: &HeaderMap, uri: Option<&Uri>) -> Option<Caller> {
        let header = || headers.get("x-api-key").and_then(|key| self.find(key.as_bytes()));
        let authorization = || self.find(authorization(headers)?);
        let query = || self.find(query_key(uri?)?.as_bytes());
        header().or_else(authorization).or_else(query)
    }

    /// The holder of this key, for a part of the server that asks for it by itself.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Caller> {
        self.find(key.as_bytes())
    }

    /// The holder with this name. Put into a request's extensions, it calls without showing a key; a request from the
    /// network has no such extension.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Caller> {
        let index = self.0.iter().position(|key| key.name == name)?;
        Some(Caller { keys: self.clone(), index })
    }

    fn find(&self, presented: &[u8]) -> Option<Caller> {
        let hash = digest(&SHA256, presented);
        let mut found = None;
        if presented.is_empty() {
            return None; // An empty key is never valid.
        }
        for (index, key) in self.0.iter().enumerate() {
            // No early return: the time must not tell which key it was.
            if verify_slices_are_equal(hash.as_ref(), &key.sha256).is_ok() && found.is_none() {
                found = Some(index);
            }
        }
        found.map(|index| Caller { keys: self.clone(), index })
    }
}

fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let known = scheme.eq_ignore_ascii_case("apikey") || scheme.eq_ignore_ascii_case("bearer");
    known.then(|| key.trim().as_bytes())
}

/// The value of `Authorization: Bearer …`, which may be a key or an app's token.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn query_key(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    pairs.into_iter().find_map(|(name, value)| (name == "api_key").then_some(value))
}

/// The holder of a valid key.
#[derive(Debug, Clone)]
pub struct Caller {
    keys: ApiKeys,
    index: usize,
}

impl Caller {
    /// The name of the key's holder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key().name
    }

    /// The index of the key.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether the key has the scope.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.key().scopes.contains(&scope)
    }

    /// The most devices of one of its events.
    pub(crate) fn audience_max(&self) -> Option<u64> {
        self.key().audience_max
    }

    fn key(&self) -> &ApiKey {
        &self.keys.0[self.index]
    }
}
