//! Who calls: API keys with scopes. (Apps: `apps`.)
//!
//! Only the SHA-256 of a key is known here. Several keys are valid at a time, so that one can be replaced without a gap.
//! A presented key is hashed and compared with every known one in constant time: neither how much of a key is right nor
//! which key it is can be measured. Keys carry at least 128 bits of randomness (the configuration asks for length), so
//! a plain hash is enough: there is nothing to guess that a slow hash would protect.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::Query;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};

/// What the holder of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Hand in events and cancel them, publish into channels.
    Publish,
    /// Read history, presence, the node's state and what is held.
    Read,
    /// Register and import devices and change their subscriptions.
    Devices,
    /// Read `/metrics`.
    Metrics,
    /// Hold pushes and let them go on. Not part of [`Scope::Publish`]: a brake must hold also those who publish.
    Operate,
    /// Back up the store and export devices, with all tokens and the hashes of all credentials.
    Backup,
}

impl Scope {
    pub(crate) const ALL: [Self; 6] =
        [Self::Publish, Self::Read, Self::Devices, Self::Metrics, Self::Operate, Self::Backup];

    /// Its name, as in configurations and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Read => "read",
            Self::Devices => "devices",
            Self::Metrics => "metrics",
            Self::Operate => "operate",
            Self::Backup => "backup",
        }
    }

    /// What it allows, for those who read about it.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Publish => "hand in events, cancel them, ask what became of them, publish into channels",
            Self::Read => "read history, presence, the node's state and what is held",
            Self::Devices => "register and import devices, with tokens and credentials; change their subscriptions",
            Self::Metrics => "read /metrics",
            Self::Operate => "hold pushes and let them go on",
            Self::Backup => "back up the store and export devices, with all tokens",
        }
    }
}

/// A key that is valid.
#[derive(Clone)]
pub struct ApiKey {
    /// Who holds it, for logs and refusals.
    pub name: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// What its holder may do.
    pub scopes: Vec<Scope>,
    /// The most devices that an event of its holder may be for; `None`: any number.
    pub audience_max: Option<u64>,
}

// Secrets never reach a log, not even as a hash.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("audience_max", &self.audience_max)
            .finish_non_exhaustive()
    }
}

/// All valid keys; cheap to clone. Without any, nobody may call.
#[derive(Debug, Clone)]
pub struct ApiKeys(Arc<[ApiKey]>);

impl ApiKeys {
    /// Takes the valid keys. Of two with the same hash the first one counts.
    pub fn new(keys: Vec<ApiKey>) -> Self {
        Self(keys.into())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whose key the request carries: in `X-API-Key`, in `Authorization: apikey …` or `Bearer …`, or, where `uri` is
    /// given, in the query parameter `api_key`; the first of these that is valid.
    pub(crate) fn caller(&self, headers: &HeaderMap, uri: Option<&Uri>) -> Option<Caller> {
        let header = || headers.get("x-api-key").and_then(|key| self.find(key.as_bytes()));
        let authorization = || self.find(authorization(headers)?);
        let query = || self.find(query_key(uri?)?.as_bytes());
        header().or_else(authorization).or_else(query)
    }

    fn find(&self, presented: &[u8]) -> Option<Caller> {
        let hash = digest(&SHA256, presented);
        let mut found = None;
        if presented.is_empty() {
            return None; // Whatever was configured, nothing is not a key.
        }
        for (index, key) in self.0.iter().enumerate() {
            // No early end: the time tells nothing about which key it was.
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

/// What stands in `Authorization: Bearer …`, which may be a key or an app's token.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn query_key(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    pairs.into_iter().find_map(|(name, value)| (name == "api_key").then_some(value))
}

/// Somebody with a valid key.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    keys: ApiKeys,
    index: usize,
}

impl Caller {
    pub(crate) fn name(&self) -> &str {
        &self.key().name
    }

    /// Which of the keys it is.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.key().scopes.contains(&scope)
    }

    /// The most devices that an event of its may be for.
    pub(crate) fn audience_max(&self) -> Option<u64> {
        self.key().audience_max
    }

    fn key(&self) -> &ApiKey {
        &self.keys.0[self.index]
    }
}
