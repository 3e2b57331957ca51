//! Carries out what clients command. The session turns each command into an effect; this module performs the effect.
//!
//! The commands of a connection are handled in order, one at a time, for at most a turn ([`turns`](crate::turns)) before the other
//! connections get their turn. Some effects must wait ([`Awaited`]): a publish into a durable channel waits for the
//! journal, older publications of a durable channel are read from the disk, `connect` waits for the proof of its device, what a
//! hook decides waits for its answer, and what other servers of a cluster know or do waits for them. Meanwhile the task of
//! the connection waits.
//!
//! Server-side subscriptions are made after that proof, right before `connect` is answered. If one cannot be made, the
//! others are left again, and the client is told the error. Others learn of joins when all are made.
//!
//! Bounds:
//! - Replies that the peer does not read: `control_bytes_max` and one reply. Above that no command is handled and
//!   nothing is read until the peer takes some. One reply is bounded by `reply_bytes_max` and one publication.
//! - All replies that wait on a loop: `reply_budget_bytes` (see [`EdgeLoop::flush_in`]).
//! - Channels that a user creates: `channel_creations_per_minute` on one loop.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_hub::{
    self as hub, Arrival, Hub, HubError, LOAD_TIMEOUT, Member, NewPublication, Recovery, ResumeFrom, Wanted, Wishes,
};
use tidings_protocol::{
    Asked, ClientInfo, ClientPosition, ConnectEffect, Disconnect, Effect, ErrorCode, HistoryFound, HookAnswer,
    Publication, SubscribeEffect, SubscribeTicket, Subscribed, Target, Ticket,
};
use tidings_stream::{Bounds, HistoryFilter};
use tidings_telemetry::chain;
use tidings_telemetry::panics::{self, lock};
use tidings_types::{ChannelName, DeviceNumber, Language, Offset, PushForm, StreamPosition, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::connection::Connection;
use crate::edge_loop::{EdgeLoop, LoopState, PUBLICATIONS_PART, WORK_PART};
use crate::orders::{self, Work};
use crate::shared::{HookFuture, PresenceFuture, ProveFuture, PublishFuture, Shared, StatsFuture};
use crate::subscribers::{Key, Subscriber, Thin};

/// How long a client whose `connect` was refused may stay connected.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client waits for a server that is behind it. Then it is told that something is missing.
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two looks: the first one, and the longest one. Each is twice the one before.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(2);
const CATCH_UP_PAUSE_MAX: Duration = Duration::from_millis(128);

/// Resolves when this server has what a client has and what it asks for, or after [`LOAD_TIMEOUT`] and [`CATCH_UP_TIMEOUT`].
type CatchUpFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Where the handling of a connection's commands stopped.
pub(crate) enum Worked {
    /// There are no more commands, or the peer has to take its replies first.
    Done,
    /// Its turn is over.
    TurnOver,
    /// The next command is handled when this is done.
    Awaits(Awaited),
}

/// What a connection waits for before its next command.
pub(crate) enum Awaited {
    /// The result of a publication from the journal.
    Publish { ticket: Ticket, future: PublishFuture },
    /// The readers of the channel take what was published before.
    Room { effect: Box<Effect>, room: oneshot::Receiver<()> },
    /// This server is about to have what the client has, or what it asks for.
    CatchUp { effect: Box<Effect>, future: CatchUpFuture },
    /// Who is in the channel on other servers.
    Presence { ticket: Ticket, channel: ChannelName, future: PresenceFuture },
    /// How many are in the channel on other servers.
    PresenceStats { ticket: Ticket, channel: ChannelName, future: StatsFuture },
    /// Which device the client is. Then the client is let in.
    Proof { future: ProveFuture, connect: Box<ConnectEffect> },
    /// The answer of a hook.
    Hook { asked: Box<Asked>, future: HookFuture },
}

/// A channel that a connection has just joined.
pub(crate) struct Joined {
    made: hub::Subscribed,
    resume: Option<ResumeFrom>,
    has_history: bool,
    /// Others may want to know that the client has joined.
    is_announced: bool,
    /// The channel's slot in the fan-out.
    slot: usize,
}

impl Joined {
    pub(crate) fn recovered(&self) -> Option<&[Publication]> {
        match &self.made.recovery {
            Some(Recovery::Recovered(publications)) => Some(publications),
            Some(Recovery::Gap(_)) | None => None,
        }
    }

    fn start(&self) -> Subscribed<'_> {
        Subscribed { top: self.has_history.then_some(self.made.top), recovered: self.recovered() }
    }
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

    /// Asks the hook that may extend what has expired. Then handles the commands that have arrived, in order, until one
    /// must wait, the peer has to take replies, or the time is over.
    pub(crate) fn work_off(&self) -> Worked {
        let state = &mut *self.edge_loop.state();
        let (now, began) = (tidings_telemetry::unix_now(), Instant::now());
        let turn_time = self.edge_loop.turns.time();
        state.connections[self.key].input.end_work();
        let refresh = state.connections[self.key].session.poll_refresh(now);
        let refresh = refresh.and_then(|effect| self.perform(state, effect, now));
        let mut worked = refresh.map_or(Worked::Done, Worked::Awaits);
        while matches!(worked, Worked::Done)
            && !self.flushed_is_over_bound(state)
            && let Some(command) = state.connections[self.key].input.next_command()
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
            if matches!(worked, Worked::Done) && began.elapsed() >= turn_time {
                worked = Worked::TurnOver;
            }
        }
        self.edge_loop.turns.on_worked(began.elapsed());
        let input = &mut state.connections[self.key].input;
        if !matches!(worked, Worked::Awaits(_)) {
            input.end_work();
        }
        input.free_commands();
        self.edge_loop.flush_in(state, self.key);
        self.edge_loop.stir(state);
        worked
    }

    /// Whether too many replies wait even after a write to the socket.
    fn flushed_is_over_bound(&self, state: &mut LoopState) -> bool {
        if self.is_over_bound(&state.connections[self.key]) {
            self.edge_loop.flush_in(state, self.key);
        }
        self.is_over_bound(&state.connections[self.key])
    }

    /// Handles a pong that came while a command is waited for, and writes what was answered to other frames.
    pub(crate) fn take_pong(&self) {
        let state = &mut *self.edge_loop.state();
        let connection = &mut state.connections[self.key];
        let pong = connection.input.take_pong().filter(|_| !connection.is_closing());
        let now = tidings_telemetry::unix_now();
        for command in pong.into_iter().flatten().flatten() {
            self.edge_loop.shared.metrics.commands_total.inc();
            let effect = state.connections[self.key].session.handle(command, now);
            let _nothing = self.perform(state, effect, now); // A pong, or the refusal of one, waits for nothing.
        }
        self.edge_loop.flush_in(state, self.key);
    }

    /// Tells the client the result of its publish.
    pub(crate) fn answer_publish(&self, ticket: Ticket, outcome: Result<(), ErrorCode>) {
        let state = &mut *self.edge_loop.state();
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_published(ticket, outcome);
        connection.reply(reply);
        self.edge_loop.flush_in(state, self.key);
    }

    /// Tells the client who is in the channel, here and on other servers.
    pub(crate) fn answer_presence(&self, ticket: Ticket, channel: &ChannelName, there: Option<Vec<ClientInfo>>) {
        let (state, shared) = (&mut *self.edge_loop.state(), &self.edge_loop.shared);
        let present = there.and_then(|mut present| {
            let bytes: usize = present.iter().map(ClientInfo::weight).sum();
            let left = shared.config.reply_bytes_max.checked_sub(bytes)?;
            present.extend(shared.hub.presence_within(channel, left)?);
            Some(present)
        });
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_presence(ticket, present.as_deref().ok_or(ErrorCode::LimitExceeded));
        connection.reply(reply);
        self.edge_loop.flush_in(state, self.key);
    }

    /// Tells the client how many are in the channel, here and on other servers.
    pub(crate) fn answer_presence_stats(&self, ticket: Ticket, channel: &ChannelName, there: (u64, u64)) {
        let (state, here) = (&mut *self.edge_loop.state(), self.edge_loop.shared.hub.presence_stats(channel));
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_presence_stats(ticket, Ok((here.0 + there.0, here.1 + there.1)));
        connection.reply(reply);
        self.edge_loop.flush_in(state, self.key);
    }

    /// Goes on with the answer of a hook. Returns what to wait for next. A connection that was closed meanwhile joins nothing.
    pub(crate) fn on_hook(&self, asked: Asked, answer: HookAnswer) -> Option<Awaited> {
        let state = &mut *self.edge_loop.state();
        let now = tidings_telemetry::unix_now();
        if state.connections[self.key].is_closing() {
            return None;
        }
        let effect = state.connections[self.key].session.on_hook(asked, answer, now);
        let awaited = self.perform(state, effect, now);
        self.edge_loop.flush_in(state, self.key);
        awaited
    }

    /// Performs one effect, and answers unless the answer must wait.
    fn perform(&self, state: &mut LoopState, effect: Effect, now: Timestamp) -> Option<Awaited> {
        let missing = self.missing(&effect);
        let must_wait = !missing.lacking.is_empty() || !missing.behind.is_empty();
        let subscription_count = subscriptions_of(&effect).len();
        if must_wait && self.edge_loop.may_wait(state, self.key, subscription_count, WORK_PART) {
            let future = self.catch_up(&missing.lacking, missing.behind);
            return Some(Awaited::CatchUp { effect: Box::new(effect), future });
        }
        self.perform_now(state, effect, now)
    }

    /// Performs an effect after the wait for what its client has, or asks for, unless its connection was closed meanwhile.
    pub(crate) fn on_caught_up(&self, effect: Effect) -> Option<Awaited> {
        let state = &mut *self.edge_loop.state();
        if state.connections[self.key].is_closing() {
            return None;
        }
        let awaited = self.perform_now(state, effect, tidings_telemetry::unix_now());
        self.edge_loop.flush_in(state, self.key);
        awaited
    }

    /// What an effect asks for and this server does not have. A client may also come from a server that was a moment ahead of
    /// this one.
    fn missing<'e>(&self, effect: &'e Effect) -> Missing<'e> {
        let Shared { hub, publisher, .. } = &*self.edge_loop.shared;
        let positions = subscriptions_of(effect).iter().filter_map(|it| Some((&it.channel, it.recover.as_ref()?)));
        let mut wanted: Vec<_> = positions.clone().map(|(channel, position)| (channel, after(position))).collect();
        if let Effect::History { channel, limit, since, reverse, .. } = effect {
            wanted.extend(page(*limit, since.as_ref(), *reverse).map(|wanted| (channel, wanted)));
        }
        let lacking = wanted.into_iter().filter(|(channel, wanted)| hub.lacks(channel, *wanted)).collect();
        let behind = positions.filter(|_| !publisher.is_home());
        let behind = behind.map(|(channel, position)| (channel.clone(), position.clone()));
        Missing { lacking, behind: behind.filter(|position| is_behind(hub, position)).collect() }
    }

    /// Waits until this server has that.
    fn catch_up(
        &self,
        lacking: &[(&ChannelName, Wanted<'_>)],
        mut behind: Vec<(ChannelName, ClientPosition)>,
    ) -> CatchUpFuture {
        let hub = self.edge_loop.shared.hub.clone();
        let loads: Vec<_> = lacking.iter().filter_map(|(channel, wanted)| hub.load(channel, *wanted)).collect();
        Box::pin(async move {
            let load_all = async {
                for load in loads {
                    load.await; // All of them have begun.
                }
            };
            let _ = timeout(LOAD_TIMEOUT, load_all).await; // Too late: as if they were gone.
            let (end, mut pause) = (Instant::now() + CATCH_UP_TIMEOUT, CATCH_UP_PAUSE);
            while !behind.is_empty() && Instant::now() < end {
                sleep(pause).await;
                pause = (2 * pause).min(CATCH_UP_PAUSE_MAX);
                behind.retain(|position| is_behind(&hub, position));
            }
        })
    }

    /// Goes on with a publication after the wait for room, unless its connection was closed meanwhile. Without room it has made
    /// place for others, or the loop ends.
    pub(crate) fn on_room(&self, effect: Effect, has_room: bool) -> Option<Awaited> {
        let state = &mut *self.edge_loop.state();
        if state.connections[self.key].is_closing() {
            return None;
        }
        let may_publish = match has_room || self.edge_loop.is_stopping() {
            true => Ok(()),
            false => Err(ErrorCode::TooManyRequests),
        };
        let awaited = self.perform_publish(state, effect, may_publish, tidings_telemetry::unix_now());
        self.edge_loop.flush_in(state, self.key);
        awaited
    }

    /// If the readers of the channel cannot keep up, the publication waits. If too much waits already, one of the network that has
    /// most waiting is refused: this one, or another.
    fn wait_for_room(
        &self,
        state: &mut LoopState,
        effect: &Effect,
    ) -> Result<Option<oneshot::Receiver<()>>, ErrorCode> {
        let Effect::Publish { channel, options, data, .. } = effect else { return Ok(None) };
        let Shared { hub, publisher, metrics, .. } = &*self.edge_loop.shared;
        if options.durable || !publisher.is_home() || self.edge_loop.is_stopping() {
            return Ok(None); // The journal, or another server, says how fast.
        }
        let Some(crowded) = hub.crowded(channel).or_else(|| state.crowds.channel(channel)) else { return Ok(None) };
        let asker = state.connections[self.key].asker();
        if !self.edge_loop.may_wait(state, self.key, 0, PUBLICATIONS_PART) {
            if !state.crowds.make_room(asker.network) {
                return Err(ErrorCode::TooManyRequests);
            }
            self.edge_loop.begin_wait(state, self.key);
        }
        metrics.shares_of_publications_total.inc();
        let room = state.crowds.ask(crowded, data.bytes().len(), &asker, Instant::now());
        self.edge_loop.stirred.notify_one();
        Ok(Some(room))
    }

    fn perform_publish(
        &self,
        state: &mut LoopState,
        effect: Effect,
        may_publish: Result<(), ErrorCode>,
        now: Timestamp,
    ) -> Option<Awaited> {
        let Effect::Publish { ticket, channel, options, data, info, tags, skip_history } = effect else { return None };
        let publication = Publication { offset: Offset(0), data, info: Some(info), tags, receipt: None, texts: None };
        let new = NewPublication { publication, skip_history };
        // Another server is asked, and may not be found for a while.
        let may_wait =
            self.edge_loop.shared.publisher.is_home() || self.edge_loop.may_wait(state, self.key, 0, PUBLICATIONS_PART);
        let may_publish = may_publish.and(if may_wait { Ok(()) } else { Err(ErrorCode::TooManyRequests) });
        let outcome = match may_publish.and_then(|()| self.publish(state, channel, options.durable, new, now)) {
            Ok(Some(future)) => return Some(Awaited::Publish { ticket, future }),
            outcome => outcome.map(|_| ()),
        };
        let reply = state.connections[self.key].session.on_published(ticket, outcome);
        state.connections[self.key].reply(reply);
        None
    }

    fn perform_now(&self, state: &mut LoopState, effect: Effect, now: Timestamp) -> Option<Awaited> {
        let hub = &self.edge_loop.shared.hub;
        let reply = match effect {
            Effect::Reply(reply) => Some(reply),
            Effect::Connect(mut connect) => {
                let connection = &mut state.connections[self.key];
                connection.accept();
                state.users.insert((connection.session.user().into(), self.key));
                let device = connect.introduction.device.take();
                let device =
                    device.filter(|_| self.edge_loop.may_wait(state, self.key, connect.subscriptions.len(), WORK_PART));
                if let Some(future) = self.edge_loop.begin_proof(state, self.key, device) {
                    return Some(Awaited::Proof { future, connect });
                }
                self.let_in(state, None, *connect);
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
            Effect::Subscribe(effect) => {
                let _ = self.subscribe(state, *effect, now); // The client is told the error.
                None
            }
            Effect::Unsubscribe { ticket, channel } => {
                state.fanout.unsubscribe(&mut state.connections, self.key, &channel);
                state.connections[self.key].session.on_unsubscribed(ticket)
            }
            Effect::Publish { .. } => {
                return match self.wait_for_room(state, &effect) {
                    Ok(Some(room)) => Some(Awaited::Room { effect: Box::new(effect), room }),
                    may_publish => self.perform_publish(state, effect, may_publish.map(|_| ()), now),
                };
            }
            Effect::History { ticket, channel, limit, since, reverse } => {
                let language = state.connections[self.key].language;
                let found = self.history(&channel, limit, since, reverse, language);
                let found = found.as_ref().map(|(publications, top)| HistoryFound { top: *top, publications });
                state.connections[self.key].session.on_history(ticket, found.map_err(|code| *code))
            }
            Effect::Presence { ticket, channel } => {
                let Shared { others, config, .. } = &*self.edge_loop.shared;
                if let Some(future) = others.presence(&channel, config.reply_bytes_max) {
                    return Some(Awaited::Presence { ticket, channel, future });
                }
                let present = hub.presence_within(&channel, config.reply_bytes_max);
                let present = present.as_deref().ok_or(ErrorCode::LimitExceeded);
                state.connections[self.key].session.on_presence(ticket, present)
            }
            Effect::PresenceStats { ticket, channel } => {
                if let Some(future) = self.edge_loop.shared.others.presence_stats(&channel) {
                    return Some(Awaited::PresenceStats { ticket, channel, future });
                }
                let stats = hub.presence_stats(&channel);
                state.connections[self.key].session.on_presence_stats(ticket, Ok(stats))
            }
            Effect::Hook { call, asked } => {
                let asker = state.connections[self.key].asker();
                let future = self.edge_loop.shared.hooks.call(*call, asker);
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

    /// Publishes. Returns a future to wait for if the hub of this process does not publish it.
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
        if durable || !publisher.is_home() {
            return Ok(Some(publisher.publish(channel, new)));
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
        language: Language,
    ) -> Result<(Vec<Publication>, StreamPosition), ErrorCode> {
        let Shared { hub, config, .. } = &*self.edge_loop.shared;
        if page(limit, since.as_ref(), reverse).is_some_and(|wanted| hub.lacks(channel, wanted)) {
            return Err(ErrorCode::Internal); // It could not be read from the disk.
        }
        let filter = HistoryFilter {
            since: since.as_ref().map(|since| since.offset),
            limit: Some(limit as usize),
            reverse,
            bytes_max: Some(config.reply_bytes_max),
        };
        let epoch = since.map(|since| since.epoch).filter(|epoch| !epoch.is_empty());
        let (mut publications, top) = hub.history(channel, filter).map_err(|error| error_code(&error))?;
        hub.add_texts(&mut publications, language);
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

    /// Makes the server-side subscriptions and answers `connect`; the connection stands for `device` if the device is
    /// proven.
    pub(crate) fn let_in(&self, state: &mut LoopState, device: Option<DeviceNumber>, connect: ConnectEffect) {
        let ConnectEffect { ticket, introduction, subscriptions } = connect;
        let now = tidings_telemetry::unix_now();
        let visible = introduction.visible.map(|ttl| now.saturating_add(ttl));
        let asked = introduction.bytes_per_second_max.map_or(0, NonZeroU64::get);
        let language = introduction.locale.and_then(|locale| self.edge_loop.shared.hub.language(&locale));
        let connection = &mut state.connections[self.key];
        connection.language = language.unwrap_or(connection.language);
        let limits = [self.edge_loop.shared.config.bytes_per_second_max, asked];
        connection.limit(limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0), Instant::now());
        self.edge_loop.introduce(state, self.key, device, visible);
        if state.connections[self.key].is_closing() {
            return;
        }
        let joined = self.join_all(state, subscriptions).and_then(|joined| self.replace_others(state).map(|()| joined));
        let (tickets, joined) = match joined {
            Ok(joined) => joined,
            Err(code) => {
                self.edge_loop.leave_in(state, self.key);
                let refused = state.connections[self.key].session.on_connect_failed(ticket, code);
                let _nothing = self.perform(state, refused, now); // A refusal waits for nothing.
                return;
            }
        };
        let (shared, user) = (&self.edge_loop.shared, state.connections[self.key].session.user());
        // Who is to be the only one has just sent the others away, and they may take a moment.
        let is_single = state.connections[self.key].session.is_single();
        let count_max = if is_single { 0 } else { shared.config.user_connection_count_max };
        if !shared.users.enter(user, count_max) {
            self.edge_loop.close_in(state, self.key, &Disconnect::CONNECTION_LIMIT);
            return;
        }
        let made: Vec<_> = tickets.into_iter().zip(joined.iter().map(Joined::start)).collect();
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_connected(ticket, &made, now);
        connection.enter(self.edge_loop.timing, Instant::now()); // The quiet first second begins now.
        connection.reply(reply);
        joined.iter().for_each(|joined| self.on_joined(state, joined, now));
    }

    /// Closes the other connections of the user if this one is to be the only one. Those that were let in later stay,
    /// so that of several that come at once the last one stays.
    fn replace_others(&self, state: &mut LoopState) -> Result<(), ErrorCode> {
        let shared = &*self.edge_loop.shared;
        let connection = &mut state.connections[self.key];
        if !connection.session.is_single() {
            return Ok(());
        }
        let number = shared.next_number();
        connection.number = number;
        let target = Target { user: connection.session.user().to_owned(), ..Target::default() };
        // Refused: the client comes back, when there is room.
        orders::post(&shared.orders, target, Work::Replace { number }).map_err(|_| ErrorCode::TooManyRequests)?;
        shared.others.replace(connection.session.user(), number);
        Ok(())
    }

    /// Joins all channels. What they recover shares the bound of one answer.
    fn join_all(
        &self,
        state: &mut LoopState,
        effects: Vec<SubscribeEffect>,
    ) -> Result<(Vec<SubscribeTicket>, Vec<Joined>), ErrorCode> {
        let mut bytes_left = self.edge_loop.shared.config.reply_bytes_max;
        let (mut tickets, mut all) = (Vec::new(), Vec::new());
        for effect in effects {
            let (ticket, joined) = self.join(state, effect, bytes_left);
            let joined = joined?;
            let recovered = joined.recovered().unwrap_or_default();
            bytes_left = bytes_left.saturating_sub(recovered.iter().map(Publication::weight).sum());
            tickets.push(ticket);
            all.push(joined);
        }
        Ok((tickets, all))
    }

    /// The client has received what was written before the ping. Whether that counts is judged now. Then the next ping,
    /// if needed.
    fn on_pong(&self, state: &mut LoopState, now: Timestamp) {
        let Connection { session, pings, identity, .. } = &mut state.connections[self.key];
        let is_visible = identity.is_visible(now);
        let arrival = Arrival { client: session.client(), at: now };
        let count = pings.on_pong(|event| event.on_received(session.user(), identity.device, is_visible, arrival));
        self.edge_loop.shared.metrics.receipts_ponged_total.add(count as u64);
        state.fanout.ask(&mut state.connections[self.key], self.key, Instant::now());
    }

    /// Subscribes and tells the client.
    pub(crate) fn subscribe(
        &self,
        state: &mut LoopState,
        effect: SubscribeEffect,
        now: Timestamp,
    ) -> Result<Joined, ErrorCode> {
        let (ticket, joined) = self.join(state, effect, self.edge_loop.shared.config.reply_bytes_max);
        let connection = &mut state.connections[self.key];
        let outcome = joined.as_ref().map(Joined::start).map_err(|code| *code);
        let reply = connection.session.on_subscribed(ticket, outcome, now);
        connection.reply(reply);
        joined.iter().for_each(|joined| self.on_joined(state, joined, now));
        joined
    }

    /// Joins a channel in the hub and the fan-out, and reads what was missed: at most `bytes_max`, but a single
    /// publication may be larger.
    fn join(
        &self,
        state: &mut LoopState,
        effect: SubscribeEffect,
        bytes_max: usize,
    ) -> (SubscribeTicket, Result<Joined, ErrorCode>) {
        let SubscribeEffect {
            ticket,
            channel,
            options,
            recover,
            presence,
            announced,
            hears_joins,
            form,
            filter,
            thinning,
            ..
        } = effect;
        let EdgeLoop { shared, loop_id, .. } = &*self.edge_loop;
        let resume = recover.map(|position| ResumeFrom {
            offset: position.offset,
            epoch: Some(position.epoch).filter(|epoch| !epoch.is_empty()),
            // Nothing at all fits into no bytes. Otherwise a single publication of any size would.
            limit: Bounds::count(if bytes_max == 0 { 0 } else { shared.config.recovery_count_max })
                .and_bytes(bytes_max),
            is_required: effect.unrecovered_is_error,
        });
        let connection = &state.connections[self.key];
        let holder = (connection.network(), connection.session.user());
        let has_share = |left| lock(&shared.holdings).has_share(holder, connection.held_count, left);
        if shared.hub.last_room(&channel).is_some_and(has_share) {
            shared.metrics.shares_of_channels_total.inc();
            return (ticket, Err(ErrorCode::TooManyRequests));
        }
        let Connection { session, identity, language, .. } = connection;
        let language = *language;
        let form = PushForm { language: options.event_texts.then_some(language), ..form };
        let filter = filter.map(|filter| state.fanout.filters.share(filter));
        let (wishes, is_announced) = (Wishes { filter, joins: hears_joins, thinning }, announced.is_some());
        let member = Member {
            presence,
            device: identity.device,
            wishes: wishes.clone(),
            announced,
            ..Member::reader(*loop_id, session.client(), form)
        };
        let _owner = panics::owner(); // Hub and fan-out change together.
        let mut made = match shared.hub.subscribe(&channel, &member, resume.as_ref()) {
            Ok(made) => made,
            Err(error) => {
                debug!(%channel, error = chain(&error), "Subscription refused");
                return (ticket, Err(error_code(&error)));
            }
        };
        if let Some(Recovery::Recovered(publications)) = &mut made.recovery {
            publications.retain(|publication| wishes.wants_publication(&publication.tags));
            shared.hub.add_texts(publications, language);
        }
        let last = match &made.recovery {
            Some(Recovery::Recovered(publications)) => publications.last().map(|publication| publication.offset),
            Some(Recovery::Gap(_)) | None => None,
        };
        let has_base = last.is_some() && last == made.delta_base;
        let thin = Thin::of(thinning, made.top.offset);
        if thin.is_some() {
            state.connections[self.key].socket.keep_little_unsent();
        }
        let is_first = made.is_first;
        let subscriber = Subscriber {
            connection: self.key,
            next: made.next,
            wishes,
            form,
            has_base,
            thin,
            is_first,
            is_lost: false,
        };
        state.fanout.subscribe(&mut state.connections, made.channel.clone(), subscriber);
        let ticket = ticket.with_number(made.channel.number());
        let slot = state.connections[self.key].places.last().expect("it has just subscribed").channel;
        (ticket, Ok(Joined { made, resume, has_history: options.has_history(), is_announced, slot }))
    }

    /// The client is told that it has the channel, so others may be told, too.
    fn on_joined(&self, state: &mut LoopState, joined: &Joined, now: Timestamp) {
        if joined.is_announced {
            let _owner = panics::owner();
            self.edge_loop.shared.hub.announce_join(&joined.made.channel, state.connections[self.key].client());
        }
        self.on_resumed(state, joined, now);
    }

    /// The position from which a client resumes proves what it has: that is a receipt. For the publications in the
    /// answer the client gets a ping. In some namespaces the client may have passed over publications before its
    /// position, which then proves nothing.
    fn on_resumed(&self, state: &mut LoopState, joined: &Joined, now: Timestamp) {
        let Joined { made, resume: Some(resume), slot, .. } = joined else { return };
        let metrics = &self.edge_loop.shared.metrics;
        let connection = &mut state.connections[self.key];
        if made.receipts.is_empty() || !connection.pings.are_answered() {
            return;
        }
        let Connection { session, pings, identity, .. } = connection;
        let has_position = resume.offset <= made.top.offset
            && resume.epoch.as_deref() == Some(made.top.epoch.as_str())
            && made.channel.options().positions_prove_all();
        let recovered = joined.recovered().unwrap_or_default();
        let is_recovered = |offset| recovered.binary_search_by_key(&offset, |publication| publication.offset).is_ok();
        let device = identity.device.map(|device| RoaringBitmap::from_iter([device.0]));
        for (offset, event) in &made.receipts {
            let (is_had, is_wanted) = (*offset <= resume.offset, identity.is_wanted_by(event.terms(), now));
            if !is_wanted || !(if is_had { has_position } else { is_recovered(*offset) }) {
                continue;
            }
            device.iter().for_each(|device| event.add_readers(device));
            if is_had {
                let arrival = Arrival { client: session.client(), at: now };
                event.on_resumed(session.user(), identity.device, identity.is_visible(now), arrival);
                metrics.receipts_resumed_total.inc();
            } else {
                metrics.receipts_asked_total.inc();
                metrics.receipts_dropped_total.add(pings.on_written(event.clone(), *slot) as u64);
            }
        }
        state.fanout.ask(connection, self.key, Instant::now());
    }
}

/// The subscriptions that an effect makes.
fn subscriptions_of(effect: &Effect) -> &[SubscribeEffect] {
    match effect {
        Effect::Subscribe(subscription) => std::slice::from_ref(&**subscription),
        Effect::Connect(connect) => &connect.subscriptions,
        _ => &[],
    }
}

/// What an effect asks for and this server does not have.
struct Missing<'a> {
    /// Publications that only the disk has.
    lacking: Vec<(&'a ChannelName, Wanted<'a>)>,
    /// Publications that have not come here yet.
    behind: Vec<(ChannelName, ClientPosition)>,
}

fn after(position: &ClientPosition) -> Wanted<'_> {
    Wanted::After(position.offset, &position.epoch)
}

/// The publications that a page of a history may have; `None`: none.
fn page(limit: u32, since: Option<&ClientPosition>, reverse: bool) -> Option<Wanted<'_>> {
    (limit > 0).then(|| since.filter(|_| !reverse).map_or(Wanted::Any, after))
}

fn is_behind(hub: &Hub, (channel, position): &(ChannelName, ClientPosition)) -> bool {
    hub.is_behind(channel, position.offset, &position.epoch)
}

/// The error code for the client when the hub refuses.
fn error_code(error: &HubError) -> ErrorCode {
    match error {
        HubError::UnknownNamespace(_) => ErrorCode::UnknownChannel,
        HubError::Gap(_) => ErrorCode::UnrecoverablePosition,
        HubError::ChannelLimit { .. } => ErrorCode::TooManyRequests,
    }
}
