//! The state of one client's connection: it turns bytes into commands, collects frames to write, and keeps the
//! deadlines.
//!
//! ```text
//!  handshake ──► open ──────────────► closing ──────────────► ended
//!                 commands in order    close frame after what   both sides have closed, the peer is gone,
//!                 one at a time        is promised; no more     or the close timeout is over
//!                                      commands
//! ```
//!
//! [`commands`](crate::commands) handles the commands, [`serve`](crate::serve) is the connection's task. A peer that
//! takes no byte for `write_timeout` while bytes wait for it is cut off, whatever it has sent or proven before.
//!
//! Bounds: nothing more is read before the commands of the last read are handled. [`Input`] bounds what has arrived.
//! Commands in requests of their own are bounded by `take_emulated`. `commands` bounds the bytes that wait for the peer.

use std::net::{IpAddr, Shutdown};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tidings_protocol::websocket::{self, Event};
use tidings_protocol::{ClientId, Disconnect, Expired, Session, frame, parse_frame, ping};
use tidings_types::{Language, Timestamp, Transport, Variant};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::allowance::Allowance;
use crate::input::{Frame, Input, InputHeld};
use crate::output::{Held, Output};
use crate::receipts::{Identity, Pings, Pongs, Timing};
use crate::shared::{ConnectionPermit, Shared};
use crate::shares::Asker;
use crate::stream::Stream;
use crate::subscribers::Place;

/// How long a pong may still take that could not be read while commands waited.
const UNREAD_PATIENCE: Duration = Duration::from_secs(1);

/// The state of a client's connection.
pub(crate) struct Connection {
    pub(crate) socket: Rc<Stream>,
    pub(crate) output: Output,
    /// The socket is full; the connection's task waits until it takes bytes again.
    pub(crate) blocked: bool,
    /// How many bytes a second it is written, if that is limited.
    pub(crate) allowance: Option<Box<Allowance>>,
    /// It was written all that it may be for now, and is in the fan-out's list of what waits; kept by the fan-out.
    pub(crate) is_resting: bool,
    /// The connection's places in its channels; kept by the fan-out.
    pub(crate) places: Vec<Place>,
    /// The channels that it has subscribed to first; kept by the fan-out.
    pub(crate) held_count: usize,
    /// The connection is already in the list of the turn that begins; kept by the fan-out.
    pub(crate) is_ready: bool,
    /// The connection is or was in the fan-out's list of connections to ask after their first second; kept by the
    /// fan-out.
    pub(crate) is_timed: bool,
    pub(crate) pings: Pings,
    pub(crate) identity: Identity,
    /// The state of the client protocol.
    pub(crate) session: Session,
    pub(crate) input: Input,
    wake: Rc<Notify>,
    /// Until then `connect` must arrive and succeed.
    connect_deadline: Option<Instant>,
    closing: Option<Closing>,
    ended: bool,
    stall: Option<Stall>,
    permit: ConnectionPermit,
    /// The language in which the client gets the texts of events.
    pub(crate) language: Language,
    /// Its place in the order in which single connections of users were let in; 0 if it is none.
    pub(crate) number: u64,
    /// The user of this connection is in [`Users`](crate::users::Users).
    is_counted: bool,
}

struct Closing {
    deadline: Instant,
    /// The peer's close frame has arrived: the connection ends when ours is written.
    is_peer_closed: bool,
    /// Our close frame is written, and the socket is shut down for writing.
    is_shut: bool,
}

/// A full socket, as the sweeps of deadlines see it.
#[derive(Debug, Clone, Copy)]
struct Stall {
    /// When the sweep last saw that the socket had taken bytes, and how many bytes in all it had taken by then.
    moved_at: Instant,
    written: u64,
}

/// Result of [`Connection::take`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All bytes were taken.
    All,
    /// The bytes break the WebSocket protocol: the connection has begun to close.
    Broken,
    /// The peer sent a close frame: the connection has begun to close, or the peer has answered our close frame.
    Closed,
}

