//! What a session wants done, and what it is told became of it.
//!
//! The session decides and touches nothing: for each command it returns one [`Effect`], and the driver (the edge) does
//! it. A [`Ticket`] is the debt of one answer; it cannot be copied and is used up by the `on_*` method that answers,
//! so no command is answered twice, and the compiler warns where one is dropped. `Debug` shows names and sizes, never
//! what clients said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidings_types::{ChannelName, Json, Offset, StreamPosition, Timestamp};

use crate::{ClientInfo, ClientPosition, Disconnect, Introduction, NamespaceOptions, Publication};

/// What the driver is to do for one command.
#[must_use = "a command without its effect is a client without its answer"]
pub enum Effect {
    /// Write this.
    Reply(Vec<u8>),
    /// The client is in: write the reply, start to ping.
    Connected {
        /// To be written.
        reply: Vec<u8>,
        /// What it says of itself; a credential in it is not checked yet.
        introduction: Introduction,
    },
    /// The client is not let in: write this, ignore the rest of the frame, close soon.
    Refused(Vec<u8>),
    /// Subscribe, then [`Session::on_subscribed`](super::Session::on_subscribed).
    Subscribe(Box<SubscribeEffect>),
    /// Leave the channel, then [`Session::on_unsubscribed`](super::Session::on_unsubscribed).
    Unsubscribe {
        /// To be given back.
        ticket: Ticket,
        /// Which.
        channel: ChannelName,
    },
    /// Publish, then [`Session::on_published`](super::Session::on_published).
    Publish {
        /// To be given back.
        ticket: Ticket,
        /// Where.
        channel: ChannelName,
        /// The channel's rules.
        options: NamespaceOptions,
        /// What.
        data: Json,
        /// Who says it.
        info: Arc<ClientInfo>,
    },
    /// Read history, then [`Session::on_history`](super::Session::on_history). A `since` of another epoch than the
    /// channel's, unless empty, is [`ErrorCode::UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition).
    History {
        /// To be given back.
        ticket: Ticket,
        /// Of which channel.
        channel: ChannelName,
        /// At most so many, already within our bound; 0: only the position is wanted.
        limit: u32,
        /// Where to start, that one excluded; `None`: at the end where reading begins.
        since: Option<ClientPosition>,
        /// Newest first.
        reverse: bool,
    },
    /// List who is subscribed, then [`Session::on_presence`](super::Session::on_presence).
    Presence {
        /// To be given back.
        ticket: Ticket,
        /// To which channel.
        channel: ChannelName,
    },
    /// Count who is subscribed, then [`Session::on_presence_stats`](super::Session::on_presence_stats).
    PresenceStats {
        /// To be given back.
        ticket: Ticket,
        /// To which channel.
        channel: ChannelName,
    },
    /// Note whether the client's app is on the screen, then [`Session::on_visible`](super::Session::on_visible).
    Visible {
        /// To be given back.
        ticket: Ticket,
        /// For how long from now, unless it says so again; `None`: hidden.
        visible: Option<Duration>,
    },
    /// The oldest unanswered ping is answered.
    Pong,
    /// Close with this; nothing more is answered.
    Disconnect {
        /// What the client is told.
        disconnect: Disconnect,
        /// What happened, for the log; holds nothing the client sent.
        cause: &'static str,
    },
    /// The session was closed before.
    Nothing,
}

// Replies may hold payloads, which never reach a log.
impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => write!(f, "Reply({} bytes)", reply.len()),
            Self::Connected { reply, .. } => write!(f, "Connected({} bytes)", reply.len()),
            Self::Refused(reply) => write!(f, "Refused({} bytes)", reply.len()),
            Self::Subscribe(effect) => write!(f, "Subscribe({})", effect.channel),
            Self::Unsubscribe { channel, .. } => write!(f, "Unsubscribe({channel})"),
            Self::Publish { channel, .. } => write!(f, "Publish({channel})"),
            Self::History { channel, .. } => write!(f, "History({channel})"),
            Self::Presence { channel, .. } => write!(f, "Presence({channel})"),
            Self::PresenceStats { channel, .. } => write!(f, "PresenceStats({channel})"),
            Self::Visible { visible, .. } => write!(f, "Visible({visible:?})"),
            Self::Pong => f.write_str("Pong"),
            Self::Disconnect { disconnect, cause } => write!(f, "Disconnect({}: {cause})", disconnect.code),
            Self::Nothing => f.write_str("Nothing"),
        }
    }
}

/// One unanswered command. Not copied, so it is answered once.
#[derive(Debug)]
#[must_use = "a ticket not given back is a command never answered"]
pub struct Ticket {
    pub(super) id: u32,
}

impl Ticket {
    /// The command's id, for the log.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// A subscription to be made.
#[derive(Debug)]
pub struct SubscribeEffect {
    /// To be given back.
    pub ticket: SubscribeTicket,
    /// To which channel.
    pub channel: ChannelName,
    /// The channel's rules.
    pub options: NamespaceOptions,
    /// Where to resume; `None`: begin with the next publication.
    pub recover: Option<ClientPosition>,
    /// Whether an unrecovered subscription is unwanted: the driver then answers
    /// [`ErrorCode::UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition) and does not subscribe.
    pub unrecovered_is_error: bool,
    /// Whether offsets are told and gaps must be noticed.
    pub positioned: bool,
    /// Who appears in the channel's presence; `None`: nobody.
    pub presence: Option<ClientInfo>,
}

/// One unanswered subscribe command, with what its answer says besides the driver's part.
#[derive(Debug)]
#[must_use = "a ticket not given back is a command never answered"]
pub struct SubscribeTicket {
    pub(super) id: u32,
    pub(super) channel: ChannelName,
    pub(super) was_recovering: bool,
    pub(super) requested_offset: Offset,
    pub(super) recoverable: bool,
    pub(super) positioned: bool,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) data: Option<Json>,
}

/// What a subscription began with.
#[derive(Debug, Clone, Copy)]
pub struct Subscribed<'a> {
    /// The channel's top when the subscription began; `None` for channels without positions.
    pub top: Option<StreamPosition>,
    /// Every publication after the requested position up to `top`, oldest first; `None` when there was nothing to
    /// resume or some of them are gone.
    pub recovered: Option<&'a [Publication]>,
}

/// What a channel's history holds.
#[derive(Debug, Clone, Copy)]
pub struct HistoryFound<'a> {
    /// The channel's top.
    pub top: StreamPosition,
    /// What was asked for, in the order asked for.
    pub publications: &'a [Publication],
}

/// Something ran out and was not refreshed.
#[derive(Debug, PartialEq, Eq)]
pub enum Expired {
    /// The connection: close it with this.
    Connection(Disconnect),
    /// A subscription: leave the channel, write the push.
    Subscription {
        /// Which.
        channel: ChannelName,
        /// What the client is told.
        push: Vec<u8>,
    },
}
