//! The part of a session that is about its subscriptions: begin, end, refresh, expire.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tidings_types::{ChannelName, Format, Json, Offset, PushForm, StreamPosition, Timestamp};

use super::effect::{Effect, Expired, SubscribeEffect, SubscribeTicket, Subscribed};
use super::permission::Allowed;
use super::subscription::{Grant, Origin, Subscription};
use super::ticket::Ticket;
use super::{CHANNEL_BYTES_MAX, EXPIRED_CLOSE_DELAY, Refusal, Session, bad_request};
use crate::admission::SubscriptionTerms;
use crate::command::{ClientPosition, SubscribeRequest};
use crate::reply::{ExpiryResult, Push, Reply, SubscribeResult, encode_push};
use crate::token::{SubscriptionClaims, Token, TokenError};
use crate::{
    Disconnect, ErrorCode, NamespaceOptions, RecoveryMode, SlowReaders, TagsFilter, Thinning, UnreadFilter, Unsubscribe,
};

/// Flag of a subscribe request: the client knows channels by their numbers.
const FLAG_NUMBERED: i64 = 1;
/// Flag of a subscribe request: answer with error 112 instead of an unrecovered subscription.
const FLAG_UNRECOVERED_IS_ERROR: i64 = 2;
/// A subscription type with an error text of its own.
const KIND_SHARED_POLL: i32 = 4;

impl SubscribeTicket {
    /// What the client is told of the subscription.
    pub(super) fn result<'a>(&'a self, subscribed: Subscribed<'a>, now: Timestamp) -> SubscribeResult<'a> {
        let recovered = subscribed.recovered.filter(|_| self.was_recovering && self.recoverable);
        let position = subscribed.top.filter(|_| self.positioned).map(|top| match recovered {
            // The recovered publications move the client on from its requested position. If there is none, it either
            // has all, or wants none of what it missed. A cached publication is at the top.
            Some([_, ..]) if !self.is_cached => StreamPosition { offset: self.requested_offset, ..top },
            Some(_) | None => top,
        });
        SubscribeResult {
            expiry: ExpiryResult::until(self.expires_at, now),
            recoverable: self.recoverable,
            positioned: self.positioned,
            position,
            was_recovering: self.was_recovering,
            recovered: recovered.is_some(),
            publications: recovered.unwrap_or_default(),
            data: self.data.as_ref(),
            has_deltas: self.form.has_deltas,
            number: self.number,
        }
    }
}

impl Session {
    /// Answers a subscribe, or tells the client that the server has subscribed it. This must be written before any
    /// publication of the channel, also before those that were missed if the client did not ask.
    pub fn on_subscribed(
        &mut self,
        ticket: SubscribeTicket,
        outcome: Result<Subscribed<'_>, ErrorCode>,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        let index = self.position_of(ticket.channel.as_str());
        let subscribed = match outcome {
            Ok(subscribed) => subscribed,
            Err(code) => {
                index.map(|index| self.subscriptions.swap_remove(index));
                let is_asked = ticket.id > 0; // A client that did not ask is told nothing.
                return (is_asked && self.is_connected()).then(|| self.reply(ticket.id, &Reply::Error(code)));
            }
        };
        if let Some(index) = index {
            self.subscriptions[index].is_made = true;
        }
        let result = ticket.result(subscribed, now);
        if ticket.id == 0 {
            let mut push = Vec::new();
            encode_push(self.variant, &ticket.channel, &Push::Subscribe(&result), &mut push);
            return self.is_connected().then_some(push);
        }
        self.is_connected().then(|| self.reply(ticket.id, &Reply::Subscribe(&result)))
    }

    /// The server ends a subscription. Returns the push to write; `None` if there is no such subscription.
    pub fn end_subscription(&mut self, channel: &ChannelName, why: &Unsubscribe) -> Option<Vec<u8>> {
        self.subscriptions.swap_remove(self.position_of(channel.as_str())?);
        let mut push = Vec::new();
        encode_push(self.variant, channel, &Push::Unsubscribe(why), &mut push);
        self.is_connected().then_some(push)
    }

    /// The next time at which [`Session::poll_expired`] may return something; changes with every command.
    pub fn deadline(&self) -> Option<Timestamp> {
        let ends = self.subscriptions.iter().filter_map(Subscription::expires_at).chain(self.expires_at);
        ends.min().map(|at| at.saturating_add(EXPIRED_CLOSE_DELAY))
    }

