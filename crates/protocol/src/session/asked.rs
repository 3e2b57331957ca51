//! What a session keeps for hooks, and the command that waits for the answer of one.

use std::fmt;

use tidings_types::{ChannelName, Json};

use super::ticket::Ticket;
use crate::SessionId;
use crate::command::{ConnectRequest, SubscribeRequest};
use crate::hook::HookHeaders;

/// State that only few connections need.
#[derive(Default)]
pub(super) struct Background {
    /// What the back end said about the connection; only hooks get to know it.
    pub(super) meta: Option<Json>,
    /// What the client sent of the headers that hooks may get.
    pub(super) headers: Option<HookHeaders>,
    /// The node and the id with which the client names its session; `None`: it need not.
    pub(super) name: Option<(Box<str>, SessionId)>,
}

// Headers contain secrets of the client.
impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}

/// The command that waits for a hook's answer.
#[derive(Debug)]
#[must_use = "the command is never answered if this is dropped"]
pub struct Asked(pub(super) Waiting);

#[derive(Debug)]
pub(super) enum Waiting {
    Connect { ticket: Ticket, request: Box<ConnectRequest> },
    Rpc(Ticket),
    Publish { ticket: Ticket, channel: ChannelName, data: Json },
    Subscribe { ticket: Ticket, request: Box<SubscribeRequest> },
    Refresh,
    SubRefresh { channel: ChannelName },
}

impl Waiting {
    /// The id of the command; 0: there is none.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Refresh | Self::SubRefresh { .. } => 0,
            Self::Rpc(ticket)
            | Self::Connect { ticket, .. }
            | Self::Publish { ticket, .. }
            | Self::Subscribe { ticket, .. } => ticket.id,
        }
    }
}
