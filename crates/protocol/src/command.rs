//! What clients send: frames of newline-separated JSON commands.
//!
//! A frame is read lazily, command by command, so that commands before a malformed one are still handled in order. A
//! frame has at most [`FRAME_COMMAND_COUNT_MAX`] commands; the WebSocket decoder bounds its bytes. Unknown fields are
//! skipped. `null` means absent, except as the data of a publication. Tokens and payloads never show in `Debug`.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use tidings_types::{Json, JsonDepthError, Offset, check_json_depth};

use crate::Disconnect;
use crate::token::Token;

/// The most commands in one frame: a reconnecting client sends its connect and one subscribe per channel at once.
pub const FRAME_COMMAND_COUNT_MAX: usize = 1024;

/// One command; its answer carries the same id.
#[derive(Debug)]
pub struct Command {
    /// Chosen by the client; above 0 except for [`Request::Send`] and [`Request::Pong`].
    pub id: u32,
    /// What is asked.
    pub request: Request,
}

/// What a command asks.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant is named like the protocol's command")]
pub enum Request {
    Connect(ConnectRequest),
    Subscribe(Box<SubscribeRequest>),
    Unsubscribe { channel: String },
    Publish(PublishRequest),
    Presence { channel: String },
    PresenceStats { channel: String },
    History(HistoryRequest),
    Ping,
    Send,
    Rpc(RpcRequest),
    Refresh { token: Token },
    SubRefresh { channel: String, token: Token },
    Pong,
}

/// Asks to connect.
#[derive(Debug, Default, Deserialize)]
pub struct ConnectRequest {
    /// Proves the user; empty for an anonymous client.
    #[serde(default, deserialize_with = "or_default")]
    pub token: Token,
    /// What the client says about itself; see [`Introduction`](crate::Introduction).
    #[serde(default)]
    pub data: Option<Json>,
}

/// Calls a method of the application, or one that the protocol has no command for.
#[derive(Debug, Default, Deserialize)]
pub struct RpcRequest {
    /// The name of the method.
    #[serde(default, deserialize_with = "or_default")]
    pub method: String,
    /// The method's argument.
    #[serde(default)]
    pub data: Option<Json>,
}

/// Asks for a channel's publications from now on, or from a position.
#[derive(Debug, Default, Deserialize)]
pub struct SubscribeRequest {
    /// The channel.
    #[serde(default, deserialize_with = "or_default")]
    pub channel: String,
    /// Allows the subscription; empty if the channel's rules are enough.
    #[serde(default, deserialize_with = "or_default")]
    pub token: Token,
    /// Whether to resume from `offset` and `epoch`.
    #[serde(default, deserialize_with = "or_default")]
    pub recover: bool,
    /// The epoch of the offset; empty: any epoch.
    #[serde(default, deserialize_with = "or_default")]
    pub epoch: String,
    /// The last publication the client has.
    #[serde(default, deserialize_with = "or_default")]
    pub offset: u64,
    /// Whether the client wants gaps to be noticed.
    #[serde(default, deserialize_with = "or_default")]
    pub positioned: bool,
    /// Whether the client wants to resume later.
    #[serde(default, deserialize_with = "or_default")]
    pub recoverable: bool,
    /// The delta format that the client understands.
    #[serde(default, deserialize_with = "or_default")]
    pub delta: String,
    /// Whether the client wants a tags filter.
    #[serde(default, rename = "tf", deserialize_with = "is_present")]
    pub has_tags_filter: bool,
    /// Bit 1: the client understands numeric channel ids. Bit 2: it wants error 112 instead of an unrecovered
    /// subscription.
    #[serde(default, deserialize_with = "or_default")]
    pub flag: i64,
    /// The type of subscription; 0 is the plain one.
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: i32,
}

/// Asks to publish.
#[derive(Debug, Default, Deserialize)]
pub struct PublishRequest {
    /// The channel.
    #[serde(default, deserialize_with = "or_default")]
    pub channel: String,
    /// The data; `null` is a value like any other.
    #[serde(default, deserialize_with = "some")]
    pub data: Option<Json>,
    /// The type of subscription for which the channel is used; 0 is the plain one.
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: i32,
}

/// Asks for past publications.
#[derive(Debug, Default, Deserialize)]
pub struct HistoryRequest {
    /// The channel.
    #[serde(default, deserialize_with = "or_default")]
    pub channel: String,
    /// How many; 0: only the position; negative: all.
    #[serde(default, deserialize_with = "or_default")]
    pub limit: i32,
    /// Where to start; the publication at this position is excluded.
    #[serde(default)]
    pub since: Option<ClientPosition>,
    /// Newest first.
    #[serde(default, deserialize_with = "or_default")]
    pub reverse: bool,
}

