//! Orders from outside about live connections: which connections, and what becomes of them; and what is told of them.
//!
//! Back ends give orders through the server API. The edge finds the connections and carries the orders out; the session
//! says what their clients are told.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, Json, Timestamp, Variant};

use crate::{ClientId, ClientPosition, Disconnect, ErrorCode, SessionId, SubscriptionTerms, Unsubscribe};

/// Which connections an order is about: those of one user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Target {
    /// The user; empty: the connections without a user, not those of all users.
    pub user: String,
    /// Only the connection with this id. A text that is no id fits no connection.
    pub client: Option<String>,
    /// Only the connection with this session, which only some transports have; a secret of its client.
    pub session: Option<String>,
}

impl Target {
    /// Whether a connection of the user is meant.
    pub fn fits(&self, client: ClientId, session: Option<SessionId>) -> bool {
        let is_session = |wanted: &String| session.is_some_and(|session| *wanted == session.to_string());
        self.session.as_ref().is_none_or(is_session)
            && self.client.as_ref().is_none_or(|wanted| *wanted == client.to_string())
    }
}

/// The most connections that are told of at once.
pub const CONNECTION_LIST_MAX: usize = 1000;

/// What is told of a live connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveConnection {
    /// Its id.
    pub client: ClientId,
    /// The user; empty for a client without a user.
    pub user: String,
    /// What carries its messages, and how they are written.
    pub variant: Variant,
    /// Its channels.
    pub channels: Vec<ChannelName>,
}

/// What becomes of each connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// It is subscribed to a channel. If it already is, by the server, it takes the new terms.
    Subscribe {
        /// The channel.
        channel: ChannelName,
        /// The terms of the subscription.
        terms: SubscriptionTerms,
        /// The client also gets what was published after this position, if the channel still has it.
        since: Option<ClientPosition>,
    },
    /// It is unsubscribed.
    Unsubscribe {
        /// The channel; `None`: all its channels.
        channel: Option<ChannelName>,
        /// What its client is told.
        why: Unsubscribe,
    },
    /// It is closed.
    Disconnect {
        /// What its client is told.
        disconnect: Disconnect,
        /// Connections that are not closed.
        spared: BTreeSet<ClientId>,
    },
    /// It lasts until another time.
    Refresh {
        /// Until when; `None`: for ever.
        expires_at: Option<Timestamp>,
        /// What others see of it from now on; `None`: no change.
        info: Option<Json>,
    },
}

/// Why an order was not carried out, or not on every connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OrderError {
    /// Too many orders wait.
    #[error("too many orders wait for the connections")]
    Overloaded,
    /// It has not been carried out yet, but may be.
    #[error("the order was not carried out in time, but may be later")]
    Late,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A subscription could not be made.
    #[error("a subscription could not be made")]
    Refused(#[source] ErrorCode),
}
