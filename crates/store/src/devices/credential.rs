//! Secrets with which devices prove their identity. Only their hashes are stored.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidings_types::NameError;

use crate::hash::{Hash32, hash32, random};

/// The secret of an imported device.
#[derive(Clone, PartialEq, Eq)]
pub enum GivenCredential {
    /// The secret itself.
    Secret(String),
    /// Only its hash.
    Hash(CredentialHash),
}

impl GivenCredential {
    pub(crate) fn hash(&self) -> Hash32 {
        match self {
            Self::Secret(text) => hash32(text.as_bytes()),
            Self::Hash(hash) => hash.0,
        }
    }
}

impl From<String> for GivenCredential {
    fn from(text: String) -> Self {
        Self::Secret(text)
    }
}

// Neither secrets nor their hashes reach a log: from its hash, a weak secret can be guessed.
impl fmt::Debug for GivenCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenCredential")
    }
}

/// The SHA-256 hash of a device's secret; as text, base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CredentialHash(pub(crate) Hash32);

impl fmt::Display for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for CredentialHash {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let hash = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| NameError {
            what: "credential hash",
            rule: "must be a SHA-256 hash in base64url without padding, 43 characters",
            value: "a secret's".to_owned(),
        })
    }
}

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialHash")
    }
}

/// The secret of a device: 32 random bytes in base64url.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub(crate) String);

impl Credential {
    /// A new secret and its hash.
    pub(crate) fn generate() -> (Self, Hash32) {
        let credential = Self(URL_SAFE_NO_PAD.encode(random::<32>()));
        let hash = hash32(credential.as_str().as_bytes());
        (credential, hash)
    }

    /// Whether `text` is the secret with this hash. Takes the same time for every wrong secret.
    pub(crate) fn matches(text: &str, hash: &Hash32) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&hash32(text.as_bytes()), hash).is_ok()
    }

    /// The text for the device.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Secrets never reach a log.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}
