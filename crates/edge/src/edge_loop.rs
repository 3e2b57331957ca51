//! One edge loop: the connections that one thread owns, and the operations on them.
//!
//! All state is in one `RefCell`, which is borrowed only between awaits. Two kinds of callers use it: the thread
//! ([`worker`](crate::worker)) for all connections, and each connection's task ([`serve`](crate::serve)) for its own
//! connection.
//!
//! Bounds: replies that wait on the loop take at most `reply_budget_bytes` ([`EdgeLoop::flush_in`]), and what its clients
//! have sent at most `input_budget_bytes` ([`EdgeLoop::bound_input`], [`EdgeLoop::may_wait`]). The handshake
//! bounds the number of connections. There is one entry per connection of a user, one per connection that has proven, or is
//! proving, to be a device, and one per session that has a name.

use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidings_hub::{Channel, LoopId};
use tidings_protocol::{Disconnect, EMULATED_FRAME_COUNT_MAX, Expired, SessionId, SubscribeEffect};
use tidings_telemetry::{Counter, panics};
use tidings_types::{DeviceNumber, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::creations::Creations;
use crate::crowds::Crowds;
use crate::fanout::{CaughtUp, Fanout, Leftover};
use crate::input::InputHeld;
use crate::output::Held;
use crate::receipts::Timing;
use crate::revocations::Revoked;
use crate::shared::{Emulated, Shared};
use crate::stint::Stint;
use crate::subscribers::Key;
use crate::turns::Turns;

/// How often deadlines (ping, pong, connect, token expiry, close) are checked.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// No subscription waits so long for its time.
const LATER: Duration = Duration::from_hours(1);
/// What commands that wait may keep is one part in so many of the budget.
pub(crate) const WORK_PART: usize = 2;
/// While so much is kept, no publication may wait: what is left is for proofs.
pub(crate) const PUBLICATIONS_PART: usize = 4;
/// Bytes of one read.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// The state of a loop.
pub(crate) struct LoopState {
    pub(crate) connections: Slab<Connection>,
    pub(crate) fanout: Fanout,
    /// The connections by user, from when `connect` is accepted.
    pub(crate) users: BTreeSet<(Box<str>, Key)>,
    /// The connections that have proven to be a device.
    pub(crate) devices: BTreeSet<(DeviceNumber, Key)>,
    /// Connections whose device is being proven, with the devices that were revoked since the proof began.
    pub(crate) proving: HashMap<Key, Revoked>,
    /// The connections whose commands come in requests of their own, by the secret of their session.
    sessions: HashMap<u128, Key>,
    /// Channels that clients of this loop create.
    pub(crate) creations: Creations,
    /// Clients that wait until they may publish.
    pub(crate) crowds: Crowds,
    /// Buffer for reads of all connections. The bytes of an unfinished message move to the connection.
    pub(crate) scratch: Box<[u8]>,
}

impl LoopState {
    /// At most `count` connections of the user, from the key `first` on, in order.
    pub(crate) fn keys_of(&self, user: &str, first: Key, count: usize) -> Vec<Key> {
        let range = (user.into(), first)..=(user.into(), Key::MAX);
        self.users.range(range).take(count).map(|(_, key)| *key).collect()
    }

    /// At most `count` connections, from the key `first` on, in order.
    pub(crate) fn keys_from(&self, first: Key, count: usize) -> Vec<Key> {
        (first..self.connections.capacity()).filter(|key| self.connections.contains(*key)).take(count).collect()
    }
}

/// What the tasks of a loop share.
pub(crate) struct EdgeLoop {
    pub(crate) shared: Arc<Shared>,
    pub(crate) loop_id: LoopId,
    /// `None`: there are no pings.
    pub(crate) timing: Option<Timing>,
    /// The memory of all replies that wait on this loop, in bytes.
    pub(crate) held: Held,
    /// The memory of all that its clients have sent.
    pub(crate) input_held: InputHeld,
    /// What the metrics have of both.
    told: Cell<[i64; 2]>,
    /// The loop is stopping: a new connection is closed at once.
    stopping: Cell<bool>,
    /// Whose commands are handled next.
    pub(crate) turns: Turns,
    /// The task of a connection has changed what the fan-out does next, or when.
    pub(crate) stirred: Notify,
    state: RefCell<LoopState>,
}

impl EdgeLoop {
    /// A loop without connections.
    pub(crate) fn new(shared: Arc<Shared>, loop_id: LoopId) -> Self {
        let timing = Timing::new(shared.config.ping_interval, shared.config.pong_timeout, SWEEP_INTERVAL);
        let state = LoopState {
            connections: Slab::new(),
            fanout: Fanout::new(loop_id, &shared, timing),
            users: BTreeSet::new(),
            devices: BTreeSet::new(),
            proving: HashMap::new(),
            sessions: HashMap::new(),
            creations: Creations::new(Instant::now()),
            crowds: Crowds::default(),
            scratch: vec![0; SCRATCH_BYTES].into(),
        };
        let (stopping, state) = (Cell::new(false), RefCell::new(state));
        let (held, input_held, told) = (Held::default(), InputHeld::default(), Cell::default());
        Self {
            shared,
            loop_id,
            timing,
            held,
            input_held,
            told,
            stopping,
            turns: Turns::default(),
            stirred: Notify::new(),
            state,
        }
    }

    /// From now on each new connection is closed at once.
    pub(crate) fn begin_stop(&self) {
        self.stopping.set(true);
        self.turns.end();
        self.state().crowds.end();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(crate) fn state(&self) -> RefMut<'_, LoopState> {
        self.state.borrow_mut()
    }

    /// One step of the fan-out, with the `dirty` channels.
    pub(crate) fn turn(&self, dirty: &mut Vec<Arc<Channel>>) {
        let state = &mut *self.state();
        let Leftover { restarted, failed } = state.fanout.step(&mut state.connections, dirty);
        self.close_lost(state);
        for key in restarted {
            self.close_in(state, key, &Disconnect::INSUFFICIENT_STATE);
        }
        for key in failed {
            state.connections[key].abort();
        }
    }

    /// Closes connections that the tail has overtaken, as many as a stint serves.
    fn close_lost(&self, state: &mut LoopState) {
        let mut stint = Stint::begin();
        while stint.goes_on()
            && let Some(key) = state.fanout.pop_lost(&state.connections)
        {
            self.close_in(state, key, &Disconnect::SLOW);
        }
    }

    /// Writes to a connection whose socket takes bytes again. Returns whether there is more to write.
    pub(crate) fn catch_up(&self, key: Key) -> bool {
        let state = &mut *self.state();
        let due_at = state.fanout.next_due_at();
        let caught_up = state.fanout.catch_up(&mut state.connections, key, Instant::now());
        let has_more = caught_up == CaughtUp::More;
        self.on_caught_up(state, key, caught_up);
        if state.fanout.next_due_at() != due_at {
            self.stirred.notify_one();
        }
        self.stir(state);
        has_more
    }

    /// A connection's task has done something: if the fan-out has to go on with it, the loop's own task is woken.
    pub(crate) fn stir(&self, state: &LoopState) {
        if state.fanout.has_more() {
            self.stirred.notify_one();
        }
    }

    fn on_caught_up(&self, state: &mut LoopState, key: Key, caught_up: CaughtUp) {
        match caught_up {
            CaughtUp::Yes => state.connections[key].shut_if_flushed(),
            CaughtUp::More | CaughtUp::Full => {}
            CaughtUp::Slow => self.close_in(state, key, &Disconnect::SLOW),
            CaughtUp::Restarted => self.close_in(state, key, &Disconnect::INSUFFICIENT_STATE),
            CaughtUp::Failed => state.connections[key].abort(),
        }
    }

    /// Begins to close a connection: no more publications, and a close frame behind what is already queued.
    pub(crate) fn close(&self, key: Key, disconnect: &Disconnect) {
        self.close_in(&mut self.state(), key, disconnect);
    }

    pub(crate) fn close_in(&self, state: &mut LoopState, key: Key, disconnect: &Disconnect) {
        let Some(connection) = state.connections.get_mut(key).filter(|connection| !connection.is_closing()) else {
            return;
        };
        let metrics = &self.shared.metrics;
        let counter = match disconnect {
            it if *it == Disconnect::SLOW => &metrics.disconnects_slow_total,
            it if *it == Disconnect::CONNECTION_LIMIT => &metrics.disconnects_user_total,
            it if *it == Disconnect::TOO_MANY_REQUESTS => &metrics.disconnects_input_total,
            _ => &metrics.disconnects_other_total,
        };
        counter.inc();
        connection.begin_close(disconnect, Instant::now() + self.shared.config.close_timeout);
        self.leave_in(state, key);
        self.flush_in(state, key);
    }

    /// Writes to whatever waits for its time, as if that had come.
    pub(crate) fn write_all_waiting(&self) {
        let later = Instant::now() + LATER;
        while self.state().fanout.next_due_at().is_some_and(|at| at <= later) {
            self.on_due(later);
        }
    }

    /// Asks the connections whose first second is over for receipts, and writes to the subscriptions whose time has come.
    pub(crate) fn on_due(&self, now: Instant) {
        let state = &mut *self.state();
        for key in state.fanout.ask_due(&mut state.connections, now) {
            self.flush_in(state, key);
        }
        for (key, caught_up) in state.fanout.write_due(&mut state.connections, now) {
            self.on_caught_up(state, key, caught_up);
            self.flush_in(state, key);
        }
        self.close_lost(state);
        state.crowds.give(now);
    }

    /// Writes a connection's control frames, unless its socket is full. If the replies that wait on this loop are then
    /// over the loop's budget, the connections that have taken nothing for longest are cut off. A connection that takes
    /// its replies loses nothing.
    pub(crate) fn flush_in(&self, state: &mut LoopState, key: Key) {
        let connection = &mut state.connections[key];
        if !connection.blocked {
            match connection.output.write(&connection.socket, &mut []) {
                Ok(true) => connection.block(),
                Ok(false) => connection.shut_if_flushed(),
                Err(_) => connection.abort(),
            }
        }
        if self.held.get() > self.shared.config.reply_budget_bytes {
            self.free_budget(state);
        }
    }

    /// Frees a quarter of the budget, so that not every further reply has to search for connections to cut off.
    fn free_budget(&self, state: &mut LoopState) {
        let _owner = panics::owner(); // This changes all connections.
        let now = Instant::now();
        let holders = state.connections.iter().filter(|(_, connection)| connection.output.held() > 0);
        // Order: first the connections that have taken nothing for longest. A connection without a stall time became
        // full since the last sweep. Among equals the one that holds most goes first.
        let rank = |connection: &Connection| (connection.moved_at().unwrap_or(now), Reverse(connection.output.held()));
        let mut holders: Vec<_> = holders.map(|(key, connection)| (rank(connection), key)).collect();
        holders.sort_unstable();
        for (_, key) in holders {
            if self.held.get() <= self.shared.config.reply_budget_bytes / 4 * 3 {
                break;
            }
            self.cut_off_in(state, key, &self.shared.metrics.disconnects_budget_total);
        }
    }

    /// If what waits of the clients' commands is over its half of the loop's budget, the clients that hold most of it for
    /// longest are closed, until a quarter of it is free.
    pub(crate) fn bound_input(&self, state: &mut LoopState) {
        let (waiting, bytes_max) = (&self.input_held.waiting, self.shared.config.input_budget_bytes / 2);
        if waiting.get() <= bytes_max {
            return;
        }
        let _owner = panics::owner(); // This changes all connections.
        let now = Instant::now();
        let burdens = state.connections.iter().map(|(key, connection)| (Reverse(connection.input.burden(now)), key));
        let mut holders: Vec<_> = burdens.filter(|(burden, _)| burden.0 > 0).collect();
        holders.sort_unstable();
        for (_, key) in holders {
            if waiting.get() <= bytes_max / 4 * 3 {
                break;
            }
            self.close_in(state, key, &Disconnect::TOO_MANY_REQUESTS);
            state.connections[key].input.forget_undecoded();
        }
    }

    /// Whether the last command, which makes so many subscriptions, may wait: what it and others keep is no more than this part
    /// of the loop's budget. If so, it is counted until its connection ends the work.
    pub(crate) fn may_wait(&self, state: &mut LoopState, key: Key, subscription_count: usize, part: usize) -> bool {
        let input = &mut state.connections[key].input;
        let bytes = input.command_bytes() + subscription_count * size_of::<SubscribeEffect>();
        let others = self.input_held.working.get() - input.working();
        let fits = others + bytes <= self.shared.config.input_budget_bytes / part;
        if fits {
            input.begin_work(bytes);
        }
        fits
    }

    /// The last command waits, whatever others keep: one of them has just made room.
    pub(crate) fn begin_wait(&self, state: &mut LoopState, key: Key) {
        let input = &mut state.connections[key].input;
        input.begin_work(input.command_bytes());
    }

    /// Ends a connection whose socket takes nothing, without a close frame, and frees its memory.
    fn cut_off_in(&self, state: &mut LoopState, key: Key, counter: &Counter) {
        if !state.connections[key].is_closing() {
            counter.inc(); // A closing connection is already counted.
        }
        self.leave_in(state, key);
        state.connections[key].cut_off();
    }

    /// Checks the deadlines of all connections.
    pub(crate) fn sweep(&self) {
        let (now, unix_now) = (Instant::now(), tidings_telemetry::unix_now());
        let state = &mut *self.state();
        state.fanout.flush_metrics();
        self.tell_memory();
        let keys: Vec<Key> = state.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            if state.connections[key].is_stalled(self.shared.config.write_timeout, now) {
                self.cut_off_in(state, key, &self.shared.metrics.disconnects_stalled_total);
                continue;
            }
            let missed = state.connections[key].pings.drop_overdue(now);
            self.shared.metrics.receipts_dropped_total.add(missed as u64);
            if let Some(disconnect) = state.connections[key].check_deadlines(self.timing, now) {
                self.close_in(state, key, &disconnect);
            }
            while let Some(expired) = state.connections[key].poll_expired(unix_now) {
                self.expire_in(state, key, expired);
            }
            state.connections[key].ask_if_due(unix_now);
            self.flush_in(state, key);
        }
    }

    fn tell_memory(&self) {
        let InputHeld { waiting, working } = &self.input_held;
        let now = [self.held.get(), waiting.get() + working.get()].map(|bytes| bytes as i64);
        let (before, metrics) = (self.told.replace(now), &self.shared.metrics);
        metrics.reply_bytes.add(now[0] - before[0]);
        metrics.input_bytes.add(now[1] - before[1]);
    }

    /// A token has expired and was not refreshed.
    pub(crate) fn expire_in(&self, state: &mut LoopState, key: Key, expired: Expired) {
        match expired {
            Expired::Connection(disconnect) => self.close_in(state, key, &disconnect),
            Expired::Subscription { channel, push } => {
                state.fanout.unsubscribe(&mut state.connections, key, &channel);
                state.connections[key].reply(Some(push));
            }
        }
    }

    /// Adds a connection whose handshake is done; `session` names it for requests with its commands.
    pub(crate) fn insert(&self, connection: Connection, session: Option<SessionId>) -> Key {
        self.shared.metrics.connections.add(1);
        self.shared.metrics.connected_total.inc();
        let state = &mut *self.state();
        let key = state.connections.insert(connection);
        state.sessions.extend(session.map(|session| (session.secret, key)));
        key
    }

    /// Hands commands that came in a request of their own to their connection. Without such a session they are dropped.
    pub(crate) fn emulate(&self, emulated: &Emulated) {
        let state = &mut *self.state();
        let Some(&key) = state.sessions.get(&emulated.session.secret) else { return };
        let bytes_max = EMULATED_FRAME_COUNT_MAX * self.shared.config.message_bytes_max;
        if !state.connections[key].take_emulated(&emulated.commands, bytes_max) {
            self.close_in(state, key, &Disconnect::TOO_MANY_REQUESTS);
        }
        self.bound_input(state);
    }

    /// Removes a connection also from the hub and the fan-out.
    pub(crate) fn remove(&self, key: Key) {
        let state = &mut *self.state();
        self.leave_in(state, key);
        state.proving.remove(&key);
        let connection = state.connections.remove(key);
        if let Some(session) = connection.session.id() {
            state.sessions.remove(&session.secret);
        }
        state.users.remove(&(connection.session.user().into(), key));
        if let Some(user) = connection.counted_user() {
            self.shared.users.leave(user);
        }
        self.shared.metrics.connections.sub(1);
    }

    /// The connection gets no more publications, stands for no device, and its pending receipts are dropped.
    pub(crate) fn leave_in(&self, state: &mut LoopState, key: Key) {
        state.fanout.unsubscribe_all(&mut state.connections, key);
        self.stir(state);
        self.forget_device(state, key);
    }

    /// The connection stands for no device any more.
    pub(crate) fn forget_device(&self, state: &mut LoopState, key: Key) {
        self.set_visible(state, key, None);
        if let Some(device) = state.connections[key].identity.device.take() {
            state.devices.remove(&(device, key));
            self.shared.hub.receipts().on_gone(device);
        }
    }

    /// The client's app is on the screen until `until`; `None`: it is hidden.
    pub(crate) fn set_visible(&self, state: &mut LoopState, key: Key, until: Option<Timestamp>) {
        let connection = &mut state.connections[key];
        connection.identity.visible_until = until.unwrap_or_default();
        if let Some(device) = connection.identity.device {
            self.shared.hub.receipts().set_visible(device, connection.client(), until);
        }
    }
}
