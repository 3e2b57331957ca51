//! What a session asks its driver to do, and the results that the driver passes back.
//!
//! The session decides and performs nothing: for each command it returns one [`Effect`], and the driver (the edge)
//! performs it. A [`Ticket`] stands for one missing answer. It cannot be copied, and the `on_*` method that answers
//! consumes it. So no command is answered twice, and the compiler warns where a ticket is dropped. `Debug` shows names
//! and sizes, never what clients sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidings_types::{ChannelName, Json, Offset, PushForm, StreamPosition, Timestamp};

use super::asked::Asked;
use super::ticket::Ticket;
use crate::{
    ClientInfo, ClientPosition, Disconnect, HookCall, Introduction, NamespaceOptions, Publication, Tags, TagsFilter,
    Thinning,
};

/// What the driver has to do for one command.
#[must_use = "the client gets no answer if the effect is dropped"]
pub enum Effect {
    /// Write this reply.
    Reply(Vec<u8>),
    /// The client may connect: check its introduction, make its server-side subscriptions, then
    /// [`Session::on_connected`](super::Session::on_connected) or
    /// [`Session::on_connect_failed`](super::Session::on_connect_failed), and start to ping.
    Connect(Box<ConnectEffect>),
    /// The client's `connect` is refused: write this, ignore the rest of the frame, close soon.
    Refused(Vec<u8>),
    /// Subscribe, then [`Session::on_subscribed`](super::Session::on_subscribed).
    Subscribe(Box<SubscribeEffect>),
    /// Leave the channel, then [`Session::on_unsubscribed`](super::Session::on_unsubscribed).
    Unsubscribe {
        /// For the answer.
        ticket: Ticket,
        /// The channel.
        channel: ChannelName,
    },
    /// Publish, then [`Session::on_published`](super::Session::on_published).
    Publish {
        /// For the answer.
        ticket: Ticket,
        /// The channel.
        channel: ChannelName,
        /// The channel's rules.
        options: NamespaceOptions,
        /// The data to publish.
        data: Json,
        /// The client that publishes.
        info: Arc<ClientInfo>,
        /// Labels; only a hook gives them.
        tags: Tags,
        /// Whether the publication is not kept; never in a durable channel.
        skip_history: bool,
    },
    /// Read history, then [`Session::on_history`](super::Session::on_history). If `since` has an epoch that is neither
    /// empty nor the channel's, answer [`ErrorCode::UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition).
    History {
        /// For the answer.
        ticket: Ticket,
        /// The channel.
        channel: ChannelName,
        /// The most publications, within our bound; 0: only the position is wanted.
        limit: u32,
        /// Where to start; the publication at this position is excluded. `None`: at the end where reading begins.
        since: Option<ClientPosition>,
        /// Newest first.
        reverse: bool,
    },
    /// List the subscribers, then [`Session::on_presence`](super::Session::on_presence).
    Presence {
        /// For the answer.
        ticket: Ticket,
        /// The channel.
        channel: ChannelName,
    },
    /// Count the subscribers, then [`Session::on_presence_stats`](super::Session::on_presence_stats).
    PresenceStats {
        /// For the answer.
        ticket: Ticket,
        /// The channel.
        channel: ChannelName,
    },
    /// Record whether the client's app is on the screen, then [`Session::on_visible`](super::Session::on_visible).
    Visible {
        /// For the answer.
        ticket: Ticket,
        /// For how long from now, unless the client says so again; `None`: hidden.
        visible: Option<Duration>,
    },
    /// Ask a hook, then [`Session::on_hook`](super::Session::on_hook).
    Hook {
        /// The question.
        call: Box<HookCall>,
        /// For the answer.
        asked: Box<Asked>,
    },
    /// The oldest unanswered ping is answered.
    Pong,
    /// Close the connection; nothing more is answered.
    Disconnect {
        /// The code and reason for the client.
        disconnect: Disconnect,
        /// What happened, for the log; contains nothing that the client sent.
        cause: &'static str,
    },
    /// A hook lets a connection or a subscription expire.
    Expired(Expired),
    /// Nothing has to be done: the session was closed before, or a hook has extended its time.
    Nothing,
}

