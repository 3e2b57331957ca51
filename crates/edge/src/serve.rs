//! A connection's task: takes the socket over from the HTTP server, reads, waits, and writes when a full socket takes
//! bytes again.
//!
//! The task runs on its loop's thread and owns its connection's entry in the loop: when the task ends or is aborted,
//! the connection is removed. A publish into a durable channel waits for the journal, and a command that a hook decides waits for
//! the hook. Until then the connection reads nothing more, so that a fast client is slowed down by its own socket; only while a
//! ping is unanswered, it reads what may have the pong, as far as frames may wait.
//!
//! Bounds: the HTTP server has [`UPGRADE_TIMEOUT`] to hand the socket over. The commands of one read (64 KiB) are
//! handled before the next read.
//!
//! A panic while a connection is served closes this connection. Shared state changes only in the hub and in the
//! fan-out, where a panic ends the process.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tidings_protocol::{Disconnect, SessionId};
use tidings_telemetry::panics;
use tidings_types::Variant;
use tokio::io::Interest;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::commands::{Awaited, Client, Worked};
use crate::connection::{Connection, Taken};
use crate::edge_loop::{EdgeLoop, SCRATCH_BYTES};
use crate::identity::PROOF_TIMEOUT;
use crate::shared::{ConnectionPermit, HandedOver, Handshake, Opening};
use crate::stream::Stream;
use crate::takeover::LentSocket;

/// How long the HTTP server may take to hand the socket over.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes a connection over from the HTTP server and serves it until it ends.
pub(crate) async fn serve(edge_loop: Rc<EdgeLoop>, handshake: Handshake) {
    let Handshake { socket, variant, session, opening, permit } = handshake;
    match accept(socket).await {
        Ok((socket, read)) => {
            let served = Served::new(edge_loop, variant, session, permit, Rc::new(socket));
            served.open(opening);
            let Client { edge_loop, key } = &served.client;
            if edge_loop.is_stopping() {
                edge_loop.close(*key, &Disconnect::SHUTDOWN);
            }
            // After a panic the connection is dropped: nothing but the connection can be half changed.
            let _counted = panics::catch_async(panics::Work::Connection, served.run(read)).await;
        }
        Err(cause) => debug!(cause, "Handshake was not completed"),
    }
}

async fn accept(socket: HandedOver) -> Result<(Stream, Bytes), &'static str> {
    let (socket, read) = match socket {
        HandedOver::Socket(socket) => (socket, Bytes::new()),
        HandedOver::Upgrade(upgraded) => {
            let upgraded = timeout(UPGRADE_TIMEOUT, upgraded).await.map_err(|_| "upgrade timed out")?;
            let upgraded = upgraded.map_err(|_| "connection was lost before the upgrade")?;
            let parts = upgraded.downcast::<TokioIo<LentSocket>>().map_err(|_| "connection is no lent socket")?;
            (parts.io.into_inner().into_inner().ok_or("socket was taken")?, parts.read_buf)
        }
    };
    Stream::moved(socket, read).map_err(|_| "socket cannot be moved")
}

/// A connection in its loop; dropping this value (when the task ends or is aborted) removes the connection.
struct Served {
    client: Client,
    socket: Rc<Stream>,
    wake: Rc<Notify>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.client.edge_loop.remove(self.client.key);
    }
}

impl Served {
    fn new(
        edge_loop: Rc<EdgeLoop>,
        variant: Variant,
        session: Option<SessionId>,
        permit: ConnectionPermit,
        socket: Rc<Stream>,
    ) -> Self {
        let wake = Rc::new(Notify::new());
        let held = (edge_loop.held.clone(), edge_loop.input_held.clone());
        let mut connection = Connection::new(&edge_loop.shared, variant, permit, held, socket.clone(), wake.clone());
        if let Some(id) = session {
            connection.session.name(&edge_loop.shared.config.node, id);
        }
        let key = edge_loop.insert(connection, session);
        Self { client: Client { edge_loop, key }, socket, wake }
    }

