//! Who on this loop reads which channel, and writing new publications to them (design: readers hold positions, not queues).
//!
//! ```text
//!   channel's tail   ──────────────[ a b c d e ]          one fetch per loop and turn
//!   subscriber 1                    next ──────► e        in sync: next == the channel's `next` on this loop
//!   subscriber 2                    ▲ next at b           lagging: its socket is full; caught up when it drains
//!   subscriber 3                              next ► f    ahead: came after frames not yet handed to the others
//! ```
//!
//! A turn fetches what is new in each channel, marks the connections that read it, then writes each connection once:
//! everything it is owed in one `writev`. It goes in steps of [`STEP_CONNECTION_COUNT`] connections, so that reading and
//! answering are not held up by a large channel; between steps connections may come, go and subscribe, so a step looks up
//! what each connection is owed at that moment. A connection whose socket is full is left alone until the system says that
//! it takes bytes again; meanwhile its subscriptions lag, which costs the others nothing. A subscription that the tail
//! has overtaken is reported, and its connection closed as slow (3008).
//!
//! A publication that collects receipts is looked up once per turn. A connection whose receipt it wants gets a ping
//! behind it, as the last piece of the same `writev`; when there was no room, or another ping is in flight, or the connection
//! is in its first second, the ping follows as soon as may be ([`Fanout::ask`]). Other publications cost one branch.
//!
//! All connections of a loop stand here, so a panic here ends the process, also while it works for one of them.
//!
//! Bounds: one turn takes at most `turn_bytes_max` of each channel; subscriptions per connection are bounded by the
//! session, channels by the hub; a connection waits once for the end of its first second.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use slab::Slab;
use tidings_hub::{Channel, EventReceipts, Hub, LoopId, process_micros};
use tidings_protocol::{PING, websocket};
use tidings_stream::{Frame, Lagged};
use tidings_telemetry::panics;
use tidings_telemetry::{LocalHistogram, unix_now};
use tidings_types::{ChannelName, DeviceNumber, Timestamp};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::metrics::EdgeMetrics;
use crate::output::Batch;
use crate::receipts::{Identity, Timing};
use crate::shared::Shared;
use crate::subscribers::{Key, Place, Subscriber, Subscribers};

/// A channel that connections of this loop read.
#[derive(Debug)]
struct LoopChannel {
    channel: Arc<Channel>,
    /// Up to where frames were handed to the subscribers that are in sync.
    next: u64,
    subscribers: Subscribers,
    /// Its window in the turn of that number.
    window: (u64, usize),
}

/// Connections written before the loop looks at its other tasks: half a millisecond or so.
const STEP_CONNECTION_COUNT: usize = 128;

/// What a step leaves to do. A key may be in a list twice.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// Connections that fell off a tail: close as slow.
    pub(crate) slow: Vec<Key>,
    /// Connections whose socket failed.
    pub(crate) failed: Vec<Key>,
}

/// What catching up came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CaughtUp {
    /// It has everything.
    Yes,
    /// There is more and the socket would take it, but it is another connection's turn.
    More,
    /// The socket is full.
    Full,
    /// It fell off a tail.
    Slow,
    /// The socket failed.
    Failed,
}

/// New frames of one channel in the present turn.
#[derive(Debug)]
struct Window {
    slot: usize,
    channel: Arc<Channel>,
    /// Index of the first frame.
    base: u64,
    frames: Vec<Frame>,
}

/// The present turn: what is new, and who is still to be written it.
#[derive(Debug, Default)]
struct Turn {
    number: u64,
    windows: Vec<Window>,
    events: Events,
    ready: VecDeque<Key>,
}

/// Events that some frames collect receipts for, looked up once.
///
/// Invariant: in order of their positions.
#[derive(Debug, Default)]
struct Events {
    receipts: Vec<Arc<EventReceipts>>,
    now: Timestamp,
}

impl Events {
    fn add(&mut self, frames: &[Frame], hub: &Hub) {
        for event in frames.iter().filter_map(|frame| frame.receipt) {
            if let Err(index) = self.receipts.binary_search_by_key(&event, |receipts| receipts.event())
                && let Some(receipts) = hub.receipts().get(event)
            {
                self.receipts.insert(index, receipts);
                self.now = unix_now();
            }
        }
    }

