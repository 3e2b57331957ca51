//! Hooks: what the server asks the application's back end while it handles a client's command, and the answers.
//!
//! The bodies are those of Centrifugo's proxies, in JSON. So a back end that serves Centrifugo serves this server
//! unchanged. [`HookCall::body`] writes a question, [`HookAnswer::read`] reads an answer. How they travel is the
//! driver's matter. What an answer means for the client is decided by the [`Session`](crate::Session).
//!
//! If an answer has several parts, `disconnect` wins, then `error`. An answer in another form, or with too many levels,
//! is a failure. Unknown fields are skipped, and `null` means absent. All payloads are JSON: `b64data` and `b64info`
//! of an answer must contain JSON.
//!
//! Not read from answers: `idempotency_key`, `delta`, `version`, `caps` and `labels`.
//!
//! Bounds: the driver bounds the bytes of an answer. A question is at most as large as the client's command, the
//! connection's headers ([`HOOK_HEADER_BYTES_MAX`]) and its `meta`, which came in a token or in an answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tidings_types::{ChannelName, Format, Json, Timestamp, Variant, check_json_depth};

use crate::absent::or_default;
use crate::admission::{Admission, Overrides, SubscriptionTerms};
use crate::fields::{Fields, message};
use crate::token::Token;
use crate::{ClientId, Disconnect, ErrorCode, Tags};

/// The most bytes of the headers that one connection keeps for hooks, names and values together.
pub const HOOK_HEADER_BYTES_MAX: usize = 8 << 10;

/// One of the configured hooks: its place in their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookId(pub u16);

/// Which hook is asked for commands that no channel decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionHooks {
    /// For clients that connect without a token.
    pub connect: Option<HookId>,
    /// For connections whose time is over; `None`: their clients refresh them.
    pub refresh: Option<HookId>,
    /// For RPC methods without `:` in their name.
    pub rpc: Option<HookId>,
    /// For RPC methods `NAME:anything`, by name.
    pub rpc_namespaces: BTreeMap<String, HookId>,
    /// The headers that any hook may get from clients, in lower case. A connection keeps no others.
    pub headers: Vec<Box<str>>,
}

impl SessionHooks {
    /// The hook for an RPC method.
    pub(crate) fn of_method(&self, method: &str) -> Result<HookId, ErrorCode> {
        let is_off = self.rpc.is_none() && self.rpc_namespaces.is_empty();
        match method.split_once(':').filter(|_| !is_off) {
            Some((namespace, _)) => self.rpc_namespaces.get(namespace).copied().ok_or(ErrorCode::MethodNotFound),
            None => self.rpc.ok_or(ErrorCode::NotAvailable),
        }
    }
}

/// Headers of a client: names in lower case, with their values. They may contain secrets.
pub type HookHeaders = Arc<[(Box<str>, Box<str>)]>;

/// One question to a hook.
pub struct HookCall {
    /// Which hook is asked.
    pub hook: HookId,
    /// The connection.
    pub client: ClientId,
    /// How the client is connected.
    pub variant: Variant,
    /// The connection's user; empty for an anonymous one.
    pub user: Box<str>,
    /// What is asked.
    pub question: Question,
    /// What the back end said about the connection earlier; clients never see it.
    pub meta: Option<Json>,
    /// What the client sent of the headers in [`SessionHooks::headers`].
    pub headers: Option<HookHeaders>,
}

/// What a hook is asked.
pub enum Question {
    /// Who the client is, and whether it may connect.
    Connect {
        /// What the client's app is called.
        name: String,
        /// The version of the client's app.
        version: String,
        /// What the client says with its command.
        data: Option<Json>,
        /// The server-side subscriptions that the client resumes.
        channels: Vec<String>,
    },
    /// To perform an RPC.
    Rpc {
        /// The method's name.
        method: String,
        /// The method's argument.
        data: Option<Json>,
    },
    /// Whether the client may publish, and what.
    Publish {
        /// The channel.
        channel: ChannelName,
        /// What the client wants to publish.
        data: Json,
    },
    /// Whether the client may subscribe.
    Subscribe {
        /// The channel.
        channel: ChannelName,
        /// The client's token, if this server cannot check tokens.
        token: Token,
        /// What the client says with its command.
        data: Option<Json>,
    },
    /// Whether the connection may go on: its time is over.
    Refresh,
    /// Whether the subscription may go on: its time is over.
    SubRefresh {
        /// The channel.
        channel: ChannelName,
    },
}

