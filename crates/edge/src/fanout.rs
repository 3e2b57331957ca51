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
//! everything it is owed in one `writev`. A connection whose socket is full is left alone until the system says that it
//! takes bytes again; meanwhile its subscriptions lag, which costs the others nothing. A subscription that the tail has
//! overtaken is reported, and its connection closed as slow (3008).
//!
//! Bounds: one turn takes at most `turn_bytes_max` of each channel; subscriptions per connection are bounded by the
//! session, channels by the hub.

use std::collections::HashMap;
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
    /// How many subscribers are behind `next`.
    lagging: usize,
}

/// Where a connection stands in one channel's list of subscribers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    channel: usize,
    index: usize,
}

/// What a turn leaves to do.
#[derive(Debug, Default)]
pub(crate) struct Turn {
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

#[derive(Debug)]
struct Window {
    slot: usize,
    /// Index of the first frame.
    base: u64,
    frames: Vec<Frame>,
}

/// All subscriptions of one loop.
#[derive(Debug)]
pub(crate) struct Fanout {
    loop_id: LoopId,
    turn_bytes_max: usize,
    channels: Slab<LoopChannel>,
    by_name: HashMap<ChannelName, usize>,
    again: Vec<Arc<Channel>>,
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
            latency: metrics.delivery_seconds.local(),
            metrics,
        }
    }

    /// Adds a connection to a channel it has just subscribed to in the hub; `next` is the hub's answer.
    pub(crate) fn subscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: Arc<Channel>, next: u64) {
        let slot = *self.by_name.entry(channel.name().clone()).or_insert_with(|| {
            self.channels.insert(LoopChannel { channel, next, subscribers: Vec::new(), lagging: 0 })
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
        entry.lagging -= usize::from(gone.next < entry.next);
        if let Some(moved) = entry.subscribers.get(place.index) {
            let moved = connections[moved.connection].places.iter_mut().find(|other| other.channel == place.channel);
            moved.expect("a subscriber has a place in its connection").index = place.index;
        }
        entry.channel.unsubscribe(self.loop_id, connections[key].client());
        if entry.subscribers.is_empty() {
            let entry = self.channels.remove(place.channel);
            self.by_name.remove(entry.channel.name());
        }
    }

    /// Whether a turn is due although the mailbox may be empty.
    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// One turn: writes what is new in `dirty` channels to everyone who reads them and keeps up.
    pub(crate) fn turn(&mut self, connections: &mut Slab<Connection>, dirty: &mut Vec<Arc<Channel>>) -> Turn {
        let mut turn = Turn::default();
        dirty.append(&mut self.again);
        let (mut windows, mut ready) = (Vec::with_capacity(dirty.len()), Vec::new());
        for channel in dirty.drain(..) {
            self.fetch(&channel, connections, &mut windows, &mut ready, &mut turn);
        }
        for key in ready {
            self.write(connections, key, &windows, &mut turn);
        }
        for window in &windows {
            self.settle(window.slot, &mut turn.slow);
        }
        turn
    }

    /// Fetches a channel's new frames once and marks the connections that are to be written them.
    fn fetch(
        &mut self,
        channel: &Arc<Channel>,
        connections: &mut Slab<Connection>,
        windows: &mut Vec<Window>,
        ready: &mut Vec<Key>,
        turn: &mut Turn,
    ) {
        channel.clear_dirty(self.loop_id);
        let Some(&slot) = self.by_name.get(channel.name()) else { return };
        let entry = &mut self.channels[slot];
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
                let in_sync = entry.subscribers.iter().filter(|subscriber| subscriber.next < base + missed);
                turn.slow.extend(in_sync.map(|subscriber| subscriber.connection));
                return;
            }
        }
        if frames.is_empty() {
            return;
        }
        let keeps_up = |subscriber: &Subscriber| base <= subscriber.next && subscriber.next < entry.next;
        for (index, subscriber) in entry.subscribers.iter().enumerate().filter(|(_, subscriber)| keeps_up(subscriber)) {
            let connection = &mut connections[subscriber.connection];
            if connection.blocked {
                entry.lagging += 1;
                continue;
            }
            if connection.ready.is_empty() {
                ready.push(subscriber.connection);
            }
            connection.ready.push((windows.len(), index));
        }
        windows.push(Window { slot, base, frames });
    }

    /// Writes a marked connection everything this turn has for it.
    fn write(&mut self, connections: &mut Slab<Connection>, key: Key, windows: &[Window], turn: &mut Turn) {
        let connection = &mut connections[key];
        let ready = std::mem::take(&mut connection.ready);
        let owed = |&(window, index): &(usize, usize)| {
            let window: &Window = &windows[window];
            let next = self.channels[window.slot].subscribers[index].next;
            Batch::new(&window.frames[(next - window.base) as usize..])
        };
        let (mut one, mut many);
        let batches: &mut [Batch<'_>] = if let [single] = &ready[..] {
            one = [owed(single)];
            &mut one
        } else {
            many = ready.iter().map(owed).collect::<Vec<_>>();
            &mut many
        };
        let result = connection.output.write(&connection.socket, batches);
        let now = process_micros();
        for (&(window, index), batch) in ready.iter().zip(&*batches) {
            let entry = &mut self.channels[windows[window].slot];
            entry.subscribers[index].next += batch.written as u64;
            entry.lagging += usize::from(entry.subscribers[index].next < entry.next);
            self.metrics.deliveries_total.add(batch.written as u64);
            for frame in &batch.frames[..batch.written] {
                self.latency.record_micros(now.saturating_sub(frame.published_micros));
            }
        }
        connection.ready = ready;
        connection.ready.clear();
        match result {
            Ok(false) => {}
            Ok(true) => connection.block(),
            Err(_) => turn.failed.push(key),
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
        let mut batches = [Batch::new(&frames)];
        let result = connection.output.write(&connection.socket, &mut batches);
        subscriber.next += batches[0].written as u64;
        self.metrics.deliveries_total.add(batches[0].written as u64);
        let in_sync = subscriber.next == entry.next;
        entry.lagging -= usize::from(in_sync);
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
        if entry.lagging == 0 {
            entry.channel.settle(self.loop_id, entry.next);
            return;
        }
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
