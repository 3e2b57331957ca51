//! The part of a session that asks hooks and takes their answers.
//!
//! A command that a hook decides becomes an [`Effect::Hook`]. The driver asks, and passes the answer to
//! [`Session::on_hook`], which returns the next effect: the reply, or what remains to be done. Meanwhile the driver
//! handles no other command of this connection. But the connection may be closed, and its subscriptions may change, so
//! what could have changed is checked again after the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidings_types::{ChannelName, Json, Timestamp};

use super::asked::{Asked, Waiting};
use super::connect::By;
use super::effect::{Effect, Expired};
use super::permission::is_among_users_of;
use super::ticket::Ticket;
use super::{REFRESH_RETRY, Refusal, Session, State, bad_request};
use crate::command::{ConnectRequest, RpcRequest, SubscribeRequest};
use crate::hook::{HOOK_HEADER_BYTES_MAX, HookAnswer, HookCall, HookHeaders, HookId, HookResult, Question};
use crate::reply::Reply;
use crate::{Disconnect, ErrorCode};

/// What a hook has to be asked because its time is over.
enum Due {
    Connection(HookId),
    /// The subscription at this index.
    Subscription(usize, HookId),
}

impl Session {
    /// What the client sent in its HTTP request of the headers that hooks may get. Called before the first command.
    pub fn set_headers(&mut self, headers: HookHeaders) {
        self.background.get_or_insert_default().headers = Some(headers);
    }

    /// Keeps those headers of the connect command that hooks may get. A header of the HTTP request wins over one of the
    /// command: a proxy in front of this server may have set it.
    pub(super) fn keep_headers(&mut self, emulated: &BTreeMap<String, String>) -> Result<(), Refusal> {
        if emulated.is_empty() && self.background.is_none() {
            return Ok(());
        }
        let is_wanted = |name: &str| self.config.hooks.headers.iter().any(|wanted| **wanted == *name);
        let emulated = emulated.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let emulated: Vec<_> = emulated.filter(|(name, _)| is_wanted(name)).collect();
        let sent = self.background.as_ref().and_then(|background| background.headers.clone()).unwrap_or_default();
        let is_new = |name: &str| !sent.iter().any(|(known, _)| **known == *name);
        let new = emulated.into_iter().filter(|(name, _)| is_new(name));
        let all: Vec<_> =
            sent.iter().cloned().chain(new.map(|(name, value)| (name.into(), value.as_str().into()))).collect();
        if all.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > HOOK_HEADER_BYTES_MAX {
            return Err(bad_request("headers for hooks are too large"));
        }
        if all.len() > sent.len() {
            self.set_headers(all.into());
        }
        Ok(())
    }

    /// Takes the answer of a hook, or why there is none.
    pub fn on_hook(&mut self, asked: Asked, answer: HookAnswer, now: Timestamp) -> Effect {
        let Asked(waiting) = asked;
        let id = waiting.id();
        if !matches!(self.state, State::Connected | State::Asking) {
            return Effect::Nothing;
        }
        match waiting {
            Waiting::Refresh => return self.on_refreshed(answer, now),
            Waiting::SubRefresh { channel } => return self.on_sub_refreshed(channel, answer, now),
            Waiting::Connect { .. } | Waiting::Rpc(_) | Waiting::Publish { .. } | Waiting::Subscribe { .. } => {}
        }
        let decided = match answer {
            HookAnswer::Result(result) => self.go_on(waiting, result.as_deref(), now),
            HookAnswer::Error(error) => Err(Refusal::App(error)),
            HookAnswer::Disconnect(disconnect) => Err(wanted(disconnect)),
            HookAnswer::Failed(code) => Err(code.into()),
        };
        self.conclude(id, decided)
    }

