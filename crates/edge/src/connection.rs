//! One client's connection: reading its commands, doing what the session decides, answering.
//!
//! ```text
//!  handshake ──► open ──────────────► closing ──────────────► ended
//!                 commands in order    close frame after what   both sides have closed, the peer is gone,
//!                 one at a time        is promised; no more     or the close timeout is over
//!                                      commands
//! ```
//!
//! A publish into a durable channel waits for the journal; until then the connection reads nothing more, so that a
//! fast publisher is slowed by its own socket. A peer that takes no byte for `write_timeout`, though some wait for it, is cut
//! off, whatever it has sent or proven before.
//!
//! Bounds: one read of 64 KiB is worked off before the next, in turns of [`TURN_TIME`]; replies that the peer does not read
//! are bounded by `control_bytes_max` and one reply: over it no command is done and nothing is read until it takes some.
//! One reply is bounded by `reply_bytes_max` and one publication. All replies that wait on a loop are bounded by
//! `reply_budget_bytes` (see [`Worker::flush_in`]).
//!
//! A panic while a connection is served closes this connection. What others share changes in the hub and in the fan-out only,
//! where a panic ends the process.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream as StdTcpStream};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade;
use roaring::RoaringBitmap;
use socket2::SockRef;
use tidings_hub::{self as hub, HubError, Member, NewPublication, Recovery, ResumeFrom};
use tidings_protocol::websocket::{self, Decoder, Event};
use tidings_protocol::{
    ClientId, Command, Disconnect, Effect, ErrorCode, Expired, FrameError, HistoryFound, Introduction, PING,
    Publication, Session, SubscribeEffect, Subscribed, Tags, Ticket, parse_frame,
};
use tidings_stream::{Bounds, HistoryFilter};
use tidings_telemetry::{chain, panics};
use tidings_types::{ChannelName, DeviceNumber, Offset, Timestamp};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::fanout::{Key, Place};
use crate::identity::PROOF_TIMEOUT;
use crate::output::Output;
use crate::receipts::{Identity, Pings, Timing};
use crate::worker::{SCRATCH_BYTES, State, Worker};
use crate::{ProveFuture, PublishFuture, Shared};

/// How long the HTTP server may take to hand the socket over.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client whose connect was refused may stay.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection whose commands have taken so long gives the loop to the others before its next command: a hundred busy
/// ones delay the rest by a tenth of a second.
const TURN_TIME: Duration = Duration::from_millis(1);

/// A client's connection as its loop keeps it.
pub(crate) struct Connection {
    pub(crate) socket: Rc<TcpStream>,
    pub(crate) output: Output,
    /// The socket takes no more bytes for now; the connection's task waits until it does.
    pub(crate) blocked: bool,
    /// Where it stands in its channels; kept by the fan-out.
    pub(crate) places: Vec<Place>,
    /// It is already marked while a turn begins; kept by the fan-out.
    pub(crate) is_ready: bool,
    /// It waits, or has waited, for the end of its first second to be asked for receipts; kept by the fan-out.
    pub(crate) is_timed: bool,
    pub(crate) pings: Pings,
    pub(crate) identity: Identity,
    session: Session,
    decoder: Decoder,
    commands: VecDeque<Result<Command, FrameError>>,
    wake: Rc<Notify>,
    /// Until when `connect` must have come.
    connect_deadline: Option<Instant>,
    closing: Option<Closing>,
    ended: bool,
    stall: Option<Stall>,
    /// Its user is among the connected ones.
    is_counted: bool,
}

struct Closing {
    deadline: Instant,
    /// The peer's close frame has come: nothing more to wait for once ours is written.
    is_peer_closed: bool,
    /// Ours is written, and the socket is closed in our direction.
    is_shut: bool,
}

/// A full socket, as the sweeps of deadlines see it.
#[derive(Debug, Clone, Copy)]
struct Stall {
    /// When the socket was last seen to have taken something, and how many bytes it had taken by then.
    moved_at: Instant,
    written: u64,
}

