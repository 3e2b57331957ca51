//! What clients command: connect, subscribe, publish and the rest, in either format.
//!
//! The types of this file are also the JSON form. Unknown fields are skipped. `null` means absent, except as the data of a
//! publication. Tokens, headers and payloads never show in `Debug`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidings_types::{Json, Offset};

use crate::absent::or_default;
use crate::admission::CONNECT_SUBSCRIPTION_COUNT_MAX;
use crate::filter::UnreadFilter;
use crate::token::Token;

/// One command; its answer carries the same id.
#[derive(Debug)]
pub struct Command {
    /// Chosen by the client; above 0 except for [`Request::Send`] and [`Request::Pong`], and on unidirectional transports.
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
#[derive(Default, Deserialize)]
pub struct ConnectRequest {
    /// Proves the user; empty for an anonymous client.
    #[serde(default, deserialize_with = "or_default")]
    pub token: Token,
    /// What the client says about itself; see [`Introduction`](crate::Introduction).
    #[serde(default)]
    pub data: Option<Json>,
    /// What the client's app is called, for hooks.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The version of the client's app, for hooks.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// Headers that the client could not send with its HTTP request, for hooks.
    #[serde(default, deserialize_with = "or_default")]
    pub headers: BTreeMap<String, String>,
    /// Server-side subscriptions that the client had and resumes, or wants; at most
    /// [`CONNECT_SUBSCRIPTION_COUNT_MAX`]. Only the position of each request counts.
    #[serde(default, rename = "subs", deserialize_with = "by_channel")]
    pub subscriptions: Vec<SubscribeRequest>,
}

// Headers contain secrets of the client.
impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectRequest({:?}, {} headers, {:?})", self.token, self.headers.len(), self.subscriptions)
    }
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
    /// What the client says to the hook that decides.
    #[serde(default)]
    pub data: Option<Json>,
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
    /// Whether the client wants to be told who joins and leaves.
    #[serde(default, deserialize_with = "or_default")]
    pub join_leave: bool,
    /// The delta format that the client understands.
    #[serde(default, deserialize_with = "or_default")]
    pub delta: String,
    /// Which publications the client wants; `None`: all.
    #[serde(default, rename = "tf", deserialize_with = "unread_filter")]
    pub tags_filter: Option<UnreadFilter>,
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientPosition {
    /// The last publication that the client has.
    #[serde(default, deserialize_with = "or_default")]
    pub offset: Offset,
    /// The epoch of the offset; empty: any epoch.
    #[serde(default, deserialize_with = "or_default")]
    pub epoch: String,
}

/// A command with every request that it could contain.
#[derive(Default, Deserialize)]
pub(crate) struct WireCommand {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) id: u32,
    pub(crate) connect: Option<ConnectRequest>,
    pub(crate) subscribe: Option<Box<SubscribeRequest>>,
    pub(crate) unsubscribe: Option<WireChannel>,
    pub(crate) publish: Option<PublishRequest>,
    pub(crate) presence: Option<WireChannel>,
    pub(crate) presence_stats: Option<WireChannel>,
    pub(crate) history: Option<HistoryRequest>,
    pub(crate) ping: Option<IgnoredAny>,
    pub(crate) send: Option<IgnoredAny>,
    pub(crate) rpc: Option<RpcRequest>,
    pub(crate) refresh: Option<WireChannel>,
    pub(crate) sub_refresh: Option<WireChannel>,
}

/// Requests of which only these two fields matter.
#[derive(Default, Deserialize)]
pub(crate) struct WireChannel {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) channel: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) token: Token,
}

impl WireCommand {
    /// The command with the first request that is set, in the order of Centrifugo's server.
    pub(crate) fn into_command(self) -> Option<Command> {
        Some(Command { id: self.id, request: self.request()? })
    }

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

/// A field that is present, also as `null`.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Requests by the names of their channels.
fn by_channel<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SubscribeRequest>, D::Error> {
    struct ByChannel;
    impl<'de> Visitor<'de> for ByChannel {
        type Value = Vec<SubscribeRequest>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("subscriptions by channel")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut requests = Vec::new();
            while let Some((channel, request)) = map.next_entry::<_, Option<SubscribeRequest>>()? {
                if requests.len() == CONNECT_SUBSCRIPTION_COUNT_MAX {
                    return Err(A::Error::custom("too many subscriptions"));
                }
                requests.push(SubscribeRequest { channel, ..request.unwrap_or_default() });
            }
            Ok(requests)
        }
    }
    deserializer.deserialize_any(ByChannel)
}

fn unread_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UnreadFilter>, D::Error> {
    Option::<Json>::deserialize(deserializer).map(|json| json.map(UnreadFilter::Json))
}