// Replies may contain payloads, which must never appear in a log.
impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => write!(f, "Reply({} bytes)", reply.len()),
            Self::Connect(effect) => write!(f, "Connect({} subscriptions)", effect.subscriptions.len()),
            Self::Refused(reply) => write!(f, "Refused({} bytes)", reply.len()),
            Self::Subscribe(effect) => write!(f, "Subscribe({})", effect.channel),
            Self::Unsubscribe { channel, .. } => write!(f, "Unsubscribe({channel})"),
            Self::Publish { channel, .. } => write!(f, "Publish({channel})"),
            Self::History { channel, .. } => write!(f, "History({channel})"),
            Self::Presence { channel, .. } => write!(f, "Presence({channel})"),
            Self::PresenceStats { channel, .. } => write!(f, "PresenceStats({channel})"),
            Self::Visible { visible, .. } => write!(f, "Visible({visible:?})"),
            Self::Hook { call, .. } => write!(f, "Hook({call:?})"),
            Self::Pong => f.write_str("Pong"),
            Self::Disconnect { disconnect, cause } => write!(f, "Disconnect({}: {cause})", disconnect.code),
            Self::Expired(Expired::Connection(_)) => f.write_str("Expired"),
            Self::Expired(Expired::Subscription { channel, .. }) => write!(f, "Expired({channel})"),
            Self::Nothing => f.write_str("Nothing"),
        }
    }
}

/// A client that may connect.
#[derive(Debug)]
pub struct ConnectEffect {
    /// For the answer.
    pub ticket: ConnectTicket,
    /// What the client says about itself; a credential in it is not checked yet.
    pub introduction: Introduction,
    /// Server-side subscriptions to be made. If one cannot be made, none is.
    pub subscriptions: Vec<SubscribeEffect>,
}

/// One unanswered connect command.
#[derive(Debug)]
#[must_use = "the client is never connected if the ticket is dropped"]
pub struct ConnectTicket {
    pub(super) id: u32,
    pub(super) data: Option<Json>,
}

/// A subscription to be made.
#[derive(Debug)]
pub struct SubscribeEffect {
    /// For the answer.
    pub ticket: SubscribeTicket,
    /// The channel.
    pub channel: ChannelName,
    /// The channel's rules.
    pub options: NamespaceOptions,
    /// The position to resume from, in the recovery mode of `options`; `None`: begin with the next publication.
    pub recover: Option<ClientPosition>,
    /// Whether the client wants no unrecovered subscription. Then the driver does not subscribe, and answers
    /// [`ErrorCode::UnrecoverablePosition`](crate::ErrorCode::UnrecoverablePosition).
    pub unrecovered_is_error: bool,
    /// Whether the client is told offsets and gaps must be noticed.
    pub positioned: bool,
    /// The client's entry in the channel's presence; `None`: no entry.
    pub presence: Option<ClientInfo>,
    /// What the others are told when the client joins and leaves; `None`: nothing.
    pub announced: Option<ClientInfo>,
    /// Whether the client is told who joins and leaves.
    pub hears_joins: bool,
    /// What its pushes look like.
    pub form: PushForm,
    /// Which publications the client wants; `None`: all. This is also true of those that it has missed.
    pub filter: Option<Arc<TagsFilter>>,
    /// How much of the publications the client gets.
    pub thinning: Thinning,
}

/// One subscription that is being made, with the part of the answer that the session knows.
#[derive(Debug)]
#[must_use = "the client is never told if the ticket is dropped"]
pub struct SubscribeTicket {
    /// The command; 0 for a server-side subscription.
    pub(super) id: u32,
    pub(super) channel: ChannelName,
    pub(super) was_recovering: bool,
    pub(super) requested_offset: Offset,
    pub(super) recoverable: bool,
    pub(super) form: PushForm,
    pub(super) number: u64,
    /// Only the latest publication is recovered.
    pub(super) is_cached: bool,
    pub(super) positioned: bool,
    /// Until when the client must refresh it. Server-side subscriptions are not refreshed by clients.
    pub(super) expires_at: Option<Timestamp>,
    pub(super) data: Option<Json>,
}

impl SubscribeTicket {
    /// Tells the client the channel's number, if pushes name the channel by it.
    pub fn with_number(mut self, number: u64) -> Self {
        self.number = if self.form.is_numbered { number } else { 0 };
        self
    }
}

/// The start of a subscription.
#[derive(Debug, Clone, Copy)]
pub struct Subscribed<'a> {
    /// The channel's top when the subscription began; `None` for channels without positions.
    pub top: Option<StreamPosition>,
    /// Every publication after the requested position up to `top` that the client wants, oldest first; `None` if there
    /// was nothing to resume or some of them are gone.
    pub recovered: Option<&'a [Publication]>,
}

/// The result of a history request.
#[derive(Debug, Clone, Copy)]
pub struct HistoryFound<'a> {
    /// The channel's top.
    pub top: StreamPosition,
    /// The publications that were asked for, in the requested order.
    pub publications: &'a [Publication],
}

/// A connection or subscription that has expired and was not refreshed.
#[derive(Debug, PartialEq, Eq)]
pub enum Expired {
    /// The connection, or one of its server-side subscriptions: close the connection with this.
    Connection(Disconnect),
    /// A subscription of the client: unsubscribe, write the push.
    Subscription {
        /// The channel.
        channel: ChannelName,
        /// What to write to the client.
        push: Vec<u8>,
    },
}