impl Connection {
    /// A new connection of this variant. The memory of its replies and of its commands is counted in `held`; its task waits
    /// for `wake`.
    pub(crate) fn new(
        shared: &Shared,
        variant: Variant,
        permit: ConnectionPermit,
        held: (Held, InputHeld),
        socket: Rc<Stream>,
        wake: Rc<Notify>,
    ) -> Self {
        let config = &shared.config;
        Self {
            socket,
            output: Output::new(held.0),
            blocked: false,
            allowance: None,
            is_resting: false,
            places: Vec::new(),
            held_count: 0,
            is_ready: false,
            is_timed: false,
            pings: Pings::default(),
            identity: Identity::default(),
            session: Session::new(shared.session.clone(), ClientId::from_random(rand::random()), variant),
            input: Input::new(config.message_bytes_max, held.1),
            wake,
            connect_deadline: Some(Instant::now() + config.stale_timeout),
            closing: None,
            ended: false,
            stall: None,
            permit,
            language: Language::default(),
            number: 0,
            is_counted: false,
        }
    }

    pub(crate) fn client(&self) -> ClientId {
        self.session.client()
    }

    /// Where the client is, if that is known.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        self.permit.network
    }

    /// Whose commands these are.
    pub(crate) fn asker(&self) -> Asker {
        Asker { network: self.network(), user: self.session.user().into(), client: self.client() }
    }

    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.session.variant().transport, Transport::WebSocket | Transport::UniWebSocket)
    }

    /// Decodes bytes into frames, until no more may wait; the rest is kept. WebSocket pings are answered at once. If the
    /// connection begins to close here, it has until `close_deadline`. Without WebSocket the bytes are dropped: they could
    /// only be a request that is never answered.
    pub(crate) fn take(&mut self, input: &mut [u8], close_deadline: Instant) -> Taken {
        if !self.is_websocket() {
            return Taken::All;
        }
        let taken = self.decode(input, close_deadline);
        self.input.settle();
        taken
    }

    fn decode(&mut self, mut input: &mut [u8], close_deadline: Instant) -> Taken {
        while !input.is_empty() {
            if self.input.is_full() {
                self.input.keep_undecoded(input);
                return Taken::All;
            }
            let decoded = match self.input.decode(input) {
                Ok(decoded) => decoded,
                Err(_) if self.is_closing() => return Taken::All,
                Err(code) => {
                    self.begin_close_with(code.code(), "", close_deadline);
                    return Taken::Broken;
                }
            };
            let consumed = decoded.consumed;
            match decoded.event {
                Event::Text(text) if self.closing.is_none() => self.take_frame(text.as_bytes()),
                Event::Binary(bytes) if self.closing.is_none() => self.take_frame(&bytes),
                Event::Ping(payload) if self.closing.is_none() => {
                    self.output.push_control(&websocket::pong_frame(&payload))
                }
                Event::Close { code, .. } => {
                    if self.closing.is_none() {
                        self.begin_close_with(code.unwrap_or(1000), "", close_deadline);
                    }
                    self.closing.as_mut().expect("set above").is_peer_closed = true;
                    return Taken::Closed;
                }
                Event::Text(_) | Event::Binary(_) | Event::Ping(_) | Event::Pong(_) | Event::NeedMore => {}
            }
            input = &mut input[consumed..];
        }
        Taken::All
    }

    /// Adds a frame with commands. The connection's format decides how the frame is read, whether it is text or binary.
    ///
    /// On a unidirectional transport the first frame is the request to connect, and all further ones are dropped.
    pub(crate) fn take_frame(&mut self, frame: &[u8]) {
        let variant = self.session.variant();
        if !variant.transport.is_unidirectional() {
            let commands = self.input.push_pong(parse_frame(variant.format, frame.into()));
            commands.into_iter().for_each(|commands| self.input.push(Frame::Commands(commands)));
        } else if self.session.awaits_connect() && !self.input.has_frames() {
            self.input.push(Frame::Connect(frame.into()));
        }
    }

    /// Adds the commands of a request of their own. `false`: too many wait already.
    pub(crate) fn take_emulated(&mut self, frame: &[u8], bytes_max: usize) -> bool {
        if self.is_closing() {
            return true;
        }
        if !self.input.has_room_for(frame.len(), bytes_max) {
            return false;
        }
        self.take_frame(frame);
        self.input.settle();
        self.wake.notify_one();
        true
    }

    /// Invariant whenever the connection waits: it keeps no memory for commands or places if it has none.
    pub(crate) fn check(&self) {
        self.input.check();
        debug_assert!(!self.places.is_empty() || self.places.capacity() == 0);
    }

    /// `connect` is accepted.
    pub(crate) fn accept(&mut self) {
        self.connect_deadline = None;
    }

    /// `connect` was refused: the commands behind it are dropped, and the connection is closed at `deadline`.
    pub(crate) fn refuse(&mut self, deadline: Instant) {
        self.connect_deadline = Some(deadline);
        self.input.drop_frames();
    }

    /// The client is connected: its user is counted, and pings begin.
    pub(crate) fn enter(&mut self, timing: Option<Timing>, now: Instant) {
        self.is_counted = true;
        if let Some(timing) = timing {
            // The first ping comes after half to a whole interval, so that pings of clients that connected together
            // spread out.
            let part = rand::random_range(0.5..1.0);
            self.pings.begin(timing, part, Pongs::over(self.session.variant().transport), now);
        }
    }

    /// The user, once the client has connected.
    pub(crate) fn counted_user(&self) -> Option<&str> {
        self.is_counted.then(|| self.session.user())
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.ended
    }

    /// Whether publications may be written to it now.
    pub(crate) fn takes_publications(&self) -> bool {
        !self.blocked && !self.is_resting
    }

    /// The socket is full: the connection's task waits until it takes bytes again.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
        self.wake.notify_one();
    }

    /// Ends the connection without another byte, and forgets what waits for it and of it. Its task is woken once: it may try to
    /// write again meanwhile, which fails again.
    pub(crate) fn abort(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.input.forget();
            self.output.forget();
            self.wake.notify_one();
        }
    }

    /// Ends the connection, whose socket takes nothing, and frees at once what waits for it. No close frame is written,
    /// because it may not stand inside another frame.
    pub(crate) fn cut_off(&mut self) {
        self.session.close();
        let socket = SockRef::from(self.socket.tcp());
        // With this option the system drops unsent bytes when the socket is closed. Otherwise it offers them for
        // minutes.
        let _ = socket.set_linger(Some(Duration::ZERO));
        // Nothing may be written behind a cut frame. An error means that the peer is already gone.
        let _ = socket.shutdown(Shutdown::Both);
        self.abort();
    }

    /// Who it is, for the log: its user, and the address of its peer.
    pub(crate) fn name(&self) -> String {
        let peer = self.socket.tcp().peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
        match self.session.user() {
            "" => peer,
            user => format!("{user} at {peer}"),
        }
    }

    /// When the socket, which is full, last took bytes, as far as the sweep has seen.
    pub(crate) fn moved_at(&self) -> Option<Instant> {
        self.stall.map(|stall| stall.moved_at)
    }

    /// Whether the socket has taken nothing for `timeout`; called at each sweep. A closing connection has a deadline
    /// already.
    pub(crate) fn is_stalled(&mut self, timeout: Duration, now: Instant) -> bool {
        let written = self.output.written() + self.socket.sent();
        let is_full = self.blocked && self.closing.is_none() && !self.ended;
        self.stall = match self.stall {
            _ if !is_full => None,
            Some(stall) if stall.written == written => Some(stall),
            _ => Some(Stall { moved_at: now, written }),
        };
        self.stall.is_some_and(|stall| now.duration_since(stall.moved_at) >= timeout)
    }

    /// From now on it is written at most so many bytes a second; 0: without a limit.
    pub(crate) fn limit(&mut self, per_second: u64, now: Instant) {
        let written = self.output.written();
        self.allowance = (per_second > 0).then(|| Box::new(Allowance::new(per_second, written, now)));
        if self.allowance.is_some() {
            self.socket.keep_little_unsent();
        }
    }

    /// Begins to close: no more commands, and the farewell behind what is already queued. That is a close frame; a push on
    /// a transport that has none; on a unidirectional WebSocket a push and a close frame.
    pub(crate) fn begin_close(&mut self, disconnect: &Disconnect, deadline: Instant) {
        if *disconnect == Disconnect::SLOW {
            self.output.clear_control();
        }
        if self.session.variant().transport != Transport::WebSocket {
            let mut push = Vec::new();
            disconnect.encode_push(self.session.variant(), &mut push);
            self.reply(Some(push));
        }
        self.begin_close_with(disconnect.code, &disconnect.reason, deadline);
    }

    fn begin_close_with(&mut self, code: u16, reason: &str, deadline: Instant) {
        self.session.close();
        self.input.discard();
        if self.is_websocket() {
            self.output.push_control(&websocket::close_frame(code, reason));
        }
        self.closing = Some(Closing { deadline, is_peer_closed: false, is_shut: false });
        self.wake.notify_one();
    }

    /// Shuts the socket down for writing after the last byte of a closing connection. Bytes from the peer are still
    /// read and thrown away: to close the socket over them would reset the connection and lose our close frame.
    pub(crate) fn shut_if_flushed(&mut self) {
        let Some(closing) = self.closing.as_mut().filter(|closing| !closing.is_shut && self.output.is_empty()) else {
            return;
        };
        match self.socket.shut_write() {
            Ok(true) => closing.is_shut = true,
            Ok(false) => self.block(),
            Err(_) => self.abort(),
        }
    }

    /// Both sides have closed, or the peer is gone.
    pub(crate) fn is_done(&self) -> bool {
        let is_written = || self.output.is_empty() && self.socket.is_flushed();
        self.ended || self.closing.as_ref().is_some_and(|closing| closing.is_peer_closed && is_written())
    }

    /// Writes a reply in a frame of its own, although the protocol allows several replies in one frame. The JavaScript
    /// SDK delivers the recovered publications of a subscribe reply a little later than the other replies of the frame.
    /// A live publication in the same frame would overtake them.
    pub(crate) fn reply(&mut self, reply: Option<Vec<u8>>) {
        if let Some(reply) = reply {
            self.output.push_control(&frame(self.session.variant(), &reply));
        }
    }

    /// Writes a ping that is due. Returns why the connection is to be closed, if a deadline is over.
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
            if !self.input.keeps_pongs_waiting() {
                return Some(Disconnect::NO_PONG);
            }
            self.pings.postpone(now + UNREAD_PATIENCE);
        }
        if let Some(timing) = timing.filter(|_| self.pings.is_regular_due(now)) {
            self.ping(timing, now);
        }
        None
    }

    /// Writes a ping behind everything that is queued so far.
    pub(crate) fn ping(&mut self, timing: Timing, now: Instant) {
        self.output.push_control(&ping_frame(self.session.variant()));
        self.on_ping_written(timing, now);
    }

    pub(crate) fn on_ping_written(&mut self, timing: Timing, now: Instant) {
        if self.input.awaits() {
            self.wake.notify_one(); // It reads on, because the pong is to come.
        }
        self.session.on_ping_sent();
        self.pings.on_sent(timing, now);
    }

    /// Wakes the connection's task if a hook has to be asked whether the connection may go on.
    pub(crate) fn ask_if_due(&self, now: Timestamp) {
        if self.session.is_refresh_due(now) {
            self.wake.notify_one();
        }
    }

    /// A token that has expired, if any.
    pub(crate) fn poll_expired(&mut self, now: Timestamp) -> Option<Expired> {
        if self.session.deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        self.session.poll_expired(now)
    }
}

/// A ping of the protocol as it stands on the wire.
pub(crate) fn ping_frame(variant: Variant) -> Bytes {
    frame(variant, ping(variant.format))
}