    /// Writes the head of a response, and takes what the client said in its request.
    fn open(&self, opening: Opening) {
        let Client { edge_loop, key } = &self.client;
        let connection = &mut edge_loop.state().connections[*key];
        connection.language = opening.language;
        if let Some(headers) = opening.headers {
            connection.session.set_headers(headers);
        }
        if !opening.head.is_empty() {
            connection.output.push_control(&opening.head);
        }
        if let Some(first) = opening.first {
            connection.take_frame(&first);
            connection.input.settle();
        }
    }

    async fn run(&self, first: Bytes) {
        if !first.is_empty() {
            self.take(&mut first.to_vec());
        }
        drop(first); // Not to keep it as long as the connection.
        while !self.of_connection(Connection::is_done) {
            loop {
                self.take_turn().await;
                match self.client.work_off() {
                    Worked::Done if !self.take_undecoded() => break,
                    Worked::Done | Worked::TurnOver => self.while_writing(Box::pin(tokio::task::yield_now())).await,
                    Worked::Awaits(awaited) => self.wait_for(awaited).await,
                }
            }
            self.of_connection(Connection::check);
            let interest = self.of_connection(|connection| self.interest(connection));
            let ready = tokio::select! {
                ready = self.socket.tcp().ready(interest) => ready,
                () = self.wake.notified() => continue,
            };
            let Ok(ready) = ready else { break };
            if ready.is_writable() && self.is_blocked() {
                self.catch_up().await;
            }
            if ready.is_readable() && interest.is_readable() {
                if !self.read() {
                    break;
                }
                tokio::task::yield_now().await; // A peer that always sends must not starve the others.
            }
        }
    }

    /// If commands have arrived, waits until the loop has time for them.
    async fn take_turn(&self) {
        let edge_loop = &self.client.edge_loop;
        if self.of_connection(|connection| !connection.input.has_frames()) {
            return;
        }
        if let Some(turn) = edge_loop.turns.ask(|| self.of_connection(Connection::asker)) {
            edge_loop.shared.metrics.shares_of_commands_total.inc();
            edge_loop.stirred.notify_one();
            let _given = self.while_open(turn).await; // When the loop ends, nobody waits any more.
        }
    }

    /// Waits for what another connection cannot have meanwhile. `None`: it is not given, or this connection is about to end.
    async fn while_open(&self, mut given: oneshot::Receiver<()>) -> Option<()> {
        let waiting = poll_fn(|context| match self.of_connection(Connection::is_closing) {
            true => Poll::Ready(None), // Its task was woken for that.
            false => Pin::new(&mut given).poll(context).map(Result::ok),
        });
        self.while_writing(waiting).await
    }

    /// Waits for what a command needs, and for what follows from it.
    async fn wait_for(&self, awaited: Awaited) {
        let mut next = Some(awaited);
        while let Some(awaited) = next {
            next = match awaited {
                Awaited::Publish { ticket, future } => {
                    let outcome = self.while_writing(future).await;
                    self.client.answer_publish(ticket, outcome);
                    None
                }
                Awaited::Room { effect, room } => {
                    let has_room = self.while_open(room).await.is_some();
                    self.client.on_room(*effect, has_room)
                }
                Awaited::CatchUp { effect, future } => {
                    self.while_writing(future).await;
                    self.client.on_caught_up(*effect)
                }
                Awaited::Presence { ticket, channel, future } => {
                    let there = self.while_writing(future).await;
                    self.client.answer_presence(ticket, &channel, there);
                    None
                }
                Awaited::PresenceStats { ticket, channel, future } => {
                    let there = self.while_writing(future).await;
                    self.client.answer_presence_stats(ticket, &channel, there);
                    None
                }
                Awaited::Proof { future, connect } => {
                    let device = self.while_writing(Box::pin(timeout(PROOF_TIMEOUT, future))).await.ok().flatten();
                    self.client.let_in(&mut self.client.edge_loop.state(), device, *connect);
                    None
                }
                Awaited::Hook { asked, future } => {
                    let answer = self.while_writing(future).await;
                    self.client.on_hook(*asked, answer)
                }
            };
        }
    }