    /// The events of the frames that want the receipt of a connection.
    fn wanting<'a>(&'a self, frames: &'a [Frame], identity: Identity) -> impl Iterator<Item = &'a Arc<EventReceipts>> {
        let find = |event| self.receipts.binary_search_by_key(&event, |receipts| receipts.event()).ok();
        let found = frames.iter().filter_map(move |frame| Some(&self.receipts[find(frame.receipt?)?]));
        found.filter(move |receipts| identity.is_wanted_by(receipts.terms(), self.now))
    }
}

/// All subscriptions of one loop.
pub(crate) struct Fanout {
    hub: Arc<Hub>,
    loop_id: LoopId,
    turn_bytes_max: usize,
    timing: Option<Timing>,
    ping: [Frame; 1],
    channels: Slab<LoopChannel>,
    by_name: HashMap<ChannelName, usize>,
    again: Vec<Arc<Channel>>,
    turn: Turn,
    /// Connections to be asked for receipts when their first second is over.
    quiet: BinaryHeap<Reverse<(Instant, Key)>>,
    latency: LocalHistogram,
    metrics: EdgeMetrics,
}

impl Fanout {
    pub(crate) fn new(loop_id: LoopId, shared: &Shared, timing: Option<Timing>) -> Self {
        let metrics = shared.metrics.clone();
        Self {
            hub: shared.hub.clone(),
            loop_id,
            turn_bytes_max: shared.config.turn_bytes_max,
            timing,
            ping: [Frame { bytes: websocket::text_frame(PING), published_micros: 0, receipt: None }],
            channels: Slab::new(),
            by_name: HashMap::new(),
            again: Vec::new(),
            turn: Turn::default(),
            quiet: BinaryHeap::new(),
            latency: metrics.delivery_seconds.local(),
            metrics,
        }
    }

