//! Carries out what clients command. The session turns each command into an effect; this module performs the effect.
//!
//! The commands of a connection are handled in order, one at a time, for at most [`TURN_TIME`] before the other
//! connections get their turn. Three effects must wait ([`Awaited`]): a publish into a durable channel waits for the
//! journal, `connect` waits for the proof of its device, and what a hook decides waits for its answer. Meanwhile the
//! task of the connection waits.
//!
//! Bounds:
//! - Replies that the peer does not read: `control_bytes_max` and one reply. Above that no command is handled and
//!   nothing is read until the peer takes some. One reply is bounded by `reply_bytes_max` and one publication.
//! - All replies that wait on a loop: `reply_budget_bytes` (see [`EdgeLoop::flush_in`]).
//! - Channels that a user creates: `channel_creations_per_minute` on one loop.

use std::rc::Rc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_hub::{self as hub, HubError, Member, NewPublication, Recovery, ResumeFrom, Wishes};
use tidings_protocol::{
    Asked, ClientPosition, Effect, ErrorCode, HistoryFound, HookAnswer, Introduction, Publication, SubscribeEffect,
    Subscribed, Ticket,
};
use tidings_stream::{Bounds, HistoryFilter};
use tidings_telemetry::{chain, panics};
use tidings_types::{ChannelName, DeviceNumber, Offset, StreamPosition, Timestamp};
use tokio::time::Instant;
use tracing::debug;

use crate::connection::Connection;
use crate::edge_loop::{EdgeLoop, LoopState};
use crate::shared::{HookFuture, ProveFuture, PublishFuture, Shared};
use crate::subscribers::{Key, Subscriber};

/// How long a client whose `connect` was refused may stay connected.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time a connection's remaining commands wait until the loop has served the others. So a hundred busy
/// connections delay the others by a tenth of a second.
const TURN_TIME: Duration = Duration::from_millis(1);

/// Where the handling of a connection's commands stopped.
pub(crate) enum Worked {
    /// There are no more commands, or the peer has to take its replies first.
    Done,
    /// `TURN_TIME` is over.
    TurnOver,
    /// The next command is handled when this is done.
    Awaits(Awaited),
}

/// What a connection waits for before its next command.
pub(crate) enum Awaited {
    /// The result of a publication from the journal.
    Publish { ticket: Ticket, future: PublishFuture },
    /// Which device the client is. Then the client gets `reply`.
    Proof { future: ProveFuture, visible: Option<Duration>, reply: Vec<u8> },
    /// The answer of a hook.
    Hook { asked: Box<Asked>, future: HookFuture },
}

/// One client of a loop, whose commands are handled.
pub(crate) struct Client {
    pub(crate) edge_loop: Rc<EdgeLoop>,
    pub(crate) key: Key,
}

impl Client {
    /// Whether so many replies wait that no more commands are handled until the peer takes some. A peer that takes no
    /// replies does not answer pings either, and is closed for that.
    pub(crate) fn is_over_bound(&self, connection: &Connection) -> bool {
        connection.output.len() > self.edge_loop.shared.config.control_bytes_max
    }

    /// Asks the hook that may extend what has expired. Then handles the commands that have arrived, in order, until one must wait, the peer has to take replies, or the time
    /// is over.
    pub(crate) fn work_off(&self) -> Worked {
        let state = &mut *self.edge_loop.state();
        let (now, began) = (tidings_telemetry::unix_now(), Instant::now());
        let refresh = state.connections[self.key].session.poll_refresh(now);
        let refresh = refresh.and_then(|effect| self.perform(state, effect, now));
        let mut worked = refresh.map_or(Worked::Done, Worked::Awaits);
        while matches!(worked, Worked::Done)
            && !self.flushed_is_over_bound(state)
            && let Some(command) = state.connections[self.key].next_command()
        {
            self.edge_loop.shared.metrics.commands_total.inc();
            match command {
                Ok(command) => {
                    let effect = state.connections[self.key].session.handle(command, now);
                    worked = self.perform(state, effect, now).map_or(Worked::Done, Worked::Awaits);
                }
                Err(error) => {
                    debug!(conn.id = %state.connections[self.key].client(), error = chain(&error), "Frame refused");
                    self.edge_loop.close_in(state, self.key, &error.disconnect());
                }
            }
            if matches!(worked, Worked::Done) && began.elapsed() >= TURN_TIME {
                worked = Worked::TurnOver;
            }
        }
        state.connections[self.key].free_commands();
        self.edge_loop.flush_in(state, self.key);
        worked
    }

