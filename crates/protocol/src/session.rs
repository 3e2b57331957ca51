//! One connection's state in the protocol: which command is allowed when, what has to be done for it, and its answer.
//!
//! ```text
//!                  connect with a token             disconnect, expired, close()
//! AwaitingConnect ──────────────────────► Connected ────────────────────────────► Closed
//!   │    │  │                               ▲                                      ▲ ▲ ▲
//!   │    │  └─ connect ─► Asking ── yes ────┘                                      │ │ │
//!   │    │                │    └─ disconnect, nothing known, any command, close() ─┘ │ │
//!   │    │                ▼ error, no answer                                         │ │
//!   │    └─ error ──► Refused ── any command, close() ───────────────────────────────┘ │
//!   └─ any other command, connect with an invalid token or none, close() ──────────────┘
//! ```
//!
//! `Asking` is passed only if a hook decides on clients without a token; otherwise the settings decide at once.
//!
//! [`Session::handle`] decides on one command and returns exactly one [`Effect`]. Some effects contain the reply. The
//! others contain a ticket: the driver performs the effect and passes the ticket and the result to the `on_*` method of
//! the same name, which returns the reply. A ticket cannot be copied, so no command is answered twice. The result of a
//! connect, subscribe or unsubscribe must be passed before the next command is handled; the other results may come in
//! any order. In the state `Closed` every call returns nothing.
//!
//! A client has subscriptions of its own and *server-side* ones, which the server makes without being asked: those that
//! its [`Admission`](crate::Admission) grants, its personal channel, and those that it names in `connect` and might
//! subscribe to anyway. They are made before `connect` is answered, and if one fails, `connect` fails.
//!
//! The session does not see publications to the client, measures no time and sends no pings. The driver reports each
//! ping that it has sent, and asks [`Session::deadline`] when to call [`Session::poll_expired`]. The driver also checks
//! that the client connects in time, answers pings in time, and reads what it is sent.
//!
//! Bounds: `channel_count_max` subscriptions, of 32 bytes each, and nothing else that grows.

use std::sync::Arc;
use std::time::Duration;

use tidings_types::{ChannelName, DeviceId, Json, Offset, Timestamp, Variant};

use crate::command::{Command, PublishRequest, Request, RpcRequest};
use crate::hook::Question;
use crate::introduction::{RPC_VISIBLE, read_visible};
use crate::reply::{ExpiryResult, Reply, VisibleResult, encode_reply};
use crate::token::{Token, TokenError, TokenVerifier};
use crate::{
    AppError, ClientId, ClientInfo, Disconnect, ErrorCode, HistoryRequest, NamespaceOptions, Namespaces, SessionHooks,
    SessionId, Tags,
};

mod asked;
mod connect;
mod effect;
mod hook;
mod order;
mod permission;
mod subscribe;
mod subscription;
mod ticket;

pub use asked::Asked;
use asked::{Background, Waiting};
pub use effect::{
    ConnectEffect, ConnectTicket, Effect, Expired, HistoryFound, SubscribeEffect, SubscribeTicket, Subscribed,
};
pub use order::NotSubscribed;
use permission::Allowed;
use subscription::Subscription;
pub use ticket::Ticket;

/// The most bytes of a channel's name.
pub const CHANNEL_BYTES_MAX: usize = 255;
/// The most publications in one answer to `history`. A recovery has the limit of the edge.
pub const HISTORY_PUBLICATION_COUNT_MAX: u32 = 300;
/// How long after its token has expired a connection or subscription may still be refreshed.
pub const EXPIRED_CLOSE_DELAY: Duration = Duration::from_secs(25);
/// How long a connection or a subscription goes on when the hook that could extend it cannot be asked.
pub const REFRESH_RETRY: Duration = Duration::from_secs(60);

/// What all sessions share.
#[derive(Debug)]
pub struct SessionConfig {
    /// What clients may do in which channel.
    pub namespaces: Namespaces,
    /// Checks tokens; `None`: every token is invalid.
    pub token_verifier: Option<TokenVerifier>,
    /// Clients without a token may connect; their user is "".
    pub allow_anonymous: bool,
    /// Every client may do everything, except in `$` channels, which always need a token. For development only.
    pub insecure: bool,
    /// Which hook decides on what.
    pub hooks: SessionHooks,
    /// The most subscriptions of one connection.
    pub channel_count_max: usize,
    /// Every user is subscribed to a channel of its own; `None`: nobody is.
    pub personal_channels: Option<PersonalChannels>,
    /// The interval of our pings as clients are told, in whole seconds; zero: there are none.
    pub ping_interval: Duration,
    /// Our version, not empty (an SDK insists).
    pub version: String,
}