    /// The hook agrees.
    fn go_on(&mut self, waiting: Waiting, result: Option<&HookResult>, now: Timestamp) -> Result<Effect, Refusal> {
        match waiting {
            Waiting::Connect { ticket, request } => match result {
                Some(result) => self.admit(ticket, By::Hook, result.admission(), *request, now),
                None => self.admit_unknown(ticket, *request, now),
            },
            Waiting::Rpc(ticket) => {
                Ok(Effect::Reply(self.reply(ticket.id, &Reply::Rpc(result.and_then(HookResult::data)))))
            }
            Waiting::Publish { ticket, channel, data } => self.publish_as_told(ticket, channel, data, result),
            Waiting::Subscribe { ticket, request } => {
                let known = self.subscribable(&request)?;
                let terms = result.map(HookResult::terms).unwrap_or_default();
                self.subscribe_on(ticket, *request, known, terms, now)
            }
            Waiting::Refresh | Waiting::SubRefresh { .. } => Ok(Effect::Nothing), // Have no command to answer.
        }
    }

    /// Whether [`Session::poll_refresh`] would ask.
    pub fn is_refresh_due(&self, now: Timestamp) -> bool {
        self.due(now).is_some()
    }

    /// The next question about a connection or a subscription whose time is over, where hooks answer it; call until
    /// `None`. If the call fails, the connection or the subscription goes on for [`REFRESH_RETRY`], and then the hook is
    /// asked again.
    pub fn poll_refresh(&mut self, now: Timestamp) -> Option<Effect> {
        let again = Some(now.saturating_add(REFRESH_RETRY));
        match self.due(now)? {
            Due::Connection(hook) => {
                self.expires_at = again;
                Some(self.ask(hook, Question::Refresh, Waiting::Refresh))
            }
            Due::Subscription(index, hook) => {
                self.subscriptions[index].extend(again);
                let channel = self.subscriptions[index].channel.clone();
                let question = Question::SubRefresh { channel: channel.clone() };
                Some(self.ask(hook, question, Waiting::SubRefresh { channel }))
            }
        }
    }

    fn due(&self, now: Timestamp) -> Option<Due> {
        if !self.is_connected() {
            return None;
        }
        let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let connection = self.config.hooks.refresh.filter(|_| is_over(self.expires_at)).map(Due::Connection);
        connection.or_else(|| {
            let mut over =
                self.subscriptions.iter().enumerate().filter(|(_, it)| it.is_made && is_over(it.expires_at()));
            over.find_map(|(index, it)| {
                let hook = self.config.namespaces.options(&it.channel)?.sub_refresh_hook?;
                Some(Due::Subscription(index, hook))
            })
        })
    }

    fn on_refreshed(&mut self, answer: HookAnswer, now: Timestamp) -> Effect {
        let result = match answer {
            HookAnswer::Result(result) => result,
            HookAnswer::Error(_) => None,
            HookAnswer::Disconnect(disconnect) => return self.conclude(0, Err(wanted(disconnect))),
            HookAnswer::Failed(_) => return Effect::Nothing,
        };
        let Some((result, until)) = result.and_then(|result| result.refreshed(now).map(|until| (result, until))) else {
            self.close();
            return Effect::Expired(Expired::Connection(Disconnect::EXPIRED));
        };
        self.expires_at = until;
        self.conn_info = result.info().cloned().or(self.conn_info.take());
        self.set_meta(result.meta);
        Effect::Nothing
    }

    fn on_sub_refreshed(&mut self, channel: ChannelName, answer: HookAnswer, now: Timestamp) -> Effect {
        let result = match answer {
            HookAnswer::Result(result) => result,
            HookAnswer::Error(_) => None,
            HookAnswer::Disconnect(disconnect) => return self.conclude(0, Err(wanted(disconnect))),
            HookAnswer::Failed(_) => return Effect::Nothing,
        };
        let Some(index) = self.position_of(channel.as_str()) else { return Effect::Nothing };
        let Some((result, until)) = result.and_then(|result| result.refreshed(now).map(|until| (result, until))) else {
            return self.expire(channel).map_or(Effect::Nothing, Effect::Expired);
        };
        self.subscriptions[index].extend(until);
        if let Some(info) = result.info() {
            self.subscriptions[index].set_info(info.clone());
        }
        Effect::Nothing
    }