/// What became of a connection's commands.
enum Worked {
    /// There are no more, or the peer has to take its replies first.
    Done,
    /// Its turn is over.
    TurnOver,
    /// They go on when this is done.
    Awaits(Awaited),
}

/// What a connection waits for before its next command.
enum Awaited {
    /// The journal's word on a publication.
    Publish { ticket: Ticket, future: PublishFuture },
    /// Which device the client is; then it is let in with this reply.
    Proof { future: ProveFuture, visible: Option<Duration>, reply: Vec<u8> },
}

impl Connection {
    fn new(worker: &Worker, socket: Rc<TcpStream>, wake: Rc<Notify>) -> Self {
        let config = &worker.shared.config;
        Self {
            socket,
            output: Output::new(worker.held.clone()),
            blocked: false,
            places: Vec::new(),
            is_ready: false,
            is_timed: false,
            pings: Pings::default(),
            identity: Identity::default(),
            session: Session::new(worker.shared.session.clone(), ClientId::from_random(rand::random())),
            decoder: Decoder::new(config.message_bytes_max),
            commands: VecDeque::new(),
            wake,
            connect_deadline: Some(Instant::now() + config.stale_timeout),
            closing: None,
            ended: false,
            stall: None,
            is_counted: false,
        }
    }

    pub(crate) fn client(&self) -> ClientId {
        self.session.client()
    }

    /// Its user, once it has connected.
    pub(crate) fn counted_user(&self) -> Option<&str> {
        self.is_counted.then(|| self.session.user())
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.ended
    }

