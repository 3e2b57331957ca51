//! What the server sends, as JSON text: replies to commands, pushes, and the ping.
//!
//! One message is one object without line breaks, so several messages may be joined by `\n` into one frame. Zero values
//! are left out, except where the protocol requires them.

use std::time::Duration;

use tidings_types::{ChannelName, DeviceId, StreamPosition, Timestamp};

use crate::code::{Disconnect, ErrorCode, Unsubscribe};
use crate::json::{Fields, array, object};
use crate::{ClientId, ClientInfo, Publication};

/// The server's ping: an empty reply. The client answers with an empty command.
pub const PING: &[u8] = b"{}";

/// The answer to one command.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each variant is named like the command it answers")]
pub enum Reply<'a> {
    Error(ErrorCode),
    Connect(&'a ConnectResult<'a>),
    Subscribe(&'a SubscribeResult<'a>),
    Unsubscribe,
    Publish,
    Presence(&'a [ClientInfo]),
    PresenceStats { client_count: u64, user_count: u64 },
    History { top: StreamPosition, publications: &'a [Publication] },
    Refresh(ExpiryResult),
    SubRefresh(ExpiryResult),
    Visible(&'a VisibleResult<'a>),
}

/// The answer to `connect`.
#[derive(Debug, Clone, Copy)]
pub struct ConnectResult<'a> {
    /// The client's id.
    pub client: ClientId,
    /// The server's version.
    pub version: &'a str,
    /// Until when the connection is valid.
    pub expiry: ExpiryResult,
    /// The interval of the server's pings, in whole seconds; zero: there are none.
    pub ping_interval: Duration,
}

/// The time until the client must refresh its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpiryResult {
    /// `None`: for ever.
    pub ttl: Option<Duration>,
}

impl ExpiryResult {
    /// The time from `now` until `expires_at`.
    pub fn until(expires_at: Option<Timestamp>, now: Timestamp) -> Self {
        Self { ttl: expires_at.map(|at| at.saturating_since(now)) }
    }
}

/// The answer to a client that says whether its app is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleResult<'a> {
    /// The device that the client has proven to be, so that an app sees whether its proof was accepted.
    pub device: Option<&'a DeviceId>,
    /// For how long the app counts as visible, in whole seconds; zero: hidden.
    pub ttl: Duration,
}

/// The answer to `subscribe`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubscribeResult<'a> {
    /// Until when the subscription is valid.
    pub expiry: ExpiryResult,
    /// Whether the client may resume later.
    pub recoverable: bool,
    /// Whether gaps are noticed.
    pub positioned: bool,
    /// The client's position: the channel's top, or the position from which it resumed.
    pub position: Option<StreamPosition>,
    /// Whether the client asked to resume.
    pub was_recovering: bool,
    /// Whether `publications` has everything that the client had missed.
    pub recovered: bool,
    /// The publications that the client had missed, oldest first.
    pub publications: &'a [Publication],
    /// What the token has for the client.
    pub data: Option<&'a tidings_types::Json>,
}

