//! Who a connection is: the id the server gives it, and what other clients may see of it.
//!
//! Nothing here proves anything: what a user is called was proven by a token ([`crate::token`]) before it got here.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidings_types::Json;
use uuid::Uuid;

use crate::json::object;

/// Identity of one connection, chosen by the server: a UUID of version 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(Uuid);

impl ClientId {
    /// An id from random bits supplied by the caller (cores draw no randomness of their own).
    pub fn from_random(bits: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who a connection is, as other clients may see it: in presence, in join and leave, at what it publishes.
///
/// Its serde form is the one of the wire, so that a stored publication can carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// The user; empty for an anonymous one.
    pub user: String,
    /// The connection.
    pub client: ClientId,
    /// What the connection token says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conn_info: Option<Json>,
    /// What the subscription token says about it, in one channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chan_info: Option<Json>,
}

/// Bytes of an encoded client beside its texts: names, punctuation, its id, in presence twice.
const FIXED_BYTES: usize = 160;

impl ClientInfo {
    /// About how many bytes it takes in an answer; a little more rather than less.
    pub fn weight(&self) -> usize {
        let infos: usize =
            [&self.conn_info, &self.chan_info].into_iter().flatten().map(|info| info.bytes().len()).sum();
        FIXED_BYTES + self.user.len() + infos
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut text = Uuid::encode_buffer();
        let client = self.client.0.hyphenated().encode_lower(&mut text);
        object(out, |fields| {
            fields.text_always("user", &self.user); // Present even when empty, unlike every other text.
            fields.text_always("client", client);
            fields.json("conn_info", self.conn_info.as_ref());
            fields.json("chan_info", self.chan_info.as_ref());
        });
    }
}