    /// The socket is full: the task takes over until it drains.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
        self.wake.notify_one();
    }

    /// Ends the connection without another byte.
    pub(crate) fn abort(&mut self) {
        self.ended = true;
        self.wake.notify_one();
    }

    /// Ends the connection, whose socket takes nothing, and frees at once what waits for it. A close frame cannot be
    /// written: it may not stand inside another frame.
    pub(crate) fn cut_off(&mut self) {
        self.session.close();
        self.commands = VecDeque::new();
        self.output.forget();
        let socket = SockRef::from(&*self.socket);
        // When it is closed the system forgets at once what the peer has not taken, instead of offering it for minutes.
        let _ = socket.set_linger(Some(Duration::ZERO));
        // So that nothing is written where a frame was cut; that the peer is gone already is as good.
        let _ = socket.shutdown(Shutdown::Both);
        self.abort();
    }

    /// When its socket, which is full, was last seen to have taken something.
    pub(crate) fn moved_at(&self) -> Option<Instant> {
        self.stall.map(|stall| stall.moved_at)
    }

    /// Whether its socket has taken nothing for `timeout`; called at each sweep. One that is closing has a deadline already.
    pub(crate) fn is_stalled(&mut self, timeout: Duration, now: Instant) -> bool {
        let (written, is_full) = (self.output.written(), self.blocked && self.closing.is_none() && !self.ended);
        self.stall = match self.stall {
            _ if !is_full => None,
            Some(stall) if stall.written == written => Some(stall),
            _ => Some(Stall { moved_at: now, written }),
        };
        self.stall.is_some_and(|stall| now.duration_since(stall.moved_at) >= timeout)
    }

    /// No more commands; a close frame after what is already promised.
    pub(crate) fn begin_close(&mut self, disconnect: &Disconnect, deadline: Instant) {
        if *disconnect == Disconnect::SLOW {
            self.output.clear_control();
        }
        self.begin_close_with(disconnect.code, &disconnect.reason, deadline);
    }

    fn begin_close_with(&mut self, code: u16, reason: &str, deadline: Instant) {
        self.session.close();
        self.commands = VecDeque::new();
        self.output.push_control(&websocket::close_frame(code, reason));
        self.closing = Some(Closing { deadline, is_peer_closed: false, is_shut: false });
        self.wake.notify_one();
    }

    /// After the last byte of a closing connection: tells the peer so. Bytes of it that are still under way are read
    /// and thrown away, since closing over them would reset the connection and lose our close frame.
    pub(crate) fn shut_if_flushed(&mut self) {
        if let Some(closing) = self.closing.as_mut().filter(|closing| !closing.is_shut && self.output.is_empty()) {
            closing.is_shut = true;
            if SockRef::from(&*self.socket).shutdown(Shutdown::Write).is_err() {
                self.abort();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ended || self.closing.as_ref().is_some_and(|closing| closing.is_peer_closed && self.output.is_empty())
    }

    /// Each reply has a frame of its own, though the protocol allows several in one: the JavaScript SDK handles a frame's
    /// replies at once but hands on what a subscribe reply recovers a little later, so that a live publication behind it in the
    /// same frame would overtake it.
    pub(crate) fn reply(&mut self, reply: Option<Vec<u8>>) {
        if let Some(reply) = reply {
            self.output.push_control(&websocket::text_frame(&reply));
        }
    }

    /// What is due: pings are written, what is over is reported.
    pub(crate) fn check_deadlines(&mut self, timing: Option<Timing>, now: Instant) -> Option<Disconnect> {
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if is_over(self.closing.as_ref().map(|closing| closing.deadline)) {
            self.abort();
        }
        if self.closing.is_some() {
            return None;
        }
        if is_over(self.connect_deadline) {
            return Some(Disconnect::STALE);
        }
        if self.pings.is_overdue(now) {
            return Some(Disconnect::NO_PONG);
        }
        if let Some(timing) = timing.filter(|_| self.pings.is_regular_due(now)) {
            self.ping(timing, now);
        }
        None
    }

    /// A ping behind everything written and promised so far.
    pub(crate) fn ping(&mut self, timing: Timing, now: Instant) {
        self.output.push_control(&websocket::text_frame(PING));
        self.on_ping_written(timing, now);
    }

    pub(crate) fn on_ping_written(&mut self, timing: Timing, now: Instant) {
        self.session.on_ping_sent();
        self.pings.on_sent(timing, now);
    }

    /// A token that ran out, if any.
    pub(crate) fn poll_expired(&mut self, now: Timestamp) -> Option<Expired> {
        if self.session.deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        self.session.poll_expired(now)
    }
}

/// Takes a connection over from the HTTP server and serves it to its end.
pub(crate) async fn serve(worker: Rc<Worker>, upgrade: OnUpgrade) {
    match accept(upgrade).await {
        Ok((socket, first)) => {
            let served = Served::new(worker, Rc::new(socket));
            if served.worker.is_stopping() {
                served.worker.close(served.key, &Disconnect::SHUTDOWN);
            }
            // After a panic the connection is dropped as it is: nothing but the connection was changed halfway.
            let _counted = panics::catch_async(panics::Work::Connection, served.run(first)).await;
        }
        Err(cause) => {
            worker.shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            debug!(cause, "Handshake was not completed");
        }
    }
}

async fn accept(upgraded: OnUpgrade) -> Result<(TcpStream, Bytes), &'static str> {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgraded).await.map_err(|_| "upgrade timed out")?;
    let upgraded = upgraded.map_err(|_| "connection was lost before the upgrade")?;
    // hyper hands over the socket as it is; hyper-util's automatic server (axum's own) wraps it once more.
    let (io, read_buf) = match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => (parts.io, parts.read_buf),
        Err(upgraded) => {
            let parts =
                upgrade::downcast::<TokioIo<TcpStream>>(upgraded).map_err(|_| "connection is not a plain socket")?;
            (parts.io, parts.read_buf)
        }
    };
    // The socket moves from the HTTP server's runtime to this loop's.
    let socket: StdTcpStream = io.into_inner().into_std().map_err(|_| "socket cannot be moved")?;
    let socket = TcpStream::from_std(socket).map_err(|_| "socket cannot be registered")?;
    socket.set_nodelay(true).map_err(|_| "socket takes no options")?;
    Ok((socket, read_buf))
}

/// A connection in its loop; dropping it (end or abort of its task) removes it.
struct Served {
    worker: Rc<Worker>,
    key: Key,
    socket: Rc<TcpStream>,
    wake: Rc<Notify>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.worker.remove(self.key);
    }
}

