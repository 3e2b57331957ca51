//! `subscribe`, `unsubscribe`, `disconnect` and `refresh`: orders about the live connections of a user. `connections` tells
//! of them, of at most [`CONNECTION_LIST_MAX`].
//!
//! The user "" is everybody without a user, not all users. An order is answered when every loop has carried it out. It is
//! not remembered: a connection that the user opens later is not affected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidings_protocol::{
    CONNECTION_LIST_MAX, ClientId, ClientPosition, Disconnect, LiveConnection, Order, OrderError, SubscriptionTerms,
    TagsFilter, Target, UnreadFilter, Unsubscribe,
};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{ChannelName, Format, Json, Timestamp};
use tracing::debug;

use super::answer::Done;
use super::error::ApiError;
use crate::audited::Note;
use crate::shared::Shared;

/// The codes with which a connection may be closed; SDKs give no meaning to others.
const DISCONNECT_CODES: std::ops::RangeInclusive<u32> = 3000..=4999;

/// Parameters of all five methods: each uses its own.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct LiveRequest {
    channel: Option<String>,
    user: Option<String>,
    client: Option<String>,
    session: Option<String>,
    recover_since: Option<ClientPosition>,
    all_users: Option<bool>,
    whitelist: Option<Vec<String>>,
    /// Centrifugo reads names of fields in any case, and its library gocent relies on that here.
    #[serde(alias = "Disconnect")]
    disconnect: Option<Reason>,
    expired: Option<bool>,
    expire_at: Option<i64>,
    info: Option<Json>,
    expression: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reason {
    code: Option<u32>,
    reason: Option<String>,
}

impl LiveRequest {
    /// Whom it is about, and in which channel.
    fn tell(&self, note: &Note) {
        let named = [
            ("user:", &self.user),
            ("client:", &self.client),
            ("session:", &self.session),
            ("channel:", &self.channel),
        ];
        for (kind, name) in named {
            if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
                note.touch(&format!("{kind}{name}"));
            }
        }
    }

    fn target(&mut self) -> Result<Target, ApiError> {
        if self.all_users == Some(true) {
            return Err(ApiError::NotAvailable); // The user "" would be taken for them.
        }
        let named = |name: &mut Option<String>| name.take().filter(|name| !name.is_empty());
        let (client, session) = (named(&mut self.client), named(&mut self.session));
        Ok(Target { user: self.user.take().unwrap_or_default(), client, session })
    }

    fn channel(&self, shared: &Shared) -> Result<ChannelName, ApiError> {
        let channel =
            ChannelName::new(self.channel.as_deref().unwrap_or_default()).map_err(|_| ApiError::BadRequest)?;
        shared.hub.options(&channel).map_err(|_| ApiError::UnknownChannel)?;
        Ok(channel)
    }
}

/// `terms` are the same parameters, read as the terms of the subscription.
pub(super) async fn subscribe(
    shared: &Shared,
    mut request: LiveRequest,
    terms: SubscriptionTerms,
    note: &Note,
) -> Result<Done, ApiError> {
    request.tell(note);
    if terms.expires_at.is_some_and(|at| at <= unix_now()) {
        return Err(ApiError::BadRequest);
    }
    let channel = request.channel(shared)?;
    if let Some(filter) = &terms.tags_filter {
        let is_allowed = shared.hub.options(&channel).is_ok_and(|options| options.allow_tags_filter);
        let is_read = || TagsFilter::read(&UnreadFilter::Json(filter.clone())).is_ok();
        if !is_allowed || !is_read() {
            return Err(ApiError::BadRequest);
        }
    }
    let since = request.recover_since.take();
    give(shared, request.target()?, Order::Subscribe { channel, terms, since }).await
}

pub(super) async fn unsubscribe(shared: &Shared, mut request: LiveRequest, note: &Note) -> Result<Done, ApiError> {
    request.tell(note);
    let is_one = request.channel.as_ref().is_some_and(|channel| !channel.is_empty());
    let channel = is_one.then(|| request.channel(shared)).transpose()?;
    give(shared, request.target()?, Order::Unsubscribe { channel, why: Unsubscribe::SERVER }).await
}

pub(super) async fn disconnect(shared: &Shared, mut request: LiveRequest, note: &Note) -> Result<Done, ApiError> {
    request.tell(note);
    let Reason { code, reason } = request.disconnect.take().unwrap_or_default();
    let disconnect = match code.filter(|code| *code != 0) {
        None => Disconnect {
            reason: reason.map_or(Disconnect::FORCE_DISCONNECT.reason, Into::into),
            ..Disconnect::FORCE_DISCONNECT
        },
        Some(code) if DISCONNECT_CODES.contains(&code) => {
            Disconnect { code: code as u16, reason: reason.unwrap_or_default().into() }
        }
        Some(_) => return Err(ApiError::BadRequest),
    };
    let spared = request.whitelist.take().unwrap_or_default();
    let spared = spared.iter().filter_map(|client| ClientId::parse(client)).collect();
    give(shared, request.target()?, Order::Disconnect { disconnect, spared }).await
}

pub(super) async fn refresh(shared: &Shared, mut request: LiveRequest, note: &Note) -> Result<Done, ApiError> {
    request.tell(note);
    let expires_at = match request.expire_at.unwrap_or_default() {
        0 => None,
        at => Some(Timestamp(u64::try_from(at).map_err(|_| ApiError::BadRequest)?.saturating_mul(1000))),
    };
    let order = if request.expired == Some(true) || expires_at.is_some_and(|at| at <= unix_now()) {
        Order::Disconnect { disconnect: Disconnect::EXPIRED, spared: Default::default() }
    } else {
        Order::Refresh { expires_at, info: request.info.take() }
    };
    give(shared, request.target()?, order).await
}

/// Centrifugo PRO's shape. What it tells beyond this (apps, tokens, meta) is not known here.
#[derive(Debug, Serialize)]
pub(super) struct ConnectionsResult {
    connections: BTreeMap<ClientId, ConnectionResult>,
}

#[derive(Debug, Serialize)]
struct ConnectionResult {
    transport: &'static str,
    protocol: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    state: StateResult,
}

#[derive(Debug, Serialize)]
struct StateResult {
    /// Centrifugo PRO has facts about each channel.
    channels: BTreeMap<ChannelName, Done>,
}

pub(super) async fn connections(shared: &Shared, mut request: LiveRequest) -> Result<ConnectionsResult, ApiError> {
    if request.expression.as_ref().is_some_and(|expression| !expression.is_empty()) {
        return Err(ApiError::NotAvailable);
    }
    let found = shared.connections.list(request.target()?).await.map_err(|error| failed(&error))?;
    if found.len() > CONNECTION_LIST_MAX {
        return Err(ApiError::TooManyConnections);
    }
    let shown = |LiveConnection { client, user, variant, channels }: LiveConnection| {
        let protocol = match variant.format {
            Format::Json => "json",
            Format::Protobuf => "protobuf",
        };
        let channels = channels.into_iter().map(|channel| (channel, Done {})).collect();
        let transport = variant.transport.name();
        (client, ConnectionResult { transport, protocol, user, state: StateResult { channels } })
    };
    Ok(ConnectionsResult { connections: found.into_iter().map(shown).collect() })
}

async fn give(shared: &Shared, target: Target, order: Order) -> Result<Done, ApiError> {
    match shared.connections.order(target, order).await {
        Ok(()) => Ok(Done {}),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &OrderError) -> ApiError {
    debug!(error = chain(error), "An order about connections failed");
    ApiError::Internal
}