impl Question {
    /// Its name, as in Centrifugo.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Rpc { .. } => "rpc",
            Self::Publish { .. } => "publish",
            Self::Subscribe { .. } => "subscribe",
            Self::Refresh => "refresh",
            Self::SubRefresh { .. } => "sub_refresh",
        }
    }

    /// Whether a back end may be asked twice if a connection breaks: a question whether something is allowed changes
    /// nothing.
    pub fn may_repeat(&self) -> bool {
        match self {
            Self::Rpc { .. } | Self::Publish { .. } => false,
            Self::Connect { .. } | Self::Subscribe { .. } | Self::Refresh | Self::SubRefresh { .. } => true,
        }
    }

    fn write(&self, fields: &mut Fields<'_>) {
        match self {
            Self::Connect { name, version, data, channels } => {
                fields.json(("data", 0), data.as_ref());
                fields.text(("name", 0), name);
                fields.text(("version", 0), version);
                let channels = (!channels.is_empty()).then(|| Json::of(channels));
                fields.json(("channels", 0), channels.as_ref());
            }
            Self::Rpc { method, data } => {
                fields.text(("method", 0), method);
                fields.json(("data", 0), data.as_ref());
            }
            Self::Publish { channel, data } => {
                fields.text(("channel", 0), channel.as_str());
                fields.json(("data", 0), Some(data));
            }
            Self::Refresh => {}
            Self::SubRefresh { channel } => fields.text(("channel", 0), channel.as_str()),
            Self::Subscribe { channel, token, data } => {
                fields.text(("channel", 0), channel.as_str());
                fields.text(("token", 0), token.as_str());
                fields.json(("data", 0), data.as_ref());
            }
        }
    }
}

impl HookCall {
    /// The body of the request, with `meta` if wanted.
    pub fn body(&self, with_meta: bool) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        message(Format::Json, &mut body, |fields| {
            let protocol = match self.variant.format {
                Format::Json => "json",
                Format::Protobuf => "protobuf",
            };
            fields.text(("client", 0), &self.client.to_string());
            fields.text(("transport", 0), self.variant.transport.name());
            fields.text(("protocol", 0), protocol);
            fields.text(("encoding", 0), "json");
            fields.text(("user", 0), &self.user);
            self.question.write(fields);
            fields.json(("meta", 0), self.meta.as_ref().filter(|_| with_meta));
        });
        body
    }
}

// Payloads, headers and users must never appear in a log.
impl fmt::Debug for HookCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookCall({} to {:?})", self.question.kind(), self.hook)
    }
}

/// An error of the application, for the client. Centrifugo keeps the codes below 400 for itself; they pass here, too.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct AppError {
    /// The number.
    #[serde(default, deserialize_with = "or_default")]
    pub code: u32,
    /// The text.
    #[serde(default, deserialize_with = "or_default")]
    pub message: Cow<'static, str>,
    /// Whether the same command may succeed later.
    #[serde(default, deserialize_with = "or_default")]
    pub temporary: bool,
}

// Its text is the application's.
impl fmt::Debug for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppError({})", self.code)
    }
}

/// What became of a question.
#[derive(Debug)]
pub enum HookAnswer {
    /// The back end agrees. Some questions take an answer without a result for a "no".
    Result(Option<Box<HookResult>>),
    /// The client gets this error.
    Error(AppError),
    /// The client is disconnected with this.
    Disconnect(Disconnect),
    /// There is no valid answer.
    Failed(ErrorCode),
}

/// The result in an answer: the fields of all questions.
#[derive(Default, Deserialize)]
pub struct HookResult {
    #[serde(default, deserialize_with = "or_default")]
    user: String,
    #[serde(default, deserialize_with = "or_default")]
    channels: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    subs: BTreeMap<String, SubscriptionTerms>,
    data: Option<Json>,
    b64data: Option<String>,
    tags_filter: Option<Json>,
    info: Option<Json>,
    b64info: Option<String>,
    pub(crate) meta: Option<Json>,
    #[serde(default, deserialize_with = "or_default")]
    expired: bool,
    /// Seconds since the Unix epoch; 0 or less: never.
    #[serde(default, deserialize_with = "or_default")]
    expire_at: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) skip_history: bool,
    #[serde(default, deserialize_with = "or_default")]
    tags: BTreeMap<String, String>,
    #[serde(rename = "override")]
    overrides: Option<Overrides>,
}