    /// What has expired and was not refreshed in time; call until `None`.
    pub fn poll_expired(&mut self, now: Timestamp) -> Option<Expired> {
        let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at.saturating_add(EXPIRED_CLOSE_DELAY) <= now);
        if !self.is_connected() {
            return None;
        }
        if is_over(self.expires_at) {
            self.close();
            return Some(Expired::Connection(Disconnect::EXPIRED));
        }
        let expired = self.subscriptions.iter().find(|subscription| is_over(subscription.expires_at()))?;
        if expired.origin != Origin::Client {
            self.close(); // The client has no means to refresh it.
            return Some(Expired::Connection(Disconnect::SUBSCRIPTION_EXPIRED));
        }
        let channel = expired.channel.clone();
        self.expire(channel)
    }

    /// Ends a subscription whose time is over.
    pub(super) fn expire(&mut self, channel: ChannelName) -> Option<Expired> {
        let push = self.end_subscription(&channel, &Unsubscribe::EXPIRED)?;
        Some(Expired::Subscription { channel, push })
    }

    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        self.subscription(channel).is_some_and(|subscription| subscription.is_made)
    }

    pub(super) fn subscribe(
        &mut self,
        ticket: Ticket,
        request: SubscribeRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        let (channel, options) = self.subscribable(&request)?;
        if let Some(hook) = options.subscribe_hook.filter(|_| self.is_for_hook(&request)) {
            return self.ask_subscribe(hook, ticket, request, channel);
        }
        let terms = self.authorize(&request, &channel, &options, now)?;
        self.subscribe_on(ticket, request, (channel, options), terms, now)
    }

    /// Begins a subscription that the client wants and may have.
    pub(super) fn subscribe_on(
        &mut self,
        ticket: Ticket,
        request: SubscribeRequest,
        (channel, options): (ChannelName, NamespaceOptions),
        terms: SubscriptionTerms,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        if terms.expires_at.is_some_and(|at| at <= now) {
            return Err(ErrorCode::Expired.into());
        }
        let effect = self.begin(ticket.id, Origin::Client, channel, options, terms, request)?;
        Ok(Effect::Subscribe(Box::new(effect)))
    }

    /// Notes a subscription, which the driver then makes; `id` is 0 if it is server-side.
    ///
    /// # Errors
    /// If a tags filter or a thinning is malformed, or the channel allows none.
    pub(super) fn begin(
        &mut self,
        id: u32,
        origin: Origin,
        channel: ChannelName,
        options: NamespaceOptions,
        terms: SubscriptionTerms,
        request: SubscribeRequest,
    ) -> Result<SubscribeEffect, ErrorCode> {
        // What a client asks for beside a server-side subscription never filters it.
        let of_client = request.tags_filter.as_ref().filter(|_| origin == Origin::Client);
        let filter = filter(&options, of_client, terms.tags_filter.as_ref())?;
        let asked = request.data.as_ref().filter(|_| origin == Origin::Client);
        let thinning = options.thinning.and(asked_thinning(&options, asked)?);
        let (grant, is_filtered) = (Grant::of(&terms), terms.tags_filter.is_some());
        self.subscriptions.push(Subscription { channel: channel.clone(), grant, origin, is_filtered, is_made: false });
        let (positioned, recoverable) = self.positions(&request, &terms, &options, &channel);
        let presence = terms.presence.unwrap_or(options.presence);
        let join_leave = terms.join_leave.unwrap_or(options.join_leave);
        let is_forced = terms.force_push_join_leave.unwrap_or(options.force_push_join_leave);
        let may_hear = || request.join_leave && self.allows_as(true, &Allowed::presence(&options), &channel);
        let hears_joins = join_leave && (is_forced || may_hear());
        let form = PushForm {
            variant: self.variant,
            // In Protobuf the JavaScript SDK compares numbers as objects, and drops every push that has one.
            is_numbered: options.allow_channel_compaction
                && request.flag & FLAG_NUMBERED != 0
                && self.variant.format == Format::Json,
            has_deltas: options.allow_deltas && !request.delta.is_empty(),
            language: None, // The driver knows it.
        };
        let is_cached = options.recovery_mode == RecoveryMode::Cache;
        let was_recovering = request.recover || is_cached && options.auto_cache_recover && recoverable;
        let requested_offset = Offset(request.offset);
        let is_error = origin == Origin::Client && request.flag & FLAG_UNRECOVERED_IS_ERROR != 0;
        let recover = ClientPosition { offset: requested_offset, epoch: request.epoch };
        Ok(SubscribeEffect {
            options,
            recover: (was_recovering && recoverable).then_some(recover),
            unrecovered_is_error: request.recover && is_error,
            positioned,
            presence: presence.then(|| self.info(&channel)),
            announced: join_leave.then(|| self.info(&channel)),
            hears_joins,
            form,
            filter: filter.map(Arc::new),
            thinning,
            ticket: SubscribeTicket {
                id,
                channel: channel.clone(),
                was_recovering,
                requested_offset,
                recoverable,
                form,
                number: 0,
                is_cached,
                positioned,
                // Where a hook extends it, the client need not.
                expires_at: terms.expires_at.filter(|_| origin == Origin::Client && options.sub_refresh_hook.is_none()),
                data: terms.data,
            },
            channel,
        })
    }

    /// The checks before authorization, in the protocol's order (section 4).
    pub(super) fn subscribable(&self, request: &SubscribeRequest) -> Result<(ChannelName, NamespaceOptions), Refusal> {
        if request.channel.is_empty() {
            return Err(bad_request("subscribe without a channel"));
        }
        if !matches!(&*request.delta, "" | "fossil") {
            return Err(bad_request("subscribe with an unknown delta type"));
        }
        if request.channel.len() > CHANNEL_BYTES_MAX {
            return Err(ErrorCode::BadRequest.into());
        }
        if self.subscription(&request.channel).is_some() {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if self.subscriptions.len() >= self.config.channel_count_max {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let known = self.known_channel(&request.channel)?;
        match request.kind {
            0 => Ok(known),
            KIND_SHARED_POLL => Err(ErrorCode::NotAvailable.into()),
            _ => Err(ErrorCode::PermissionDenied.into()),
        }
    }

    /// Allows the subscription by its token, else by the channel's rules. Returns the token's terms.
    fn authorize(
        &self,
        request: &SubscribeRequest,
        channel: &ChannelName,
        options: &NamespaceOptions,
        now: Timestamp,
    ) -> Result<SubscriptionTerms, Refusal> {
        if !request.token.is_empty() {
            return self
                .subscription_claims(&request.token, channel, ErrorCode::PermissionDenied.into(), now)
                .map(|claims| claims.terms);
        }
        if !self.allows(&Allowed::subscribe(options, channel), channel) {
            return Err(ErrorCode::PermissionDenied.into());
        }
        Ok(SubscriptionTerms::default())
    }

    /// The claims of a token, if it is for this user, channel and client.
    fn subscription_claims(
        &self,
        token: &Token,
        channel: &ChannelName,
        if_invalid: Refusal,
        now: Timestamp,
    ) -> Result<SubscriptionClaims, Refusal> {
        let Some(verifier) = &self.config.token_verifier else { return Err(if_invalid) };
        let claims = verifier.verify_subscription(token, now).map_err(|error| match error {
            TokenError::Invalid(_) => if_invalid,
            TokenError::Expired => ErrorCode::TokenExpired.into(),
            TokenError::KeyPending => ErrorCode::Internal.into(),
        })?;
        let is_ours = *claims.user == *self.user
            && claims.channel == channel.as_str()
            && claims.client.as_ref().is_none_or(|client| *client == self.client.to_string());
        if !is_ours {
            let cause = "subscription token of another user, channel or client";
            return Err(Refusal::Disconnect(Disconnect::INVALID_TOKEN, cause));
        }
        Ok(claims)
    }

    /// Whether the subscription is positioned, and whether recoverable.
    fn positions(
        &self,
        request: &SubscribeRequest,
        terms: &SubscriptionTerms,
        options: &NamespaceOptions,
        channel: &ChannelName,
    ) -> (bool, bool) {
        if !options.has_history() {
            return (false, false);
        }
        let may_ask = options.allow_recovery || self.allows_as(true, &Allowed::history(options), channel);
        let forced = terms.force_recovery.unwrap_or(options.force_recovery);
        // A client that names a position wants recovery, even if it does not set the flag.
        let recoverable = forced || may_ask && (request.recoverable || request.recover);
        let forced = terms.force_positioning.unwrap_or(false);
        (recoverable || forced || may_ask && request.positioned, recoverable)
    }

    pub(super) fn unsubscribe(&mut self, ticket: Ticket, channel: &str) -> Result<Effect, Refusal> {
        if channel.is_empty() {
            return Err(bad_request("unsubscribe without a channel"));
        }
        let Some(index) = self.position_of(channel) else {
            return Ok(Effect::Reply(self.reply(ticket.id, &Reply::Unsubscribe)));
        };
        let channel = self.subscriptions.swap_remove(index).channel;
        if self.subscriptions.is_empty() {
            self.subscriptions = Vec::new(); // Frees the memory for earlier channels.
        }
        Ok(Effect::Unsubscribe { ticket, channel })
    }

    pub(super) fn sub_refresh(
        &mut self,
        ticket: Ticket,
        channel: &str,
        token: &Token,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        if channel.is_empty() {
            return Err(bad_request("sub_refresh without a channel"));
        }
        let index = self.position_of(channel).ok_or(ErrorCode::PermissionDenied)?;
        if self.config.namespaces.options_of(channel).is_some_and(|options| options.sub_refresh_hook.is_some()) {
            return Err(bad_request("sub_refresh of a subscription that a hook refreshes"));
        }
        if token.is_empty() {
            return Err(ErrorCode::BadRequest.into());
        }
        if self.subscriptions[index].origin != Origin::Client {
            return Err(bad_request("sub_refresh of a server-side subscription"));
        }
        let invalid = Refusal::Disconnect(Disconnect::INVALID_TOKEN, "sub_refresh with a token that is not valid");
        let SubscriptionClaims { terms, .. } =
            self.subscription_claims(token, &self.subscriptions[index].channel, invalid, now)?;
        if terms.expires_at.is_some_and(|at| at <= now) {
            return Err(ErrorCode::Expired.into());
        }
        self.subscriptions[index].grant = Grant::of(&terms);
        let result = ExpiryResult::until(terms.expires_at, now);
        Ok(Effect::Reply(self.reply(ticket.id, &Reply::SubRefresh(result))))
    }
}

/// What a client wants less of, from the data of its request.
fn asked_thinning(options: &NamespaceOptions, data: Option<&Json>) -> Result<Thinning, ErrorCode> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        slow_readers: Option<SlowReaders>,
        #[serde(default)]
        per_second_max: u32,
    }
    // Other data is for a hook.
    let data = data.and_then(|data| serde_json::from_str::<Value>(data.as_str()).ok());
    let Some(thinning) = data.and_then(|data| data.get("thinning").cloned()) else { return Ok(Thinning::default()) };
    let asked = Some(thinning).filter(Value::is_object).and_then(|asked| serde_json::from_value::<Asked>(asked).ok());
    let asked = asked.ok_or(ErrorCode::BadRequest)?;
    let default = if asked.per_second_max > 0 { SlowReaders::Latest } else { SlowReaders::Disconnect };
    let slow_readers = asked.slow_readers.unwrap_or(default);
    let is_possible = asked.per_second_max == 0 || slow_readers == SlowReaders::Latest;
    if !options.allow_thinning || !is_possible {
        return Err(ErrorCode::BadRequest);
    }
    Ok(Thinning { slow_readers, per_second_max: asked.per_second_max })
}

/// The filter of a subscription: what the client wants, of what it may get by the terms.
fn filter(
    options: &NamespaceOptions,
    of_client: Option<&UnreadFilter>,
    of_terms: Option<&Json>,
) -> Result<Option<TagsFilter>, ErrorCode> {
    if (of_client.is_some() || of_terms.is_some()) && !options.allow_tags_filter {
        return Err(ErrorCode::BadRequest);
    }
    let read = |unread: &UnreadFilter| TagsFilter::read(unread).map_err(|_| ErrorCode::BadRequest);
    let wanted = of_client.map(read).transpose()?;
    let granted = of_terms.map(|terms| read(&UnreadFilter::Json(terms.clone()))).transpose()?;
    Ok(match (wanted, granted) {
        (Some(wanted), Some(granted)) => Some(wanted.and(granted)),
        (wanted, granted) => wanted.or(granted),
    })
}