/// The personal channels of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalChannels {
    /// Their namespace; empty: they have none.
    pub namespace: String,
    /// A user has one connection at a time: a new one closes those that the user had.
    pub single_connection: bool,
}

/// One connection's state in the protocol.
#[derive(Debug)]
pub struct Session {
    config: Arc<SessionConfig>,
    client: ClientId,
    variant: Variant,
    user: Box<str>,
    /// Named in `connect`; the session does not know whether it was proven.
    device: Option<DeviceId>,
    conn_info: Option<Json>,
    expires_at: Option<Timestamp>,
    /// Invariant: at most `channel_count_max`, no channel twice.
    subscriptions: Vec<Subscription>,
    state: State,
    /// A token or a hook has said who the client is.
    is_proven: bool,
    pongs_awaited: u8,
    /// State that only few connections need.
    background: Option<Box<Background>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitingConnect,
    /// A hook is asked who the client is.
    Asking,
    Connected,
    Refused,
    Closed,
}

/// Why a command was not performed.
enum Refusal {
    Error(ErrorCode),
    App(AppError),
    Disconnect(Disconnect, &'static str),
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code)
    }
}

impl Refusal {
    /// The refusal for a client that gets no answers.
    fn without_answer(self) -> Self {
        match self {
            Self::Error(code) => Self::Disconnect(Disconnect::instead_of(code.code().into()), code.message()),
            Self::App(error) => {
                Self::Disconnect(Disconnect::instead_of(error.code), "the back end answered with an error")
            }
            Self::Disconnect(..) => self,
        }
    }
}

fn bad_request(cause: &'static str) -> Refusal {
    Refusal::Disconnect(Disconnect::BAD_REQUEST, cause)
}

impl Session {
    /// A connection that has sent nothing yet.
    pub fn new(config: Arc<SessionConfig>, client: ClientId, variant: Variant) -> Self {
        Self {
            config,
            client,
            variant,
            user: Box::default(),
            device: None,
            conn_info: None,
            expires_at: None,
            subscriptions: Vec::new(),
            state: State::AwaitingConnect,
            is_proven: false,
            pongs_awaited: 0,
            background: None,
        }
    }

    /// Gives the session a name: the client learns it from the answer to `connect`, and uses it in each
    /// [`EmulationRequest`](crate::EmulationRequest). A unidirectional client, which sends none, does not learn the node.
    pub fn name(&mut self, node: &str, id: SessionId) {
        let node = if self.variant.transport.is_unidirectional() { "" } else { node };
        self.background.get_or_insert_default().name = Some((node.into(), id));
    }

    /// The id in its name, if it has one.
    pub fn id(&self) -> Option<SessionId> {
        self.background.as_ref()?.name.as_ref().map(|name| name.1)
    }

    /// The connection's id.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// In which format its commands come, and what its answers look like.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The connected user; empty for an anonymous one.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether a new connection closes those that its user had.
    pub fn is_single(&self) -> bool {
        !self.user.is_empty() && self.config.personal_channels.as_ref().is_some_and(|own| own.single_connection)
    }

    /// The device that the client named in `connect`, proven or not.
    pub fn device(&self) -> Option<&DeviceId> {
        self.device.as_ref()
    }

    /// Whether the client has not asked to connect yet.
    pub fn awaits_connect(&self) -> bool {
        self.state == State::AwaitingConnect
    }