// It is made of payloads.
impl fmt::Debug for HookResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookResult")
    }
}

impl HookResult {
    /// Data for the client, or for the channel.
    pub(crate) fn data(&self) -> Option<&Json> {
        self.data.as_ref()
    }

    /// Labels for the publication.
    pub(crate) fn tags(&self) -> Tags {
        self.tags.clone().into()
    }

    /// When the hook must be asked again, or the client needs new permission.
    fn expires_at(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.expire_at).ok().filter(|seconds| *seconds > 0)?;
        Some(Timestamp(seconds.saturating_mul(1000)))
    }

    /// What others may see of the client.
    pub(crate) fn info(&self) -> Option<&Json> {
        self.info.as_ref()
    }

    /// Until when what has expired may go on, if ever; `None`: it may not.
    pub(crate) fn refreshed(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let until = self.expires_at();
        (!self.expired && until.is_none_or(|until| until > now)).then_some(until)
    }

    /// Who the client is and what it is given, as if a token had said so. No device: a hook names none.
    pub(crate) fn admission(&self) -> Admission {
        let plain = self.channels.iter().map(|channel| (channel.clone(), SubscriptionTerms::default()));
        let subs = self.subs.iter().map(|(channel, terms)| (channel.clone(), terms.clone()));
        Admission {
            user: self.user.clone(),
            device: None,
            expires_at: self.expires_at(),
            info: self.info.clone(),
            meta: self.meta.clone(),
            data: self.data.clone(),
            subscriptions: plain.chain(subs).collect(),
        }
    }

    /// The permission to subscribe, as if a token had given it.
    pub(crate) fn terms(&self) -> SubscriptionTerms {
        let terms = SubscriptionTerms {
            expires_at: self.expires_at(),
            info: self.info.clone(),
            data: self.data.clone(),
            tags_filter: self.tags_filter.clone(),
            ..SubscriptionTerms::default()
        };
        terms.overridden(self.overrides)
    }

    /// Takes the payloads in base64 for the plain ones. `None`: one of them is not JSON.
    fn decoded(mut self) -> Option<Self> {
        decode(&mut self.data, self.b64data.take())?;
        decode(&mut self.info, self.b64info.take())?;
        Some(self)
    }
}

/// `None`: the text is not JSON in base64.
fn decode(plain: &mut Option<Json>, base64: Option<String>) -> Option<()> {
    if let Some(base64) = base64.filter(|base64| !base64.is_empty()) {
        let bytes = BASE64_STANDARD.decode(base64).ok()?;
        check_json_depth(&bytes).ok()?;
        *plain = Some(Json::parse(&bytes).ok()?);
    }
    Some(())
}

#[derive(Deserialize)]
struct WireAnswer {
    result: Option<HookResult>,
    error: Option<AppError>,
    disconnect: Option<WireDisconnect>,
}

#[derive(Deserialize)]
struct WireDisconnect {
    #[serde(default, deserialize_with = "or_default")]
    code: u32,
    #[serde(default, deserialize_with = "or_default")]
    reason: String,
}

impl HookAnswer {
    /// Reads the body of an answer with status 200. `None`: it has another form.
    pub fn read(body: &[u8]) -> Option<Self> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return None; // Serde would accept an array as an object.
        }
        check_json_depth(body).ok()?;
        let answer: WireAnswer = serde_json::from_slice(body).ok()?;
        Some(match answer {
            WireAnswer { disconnect: Some(wire), .. } => Self::disconnect(wire.code, wire.reason),
            WireAnswer { error: Some(error), .. } => Self::Error(error),
            WireAnswer { result: Some(result), .. } => Self::Result(Some(Box::new(result.decoded()?))),
            _ => Self::Result(None),
        })
    }

    /// Disconnects the client. SDKs understand the codes 3000 to 4999. With another code the client is still
    /// disconnected, with [`Disconnect::FORCE_DISCONNECT`].
    pub fn disconnect(code: u32, reason: impl Into<Cow<'static, str>>) -> Self {
        let code = u16::try_from(code).ok().filter(|code| (3000..=4999).contains(code));
        let disconnect = code.map(|code| Disconnect { code, reason: reason.into() });
        Self::Disconnect(disconnect.unwrap_or(Disconnect::FORCE_DISCONNECT))
    }
}

#[cfg(test)]
mod tests;
