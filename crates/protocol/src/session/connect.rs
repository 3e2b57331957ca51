//! The part of a session that lets a client in, with its server-side subscriptions.

use std::collections::BTreeMap;

use tidings_types::Timestamp;

use super::effect::{ConnectEffect, ConnectTicket, Effect, SubscribeEffect, SubscribeTicket, Subscribed};
use super::permission::Allowed;
use super::subscription::Origin;
use super::ticket::Ticket;
use super::{PersonalChannels, Refusal, Session, State, bad_request};
use crate::admission::{Admission, SubscriptionTerms};
use crate::command::{ConnectRequest, SubscribeRequest};
use crate::introduction::Introduction;
use crate::reply::{ConnectResult, ExpiryResult, Reply};
use crate::token::{Token, TokenError};
use crate::{Disconnect, ErrorCode};

/// What says who a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Token,
    Hook,
    /// Nothing: the settings let in everybody.
    Settings,
}

/// A server-side subscription that is about to be made.
struct Wanted {
    terms: SubscriptionTerms,
    origin: Origin,
    /// From where the client resumes, if it does.
    request: SubscribeRequest,
}

impl Wanted {
    fn new(origin: Origin, terms: SubscriptionTerms) -> Self {
        Self { terms, origin, request: SubscribeRequest::default() }
    }
}

impl PersonalChannels {
    /// The personal channel of `user`.
    ///
    /// # Errors
    /// If the user's name contains `#` or a comma: behind a `#`, commas separate users, so the channel would admit
    /// others.
    fn of(&self, user: &str) -> Result<String, ErrorCode> {
        match (user.contains(['#', ',']), &*self.namespace) {
            (true, _) => Err(ErrorCode::BadRequest),
            (false, "") => Ok(format!("#{user}")),
            (false, namespace) => Ok(format!("{namespace}:#{user}")),
        }
    }
}