    /// Adds a connection to a channel it has just subscribed to in the hub; `next` is the hub's answer.
    pub(crate) fn subscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: Arc<Channel>, next: u64) {
        let _owner = panics::owner();
        let slot = *self.by_name.entry(channel.name().clone()).or_insert_with(|| {
            self.channels.insert(LoopChannel { channel, next, subscribers: Subscribers::new(next), window: (0, 0) })
        });
        let index = self.channels[slot].subscribers.enter(Subscriber { connection: key, next });
        connections[key].places.push(Place { channel: slot, index });
    }

    /// Takes a connection out of the channel; `false` when it was not in it.
    pub(crate) fn unsubscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: &ChannelName) -> bool {
        let _owner = panics::owner();
        let Some(&slot) = self.by_name.get(channel) else { return false };
        let places = &mut connections[key].places;
        let Some(position) = places.iter().position(|place| place.channel == slot) else { return false };
        let place = places.swap_remove(position);
        if places.is_empty() {
            *places = Vec::new(); // An idle connection does not keep the room of its most channels.
        }
        self.leave(connections, key, place);
        true
    }

    /// Takes a connection out of all its channels.
    pub(crate) fn unsubscribe_all(&mut self, connections: &mut Slab<Connection>, key: Key) {
        let _owner = panics::owner();
        while let Some(place) = connections[key].places.pop() {
            self.leave(connections, key, place);
        }
        connections[key].places = Vec::new();
    }

    fn leave(&mut self, connections: &mut Slab<Connection>, key: Key, place: Place) {
        let entry = &mut self.channels[place.channel];
        let (gone, moved) = entry.subscribers.leave(place.index);
        if let Some(moved) = moved {
            let moved = connections[moved].places.iter_mut().find(|other| other.channel == place.channel);
            moved.expect("a subscriber has a place in its connection").index = place.index;
        }
        let connection = &mut connections[key];
        self.hub.unsubscribe(&entry.channel, self.loop_id, connection.client(), connection.identity.device);
        self.metrics.receipts_struck_total.add(connection.pings.strike(place.channel) as u64);
        if entry.subscribers.is_empty() {
            let entry = self.channels.remove(place.channel);
            self.by_name.remove(entry.channel.name());
        } else if entry.subscribers.has_moved() && gone.next < entry.next {
            // It was the last of the slowest: what only they still wanted can go. Nobody is overtaken by that.
            self.settle(place.channel, &mut Vec::new());
        }
    }

    /// A connection has lost its proof that it is the device.
    pub(crate) fn disown(&mut self, connection: &mut Connection, device: DeviceNumber) {
        let _owner = panics::owner();
        connection.places.iter().for_each(|place| self.channels[place.channel].channel.disown(device));
        self.metrics.receipts_struck_total.add(connection.pings.strike_device() as u64);
    }

    /// Sees to it that what a connection was written is asked for: now if that may be, else when its first second is
    /// over or when the ping in flight is answered. A ping is written at the next flush.
    pub(crate) fn ask(&mut self, connection: &mut Connection, key: Key, now: Instant) {
        let _owner = panics::owner();
        let Some(timing) = self.timing.filter(|_| connection.pings.wants_receipts()) else { return };
        if connection.pings.may_ask(now) {
            connection.ping(timing, now);
        } else if let Some(at) = connection.pings.quiet_until(now)
            && !std::mem::replace(&mut connection.is_timed, true)
        {
            self.quiet.push(Reverse((at, key)));
        }
    }

    /// When [`Fanout::ask_due`] has somebody to ask.
    pub(crate) fn next_ask_at(&self) -> Option<Instant> {
        self.quiet.peek().map(|Reverse((at, _))| *at)
    }

    /// Asks the connections whose first second is over, as many as one step takes, and returns whom to flush. One that
    /// has gone may have left its key to another, which loses nothing by being looked at.
    pub(crate) fn ask_due(&mut self, connections: &mut Slab<Connection>, now: Instant) -> Vec<Key> {
        let mut asked = Vec::new();
        while asked.len() < STEP_CONNECTION_COUNT && self.next_ask_at().is_some_and(|at| at <= now) {
            let Some(Reverse((_, key))) = self.quiet.pop() else { break };
            let Some(connection) = connections.get_mut(key) else { continue };
            self.ask(connection, key, now);
            asked.push(key);
        }
        asked
    }

    /// Whether a step is due although the mailbox may be empty.
    pub(crate) fn has_more(&self) -> bool {
        !self.turn.ready.is_empty() || !self.again.is_empty()
    }

    /// One step: writes the next connections of the present turn, or begins a turn with what is new in `dirty` channels.
    pub(crate) fn step(&mut self, connections: &mut Slab<Connection>, dirty: &mut Vec<Arc<Channel>>) -> Leftover {
        let mut left = Leftover::default();
        if self.turn.ready.is_empty() {
            self.begin_turn(connections, dirty, &mut left);
        } else {
            self.again.append(dirty); // For the next turn.
        }
        let mut turn = std::mem::take(&mut self.turn);
        let count = turn.ready.len().min(STEP_CONNECTION_COUNT);
        let mut ready = std::mem::take(&mut turn.ready);
        for key in ready.drain(..count) {
            self.write(connections, key, &turn, &mut left);
        }
        turn.ready = ready;
        if turn.ready.is_empty() {
            turn.events.receipts.clear();
            for window in turn.windows.drain(..) {
                if self.channels.get(window.slot).is_some_and(|entry| Arc::ptr_eq(&entry.channel, &window.channel)) {
                    self.settle(window.slot, &mut left.slow);
                }
            }
        }
        self.turn = turn;
        left
    }

    /// Fetches what is new, once for all, and marks who reads it.
    fn begin_turn(&mut self, connections: &mut Slab<Connection>, dirty: &mut Vec<Arc<Channel>>, left: &mut Leftover) {
        dirty.append(&mut self.again);
        self.turn.number += 1;
        for channel in dirty.drain(..) {
            self.fetch(channel, connections, left);
        }
        for &key in &self.turn.ready {
            connections[key].is_ready = false;
        }
    }

    /// Fetches a channel's new frames and marks the connections that are to be written them.
    fn fetch(&mut self, channel: Arc<Channel>, connections: &mut Slab<Connection>, left: &mut Leftover) {
        let Some(&slot) = self.by_name.get(channel.name()) else { return };
        let entry = &mut self.channels[slot];
        // A channel may be both left over from the last turn and in the mailbox: its window of this turn stands. What
        // came since is the next turn's, since the first look cleared the mark. One that was swept has no reader here.
        if !Arc::ptr_eq(&entry.channel, &channel) || entry.window.0 == self.turn.number {
            return;
        }
        channel.clear_dirty(self.loop_id);
        let (base, mut frames) = (entry.next, Vec::new());
        match channel.fetch(base, self.turn_bytes_max, &mut frames) {
            Ok((next, more)) => {
                entry.next = next;
                if more {
                    self.again.push(channel.clone());
                }
            }
            Err(Lagged { missed }) => {
                // The whole loop was overtaken: nobody who was in sync can be given what is gone.
                let overtaken = entry.subscribers.iter().filter(|subscriber| subscriber.next < base + missed);
                left.slow.extend(overtaken.map(|subscriber| subscriber.connection));
                entry.next = base + missed;
                self.again.push(channel);
                return;
            }
        }
        if frames.is_empty() {
            return;
        }
        if self.timing.is_some() {
            self.turn.events.add(&frames, &self.hub);
        }
        entry.window = (self.turn.number, self.turn.windows.len());
        for subscriber in entry.subscribers.iter().filter(|subscriber| subscriber.next >= base) {
            let connection = &mut connections[subscriber.connection];
            if !connection.blocked && !std::mem::replace(&mut connection.is_ready, true) {
                self.turn.ready.push_back(subscriber.connection);
            }
        }
        self.turn.windows.push(Window { slot, channel, base, frames });
    }

    /// Writes a connection everything this turn has for it. It may have gone since it was marked, and another may have
    /// its key: each is written what it is owed itself.
    fn write(&mut self, connections: &mut Slab<Connection>, key: Key, turn: &Turn, left: &mut Leftover) {
        let Some(connection) = connections.get_mut(key).filter(|connection| !connection.blocked) else { return };
        let owed = |&place: &Place| -> Option<Batch<'_>> {
            let entry = &self.channels[place.channel];
            let window = (entry.window.0 == turn.number).then(|| &turn.windows[entry.window.1])?;
            let from = entry.subscribers.next(place.index).checked_sub(window.base)?;
            let frames = window.frames.get(usize::try_from(from).ok()?..).filter(|frames| !frames.is_empty())?;
            Some(Batch::new(place, frames))
        };
        let mut owed = connection.places.iter().filter_map(owed);
        let Some(first) = owed.next() else { return };
        // Most have something in one channel only: nothing is allocated for them. The last batch is a ping.
        let ping = Batch::new(Place::default(), &self.ping);
        let (mut one, mut many);
        let batches: &mut [Batch<'_>] = match owed.next() {
            None => {
                one = [first, ping];
                &mut one
            }
            Some(second) => {
                many = [first, second].into_iter().chain(owed).chain([ping]).collect::<Vec<_>>();
                &mut many
            }
        };
        let count = batches.len() - 1;
        let identity = connection.identity;
        let is_wanted = |batch: &Batch<'_>| turn.events.wanting(batch.frames, identity).next().is_some();
        let is_asked = !turn.events.receipts.is_empty() && batches[..count].iter().any(is_wanted);
        let asked_at = is_asked.then(Instant::now);
        let with_ping = asked_at.is_some_and(|now| connection.pings.may_ask(now));
        let result = connection.output.write(&connection.socket, &mut batches[..count + usize::from(with_ping)]);
        let now = process_micros();
        let (owed, ping) = batches.split_at(count);
        for batch in owed {
            self.channels[batch.place.channel].subscribers.advance(batch.place.index, batch.written);
            self.metrics.deliveries_total.add(batch.written as u64);
            for frame in &batch.frames[..batch.written] {
                self.latency.record_micros(now.saturating_sub(frame.published_micros));
            }
        }
        if let Some(now) = asked_at {
            for batch in owed {
                remember(connection, batch, &turn.events, &self.metrics);
            }
            match self.timing.filter(|_| ping[0].written > 0) {
                Some(timing) => connection.on_ping_written(timing, now),
                None if !with_ping => self.ask(connection, key, now),
                None => {} // No room: asked when it has caught up.
            }
        }
        match result {
            Ok(false) => {}
            Ok(true) => connection.block(),
            Err(_) => left.failed.push(key),
        }
    }

    /// Writes a connection whose socket takes bytes again what it lacks, one turn's worth.
    pub(crate) fn catch_up(&mut self, connections: &mut Slab<Connection>, key: Key, slow: &mut Vec<Key>) -> CaughtUp {
        let _owner = panics::owner();
        let connection = &mut connections[key];
        connection.blocked = false;
        let mut caught_up = write_own(connection);
        if caught_up != CaughtUp::Yes {
            return caught_up;
        }
        for position in 0..connection.places.len() {
            let place = connection.places[position];
            match self.catch_up_in(connection, place) {
                CaughtUp::Yes => {}
                CaughtUp::More => caught_up = CaughtUp::More,
                CaughtUp::Full => {
                    caught_up = CaughtUp::Full;
                    break;
                }
                other => return other,
            }
            self.settle(place.channel, slow);
        }
        self.ask(connection, key, Instant::now()); // On a full socket the ping is the first to go.
        let flushed = if connection.blocked { CaughtUp::Yes } else { write_own(connection) };
        if flushed == CaughtUp::Yes { caught_up } else { flushed }
    }

    fn catch_up_in(&mut self, connection: &mut Connection, place: Place) -> CaughtUp {
        let entry = &mut self.channels[place.channel];
        let next = entry.subscribers.next(place.index);
        if next >= entry.next {
            return CaughtUp::Yes;
        }
        let mut frames = Vec::new();
        if entry.channel.fetch(next, self.turn_bytes_max, &mut frames).is_err() {
            return CaughtUp::Slow;
        }
        frames.truncate((entry.next - next) as usize); // Later ones are the next turn's.
        let mut batches = [Batch::new(place, &frames)];
        let result = connection.output.write(&connection.socket, &mut batches);
        let [batch] = batches;
        entry.subscribers.advance(place.index, batch.written);
        self.metrics.deliveries_total.add(batch.written as u64);
        let in_sync = entry.subscribers.next(place.index) == entry.next;
        if self.timing.is_some() && frames.iter().any(|frame| frame.receipt.is_some()) {
            let mut events = Events::default();
            events.add(&frames[..batch.written], &self.hub);
            remember(connection, &batch, &events, &self.metrics);
        }
        match result {
            Ok(true) => {
                connection.block();
                CaughtUp::Full
            }
            Ok(false) if in_sync => CaughtUp::Yes,
            Ok(false) => CaughtUp::More,
            Err(_) => CaughtUp::Failed,
        }
    }

    /// Tells the channel how far this loop's slowest subscriber is, and finds those that the tail has overtaken.
    fn settle(&mut self, slot: usize, slow: &mut Vec<Key>) {
        let entry = &mut self.channels[slot];
        let slowest = entry.subscribers.slowest().unwrap_or(entry.next);
        let base = entry.channel.settle(self.loop_id, slowest);
        if slowest < base {
            let overtaken = entry.subscribers.iter().filter(|subscriber| subscriber.next < base);
            slow.extend(overtaken.map(|subscriber| subscriber.connection));
        }
    }

    /// Hands the latencies measured here to the registry; about once a second.
    pub(crate) fn flush_metrics(&mut self) {
        self.latency.flush();
    }
}

/// Writes what no log holds.
fn write_own(connection: &mut Connection) -> CaughtUp {
    match connection.output.write(&connection.socket, &mut []) {
        Ok(false) => CaughtUp::Yes,
        Ok(true) => {
            connection.block();
            CaughtUp::Full
        }
        Err(_) => CaughtUp::Failed,
    }
}

/// What a connection was written of events that want its receipt waits for a pong.
fn remember(connection: &mut Connection, batch: &Batch<'_>, events: &Events, metrics: &EdgeMetrics) {
    for event in events.wanting(&batch.frames[..batch.written], connection.identity) {
        metrics.receipts_asked_total.inc();
        metrics.receipts_struck_total.add(connection.pings.on_written(event.clone(), batch.place.channel) as u64);
    }
}