    /// Whether too many replies wait even after a write to the socket.
    fn flushed_is_over_bound(&self, state: &mut LoopState) -> bool {
        if self.is_over_bound(&state.connections[self.key]) {
            self.edge_loop.flush_in(state, self.key);
        }
        self.is_over_bound(&state.connections[self.key])
    }

    /// Tells the client the result of its publish.
    pub(crate) fn answer_publish(&self, ticket: Ticket, outcome: Result<(), ErrorCode>) {
        let state = &mut *self.edge_loop.state();
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_published(ticket, outcome);
        connection.reply(reply);
        self.edge_loop.flush_in(state, self.key);
    }

    /// Goes on with the answer of a hook. Returns what to wait for next.
    pub(crate) fn on_hook(&self, asked: Asked, answer: HookAnswer) -> Option<Awaited> {
        let state = &mut *self.edge_loop.state();
        let now = tidings_telemetry::unix_now();
        let effect = state.connections[self.key].session.on_hook(asked, answer, now);
        let awaited = self.perform(state, effect, now);
        self.edge_loop.flush_in(state, self.key);
        awaited
    }

    /// Performs one effect, and answers unless the answer must wait.
    fn perform(&self, state: &mut LoopState, effect: Effect, now: Timestamp) -> Option<Awaited> {
        let hub = &self.edge_loop.shared.hub;
        let reply = match effect {
            Effect::Reply(reply) => Some(reply),
            Effect::Connected { reply, introduction: Introduction { device, visible } } => {
                state.connections[self.key].accept();
                if let Some(future) = self.edge_loop.begin_proof(state, self.key, device) {
                    return Some(Awaited::Proof { future, visible, reply });
                }
                self.let_in(state, None, visible, reply);
                None
            }
            Effect::Visible { ticket, visible } => {
                self.edge_loop.set_visible(state, self.key, visible.map(|ttl| now.saturating_add(ttl)));
                let Connection { session, identity, .. } = &state.connections[self.key];
                let device = session.device().filter(|_| identity.device.is_some());
                session.on_visible(ticket, device, visible)
            }
            Effect::Refused(reply) => {
                state.connections[self.key].refuse(Instant::now() + REFUSED_TIMEOUT);
                Some(reply)
            }
            Effect::Subscribe(effect) => self.subscribe(state, *effect, now),
            Effect::Unsubscribe { ticket, channel } => {
                state.fanout.unsubscribe(&mut state.connections, self.key, &channel);
                state.connections[self.key].session.on_unsubscribed(ticket)
            }
            Effect::Publish { ticket, channel, options, data, info, tags, skip_history } => {
                let publication = Publication { offset: Offset(0), data, info: Some(info), tags, receipt: None };
                let new = NewPublication { publication, skip_history };
                match self.publish(state, channel, options.durable, new, now) {
                    Ok(Some(future)) => return Some(Awaited::Publish { ticket, future }),
                    outcome => state.connections[self.key].session.on_published(ticket, outcome.map(|_| ())),
                }
            }
            Effect::History { ticket, channel, limit, since, reverse } => {
                let found = self.history(&channel, limit, since, reverse);
                let found = found.as_ref().map(|(publications, top)| HistoryFound { top: *top, publications });
                state.connections[self.key].session.on_history(ticket, found.map_err(|code| *code))
            }
            Effect::Presence { ticket, channel } => {
                let present = hub.presence_within(&channel, self.edge_loop.shared.config.reply_bytes_max);
                let present = present.as_deref().ok_or(ErrorCode::LimitExceeded);
                state.connections[self.key].session.on_presence(ticket, present)
            }
            Effect::PresenceStats { ticket, channel } => {
                let stats = hub.presence_stats(&channel);
                state.connections[self.key].session.on_presence_stats(ticket, Ok(stats))
            }
            Effect::Hook { call, asked } => {
                let future = self.edge_loop.shared.hooks.call(*call);
                return Some(Awaited::Hook { asked, future });
            }
            Effect::Pong => {
                self.on_pong(state, now);
                None
            }
            Effect::Disconnect { disconnect, cause } => {
                debug!(conn.id = %state.connections[self.key].client(), code = disconnect.code, cause, "Client disconnected");
                self.edge_loop.close_in(state, self.key, &disconnect);
                None
            }
            Effect::Expired(expired) => {
                self.edge_loop.expire_in(state, self.key, expired);
                None
            }
            Effect::Nothing => None,
        };
        state.connections[self.key].reply(reply);
        None
    }