/// A position in a channel as a client states it: its epoch may be any text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ClientPosition {
    /// The last publication that the client has.
    #[serde(default, deserialize_with = "or_default")]
    pub offset: Offset,
    /// The epoch of the offset; empty: any epoch.
    #[serde(default, deserialize_with = "or_default")]
    pub epoch: String,
}

/// A frame that breaks the protocol. The text never repeats what the client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No command, or an empty line.
    #[error("frame or line is empty")]
    Empty,
    /// A line that is not a command.
    #[error("command is malformed at column {column}")]
    Malformed {
        /// The place of the error, in bytes from 1; also 1 if the line is not an object.
        column: usize,
    },
    /// A line whose lists and objects are nested too deeply.
    #[error(transparent)]
    TooDeep(#[from] JsonDepthError),
    /// A command with an id but without a request.
    #[error("command has an id but no request")]
    NoRequest,
    /// Too many commands.
    #[error("frame must have at most {FRAME_COMMAND_COUNT_MAX} commands")]
    TooMany,
}

impl FrameError {
    /// The code with which the connection is closed.
    pub fn disconnect(&self) -> Disconnect {
        Disconnect::BAD_REQUEST
    }
}

/// The commands of one frame in order. The iterator ends after the first error.
pub fn parse_frame(frame: &[u8]) -> Commands<'_> {
    // One trailing line break is allowed.
    Commands { rest: Some(frame.strip_suffix(b"\n").unwrap_or(frame)), count: 0 }
}

/// See [`parse_frame`]. Without `Debug`: it holds tokens.
pub struct Commands<'a> {
    rest: Option<&'a [u8]>,
    count: usize,
}

impl Iterator for Commands<'_> {
    type Item = Result<Command, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let mut lines = rest.splitn(2, |&byte| byte == b'\n');
        let line = lines.next().unwrap_or_default();
        self.count += 1;
        let command = if self.count > FRAME_COMMAND_COUNT_MAX { Err(FrameError::TooMany) } else { parse(line) };
        if command.is_ok() {
            self.rest = lines.next();
        }
        Some(command)
    }
}

impl std::iter::FusedIterator for Commands<'_> {}

fn parse(line: &[u8]) -> Result<Command, FrameError> {
    if line.is_empty() {
        return Err(FrameError::Empty);
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err(FrameError::Malformed { column: 1 }); // Serde would accept an array as an object.
    }
    check_json_depth(line)?;
    let wire: Wire = serde_json::from_slice(line).map_err(|error| FrameError::Malformed { column: error.column() })?;
    let id = wire.id;
    Ok(Command { id, request: wire.request().ok_or(FrameError::NoRequest)? })
}

/// A command with every request that it could contain.
#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "or_default")]
    id: u32,
    connect: Option<ConnectRequest>,
    subscribe: Option<Box<SubscribeRequest>>,
    unsubscribe: Option<WireChannel>,
    publish: Option<PublishRequest>,
    presence: Option<WireChannel>,
    presence_stats: Option<WireChannel>,
    history: Option<HistoryRequest>,
    ping: Option<IgnoredAny>,
    send: Option<IgnoredAny>,
    rpc: Option<RpcRequest>,
    refresh: Option<WireChannel>,
    sub_refresh: Option<WireChannel>,
}

/// Requests of which only these two fields matter.
#[derive(Deserialize)]
struct WireChannel {
    #[serde(default, deserialize_with = "or_default")]
    channel: String,
    #[serde(default, deserialize_with = "or_default")]
    token: Token,
}

impl Wire {
    /// The first request that is set, in the order of Centrifugo's server.
    fn request(self) -> Option<Request> {
        if self.id == 0 {
            return Some(if self.send.is_some() { Request::Send } else { Request::Pong });
        }
        None.or(self.connect.map(Request::Connect))
            .or(self.subscribe.map(Request::Subscribe))
            .or(self.unsubscribe.map(|wire| Request::Unsubscribe { channel: wire.channel }))
            .or(self.publish.map(Request::Publish))
            .or(self.presence.map(|wire| Request::Presence { channel: wire.channel }))
            .or(self.presence_stats.map(|wire| Request::PresenceStats { channel: wire.channel }))
            .or(self.history.map(Request::History))
            .or(self.rpc.map(Request::Rpc))
            .or(self.send.map(|_| Request::Send))
            .or(self.refresh.map(|wire| Request::Refresh { token: wire.token }))
            .or(self.sub_refresh.map(|wire| Request::SubRefresh { channel: wire.channel, token: wire.token }))
            .or(self.ping.map(|_| Request::Ping))
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A field that is present, also as `null`.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(deserializer).map(|value| value.is_some())
}

#[cfg(test)]
mod tests;
