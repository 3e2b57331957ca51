//! One client's connection as its loop keeps it: bytes into commands, frames out, and its deadlines.
//!
//! ```text
//!  handshake ──► open ──────────────► closing ──────────────► ended
//!                 commands in order    close frame after what   both sides have closed, the peer is gone,
//!                 one at a time        is promised; no more     or the close timeout is over
//!                                      commands
//! ```
//!
//! What the commands do is [`commands`](crate::commands), the connection's task is [`serve`](crate::serve). A peer that takes
//! no byte for `write_timeout`, though some wait for it, is cut off, whatever it has sent or proven before.
//!
//! Bounds: nothing more is read before the commands of the last read are done, an unfinished message has at most
//! `message_bytes_max`, and what waits for the peer is bounded in `commands`.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tidings_protocol::websocket::{self, Decoder, Event};
use tidings_protocol::{ClientId, Command, Disconnect, Expired, FrameError, PING, Session, parse_frame};
use tidings_types::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::output::{Held, Output};
use crate::receipts::{Identity, Pings, Timing};
use crate::shared::Shared;
use crate::subscribers::Place;

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
    /// The protocol's state.
    pub(crate) session: Session,
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

/// What a read has brought, as far as it can be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of it.
    All,
    /// Bytes that are no WebSocket frame: the connection has begun to close.
    Broken,
    /// The peer's close frame: the connection has begun to close, or its peer has answered our close frame.
    Closed,
}

impl Connection {
    /// A new one that has sent nothing yet. Its replies are counted in `held`; `wake` is what its task waits for.
    pub(crate) fn new(shared: &Shared, held: Held, socket: Rc<TcpStream>, wake: Rc<Notify>) -> Self {
        let config = &shared.config;
        Self {
            socket,
            output: Output::new(held),
            blocked: false,
            places: Vec::new(),
            is_ready: false,
            is_timed: false,
            pings: Pings::default(),
            identity: Identity::default(),
            session: Session::new(shared.session.clone(), ClientId::from_random(rand::random())),
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

    /// Takes commands out of bytes; control frames are answered at once. A connection that begins to close here has
    /// until `close_deadline`.
    pub(crate) fn take(&mut self, mut input: &mut [u8], close_deadline: Instant) -> Taken {
        while !input.is_empty() {
            let decoded = match self.decoder.decode(input) {
                Ok(decoded) => decoded,
                Err(_) if self.is_closing() => return Taken::All,
                Err(code) => {
                    self.begin_close_with(code.code(), "", close_deadline);
                    return Taken::Broken;
                }
            };
            let consumed = decoded.consumed;
            match decoded.event {
                Event::Text(text) if self.closing.is_none() => self.commands.extend(parse_frame(text.as_bytes())),
                Event::Binary(bytes) if self.closing.is_none() => self.commands.extend(parse_frame(&bytes)),
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

    /// The next command that has come.
    pub(crate) fn next_command(&mut self) -> Option<Result<Command, FrameError>> {
        self.commands.pop_front()
    }

    /// An idle connection does not keep the room of its largest burst.
    pub(crate) fn free_commands(&mut self) {
        if self.commands.is_empty() {
            self.commands = VecDeque::new();
        }
    }

    /// What holds whenever the connection waits: without commands it keeps no room for them, nor without channels.
    pub(crate) fn check(&self) {
        debug_assert!(!self.commands.is_empty() || self.commands.capacity() == 0);
        debug_assert!(!self.places.is_empty() || self.places.capacity() == 0);
    }

    /// Its `connect` has come and is accepted.
    pub(crate) fn accept(&mut self) {
        self.connect_deadline = None;
    }

    /// Its `connect` was refused: it may try again until `deadline`, and what it sent behind is void.
    pub(crate) fn refuse(&mut self, deadline: Instant) {
        self.connect_deadline = Some(deadline);
        self.commands.clear();
    }

    /// Its client is in: its user is among the connected ones, and pings begin.
    pub(crate) fn enter(&mut self, timing: Option<Timing>, now: Instant) {
        self.is_counted = true;
        if let Some(timing) = timing {
            // The first comes after half to a whole interval, so that those who came together do not stay together.
            self.pings.begin(timing, rand::random_range(0.5..1.0), now);
        }
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

    /// Both sides have closed, or the peer is gone.
    pub(crate) fn is_done(&self) -> bool {
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
