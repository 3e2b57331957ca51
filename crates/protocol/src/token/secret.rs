//! Texts that let their holder in: tokens, and the secret that they are signed with. Neither shows in `Debug`.

use std::fmt;

use serde::Deserialize;

/// A token as the client sent it. It lets its holder connect, so it never shows in `Debug`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Token(Box<str>);

impl Token {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the client sent no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// The secret that tokens are signed with, shared with the application's servers. Never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(pub(super) Box<[u8]>);

/// The secret is empty, so anybody could guess it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("token secret must not be empty")]
pub struct EmptySecretError;

impl TokenSecret {
    /// The secret's bytes; RFC 7518, 3.2 requires 32 or more random bytes.
    ///
    /// # Errors
    /// When it is empty.
    pub fn new(secret: &[u8]) -> Result<Self, EmptySecretError> {
        if secret.is_empty() { Err(EmptySecretError) } else { Ok(Self(secret.into())) }
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenSecret({} bytes)", self.0.len())
    }
}