    /// Publishes. Returns a future to wait for if the channel is durable.
    fn publish(
        &self,
        state: &mut LoopState,
        channel: ChannelName,
        durable: bool,
        new: NewPublication,
        now: Timestamp,
    ) -> Result<Option<PublishFuture>, ErrorCode> {
        self.admit_first(state, &channel)?;
        let Shared { hub, publisher, .. } = &*self.edge_loop.shared;
        if durable {
            return Ok(Some(publisher.publish(channel, new.publication)));
        }
        let published = hub.publish(&channel, new, now);
        published.map(|_| None).map_err(|error| error_code(&error))
    }

    /// Publications of the channel's history, and its top.
    fn history(
        &self,
        channel: &ChannelName,
        limit: u32,
        since: Option<ClientPosition>,
        reverse: bool,
    ) -> Result<(Vec<Publication>, StreamPosition), ErrorCode> {
        let Shared { hub, config, .. } = &*self.edge_loop.shared;
        let filter = HistoryFilter {
            since: since.as_ref().map(|since| since.offset),
            limit: Some(limit as usize),
            reverse,
            bytes_max: Some(config.reply_bytes_max),
        };
        let epoch = since.map(|since| since.epoch).filter(|epoch| !epoch.is_empty());
        let (publications, top) = hub.history(channel, filter).map_err(|error| error_code(&error))?;
        match epoch {
            Some(epoch) if epoch != top.epoch.as_str() => Err(ErrorCode::UnrecoverablePosition),
            _ => Ok((publications, top)),
        }
    }

    /// Whether the client may publish in the channel. The first publication creates the channel for good, so a user may
    /// create only a limited number per minute.
    fn admit_first(&self, state: &mut LoopState, channel: &ChannelName) -> Result<(), ErrorCode> {
        let Shared { hub, config, metrics, .. } = &*self.edge_loop.shared;
        if !hub.is_first(channel).map_err(|error| error_code(&error))? {
            return Ok(());
        }
        let user = state.connections[self.key].session.user();
        if state.creations.admit(user, config.channel_creations_per_minute, Instant::now()) {
            return Ok(());
        }
        metrics.creations_refused_total.inc();
        Err(ErrorCode::TooManyRequests)
    }

    /// Sends the answer to `connect`; the connection stands for `device` if the device is proven.
    pub(crate) fn let_in(
        &self,
        state: &mut LoopState,
        device: Option<DeviceNumber>,
        visible: Option<Duration>,
        reply: Vec<u8>,
    ) {
        let visible = visible.map(|ttl| tidings_telemetry::unix_now().saturating_add(ttl));
        self.edge_loop.introduce(state, self.key, device, visible);
        let connection = &mut state.connections[self.key];
        if connection.is_closing() {
            return;
        }
        connection.enter(self.edge_loop.timing, Instant::now()); // The quiet first second begins now.
        self.edge_loop.shared.users.enter(connection.session.user());
        connection.reply(Some(reply));
    }

    /// The client has received what was written before the ping. Whether that counts is judged now. Then the next ping,
    /// if needed.
    fn on_pong(&self, state: &mut LoopState, now: Timestamp) {
        let Connection { session, pings, identity, .. } = &mut state.connections[self.key];
        let is_visible = identity.is_visible(now);
        let count = pings.on_pong(|event| event.on_received(session.user(), identity.device, is_visible));
        self.edge_loop.shared.metrics.receipts_ponged_total.add(count as u64);
        state.fanout.ask(&mut state.connections[self.key], self.key, Instant::now());
    }