    /// Only hooks get to know this of the connection. `None` changes nothing.
    pub(super) fn set_meta(&mut self, meta: Option<Json>) {
        if meta.is_some() {
            self.background.get_or_insert_default().meta = meta;
        }
    }

    fn publish_as_told(
        &self,
        ticket: Ticket,
        channel: ChannelName,
        data: Json,
        result: Option<&HookResult>,
    ) -> Result<Effect, Refusal> {
        let (channel, options) = self.known_channel(channel.as_str())?;
        if !self.may_ask_publish(&channel) {
            return Err(ErrorCode::PermissionDenied.into()); // It has left the channel meanwhile.
        }
        let skip_history = result.is_some_and(|result| result.skip_history);
        if skip_history && options.durable {
            return Err(ErrorCode::NotAvailable.into());
        }
        let data = result.and_then(HookResult::data).cloned().unwrap_or(data);
        if !options.data_format.admits(&data) {
            return Err(ErrorCode::BadRequest.into());
        }
        let (info, tags) = (Arc::new(self.info(&channel)), result.map(HookResult::tags).unwrap_or_default());
        Ok(Effect::Publish { ticket, channel, options, data, info, tags, skip_history })
    }

    /// Whether a hook is asked if the client may publish. Channels that are private, or for some users, stay so without
    /// asking.
    pub(super) fn may_ask_publish(&self, channel: &ChannelName) -> bool {
        let is_private = channel.as_str().starts_with('$') && !self.is_subscribed(channel.as_str());
        !is_private && is_among_users_of(channel.as_str(), &self.user)
    }

    /// Asks who the client is.
    pub(super) fn ask_connect(&mut self, hook: HookId, ticket: Ticket, request: ConnectRequest) -> Effect {
        let channels = request.subscriptions.iter().map(|wanted| wanted.channel.clone()).collect();
        let (name, version, data) = (request.name.clone(), request.version.clone(), request.data.clone());
        self.state = State::Asking;
        let waiting = Waiting::Connect { ticket, request: Box::new(request) };
        self.ask(hook, Question::Connect { name, version, data, channels }, waiting)
    }

    /// Whether a hook decides, if there is one: not on a token that the server can check.
    pub(super) fn is_for_hook(&self, request: &SubscribeRequest) -> bool {
        request.token.is_empty() || self.config.token_verifier.is_none()
    }

    /// Asks whether the client may subscribe. Channels that are private, or for some users, stay so without asking.
    pub(super) fn ask_subscribe(
        &self,
        hook: HookId,
        ticket: Ticket,
        request: SubscribeRequest,
        channel: ChannelName,
    ) -> Result<Effect, Refusal> {
        if channel.as_str().starts_with('$') || !is_among_users_of(channel.as_str(), &self.user) {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let (token, data) = (request.token.clone(), request.data.clone());
        let waiting = Waiting::Subscribe { ticket, request: Box::new(request) };
        Ok(self.ask(hook, Question::Subscribe { channel, token, data }, waiting))
    }

    pub(super) fn ask_rpc(&self, ticket: Ticket, request: RpcRequest) -> Result<Effect, Refusal> {
        let hook = self.config.hooks.of_method(&request.method)?;
        let question = Question::Rpc { method: request.method, data: request.data };
        Ok(self.ask(hook, question, Waiting::Rpc(ticket)))
    }

    pub(super) fn ask(&self, hook: HookId, question: Question, waiting: Waiting) -> Effect {
        let background = self.background.as_deref();
        let call = HookCall {
            hook,
            client: self.client,
            variant: self.variant,
            user: self.user.clone(),
            question,
            meta: background.and_then(|background| background.meta.clone()),
            headers: background.and_then(|background| background.headers.clone()),
        };
        Effect::Hook { call: Box::new(call), asked: Box::new(Asked(waiting)) }
    }
}

fn wanted(disconnect: Disconnect) -> Refusal {
    Refusal::Disconnect(disconnect, "a hook wants it")
}
