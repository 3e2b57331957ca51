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
//! Bounds: one turn takes at most `turn_bytes_max` of each channel; subscriptions per connection are bounded by the
//! session, channels by the hub.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use slab::Slab;
use tidings_hub::{Channel, LoopId, process_micros};
use tidings_stream::{Frame, Lagged};
use tidings_telemetry::LocalHistogram;
use tidings_types::ChannelName;

use crate::connection::Connection;
use crate::metrics::EdgeMetrics;
use crate::output::Batch;

/// A connection's key on its loop.
pub(crate) type Key = usize;

/// One connection's subscription to one channel.
#[derive(Debug)]
struct Subscriber {
    connection: Key,
    /// Index of the next frame it is to be written.
    next: u64,
}

/// A channel that connections of this loop read.
#[derive(Debug)]
struct LoopChannel {
    channel: Arc<Channel>,
    /// Up to where frames were handed to the subscribers that are in sync.
    next: u64,
    subscribers: Vec<Subscriber>,
    /// Its window in the turn of that number.
    window: (u64, usize),
}

/// Connections written before the loop looks at its other tasks: half a millisecond or so.
const STEP_CONNECTION_COUNT: usize = 128;

/// Where a connection stands in one channel's list of subscribers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    channel: usize,
    index: usize,
}

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
    ready: VecDeque<Key>,
}

/// All subscriptions of one loop.
#[derive(Debug)]
pub(crate) struct Fanout {
    loop_id: LoopId,
    turn_bytes_max: usize,
    channels: Slab<LoopChannel>,
    by_name: HashMap<ChannelName, usize>,
    again: Vec<Arc<Channel>>,
    turn: Turn,
    latency: LocalHistogram,
    metrics: EdgeMetrics,
}

impl Fanout {
    pub(crate) fn new(loop_id: LoopId, turn_bytes_max: usize, metrics: EdgeMetrics) -> Self {
        Self {
            loop_id,
            turn_bytes_max,
            channels: Slab::new(),
            by_name: HashMap::new(),
            again: Vec::new(),
            turn: Turn::default(),
            latency: metrics.delivery_seconds.local(),
            metrics,
        }
    }

    /// Adds a connection to a channel it has just subscribed to in the hub; `next` is the hub's answer.
    pub(crate) fn subscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: Arc<Channel>, next: u64) {
        let slot = *self.by_name.entry(channel.name().clone()).or_insert_with(|| {
            self.channels.insert(LoopChannel { channel, next, subscribers: Vec::new(), window: (0, 0) })
        });
        let entry = &mut self.channels[slot];
        let index = entry.subscribers.len();
        entry.subscribers.push(Subscriber { connection: key, next });
        connections[key].places.push(Place { channel: slot, index });
    }

    /// Takes a connection out of the channel; `false` when it was not in it.
    pub(crate) fn unsubscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: &ChannelName) -> bool {
        let Some(&slot) = self.by_name.get(channel) else { return false };
        let places = &mut connections[key].places;
        let Some(position) = places.iter().position(|place| place.channel == slot) else { return false };
        let place = places.swap_remove(position);
        self.leave(connections, key, place);
        true
    }

    /// Takes a connection out of all its channels.
    pub(crate) fn unsubscribe_all(&mut self, connections: &mut Slab<Connection>, key: Key) {
        while let Some(place) = connections[key].places.pop() {
            self.leave(connections, key, place);
        }
        connections[key].places = Vec::new();
    }

    fn leave(&mut self, connections: &mut Slab<Connection>, key: Key, place: Place) {
        let entry = &mut self.channels[place.channel];
        let gone = entry.subscribers.swap_remove(place.index);
        if let Some(moved) = entry.subscribers.get(place.index) {
            let moved = connections[moved.connection].places.iter_mut().find(|other| other.channel == place.channel);
            moved.expect("a subscriber has a place in its connection").index = place.index;
        }
        entry.channel.unsubscribe(self.loop_id, connections[key].client());
        if entry.subscribers.is_empty() {
            let entry = self.channels.remove(place.channel);
            self.by_name.remove(entry.channel.name());
        } else if gone.next < entry.next {
            // It may have been the slowest: what only it still wanted can go. Others it held up are not overtaken by that.
            self.settle(place.channel, &mut Vec::new());
        }
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
        for key in turn.ready.drain(..count) {
            self.write(connections, key, turn.number, &turn.windows, &mut left);
        }
        if turn.ready.is_empty() {
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
    fn write(
        &mut self,
        connections: &mut Slab<Connection>,
        key: Key,
        turn: u64,
        windows: &[Window],
        left: &mut Leftover,
    ) {
        let Some(connection) = connections.get_mut(key).filter(|connection| !connection.blocked) else { return };
        let owed = |&place: &Place| -> Option<Batch<'_>> {
            let entry = &self.channels[place.channel];
            let window = (entry.window.0 == turn).then(|| &windows[entry.window.1])?;
            let from = entry.subscribers[place.index].next.checked_sub(window.base)?;
            let frames = window.frames.get(usize::try_from(from).ok()?..).filter(|frames| !frames.is_empty())?;
            Some(Batch::new(place, frames))
        };
        let mut owed = connection.places.iter().filter_map(owed);
        let Some(first) = owed.next() else { return };
        // Most have something in one channel only: nothing is allocated for them.
        let (mut one, mut many);
        let owed: &mut [Batch<'_>] = match owed.next() {
            None => {
                one = [first];
                &mut one
            }
            Some(second) => {
                many = [first, second].into_iter().chain(owed).collect::<Vec<_>>();
                &mut many
            }
        };
        let result = connection.output.write(&connection.socket, owed);
        let now = process_micros();
        for batch in owed {
            self.channels[batch.place.channel].subscribers[batch.place.index].next += batch.written as u64;
            self.metrics.deliveries_total.add(batch.written as u64);
            for frame in &batch.frames[..batch.written] {
                self.latency.record_micros(now.saturating_sub(frame.published_micros));
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
        let connection = &mut connections[key];
        connection.blocked = false;
        match connection.output.write(&connection.socket, &mut []) {
            Ok(false) => {}
            Ok(true) => {
                connection.block();
                return CaughtUp::Full;
            }
            Err(_) => return CaughtUp::Failed,
        }
        let mut behind = false;
        for position in 0..connection.places.len() {
            let place = connection.places[position];
            match self.catch_up_in(connection, place) {
                CaughtUp::Yes => {}
                CaughtUp::More => behind = true,
                other => return other,
            }
            self.settle(place.channel, slow);
        }
        if behind { CaughtUp::More } else { CaughtUp::Yes }
    }

    fn catch_up_in(&mut self, connection: &mut Connection, place: Place) -> CaughtUp {
        let entry = &mut self.channels[place.channel];
        let subscriber = &mut entry.subscribers[place.index];
        if subscriber.next >= entry.next {
            return CaughtUp::Yes;
        }
        let mut frames = Vec::new();
        if entry.channel.fetch(subscriber.next, self.turn_bytes_max, &mut frames).is_err() {
            return CaughtUp::Slow;
        }
        frames.truncate((entry.next - subscriber.next) as usize); // Later ones are the next turn's.
        let mut batches = [Batch::new(place, &frames)];
        let result = connection.output.write(&connection.socket, &mut batches);
        subscriber.next += batches[0].written as u64;
        self.metrics.deliveries_total.add(batches[0].written as u64);
        let in_sync = subscriber.next == entry.next;
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
        let entry = &self.channels[slot];
        let slowest = entry.subscribers.iter().map(|subscriber| subscriber.next).min().unwrap_or(entry.next);
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