    /// Subscribes. Returns the answer unless it is already written.
    fn subscribe(&self, state: &mut LoopState, effect: SubscribeEffect, now: Timestamp) -> Option<Vec<u8>> {
        let SubscribeEffect {
            ticket, channel, options, recover, presence, announced, hears_joins, form, filter, ..
        } = effect;
        let config = &self.edge_loop.shared.config;
        let resume = recover.map(|position| ResumeFrom {
            offset: position.offset,
            epoch: Some(position.epoch).filter(|epoch| !epoch.is_empty()),
            limit: Bounds::count(config.recovery_count_max).and_bytes(config.reply_bytes_max),
            is_required: effect.unrecovered_is_error,
        });
        let Connection { session, identity, .. } = &state.connections[self.key];
        let wishes = Wishes { filter, joins: hears_joins };
        let member = Member {
            presence,
            device: identity.device,
            wishes: wishes.clone(),
            announced,
            ..Member::reader(self.edge_loop.loop_id, session.client(), form)
        };
        let owner = panics::owner(); // Hub and fan-out change together.
        let mut made = match self.edge_loop.shared.hub.subscribe(&channel, &member, resume.as_ref()) {
            Ok(made) => made,
            Err(error) => {
                debug!(%channel, error = chain(&error), "Subscription refused");
                let session = &mut state.connections[self.key].session;
                return session.on_subscribed(ticket, Err(error_code(&error)), now);
            }
        };
        if let Some(Recovery::Recovered(publications)) = &mut made.recovery {
            publications.retain(|publication| wishes.wants_publication(&publication.tags));
        }
        let last = match &made.recovery {
            Some(Recovery::Recovered(publications)) => publications.last().map(|publication| publication.offset),
            Some(Recovery::Gap(_)) | None => None,
        };
        let has_base = last.is_some() && last == made.delta_base;
        let subscriber = Subscriber { connection: self.key, next: made.next, wishes, form, has_base };
        state.fanout.subscribe(&mut state.connections, made.channel.clone(), subscriber);
        let ticket = ticket.with_number(made.channel.number());
        drop(owner);
        let recovered = match &made.recovery {
            Some(Recovery::Recovered(publications)) => Some(publications.as_slice()),
            Some(Recovery::Gap(_)) | None => None,
        };
        let subscribed = Subscribed { top: options.has_history().then_some(made.top), recovered };
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_subscribed(ticket, Ok(subscribed), now);
        connection.reply(reply);
        if let Some(resume) = resume.filter(|_| !made.receipts.is_empty()) {
            self.on_resumed(state, &resume, &made, now);
        }
        None
    }

    /// The position from which a client resumes proves what it has: that is a receipt. For the publications in the
    /// answer the client gets a ping. In some namespaces the client may have passed over publications before its position,
    /// which then proves nothing.
    fn on_resumed(&self, state: &mut LoopState, resume: &ResumeFrom, made: &hub::Subscribed, now: Timestamp) {
        let metrics = &self.edge_loop.shared.metrics;
        let connection = &mut state.connections[self.key];
        if !connection.pings.are_answered() {
            return;
        }
        let Connection { session, pings, identity, places, .. } = connection;
        let has_position = resume.offset <= made.top.offset
            && resume.epoch.as_deref() == Some(made.top.epoch.as_str())
            && made.channel.options().positions_prove_all();
        let recovered = match &made.recovery {
            Some(Recovery::Recovered(publications)) => publications.as_slice(),
            Some(Recovery::Gap(_)) | None => &[],
        };
        let is_recovered = |offset| recovered.binary_search_by_key(&offset, |publication| publication.offset).is_ok();
        let slot = places.last().expect("it has just subscribed").channel;
        let device = identity.device.map(|device| RoaringBitmap::from_iter([device.0]));
        for (offset, event) in &made.receipts {
            let (is_had, is_wanted) = (*offset <= resume.offset, identity.is_wanted_by(event.terms(), now));
            if !is_wanted || !(if is_had { has_position } else { is_recovered(*offset) }) {
                continue;
            }
            device.iter().for_each(|device| event.add_readers(device));
            if is_had {
                event.on_resumed(session.user(), identity.device, identity.is_visible(now));
                metrics.receipts_resumed_total.inc();
            } else {
                metrics.receipts_asked_total.inc();
                metrics.receipts_dropped_total.add(pings.on_written(event.clone(), slot) as u64);
            }
        }
        state.fanout.ask(connection, self.key, Instant::now());
    }
}

/// The error code for the client when the hub refuses.
fn error_code(error: &HubError) -> ErrorCode {
    match error {
        HubError::UnknownNamespace(_) => ErrorCode::UnknownChannel,
        HubError::Gap(_) => ErrorCode::UnrecoverablePosition,
        HubError::ChannelLimit { .. } => ErrorCode::TooManyRequests,
    }
}
