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
    /// The channel of `user`. A name that would admit other users too is none: the users behind a `#` are separated by
    /// commas.
    fn of(&self, user: &str) -> Result<String, ErrorCode> {
        match (user.contains(['#', ',']), &*self.namespace) {
            (true, _) => Err(ErrorCode::BadRequest),
            (false, "") => Ok(format!("#{user}")),
            (false, namespace) => Ok(format!("{namespace}:#{user}")),
        }
    }
}

impl Session {
    /// Answers `connect`: with the start of each server-side subscription, or with why one could not be made. After an
    /// error the client is refused, as by [`Effect::Refused`].
    pub fn on_connected(
        &mut self,
        ticket: ConnectTicket,
        outcome: Result<Vec<(SubscribeTicket, Subscribed<'_>)>, ErrorCode>,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        if !self.is_connected() {
            return None;
        }
        let made = match outcome {
            Ok(made) => made,
            Err(code) => {
                self.subscriptions = Vec::new();
                self.state = State::Refused;
                return Some(self.reply(ticket.id, &Reply::Error(code)));
            }
        };
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
            name: self.background.as_ref().and_then(|it| it.name.as_ref()).map(|name| (&*name.0, name.1)),
        };
        Some(self.reply(ticket.id, &Reply::Connect(&result)))
    }

    pub(super) fn connect(
        &mut self,
        ticket: Ticket,
        request: ConnectRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        let admission = if !request.token.is_empty() {
            self.authenticate(&request.token, now)?
        } else if self.config.allow_anonymous || self.config.insecure {
            Admission::default()
        } else {
            return Err(bad_request("connect without a token"));
        };
        self.admit(ticket, admission, request, now)
    }

    fn authenticate(&mut self, token: &Token, now: Timestamp) -> Result<Admission, Refusal> {
        let invalid = |cause| Refusal::Disconnect(Disconnect::INVALID_TOKEN, cause);
        let verifier = self.config.token_verifier.as_ref().ok_or(invalid("no key for tokens is configured"))?;
        let admission = verifier.verify_connection(token, now).map_err(|error| match error {
            TokenError::Invalid(cause) => invalid(cause),
            TokenError::Expired => ErrorCode::TokenExpired.into(),
            TokenError::KeyPending => ErrorCode::Internal.into(), // Temporary: SDKs come back.
        })?;
        self.has_token = true;
        Ok(admission)
    }

    /// Lets the client in, whatever has said who it is.
    fn admit(
        &mut self,
        ticket: Ticket,
        admission: Admission,
        request: ConnectRequest,
        now: Timestamp,
    ) -> Result<Effect, Refusal> {
        let Admission { user, device, expires_at, info, meta, data, subscriptions } = admission;
        if expires_at.is_some_and(|at| at <= now) {
            return Err(ErrorCode::Expired.into());
        }
        if !request.headers.is_empty() || self.background.is_some() {
            self.keep_headers(&request.headers)?;
        }
        self.set_meta(meta);
        let introduction = Introduction::read(device, request.data.as_ref());
        self.user = user.into();
        self.conn_info = info;
        self.expires_at = expires_at;
        let subscriptions = match self.server_side(subscriptions, request.subscriptions, now) {
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
    /// itself.
    fn server_side(
        &mut self,
        granted: BTreeMap<String, SubscriptionTerms>,
        requests: Vec<SubscribeRequest>,
        now: Timestamp,
    ) -> Result<Vec<SubscribeEffect>, Refusal> {
        let granted = granted.into_iter().map(|(channel, terms)| (channel, Wanted::new(Origin::Admission, terms)));
        let mut wanted: BTreeMap<String, Wanted> = granted.collect();
        if let Some(channels) = self.config.personal_channels.as_ref().filter(|_| !self.user.is_empty()) {
            let own = || Wanted::new(Origin::Server, SubscriptionTerms::default());
            wanted.entry(channels.of(&self.user)?).or_insert_with(own);
        }
        for request in requests {
            if let Some(wanted) = wanted.get_mut(&request.channel) {
                wanted.request = request;
            } else if self.might_subscribe(&request.channel)? {
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
        Ok(self.begin(0, origin, channel, options, terms, request))
    }

    /// Whether the channel's rules let the client subscribe without a token.
    fn might_subscribe(&self, channel: &str) -> Result<bool, Refusal> {
        match self.known_channel(channel) {
            Ok((channel, options)) => Ok(self.allows(&Allowed::subscribe(&options, &channel), &channel)),
            Err(_) => Err(bad_request("connect with a subscription to an unknown channel")),
        }
    }

    /// Whether an admission grants what the admission of the connection has granted and is still there, and nothing that
    /// the connection does not have.
    pub(super) fn has_granted(&self, granted: &BTreeMap<String, SubscriptionTerms>) -> bool {
        let is_server_side = |channel: &String| {
            self.subscription(channel).is_some_and(|subscription| subscription.origin != Origin::Client)
        };
        let mut lasting = self.subscriptions.iter().filter(|subscription| subscription.origin == Origin::Admission);
        granted.keys().all(is_server_side) && lasting.all(|one| granted.contains_key(one.channel.as_str()))
    }
}