impl Served {
    fn new(worker: Rc<Worker>, socket: Rc<TcpStream>) -> Self {
        let wake = Rc::new(Notify::new());
        let key = worker.insert(Connection::new(&worker, socket.clone(), wake.clone()));
        Self { worker, key, socket, wake }
    }

    async fn run(&self, first: Bytes) {
        if !first.is_empty() {
            self.decode(&mut first.to_vec());
        }
        drop(first); // Even empty it keeps the HTTP server's 8 KiB buffer alive.
        while !self.is_done() {
            loop {
                match self.work_off() {
                    Worked::Done => break,
                    Worked::TurnOver => self.while_writing(Box::pin(tokio::task::yield_now())).await,
                    Worked::Awaits(Awaited::Publish { ticket, future }) => {
                        let outcome = self.while_writing(future).await;
                        self.answer_publish(ticket, outcome);
                    }
                    Worked::Awaits(Awaited::Proof { future, visible, reply }) => {
                        let device = self.while_writing(Box::pin(timeout(PROOF_TIMEOUT, future))).await.ok().flatten();
                        self.let_in(&mut self.worker.state(), device, visible, reply);
                    }
                }
            }
            self.check();
            let interest = self.interest();
            let ready = tokio::select! {
                ready = self.socket.ready(interest) => ready,
                () = self.wake.notified() => continue,
            };
            let Ok(ready) = ready else { break };
            if ready.is_writable() && self.is_blocked() {
                while self.worker.catch_up(self.key) {
                    tokio::task::yield_now().await;
                }
            }
            if ready.is_readable() && interest.is_readable() {
                if !self.read() {
                    break;
                }
                tokio::task::yield_now().await; // A peer that always has bytes for us takes turns with the others.
            }
        }
    }