    /// Whether the client is connected and has not been disconnected.
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// When the connection's token expires, if ever.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The channels that the client has or is about to have: the driver must unsubscribe them when the connection ends.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &ChannelName> {
        self.subscriptions.iter().map(|subscription| &subscription.channel)
    }

    /// What others may see of the client in `channel`.
    pub fn info(&self, channel: &ChannelName) -> ClientInfo {
        ClientInfo {
            user: self.user.as_ref().into(),
            client: self.client,
            conn_info: self.conn_info.clone(),
            chan_info: self.subscription(channel.as_str()).and_then(Subscription::info).cloned(),
        }
    }

    /// Decides on the client's next command.
    pub fn handle(&mut self, command: Command, now: Timestamp) -> Effect {
        if self.state == State::Closed {
            return Effect::Nothing;
        }
        let id = command.id;
        let decided = self.decide(command, now);
        self.conclude(id, decided)
    }

    /// The effect of a decision on command `id`.
    fn conclude(&mut self, id: u32, decided: Result<Effect, Refusal>) -> Effect {
        let decided = match decided {
            Err(refusal) if self.variant.transport.is_unidirectional() => Err(refusal.without_answer()),
            other => other,
        };
        let reply = match decided {
            Ok(effect) => return effect,
            Err(Refusal::Error(code)) => self.reply(id, &Reply::Error(code)),
            Err(Refusal::App(error)) => self.reply(id, &Reply::AppError(&error)),
            Err(Refusal::Disconnect(disconnect, cause)) => {
                self.state = State::Closed;
                return Effect::Disconnect { disconnect, cause };
            }
        };
        if matches!(self.state, State::AwaitingConnect | State::Asking) {
            self.state = State::Refused;
            return Effect::Refused(reply);
        }
        Effect::Reply(reply)
    }

    /// Reports that a ping was written: one more pong is expected.
    pub fn on_ping_sent(&mut self) {
        self.pongs_awaited = self.pongs_awaited.saturating_add(1);
    }

    /// Whether a ping has not been answered yet.
    pub fn awaits_pong(&self) -> bool {
        self.pongs_awaited > 0
    }

    /// The driver ends the connection; nothing is answered from now on.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    fn reply(&self, id: u32, reply: &Reply<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        encode_reply(self.variant.format, id, reply, &mut out);
        out
    }

    fn decide(&mut self, command: Command, now: Timestamp) -> Result<Effect, Refusal> {
        let ticket = Ticket { id: command.id };
        match (self.state, command.request) {
            (State::AwaitingConnect, Request::Connect(request)) => self.connect(ticket, request, now),
            (State::AwaitingConnect, _) => Err(bad_request("first command is not connect")),
            (State::Asking, _) => Err(bad_request("command before the answer to connect")),
            (State::Refused | State::Closed, _) => Err(bad_request("command after a refused connect")),
            (State::Connected, request) => self.serve(ticket, request, now),
        }
    }

    fn serve(&mut self, ticket: Ticket, request: Request, now: Timestamp) -> Result<Effect, Refusal> {
        match request {
            Request::Pong => self.pong(),
            Request::Subscribe(request) => self.subscribe(ticket, *request, now),
            Request::Unsubscribe { channel } => self.unsubscribe(ticket, &channel),
            Request::Publish(request) => self.publish(ticket, request),
            Request::Presence { channel } => {
                let channel = self.presence_channel(&channel)?;
                Ok(Effect::Presence { ticket, channel })
            }
            Request::PresenceStats { channel } => {
                let channel = self.presence_channel(&channel)?;
                Ok(Effect::PresenceStats { ticket, channel })
            }
            Request::History(request) => self.history(ticket, request),
            Request::Refresh { token } => self.refresh(ticket, &token, now),
            Request::SubRefresh { channel, token } => self.sub_refresh(ticket, &channel, &token, now),
            Request::Rpc(request) => self.rpc(ticket, request),
            Request::Send => {
                Err(Refusal::Disconnect(Disconnect::NOT_AVAILABLE, "asynchronous messages are not available"))
            }
            Request::Connect(_) => Err(bad_request("second connect")),
            Request::Ping => Err(bad_request("clients do not ping")),
        }
    }

    fn refresh(&mut self, ticket: Ticket, token: &Token, now: Timestamp) -> Result<Effect, Refusal> {
        if token.is_empty() {
            return Err(bad_request("refresh without a token"));
        }
        if self.config.hooks.refresh.is_some() {
            return Err(bad_request("refresh of a connection that a hook refreshes"));
        }
        let verifier = self.config.token_verifier.as_ref().filter(|_| self.is_proven);
        let verifier = verifier.ok_or(bad_request("refresh of an anonymous connection"))?;
        let claims = verifier.verify_connection(token, now).map_err(|error| match error {
            TokenError::Invalid(cause) => Refusal::Disconnect(Disconnect::INVALID_TOKEN, cause),
            TokenError::Expired => Refusal::Disconnect(Disconnect::EXPIRED, "refresh with an expired token"),
            TokenError::KeyPending => ErrorCode::Internal.into(),
        })?;
        if *claims.user != *self.user {
            return Err(Refusal::Disconnect(Disconnect::INVALID_TOKEN, "refresh with another user's token"));
        }
        // A refresh only extends the time. A token that names no device, or the first one that names a device, is
        // accepted.
        if claims.device.is_some() && self.device.is_some() && claims.device != self.device {
            return Err(Refusal::Disconnect(Disconnect::INVALID_TOKEN, "refresh with another device's token"));
        }
        if claims.expires_at.is_some_and(|at| at <= now) {
            return Err(Refusal::Disconnect(Disconnect::EXPIRED, "refresh with an expired token"));
        }
        if !self.has_granted(&claims.subscriptions) {
            let cause = "refresh with other server-side subscriptions than the connection has";
            return Err(Refusal::Disconnect(Disconnect::INSUFFICIENT_STATE, cause));
        }
        self.expires_at = claims.expires_at;
        self.conn_info = claims.info.or(self.conn_info.take());
        let result = ExpiryResult::until(self.expires_at, now);
        Ok(Effect::Reply(self.reply(ticket.id, &Reply::Refresh(result))))
    }

    fn rpc(&self, ticket: Ticket, request: RpcRequest) -> Result<Effect, Refusal> {
        if request.method != RPC_VISIBLE {
            return self.ask_rpc(ticket, request);
        }
        let visible = read_visible(request.data.as_ref()).ok_or(ErrorCode::BadRequest)?;
        Ok(Effect::Visible { ticket, visible })
    }

    fn pong(&mut self) -> Result<Effect, Refusal> {
        self.pongs_awaited = self.pongs_awaited.checked_sub(1).ok_or(bad_request("pong without a ping"))?;
        Ok(Effect::Pong)
    }

    fn publish(&self, ticket: Ticket, request: PublishRequest) -> Result<Effect, Refusal> {
        if request.channel.is_empty() {
            return Err(bad_request("publish without a channel"));
        }
        let data = request.data.ok_or(ErrorCode::BadRequest)?;
        let (channel, options) = self.known_channel(&request.channel)?;
        if request.kind != 0 {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let is_allowed = match options.publish_hook {
            Some(_) => self.may_ask_publish(&channel),
            None => self.allows(&Allowed::publish(&options), &channel),
        };
        if !is_allowed {
            return Err(ErrorCode::PermissionDenied.into());
        }
        if !options.data_format.admits(&data) {
            return Err(ErrorCode::BadRequest.into());
        }
        if let Some(hook) = options.publish_hook {
            let question = Question::Publish { channel: channel.clone(), data: data.clone() };
            return Ok(self.ask(hook, question, Waiting::Publish { ticket, channel, data }));
        }
        let info = Arc::new(self.info(&channel));
        Ok(Effect::Publish { ticket, channel, options, data, info, tags: Tags::default(), skip_history: false })
    }

    fn presence_channel(&self, channel: &str) -> Result<ChannelName, Refusal> {
        if channel.is_empty() {
            return Err(bad_request("presence without a channel"));
        }
        let (channel, options) = self.known_channel(channel)?;
        if !options.presence {
            return Err(ErrorCode::NotAvailable.into());
        }
        if !self.allows(&Allowed::presence(&options), &channel) {
            return Err(ErrorCode::PermissionDenied.into());
        }
        Ok(channel)
    }

    fn history(&self, ticket: Ticket, request: HistoryRequest) -> Result<Effect, Refusal> {
        if request.channel.is_empty() {
            return Err(bad_request("history without a channel"));
        }
        let (channel, options) = self.known_channel(&request.channel)?;
        if !options.has_history() {
            return Err(ErrorCode::NotAvailable.into());
        }
        // The history has publications that a filtered subscription must not give.
        let is_filtered = self.subscription(channel.as_str()).is_some_and(|subscription| subscription.is_filtered);
        if is_filtered || !self.allows(&Allowed::history(&options), &channel) {
            return Err(ErrorCode::PermissionDenied.into());
        }
        if request.reverse && request.since.as_ref().is_some_and(|since| since.offset == Offset(0)) {
            return Err(ErrorCode::BadRequest.into());
        }
        let limit = u32::try_from(request.limit).unwrap_or(u32::MAX).min(HISTORY_PUBLICATION_COUNT_MAX);
        Ok(Effect::History { ticket, channel, limit, since: request.since, reverse: request.reverse })
    }

    /// The channel with this name, and its rules.
    fn known_channel(&self, channel: &str) -> Result<(ChannelName, NamespaceOptions), ErrorCode> {
        let namespaces = &self.config.namespaces;
        let options = namespaces.options_of(channel).ok_or(ErrorCode::UnknownChannel)?;
        if !namespaces.admits(channel) {
            return Err(ErrorCode::BadRequest);
        }
        let channel = ChannelName::new(channel).map_err(|_| ErrorCode::BadRequest)?;
        Ok((channel, *options))
    }

    /// Whether this client has the permission in `channel`, without a token for it. In a private channel only clients
    /// that a token has let in have any permission.
    fn allows(&self, allowed: &Allowed, channel: &ChannelName) -> bool {
        let (is_subscriber, is_private) = (self.is_subscribed(channel.as_str()), channel.as_str().starts_with('$'));
        (is_subscriber || !is_private) && self.allows_as(is_subscriber, allowed, channel)
    }

    /// Like [`Self::allows`], for a client that is (or would be) subscribed if `is_subscriber`.
    fn allows_as(&self, is_subscriber: bool, allowed: &Allowed, channel: &ChannelName) -> bool {
        self.config.insecure || allowed.to(&self.user, is_subscriber, channel)
    }

    fn subscription(&self, channel: &str) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.channel.as_str() == channel)
    }

    fn position_of(&self, channel: &str) -> Option<usize> {
        self.subscriptions.iter().position(|subscription| subscription.channel.as_str() == channel)
    }
}