/// A message that the client did not ask for.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each variant is named like the protocol's push")]
pub enum Push<'a> {
    Publication(&'a Publication),
    Join(&'a ClientInfo),
    Leave(&'a ClientInfo),
    Unsubscribe(&'a Unsubscribe),
}

/// Appends the answer to command `id`.
pub fn encode_reply(id: u32, reply: &Reply<'_>, out: &mut Vec<u8>) {
    object(out, |fields| {
        fields.number("id", id.into());
        match *reply {
            Reply::Error(code) => fields.object("error", |error| encode_error(code, error)),
            Reply::Connect(result) => fields.object("connect", |fields| encode_connect(result, fields)),
            Reply::Subscribe(result) => fields.object("subscribe", |fields| encode_subscribe(result, fields)),
            Reply::Unsubscribe => fields.object("unsubscribe", |_| {}),
            Reply::Publish => fields.object("publish", |_| {}),
            Reply::Presence(clients) => fields.object("presence", |fields| {
                fields.object("presence", |by_client| {
                    clients.iter().for_each(|info| info.encode(by_client.key(&info.client.to_string())));
                });
            }),
            Reply::PresenceStats { client_count, user_count } => fields.object("presence_stats", |fields| {
                fields.number_always("num_clients", client_count);
                fields.number_always("num_users", user_count);
            }),
            Reply::History { top, publications } => fields.object("history", |fields| {
                array(fields.key("publications"), publications, |out, publication| publication.encode(out));
                fields.text_always("epoch", top.epoch.as_str());
                fields.number_always("offset", top.offset.0);
            }),
            Reply::Refresh(expiry) => fields.object("refresh", |fields| encode_expiry(expiry, fields)),
            Reply::SubRefresh(expiry) => fields.object("sub_refresh", |fields| encode_expiry(expiry, fields)),
            Reply::Visible(result) => {
                fields.object("rpc", |rpc| rpc.object("data", |data| encode_visible(result, data)))
            }
        }
    });
}

/// Appends a push about `channel`.
pub fn encode_push(channel: &ChannelName, push: &Push<'_>, out: &mut Vec<u8>) {
    object(out, |fields| {
        fields.object("push", |fields| {
            fields.text("channel", channel.as_str());
            match *push {
                Push::Publication(publication) => publication.encode(fields.key("pub")),
                Push::Join(info) => fields.object("join", |join| info.encode(join.key("info"))),
                Push::Leave(info) => fields.object("leave", |leave| info.encode(leave.key("info"))),
                Push::Unsubscribe(why) => fields.object("unsubscribe", |fields| {
                    fields.number("code", why.code.into());
                    fields.text("reason", &why.reason);
                }),
            }
        });
    });
}

/// The push for every subscriber of `channel`: encode once, share.
pub fn encode_publication_push(channel: &ChannelName, publication: &Publication) -> Vec<u8> {
    const FIXED_BYTES: usize = 64; // Names and punctuation, the offset's digits; info and tags may grow it once.
    let mut out = Vec::with_capacity(FIXED_BYTES + channel.as_str().len() + publication.data.bytes().len());
    encode_push(channel, &Push::Publication(publication), &mut out);
    out
}

impl Disconnect {
    /// Appends the disconnect push, for transports that cannot send a close code. A WebSocket gets a close frame.
    pub fn encode_push(&self, out: &mut Vec<u8>) {
        object(out, |fields| {
            fields.object("push", |fields| {
                fields.object("disconnect", |fields| {
                    fields.number("code", self.code.into());
                    fields.text("reason", &self.reason);
                });
            });
        });
    }
}

fn encode_error(code: ErrorCode, error: &mut Fields<'_>) {
    error.number("code", code.code().into());
    error.text("message", code.message());
    error.flag("temporary", code.temporary());
}

fn encode_expiry(expiry: ExpiryResult, fields: &mut Fields<'_>) {
    let Some(ttl) = expiry.ttl else { return };
    fields.flag("expires", true);
    // Rounded up: with 0 a client would believe that it need not refresh.
    fields.number("ttl", ttl.as_millis().div_ceil(1000).clamp(1, u32::MAX.into()) as u64);
}

fn encode_connect(result: &ConnectResult<'_>, fields: &mut Fields<'_>) {
    let ping_s = result.ping_interval.as_secs();
    fields.text_always("client", &result.client.to_string());
    fields.text("version", result.version);
    encode_expiry(result.expiry, fields);
    fields.number("ping", ping_s);
    fields.flag("pong", ping_s > 0);
}

fn encode_visible(result: &VisibleResult<'_>, fields: &mut Fields<'_>) {
    match result.device {
        Some(device) => fields.text_always("device", device.as_str()),
        None => fields.key("device").extend_from_slice(b"null"),
    }
    fields.number_always("ttl", result.ttl.as_secs());
}

fn encode_subscribe(result: &SubscribeResult<'_>, fields: &mut Fields<'_>) {
    encode_expiry(result.expiry, fields);
    fields.flag("recoverable", result.recoverable);
    if let Some(position) = result.position {
        fields.text("epoch", position.epoch.as_str());
    }
    if !result.publications.is_empty() {
        array(fields.key("publications"), result.publications, |out, publication| publication.encode(out));
    }
    fields.flag("recovered", result.recovered);
    fields.number("offset", result.position.map_or(0, |position| position.offset.0));
    fields.flag("positioned", result.positioned);
    fields.json("data", result.data);
    fields.flag("was_recovering", result.was_recovering);
}

#[cfg(test)]
mod tests;