    /// Waits for `future`, and meanwhile writes what the peer takes: a client may read while its own commands are done.
    async fn while_writing<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = self.wake.notified() => {} // It may be blocked now.
                ready = self.socket.writable(), if self.is_blocked() => {
                    if ready.is_err() {
                        return future.await;
                    }
                    while self.worker.catch_up(self.key) {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// What holds whenever the connection waits: without commands it keeps no room for them, nor without channels.
    fn check(&self) {
        let Connection { commands, places, .. } = &self.worker.state().connections[self.key];
        debug_assert!(!commands.is_empty() || commands.capacity() == 0);
        debug_assert!(!places.is_empty() || places.capacity() == 0);
    }

    fn is_done(&self) -> bool {
        self.worker.state().connections[self.key].is_done()
    }

    /// What to wait for: bytes from the peer, unless it has not taken its replies yet; room for ours, if there was none.
    fn interest(&self) -> Interest {
        let connection = &self.worker.state().connections[self.key];
        match (connection.blocked, self.is_over_bound(connection)) {
            (false, _) => Interest::READABLE,
            (true, false) => Interest::READABLE | Interest::WRITABLE,
            (true, true) => Interest::WRITABLE,
        }
    }

    /// Whether so many replies wait that no more commands are done until the peer takes some. One that takes none does
    /// not answer pings either, and is closed for that.
    fn is_over_bound(&self, connection: &Connection) -> bool {
        connection.output.len() > self.worker.shared.config.control_bytes_max
    }

    fn is_blocked(&self) -> bool {
        self.worker.state().connections[self.key].blocked
    }

    /// Reads once; `false` when the peer is gone.
    fn read(&self) -> bool {
        let mut scratch = std::mem::take(&mut self.worker.state().scratch);
        if scratch.is_empty() {
            scratch = vec![0; SCRATCH_BYTES].into(); // A panic took it away.
        }
        let open = match self.socket.try_read(&mut scratch) {
            Ok(0) => false,
            Ok(count) => {
                self.decode(&mut scratch[..count]);
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        self.worker.state().scratch = scratch;
        open
    }

    /// Takes commands out of bytes; control frames are answered at once.
    fn decode(&self, mut input: &mut [u8]) {
        let state = &mut *self.worker.state();
        let deadline = Instant::now() + self.worker.shared.config.close_timeout;
        let connection = &mut state.connections[self.key];
        while !input.is_empty() {
            let decoded = match connection.decoder.decode(input) {
                Ok(decoded) => decoded,
                Err(code) => {
                    if !connection.is_closing() {
                        connection.begin_close_with(code.code(), "", deadline);
                        self.worker.leave_in(state, self.key);
                    }
                    return;
                }
            };
            let consumed = decoded.consumed;
            match decoded.event {
                Event::Text(text) if connection.closing.is_none() => {
                    connection.commands.extend(parse_frame(text.as_bytes()))
                }
                Event::Binary(bytes) if connection.closing.is_none() => connection.commands.extend(parse_frame(&bytes)),
                Event::Ping(payload) if connection.closing.is_none() => {
                    connection.output.push_control(&websocket::pong_frame(&payload))
                }
                Event::Close { code, .. } => {
                    if connection.closing.is_none() {
                        connection.begin_close_with(code.unwrap_or(1000), "", deadline);
                    }
                    connection.closing.as_mut().expect("set above").is_peer_closed = true;
                    self.worker.leave_in(state, self.key);
                    self.worker.flush_in(state, self.key);
                    return;
                }
                Event::Text(_) | Event::Binary(_) | Event::Ping(_) | Event::Pong(_) | Event::NeedMore => {}
            }
            input = &mut input[consumed..];
        }
    }

    /// Does the commands that have come, in order, until one must wait, the peer has to take replies, or the turn is over.
    fn work_off(&self) -> Worked {
        let state = &mut *self.worker.state();
        let (now, began) = (tidings_telemetry::unix_now(), Instant::now());
        let mut worked = Worked::Done;
        while matches!(worked, Worked::Done)
            && !self.flushed_is_over_bound(state)
            && let Some(command) = state.connections[self.key].commands.pop_front()
        {
            self.worker.shared.metrics.commands_total.inc();
            match command {
                Ok(command) => {
                    let effect = state.connections[self.key].session.handle(command, now);
                    worked = self.perform(state, effect, now).map_or(Worked::Done, Worked::Awaits);
                }
                Err(error) => {
                    debug!(conn.id = %state.connections[self.key].client(), error = chain(&error), "Frame refused");
                    self.worker.close_in(state, self.key, &error.disconnect());
                }
            }
            if matches!(worked, Worked::Done) && began.elapsed() >= TURN_TIME {
                worked = Worked::TurnOver;
            }
        }
        let commands = &mut state.connections[self.key].commands;
        if commands.is_empty() {
            *commands = VecDeque::new(); // An idle connection does not keep the room of its largest burst.
        }
        self.worker.flush_in(state, self.key);
        worked
    }

    /// Whether the bound on waiting replies is reached although what could be written was.
    fn flushed_is_over_bound(&self, state: &mut State) -> bool {
        if self.is_over_bound(&state.connections[self.key]) {
            self.worker.flush_in(state, self.key);
        }
        self.is_over_bound(&state.connections[self.key])
    }

    fn answer_publish(&self, ticket: Ticket, outcome: Result<(), ErrorCode>) {
        let state = &mut *self.worker.state();
        let connection = &mut state.connections[self.key];
        let reply = connection.session.on_published(ticket, outcome);
        connection.reply(reply);
        self.worker.flush_in(state, self.key);
    }

    fn perform(&self, state: &mut State, effect: Effect, now: Timestamp) -> Option<Awaited> {
        let hub = &self.worker.shared.hub;
        let reply = match effect {
            Effect::Reply(reply) => Some(reply),
            Effect::Connected { reply, introduction: Introduction { device, visible } } => {
                state.connections[self.key].connect_deadline = None;
                if let Some(future) = self.worker.begin_proof(state, self.key, device) {
                    return Some(Awaited::Proof { future, visible, reply });
                }
                self.let_in(state, None, visible, reply);
                None
            }
            Effect::Visible { ticket, visible } => {
                self.worker.set_visible(state, self.key, visible.map(|ttl| now.saturating_add(ttl)));
                let Connection { session, identity, .. } = &state.connections[self.key];
                let device = session.device().filter(|_| identity.device.is_some());
                session.on_visible(ticket, device, visible)
            }
            Effect::Refused(reply) => {
                let connection = &mut state.connections[self.key];
                connection.connect_deadline = Some(Instant::now() + REFUSED_TIMEOUT);
                connection.commands.clear();
                Some(reply)
            }
            Effect::Subscribe(effect) => self.subscribe(state, *effect, now),
            Effect::Unsubscribe { ticket, channel } => {
                state.fanout.unsubscribe(&mut state.connections, self.key, &channel);
                state.connections[self.key].session.on_unsubscribed(ticket)
            }
            Effect::Publish { ticket, channel, options, data, info } => {
                if let Err(code) = self.admit_first(state, &channel) {
                    let reply = state.connections[self.key].session.on_published(ticket, Err(code));
                    state.connections[self.key].reply(reply);
                    return None;
                }
                if options.durable {
                    let future = self.worker.shared.publisher.publish(channel, data, info.as_ref().clone());
                    return Some(Awaited::Publish { ticket, future });
                }
                let (info, tags) = (Some(info), Tags::default());
                let publication = Publication { offset: Offset(0), data, info, tags, receipt: None };
                let published = hub.publish(&channel, NewPublication { publication, skip_history: false }, now);
                let outcome = published.map(|_| ()).map_err(|error| error_code(&error));
                state.connections[self.key].session.on_published(ticket, outcome)
            }
            Effect::History { ticket, channel, limit, since, reverse } => {
                let filter = HistoryFilter {
                    since: since.as_ref().map(|since| since.offset),
                    limit: Some(limit as usize),
                    reverse,
                    bytes_max: Some(self.worker.shared.config.reply_bytes_max),
                };
                let epoch = since.map(|since| since.epoch).filter(|epoch| !epoch.is_empty());
                let found = hub.history(&channel, filter).map_err(|error| error_code(&error));
                let found = found.and_then(|(publications, top)| match epoch {
                    Some(epoch) if epoch != top.epoch.as_str() => Err(ErrorCode::UnrecoverablePosition),
                    _ => Ok((publications, top)),
                });
                let found = found.as_ref().map(|(publications, top)| HistoryFound { top: *top, publications });
                state.connections[self.key].session.on_history(ticket, found.map_err(|code| *code))
            }
            Effect::Presence { ticket, channel } => {
                let present = hub.presence_within(&channel, self.worker.shared.config.reply_bytes_max);
                let present = present.as_deref().ok_or(ErrorCode::LimitExceeded);
                state.connections[self.key].session.on_presence(ticket, present)
            }
            Effect::PresenceStats { ticket, channel } => {
                let stats = hub.presence_stats(&channel);
                state.connections[self.key].session.on_presence_stats(ticket, Ok(stats))
            }
            Effect::Pong => {
                self.on_pong(state, now);
                None
            }
            Effect::Disconnect { disconnect, cause } => {
                debug!(conn.id = %state.connections[self.key].client(), code = disconnect.code, cause, "Client disconnected");
                self.worker.close_in(state, self.key, &disconnect);
                None
            }
            Effect::Nothing => None,
        };
        state.connections[self.key].reply(reply);
        None
    }

    /// Whether the client may publish in the channel: where it is the first to do so, the channel stays, and a user may
    /// create only so many a minute.
    fn admit_first(&self, state: &mut State, channel: &ChannelName) -> Result<(), ErrorCode> {
        let Shared { hub, config, metrics, .. } = &*self.worker.shared;
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

    /// The client is in, as this device if it has proven one.
    fn let_in(&self, state: &mut State, device: Option<DeviceNumber>, visible: Option<Duration>, reply: Vec<u8>) {
        let visible = visible.map(|ttl| tidings_telemetry::unix_now().saturating_add(ttl));
        self.worker.introduce(state, self.key, device, visible);
        let connection = &mut state.connections[self.key];
        if connection.is_closing() {
            return;
        }
        self.on_connected(connection); // Its first second begins now.
        connection.reply(Some(reply));
    }

    fn on_connected(&self, connection: &mut Connection) {
        connection.is_counted = true;
        self.worker.shared.users.enter(connection.session.user());
        if let Some(timing) = self.worker.timing {
            // The first comes after half to a whole interval, so that those who came together do not stay together.
            connection.pings.begin(timing, rand::random_range(0.5..1.0), Instant::now());
        }
    }

    /// What was written before the ping has been received; whether that counts is judged now. Then the next, if needed.
    fn on_pong(&self, state: &mut State, now: Timestamp) {
        let Connection { session, pings, identity, .. } = &mut state.connections[self.key];
        let is_visible = identity.is_visible(now);
        let count = pings.on_pong(|event| event.on_received(session.user(), identity.device, is_visible));
        self.worker.shared.metrics.receipts_ponged_total.add(count as u64);
        state.fanout.ask(&mut state.connections[self.key], self.key, Instant::now());
    }

    fn subscribe(&self, state: &mut State, effect: SubscribeEffect, now: Timestamp) -> Option<Vec<u8>> {
        let SubscribeEffect { ticket, channel, options, recover, unrecovered_is_error, presence, .. } = effect;
        let config = &self.worker.shared.config;
        let resume = recover.map(|position| ResumeFrom {
            offset: position.offset,
            epoch: Some(position.epoch).filter(|epoch| !epoch.is_empty()),
            limit: Bounds::count(config.recovery_count_max).and_bytes(config.reply_bytes_max),
        });
        let device = state.connections[self.key].identity.device;
        let member = Member { loop_id: self.worker.loop_id, presence, device };
        let owner = panics::owner(); // Until the hub and the fan-out agree on who reads.
        let made = match self.worker.shared.hub.subscribe(&channel, &member, resume.as_ref()) {
            Ok(made) => made,
            Err(error) => {
                debug!(%channel, error = chain(&error), "Subscription refused");
                let session = &mut state.connections[self.key].session;
                return session.on_subscribed(ticket, Err(error_code(&error)), now);
            }
        };
        if unrecovered_is_error && matches!(made.recovery, Some(Recovery::Gap(_))) {
            let client = state.connections[self.key].client();
            self.worker.shared.hub.unsubscribe(&made.channel, self.worker.loop_id, client, device);
            let session = &mut state.connections[self.key].session;
            return session.on_subscribed(ticket, Err(ErrorCode::UnrecoverablePosition), now);
        }
        state.fanout.subscribe(&mut state.connections, self.key, made.channel.clone(), made.next);
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

    /// Where a client resumes shows what it has: a receipt. What it was given in the answer it is asked for.
    fn on_resumed(&self, state: &mut State, resume: &ResumeFrom, made: &hub::Subscribed, now: Timestamp) {
        let metrics = &self.worker.shared.metrics;
        let connection = &mut state.connections[self.key];
        if !connection.pings.are_answered() {
            return;
        }
        let Connection { session, pings, identity, places, .. } = connection;
        let has_position = resume.offset <= made.top.offset && resume.epoch.as_deref() == Some(made.top.epoch.as_str());
        let is_recovered = matches!(made.recovery, Some(Recovery::Recovered(_)));
        let slot = places.last().expect("it has just subscribed").channel;
        let device = identity.device.map(|device| RoaringBitmap::from_iter([device.0]));
        for (offset, event) in &made.receipts {
            let (is_had, is_wanted) = (*offset <= resume.offset, identity.is_wanted_by(event.terms(), now));
            if !is_wanted || !(if is_had { has_position } else { is_recovered }) {
                continue;
            }
            device.iter().for_each(|device| event.add_readers(device));
            if is_had {
                event.on_resumed(session.user(), identity.device, identity.is_visible(now));
                metrics.receipts_resumed_total.inc();
            } else {
                metrics.receipts_asked_total.inc();
                metrics.receipts_struck_total.add(pings.on_written(event.clone(), slot) as u64);
            }
        }
        state.fanout.ask(connection, self.key, Instant::now());
    }
}

/// What a client is told when the hub refuses.
fn error_code(error: &HubError) -> ErrorCode {
    match error {
        HubError::UnknownNamespace(_) => ErrorCode::UnknownChannel,
        HubError::ChannelLimit { .. } => ErrorCode::TooManyRequests,
    }
}
