//! Which client a connection is: the id that the server gives it, and what other clients may see of it.
//!
//! Nothing is proven here: a token ([`crate::token`]) has proven the user before.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidings_types::Json;
use uuid::Uuid;

use crate::fields::Fields;

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

impl ClientId {
    /// The id with this text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What other clients may see of a connection: in presence, in join and leave, and in its publications.
///
/// Its serde form is that of the wire, so a stored publication can contain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// The user; empty for an anonymous one.
    pub user: String,
    /// The connection.
    pub client: ClientId,
    /// What the connection token says about the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conn_info: Option<Json>,
    /// What the subscription token says about the connection, in one channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chan_info: Option<Json>,
}

/// Bytes of an encoded client besides its texts: names, punctuation, and its id, which presence contains twice.
const FIXED_BYTES: usize = 160;

impl ClientInfo {
    /// About how many bytes it takes in an answer; rather too many than too few.
    pub fn weight(&self) -> usize {
        let infos: usize =
            [&self.conn_info, &self.chan_info].into_iter().flatten().map(|info| info.bytes().len()).sum();
        FIXED_BYTES + self.user.len() + infos
    }

    pub(crate) fn encode(&self, fields: &mut Fields<'_>) {
        let mut text = Uuid::encode_buffer();
        let client = self.client.0.hyphenated().encode_lower(&mut text);
        fields.text_always(("user", 1), &self.user); // In JSON present even when empty, unlike every other text.
        fields.text_always(("client", 2), client);
        fields.json(("conn_info", 3), self.conn_info.as_ref());
        fields.json(("chan_info", 4), self.chan_info.as_ref());
    }
}