impl Session {
    /// Answers `connect` with the start of each server-side subscription.
    pub fn on_connected(
        &mut self,
        ticket: ConnectTicket,
        made: &[(SubscribeTicket, Subscribed<'_>)],
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        if !self.is_connected() {
            return None;
        }
        self.subscriptions.iter_mut().for_each(|subscription| subscription.is_made = true);
        let subscriptions: Vec<_> =
            made.iter().map(|(ticket, subscribed)| (&ticket.channel, ticket.result(*subscribed, now))).collect();
        let result = ConnectResult {
            client: self.client,
            version: &self.config.version,
            // Where a hook extends it, the client need not.
            expiry: ExpiryResult::until(self.expires_at.filter(|_| self.config.hooks.refresh.is_none()), now),
            data: ticket.data.as_ref(),
            subscriptions: &subscriptions,
            ping_interval: self.config.ping_interval,
            pong: !self.config.ping_interval.is_zero() && !self.variant.transport.is_unidirectional(),
            name: self.background.as_ref().and_then(|it| it.name.as_ref()).map(|name| (&*name.0, name.1)),
        };
        Some(self.reply(ticket.id, &Reply::Connect(&result)))
    }

    /// Refuses `connect`, because a server-side subscription could not be made. Returns what is left to do.
    pub fn on_connect_failed(&mut self, ticket: ConnectTicket, code: ErrorCode) -> Effect {
        if !self.is_connected() {
            return Effect::Nothing;
        }
        self.subscriptions = Vec::new();
        self.state = State::AwaitingConnect;
        self.conclude(ticket.id, Err(code.into()))
    }

    pub(super) fn connect(
        &mut self,
        ticket: Ticket,
        mut request: ConnectRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        self.keep_headers(&std::mem::take(&mut request.headers))?;
        if !request.token.is_empty() {
            let admission = self.authenticate(&request.token, now)?;
            return self.admit(ticket, By::Token, admission, request, now);
        }
        match self.config.hooks.connect {
            Some(hook) => Ok(self.ask_connect(hook, ticket, request)),
            None => self.admit_unknown(ticket, request, now),
        }
    }

    /// Lets a client in of which nothing says who it is.
    pub(super) fn admit_unknown(
        &mut self,
        ticket: Ticket,
        request: ConnectRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        if !self.config.allow_anonymous && !self.config.insecure {
            return Err(bad_request("connect without a token, and no hook knows the client"));
        }
        self.admit(ticket, By::Settings, Admission::default(), request, now)
    }

    fn authenticate(&self, token: &Token, now: Timestamp) -> Result<Admission, Refusal> {
        let invalid = |cause| Refusal::Disconnect(Disconnect::INVALID_TOKEN, cause);
        let verifier = self.config.token_verifier.as_ref().ok_or(invalid("no key for tokens is configured"))?;
        verifier.verify_connection(token, now).map_err(|error| match error {
            TokenError::Invalid(cause) => invalid(cause),
            TokenError::Expired => ErrorCode::TokenExpired.into(),
            TokenError::KeyPending => ErrorCode::Internal.into(), // Temporary: SDKs come back.
        })
    }

    /// Lets the client in, whatever has said who it is.
    pub(super) fn admit(
        &mut self,
        ticket: Ticket,
        by: By,
        admission: Admission,
        request: ConnectRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        let Admission { user, device, expires_at, info, meta, data, subscriptions } = admission;
        if expires_at.is_some_and(|at| at <= now) {
            return Err(ErrorCode::Expired.into());
        }
        self.is_proven = by != By::Settings;
        self.set_meta(meta);
        let introduction = Introduction::read(device, request.data.as_ref());
        self.user = user.into();
        self.conn_info = info;
        self.expires_at = expires_at;
        let subscriptions = match self.server_side(by, subscriptions, request.subscriptions, now) {
            Ok(subscriptions) => subscriptions,
            Err(refusal) => {
                self.subscriptions = Vec::new(); // Those before the one that is refused.
                return Err(refusal);
            }
        };
        self.device = introduction.device.as_ref().map(|claim| claim.device().clone());
        self.state = State::Connected;
        let ticket = ConnectTicket { id: ticket.id, data };
        Ok(Effect::Connect(Box::new(ConnectEffect { ticket, introduction, subscriptions })))
    }

    /// Begins the server-side subscriptions: those that are granted, and those that the client asks for and might make
    /// itself. A hook was told of the latter, so there its word is the last.
    fn server_side(
        &mut self,
        by: By,
        granted: BTreeMap<String, SubscriptionTerms>,
        requests: Vec<SubscribeRequest>,
        now: Timestamp,
    ) -> Result<Vec<SubscribeEffect>, Refusal> {
        // A token that refreshes the connection later need not grant what a hook has granted.
        let origin = if by == By::Hook { Origin::Server } else { Origin::Admission };
        let granted = granted.into_iter().map(|(channel, terms)| (channel, Wanted::new(origin, terms)));
        let mut wanted: BTreeMap<String, Wanted> = granted.collect();
        if let Some(channels) = self.config.personal_channels.as_ref().filter(|_| !self.user.is_empty()) {
            let own = || Wanted::new(Origin::Server, SubscriptionTerms::default());
            wanted.entry(channels.of(&self.user)?).or_insert_with(own);
        }
        for request in requests {
            if let Some(wanted) = wanted.get_mut(&request.channel) {
                wanted.request = request;
            } else if by != By::Hook && self.might_subscribe(&request.channel)? {
                let own = Wanted::new(Origin::Server, SubscriptionTerms::default());
                wanted.insert(request.channel.clone(), Wanted { request, ..own });
            }
        }
        if wanted.len() > self.config.channel_count_max {
            let cause = "connect with too many server-side subscriptions";
            return Err(Refusal::Disconnect(Disconnect::CHANNEL_LIMIT, cause));
        }
        wanted.into_iter().map(|(channel, wanted)| self.begin_server_side(&channel, wanted, now)).collect()
    }

    fn begin_server_side(&mut self, channel: &str, wanted: Wanted, now: Timestamp) -> Result<SubscribeEffect, Refusal> {
        let Wanted { terms, origin, request } = wanted;
        let (channel, options) = self.known_channel(channel)?;
        if terms.expires_at.is_some_and(|at| at <= now) {
            return Err(ErrorCode::Expired.into());
        }
        Ok(self.begin(0, origin, channel, options, terms, request)?)
    }

    /// Whether the channel's rules let the client subscribe without a token, and without a hook that decides.
    fn might_subscribe(&self, channel: &str) -> Result<bool, Refusal> {
        match self.known_channel(channel) {
            Ok((_, options)) if options.subscribe_hook.is_some() => Ok(false),
            Ok((channel, options)) => Ok(self.allows(&Allowed::subscribe(&options, &channel), &channel)),
            Err(_) => Err(bad_request("connect with a subscription to an unknown channel")),
        }
    }

    /// Whether `granted` fits the server-side subscriptions that the connection has: each channel of `granted` is one
    /// of them, and `granted` still has each channel that the connection's admission gave.
    pub(super) fn has_granted(&self, granted: &BTreeMap<String, SubscriptionTerms>) -> bool {
        let is_server_side = |channel: &String| {
            self.subscription(channel).is_some_and(|subscription| subscription.origin != Origin::Client)
        };
        let mut lasting = self.subscriptions.iter().filter(|subscription| subscription.origin == Origin::Admission);
        granted.keys().all(is_server_side) && lasting.all(|one| granted.contains_key(one.channel.as_str()))
    }
}