    /// Waits for `future`, and meanwhile writes: a client may read while its commands are handled. It also takes pongs, which say
    /// nothing about commands: else a client that answers each ping would be closed because its commands take long.
    async fn while_writing<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        self.set_awaits(true);
        let mut is_open = true;
        let output = loop {
            tokio::select! {
                biased;
                output = &mut future => break output,
                () = self.wake.notified() => self.client.take_pong(), // The socket may be full now, too.
                ready = self.socket.tcp().writable(), if self.is_blocked() => {
                    if ready.is_err() {
                        break future.await;
                    }
                    self.catch_up().await;
                }
                ready = self.socket.tcp().readable(), if is_open && self.may_read_ahead() => {
                    is_open = ready.is_ok() && self.read();
                    self.client.take_pong();
                    tokio::task::yield_now().await; // A peer that always sends must not starve the others.
                }
            }
        };
        self.client.take_pong(); // It may have come in the moment in which the wait ended.
        self.set_awaits(false);
        output
    }

    fn set_awaits(&self, awaits: bool) {
        self.client.edge_loop.state().connections[self.client.key].input.set_awaits(awaits);
    }

    fn may_read_ahead(&self) -> bool {
        self.of_connection(|connection| {
            connection.pings.await_pong()
                && connection.input.may_read_ahead()
                && !connection.is_closing()
                && !self.client.is_over_bound(connection)
        })
    }

    /// Writes what the connection lacks until it has everything or the socket is full. Other connections are served in
    /// between.
    async fn catch_up(&self) {
        while self.client.edge_loop.catch_up(self.client.key) {
            tokio::task::yield_now().await;
        }
    }

    fn of_connection<T>(&self, ask: impl FnOnce(&Connection) -> T) -> T {
        ask(&self.client.edge_loop.state().connections[self.client.key])
    }

    /// What to wait for: bytes from the peer, unless too many replies wait for it; and room in the socket, if it was
    /// full.
    fn interest(&self, connection: &Connection) -> Interest {
        match (connection.blocked, self.client.is_over_bound(connection)) {
            (false, _) => Interest::READABLE,
            (true, false) => Interest::READABLE | Interest::WRITABLE,
            (true, true) => Interest::WRITABLE,
        }
    }

    fn is_blocked(&self) -> bool {
        self.of_connection(|connection| connection.blocked)
    }

    /// Reads once; `false` if the peer is gone.
    fn read(&self) -> bool {
        let edge_loop = &self.client.edge_loop;
        let mut scratch = std::mem::take(&mut edge_loop.state().scratch);
        if scratch.is_empty() {
            scratch = vec![0; SCRATCH_BYTES].into(); // A panic has lost it.
        }
        let open = match self.socket.try_read(&mut scratch) {
            Ok(0) => false,
            Ok(count) => {
                self.take(&mut scratch[..count]);
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        edge_loop.state().scratch = scratch;
        open
    }

    /// Decodes what is left of the last read, if its commands so far are handled.
    fn take_undecoded(&self) -> bool {
        let mut undecoded = self.client.edge_loop.state().connections[self.client.key].input.take_undecoded();
        self.take(&mut undecoded);
        !undecoded.is_empty()
    }

    /// Decodes bytes into frames.
    fn take(&self, input: &mut [u8]) {
        let Client { edge_loop, key } = &self.client;
        let state = &mut *edge_loop.state();
        let deadline = Instant::now() + edge_loop.shared.config.close_timeout;
        match state.connections[*key].take(input, deadline) {
            Taken::All => edge_loop.bound_input(state),
            Taken::Broken => edge_loop.leave_in(state, *key),
            Taken::Closed => {
                edge_loop.leave_in(state, *key);
                edge_loop.flush_in(state, *key);
            }
        }
    }
}