/// The results of effects.
impl Session {
    /// Answers a publish.
    pub fn on_published(&self, ticket: Ticket, outcome: Result<(), ErrorCode>) -> Option<Vec<u8>> {
        self.answer(ticket, outcome.map_or_else(Reply::Error, |()| Reply::Publish))
    }

    /// Answers a history request.
    pub fn on_history(&self, ticket: Ticket, outcome: Result<HistoryFound<'_>, ErrorCode>) -> Option<Vec<u8>> {
        self.answer(
            ticket,
            match outcome {
                Ok(found) => Reply::History { top: found.top, publications: found.publications },
                Err(code) => Reply::Error(code),
            },
        )
    }

    /// Answers with the list of subscribers.
    pub fn on_presence(&self, ticket: Ticket, outcome: Result<&[ClientInfo], ErrorCode>) -> Option<Vec<u8>> {
        self.answer(ticket, outcome.map_or_else(Reply::Error, Reply::Presence))
    }

    /// Answers with the number of subscribed connections and users.
    pub fn on_presence_stats(&self, ticket: Ticket, outcome: Result<(u64, u64), ErrorCode>) -> Option<Vec<u8>> {
        self.answer(
            ticket,
            match outcome {
                Ok((client_count, user_count)) => Reply::PresenceStats { client_count, user_count },
                Err(code) => Reply::Error(code),
            },
        )
    }

    /// Answers an unsubscribe.
    pub fn on_unsubscribed(&self, ticket: Ticket) -> Option<Vec<u8>> {
        self.answer(ticket, Reply::Unsubscribe)
    }

    /// Answers an [`RPC_VISIBLE`]: `device` is the one that the client has proven to be, `visible` comes from the
    /// effect.
    pub fn on_visible(&self, ticket: Ticket, device: Option<&DeviceId>, visible: Option<Duration>) -> Option<Vec<u8>> {
        self.answer(ticket, Reply::Visible(&VisibleResult { device, ttl: visible.unwrap_or_default() }))
    }

    fn answer(&self, ticket: Ticket, answer: Reply<'_>) -> Option<Vec<u8>> {
        self.is_connected().then(|| self.reply(ticket.id, &answer))
    }
}

#[cfg(test)]
mod tests;
