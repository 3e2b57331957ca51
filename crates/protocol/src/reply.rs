//! What the server sends, in JSON or in Protobuf: replies to commands, pushes, and the ping.
//!
//! In JSON one message is one object without line breaks, so several messages may be joined by `\n` into one frame. In
//! Protobuf each message stands behind its length, so several messages may follow each other in one frame. Zero values
//! are left out, except where the protocol requires them.

use std::time::Duration;

use tidings_types::{ChannelName, DeviceId, Format, Json, StreamPosition, Timestamp, Variant};

use crate::code::{Disconnect, ErrorCode, Unsubscribe};
use crate::fields::{Fields, message};
use crate::publication::DataForm;
use crate::{AppError, ClientId, ClientInfo, Publication, SessionId};

/// The server's ping: an empty reply. The client answers with an empty command.
pub fn ping(format: Format) -> &'static [u8] {
    match format {
        Format::Json => b"{}",
        Format::Protobuf => &[0],
    }
}

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
    Rpc(Option<&'a tidings_types::Json>),
    AppError(&'a AppError),
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
    /// Data of the application for the client.
    pub data: Option<&'a Json>,
    /// The client's server-side subscriptions.
    pub subscriptions: &'a [(&'a ChannelName, SubscribeResult<'a>)],
    /// The interval of the server's pings, in whole seconds; zero: there are none.
    pub ping_interval: Duration,
    /// Whether the client is to answer pings.
    pub pong: bool,
    /// The node and the id of the session, if the session has a name; a client that needs no node gets "" for it.
    pub name: Option<(&'a str, SessionId)>,
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
    pub data: Option<&'a Json>,
    /// Whether the client gets deltas.
    pub has_deltas: bool,
    /// The number by which pushes name the channel; 0: they have its name.
    pub number: u64,
}

/// A message that the client did not ask for.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each variant is named like the protocol's push")]
pub enum Push<'a> {
    Publication(&'a Publication),
    PublicationAs(&'a Publication, DataForm<'a>),
    Join(&'a ClientInfo),
    Leave(&'a ClientInfo),
    Unsubscribe(&'a Unsubscribe),
    Subscribe(&'a SubscribeResult<'a>),
}

/// How a push names its channel.
#[derive(Debug, Clone, Copy)]
pub enum ChannelRef<'a> {
    /// By its name.
    Name(&'a ChannelName),
    /// By the number that the client was told when it subscribed.
    Number(u64),
}

impl<'a> From<&'a ChannelName> for ChannelRef<'a> {
    fn from(name: &'a ChannelName) -> Self {
        Self::Name(name)
    }
}

/// Appends the answer to command `id`.
pub fn encode_reply(format: Format, id: u32, reply: &Reply<'_>, out: &mut Vec<u8>) {
    message(format, out, |fields| {
        fields.number(("id", 1), id.into());
        match *reply {
            Reply::Error(code) => fields.message(("error", 2), |error| {
                encode_error(code.code().into(), code.message(), code.temporary(), error);
            }),
            Reply::AppError(AppError { code, message, temporary }) => {
                fields.message(("error", 2), |error| encode_error((*code).into(), message, *temporary, error));
            }
            Reply::Connect(result) => fields.message(("connect", 5), |fields| encode_connect(result, fields)),
            Reply::Subscribe(result) => fields.message(("subscribe", 6), |fields| encode_subscribe(result, fields)),
            Reply::Unsubscribe => fields.message(("unsubscribe", 7), |_| {}),
            Reply::Publish => fields.message(("publish", 8), |_| {}),
            Reply::Presence(clients) => fields.message(("presence", 9), |fields| {
                let by_client = clients.iter().map(|info| (info.client.to_string(), info));
                fields.map(("presence", 1), by_client, |entry, field, info| {
                    entry.message(field, |fields| info.encode(fields));
                });
            }),
            Reply::PresenceStats { client_count, user_count } => fields.message(("presence_stats", 10), |fields| {
                fields.number_always(("num_clients", 1), client_count);
                fields.number_always(("num_users", 2), user_count);
            }),
            Reply::History { top, publications } => fields.message(("history", 11), |fields| {
                fields.messages(("publications", 1), publications, |fields, publication| publication.encode(fields));
                fields.text_always(("epoch", 2), top.epoch.as_str());
                fields.number_always(("offset", 3), top.offset.0);
            }),
            Reply::Visible(result) => {
                fields.message(("rpc", 13), |rpc| rpc.json_object(("data", 1), |data| encode_visible(result, data)));
            }
            Reply::Rpc(data) => fields.message(("rpc", 13), |rpc| rpc.json(("data", 1), data)),
            Reply::Refresh(expiry) => fields.message(("refresh", 14), |fields| encode_expiry(expiry, (3, 4), fields)),
            Reply::SubRefresh(expiry) => {
                fields.message(("sub_refresh", 15), |fields| encode_expiry(expiry, (1, 2), fields));
            }
        }
    });
}

/// Appends a push: in a reply without an id, or by itself on a unidirectional transport.
fn push_message(variant: Variant, out: &mut Vec<u8>, fill: impl FnOnce(&mut Fields<'_>)) {
    message(variant.format, out, |fields| {
        if variant.transport.is_unidirectional() { fill(fields) } else { fields.message(("push", 4), fill) }
    });
}

/// Appends a push about `channel`.
pub fn encode_push<'a>(variant: Variant, channel: impl Into<ChannelRef<'a>>, push: &Push<'_>, out: &mut Vec<u8>) {
    let channel = channel.into();
    push_message(variant, out, |fields| {
        match channel {
            ChannelRef::Name(name) => fields.text(("channel", 2), name.as_str()),
            ChannelRef::Number(number) => fields.number(("id", 1), number),
        }
        match *push {
            Push::Publication(publication) => fields.message(("pub", 4), |fields| publication.encode(fields)),
            Push::PublicationAs(publication, form) => {
                fields.message(("pub", 4), |fields| publication.encode_as(&form, fields));
            }
            Push::Join(info) => {
                fields.message(("join", 5), |join| join.message(("info", 1), |fields| info.encode(fields)));
            }
            Push::Leave(info) => {
                fields.message(("leave", 6), |leave| leave.message(("info", 1), |fields| info.encode(fields)));
            }
            Push::Unsubscribe(why) => fields.message(("unsubscribe", 7), |fields| {
                fields.number(("code", 2), why.code.into());
                fields.text(("reason", 3), &why.reason);
            }),
            Push::Subscribe(start) => fields.message(("subscribe", 9), |fields| {
                fields.flag(("recoverable", 1), start.recoverable);
                if let Some(position) = start.position {
                    fields.text(("epoch", 4), position.epoch.as_str());
                    fields.number(("offset", 5), position.offset.0);
                }
                fields.flag(("positioned", 6), start.positioned);
                fields.json(("data", 7), start.data);
            }),
        }
    });
}

/// The push for every subscriber of `channel` of this variant: encode once, share.
pub fn encode_publication_push(variant: Variant, channel: &ChannelName, publication: &Publication) -> Vec<u8> {
    const FIXED_BYTES: usize = 64; // Names and punctuation, the offset's digits; info and tags may grow it once.
    let mut out = Vec::with_capacity(FIXED_BYTES + channel.as_str().len() + publication.data.bytes().len());
    encode_push(variant, channel, &Push::Publication(publication), &mut out);
    out
}

impl Disconnect {
    /// Appends the disconnect push, for transports that cannot send a close code. A WebSocket gets a close frame.
    pub fn encode_push(&self, variant: Variant, out: &mut Vec<u8>) {
        push_message(variant, out, |fields| {
            fields.message(("disconnect", 11), |fields| {
                fields.number(("code", 1), self.code.into());
                fields.text(("reason", 2), &self.reason);
            });
        });
    }
}

impl ExpiryResult {
    /// Appends the push that tells a client until when its connection lasts.
    pub fn encode_push(self, variant: Variant, out: &mut Vec<u8>) {
        push_message(variant, out, |fields| {
            fields.message(("refresh", 12), |fields| encode_expiry(self, (1, 2), fields));
        });
    }
}

fn encode_error(code: u64, text: &str, is_temporary: bool, error: &mut Fields<'_>) {
    error.number(("code", 1), code);
    error.text(("message", 2), text);
    error.flag(("temporary", 3), is_temporary);
}

/// Writes `expires` and `ttl`, whose numbers depend on the message.
fn encode_expiry(expiry: ExpiryResult, (expires, ttl): (u32, u32), fields: &mut Fields<'_>) {
    let Some(left) = expiry.ttl else { return };
    fields.flag(("expires", expires), true);
    // Rounded up: with 0 a client would believe that it need not refresh.
    fields.number(("ttl", ttl), left.as_millis().div_ceil(1000).clamp(1, u32::MAX.into()) as u64);
}

fn encode_connect(result: &ConnectResult<'_>, fields: &mut Fields<'_>) {
    let ping_s = result.ping_interval.as_secs();
    fields.text_always(("client", 1), &result.client.to_string());
    fields.text(("version", 2), result.version);
    encode_expiry(result.expiry, (3, 4), fields);
    fields.json(("data", 5), result.data);
    if !result.subscriptions.is_empty() {
        let by_channel = result.subscriptions.iter().map(|(channel, result)| (channel.as_str(), result));
        fields.map(("subs", 6), by_channel, |entry, field, result| {
            entry.message(field, |fields| encode_subscribe(result, fields));
        });
    }
    fields.number(("ping", 7), ping_s);
    fields.flag(("pong", 8), result.pong);
    if let Some((node, session)) = result.name {
        fields.text(("session", 9), &session.to_string());
        fields.text(("node", 10), node);
    }
}

/// Its data is JSON in both formats.
fn encode_visible(result: &VisibleResult<'_>, fields: &mut Fields<'_>) {
    match result.device {
        Some(device) => fields.text_always(("device", 0), device.as_str()),
        None => fields.null("device"),
    }
    fields.number_always(("ttl", 0), result.ttl.as_secs());
}

fn encode_subscribe(result: &SubscribeResult<'_>, fields: &mut Fields<'_>) {
    encode_expiry(result.expiry, (1, 2), fields);
    fields.flag(("recoverable", 3), result.recoverable);
    if let Some(position) = result.position {
        fields.text(("epoch", 6), position.epoch.as_str());
    }
    if !result.publications.is_empty() {
        let form = if result.has_deltas { DataForm::Whole } else { DataForm::Plain };
        fields.messages(("publications", 7), result.publications, |fields, one| one.encode_as(&form, fields));
    }
    fields.flag(("recovered", 8), result.recovered);
    fields.number(("offset", 9), result.position.map_or(0, |position| position.offset.0));
    fields.flag(("positioned", 10), result.positioned);
    fields.json(("data", 11), result.data);
    fields.flag(("was_recovering", 12), result.was_recovering);
    fields.flag(("delta", 13), result.has_deltas);
    fields.number(("id", 14), result.number);
}

#[cfg(test)]
mod tests;
