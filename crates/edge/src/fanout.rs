//! Which connections of this loop read which channel, and writing new publications to them. A reader holds a position,
//! not a queue.
//!
//! ```text
//!   channel's tail   ──────────────[ a b c d e ]          one fetch per loop and turn
//!   subscriber 1                    next ──────► e        in sync: next == the channel's `next` on this loop
//!   subscriber 2                    ▲ next at b           lagging: its socket is full; caught up when it drains
//!   subscriber 3                              next ► f    ahead: came after frames not yet handed to the others
//! ```
//!
//! A *turn* fetches what is new in each channel, marks the connections that read it, and writes to each connection
//! once: all its publications in one `writev`. A turn goes in *steps* that are bounded in number and time ([`Stint`]), so that
//! neither a large channel nor one that is costly delays reading and answering. Between two steps connections may come, go and subscribe, so a
//! step looks up at that moment what each connection needs. A connection whose socket is full is skipped until the
//! system reports that it takes bytes again. Meanwhile its subscriptions lag, which costs the others nothing. If the
//! tail has overtaken a subscription, the connection is closed as slow (3008), which goes in steps, too. A subscription steps over the frames
//! that it does not want ([`Wishes`]): they are not written, and no receipt is asked for.
//!
//! A subscription may get less than everything ([`Thinning`](tidings_protocol::Thinning)). If the tail overtakes it, its position
//! moves on instead. When it is written again, the channel chooses what it gets ([`Channel::thin`]). A limit per second makes it
//! wait: it is not written in turns, but when its time comes ([`Fanout::write_due`]); there is one list of waiting
//! subscriptions, and no timer of each.
//!
//! A connection that comes to a restart frame in one of its channels gets what stands before it, and is then closed (3010), so
//! that it comes back with the position that it really has. Nothing behind the frame is written to it.
//!
//! A publication that wants receipts is looked up once per turn. A connection whose receipt is wanted gets a ping
//! behind the publication, as the last piece of the same `writev`. If there was no room, if another ping is in flight,
//! or if the connection is in its first second, the ping follows as soon as possible ([`Fanout::ask`]). For other
//! publications this costs one branch.
//!
//! The fan-out is shared by all connections of a loop, so a panic here ends the process, also while it works for one
//! connection.
//!
//! What a publication costs: one look at each subscription of the channel when the turn begins, one when the tail has overtaken
//! some, and the write to each connection that gets it. A filter is applied to it once, however many subscribers have the same
//! ([`wanted`](crate::wanted)).
//!
//! Bounds: one turn takes at most `turn_bytes_max` of each channel, and less while turns take long. The session bounds the subscriptions of a
//! connection; the hub bounds the channels. A connection is at most once in the list of connections that wait for the
//! end of their first second, and a subscription in the list of those that wait for their time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slab::Slab;
use tidings_hub::{Behind, Channel, EventReceipts, Hub, LoopId, Thinned, process_micros};
use tidings_protocol::ClientId;
use tidings_stream::{Frame, FrameKind, Lagged};
use tidings_telemetry::panics::{self, lock};
use tidings_telemetry::{LocalHistogram, unix_now};
use tidings_types::{ChannelName, DeviceNumber, Tags, Timestamp, Variant};
use tokio::time::Instant;

use crate::connection::{Connection, ping_frame};
use crate::metrics::EdgeMetrics;
use crate::output::Batch;
use crate::receipts::{Identity, Timing};
use crate::shared::Shared;
use crate::shares::Holdings;
use crate::stint::Stint;
use crate::subscribers::{Key, Place, Subscriber, Subscribers, Thin};
use crate::wanted::{Filters, Verdicts, Wanted};

/// A channel that connections of this loop read.
#[derive(Debug)]
struct LoopChannel {
    channel: Arc<Channel>,
    /// The first frame that was not handed to the subscribers that are in sync.
    next: u64,
    subscribers: Subscribers,
    /// A turn's number, and the channel's index in the windows of that turn.
    window: (u64, usize),
}

impl LoopChannel {
    /// What a subscriber lacks, or what it gets of that, at most `bytes_max` but at least one frame. `None`: the tail has
    /// overtaken it.
    fn lacking(&self, subscriber: &Subscriber, bytes_max: usize) -> Option<Thinned> {
        if !subscriber.is_chosen_for()
            && let Some(all) = self.all_from(subscriber.next, bytes_max)
        {
            return Some(all);
        }
        let Subscriber { next, wishes, form, thin, .. } = subscriber;
        let Thin { offset, missed_count, .. } = thin.as_deref()?;
        let behind = Behind { next: *next, offset: *offset, missed_count: *missed_count, form: *form, wishes };
        self.channel.thin(&behind, self.next, bytes_max).ok()
    }

    /// All frames from `next` on, up to a restart frame. Later frames belong to the next turn.
    fn all_from(&self, next: u64, bytes_max: usize) -> Option<Thinned> {
        let mut frames = Vec::new();
        self.channel.fetch(next, bytes_max, &mut frames).ok()?;
        frames.truncate((self.next - next) as usize);
        let handed = frames.len();
        frames.truncate(before_restart(&frames, true).len());
        let (end, is_at_restart) = (next + frames.len() as u64, frames.len() < handed);
        Some(Thinned { indices: (next..end).collect(), frames, end, is_at_restart, ..Thinned::default() })
    }
}

/// A channel is crowded if several of its subscribers, and more than one in so many, may soon be overtaken. So a few that read nothing do not
/// slow down those who publish.
const LATE_PART: usize = 10;

/// A turn should take no longer: what comes meanwhile in other channels waits for its end.
const TURN_TIME_MAX: Duration = Duration::from_millis(50);
/// A turn takes at least so much of each channel, or one frame.
const TURN_BYTES_MIN: usize = 4 << 10;

/// What the caller must do after a step. A key may be in a list twice.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// Connections that have come to a restart frame: close them, so that they start anew.
    pub(crate) restarted: Vec<Key>,
    /// Connections whose socket failed.
    pub(crate) failed: Vec<Key>,
}

/// Result of [`Fanout::catch_up`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CaughtUp {
    /// The connection has everything.
    Yes,
    /// There is more to write and the socket takes it, but another connection is served first.
    More,
    /// The socket is full.
    Full,
    /// The tail has overtaken the connection.
    Slow,
    /// The connection has come to a restart frame.
    Restarted,
    /// The socket failed.
    Failed,
}

/// What of a connection waits for its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// The subscription to the channel of this slot.
    Subscription(usize),
    /// All of it.
    Connection,
}

/// New frames of one channel in the current turn.
#[derive(Debug)]
struct Window {
    slot: usize,
    channel: Arc<Channel>,
    /// Index of the first frame.
    base: u64,
    frames: Vec<Frame>,
    verdicts: Verdicts,
}

/// The current turn: the new frames, and the connections that still have to be written.
#[derive(Debug, Default)]
struct Turn {
    number: u64,
    windows: Vec<Window>,
    /// There are restart frames in the windows.
    has_restarts: bool,
    events: Events,
    ready: VecDeque<Key>,
}

/// Events that want receipts for some of the frames, looked up once.
///
/// Invariant: in order of their positions.
#[derive(Debug, Default)]
struct Events {
    receipts: Vec<Arc<EventReceipts>>,
    now: Timestamp,
}

impl Events {
    fn add<'a>(&mut self, frames: impl IntoIterator<Item = &'a Frame>, hub: &Hub) {
        for event in frames.into_iter().filter_map(|frame| frame.receipt) {
            if let Err(index) = self.receipts.binary_search_by_key(&event, |receipts| receipts.event())
                && let Some(receipts) = hub.receipts().get(event)
            {
                self.receipts.insert(index, receipts);
                self.now = unix_now();
            }
        }
    }

    /// Those events of `frames` that want the receipt of this connection.
    fn wanting<'a>(
        &'a self,
        frames: impl Iterator<Item = &'a Frame>,
        identity: Identity,
    ) -> impl Iterator<Item = &'a Arc<EventReceipts>> {
        let find = |event| self.receipts.binary_search_by_key(&event, |receipts| receipts.event()).ok();
        let found = frames.filter_map(move |frame| Some(&self.receipts[find(frame.receipt?)?]));
        found.filter(move |receipts| identity.is_wanted_by(receipts.terms(), self.now))
    }
}

/// All subscriptions of one loop.
pub(crate) struct Fanout {
    hub: Arc<Hub>,
    loop_id: LoopId,
    turn_bytes_max: usize,
    /// Of each channel in one turn, now.
    turn_bytes: usize,
    /// When the current turn began.
    turn_began: Instant,
    timing: Option<Timing>,
    ping: [Frame; 1],
    channels: Slab<LoopChannel>,
    by_name: HashMap<ChannelName, usize>,
    pub(crate) filters: Filters,
    /// The channels of all loops, each held by who subscribed first.
    holdings: Arc<Mutex<Holdings>>,
    again: Vec<Arc<Channel>>,
    turn: Turn,
    /// Slots of channels whose slowest subscriber may have moved on.
    unsettled: BTreeSet<usize>,
    /// Connections that the tail has overtaken, in that order.
    lost: VecDeque<(Key, ClientId)>,
    /// Connections to ask for receipts when their first second is over.
    quiet: BinaryHeap<Reverse<(Instant, Key)>>,
    /// What is written when its time comes, by connection.
    waiting: BinaryHeap<Reverse<(Instant, Key, Wait)>>,
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
            turn_bytes: shared.config.turn_bytes_max,
            turn_began: Instant::now(),
            timing,
            ping: [Frame::new(
                FrameKind::Publication(Tags::default()),
                Variant::ALL.map(|variant| (variant, ping_frame(variant))),
                0,
                None,
            )],
            channels: Slab::new(),
            by_name: HashMap::new(),
            filters: Filters::default(),
            holdings: shared.holdings.clone(),
            again: Vec::new(),
            turn: Turn::default(),
            unsettled: BTreeSet::new(),
            lost: VecDeque::new(),
            quiet: BinaryHeap::new(),
            waiting: BinaryHeap::new(),
            latency: metrics.delivery_seconds.local(),
            metrics,
        }
    }

    /// Adds a connection to a channel that it has just subscribed to in the hub.
    pub(crate) fn subscribe(
        &mut self,
        connections: &mut Slab<Connection>,
        channel: Arc<Channel>,
        subscriber: Subscriber,
    ) {
        let Subscriber { connection: key, next, is_first, .. } = subscriber;
        let _owner = panics::owner();
        let slot = *self.by_name.entry(channel.name().clone()).or_insert_with(|| {
            self.channels.insert(LoopChannel { channel, next, subscribers: Subscribers::new(next), window: (0, 0) })
        });
        let index = self.channels[slot].subscribers.enter(subscriber);
        let connection = &mut connections[key];
        connection.places.push(Place { channel: slot, index });
        if is_first {
            lock(&self.holdings).add(connection.network(), connection.session.user(), connection.held_count);
            connection.held_count += 1;
        }
    }

    /// Removes a connection from the channel; `false` if it did not read it.
    pub(crate) fn unsubscribe(&mut self, connections: &mut Slab<Connection>, key: Key, channel: &ChannelName) -> bool {
        let _owner = panics::owner();
        let Some(&slot) = self.by_name.get(channel) else { return false };
        let places = &mut connections[key].places;
        let Some(position) = places.iter().position(|place| place.channel == slot) else { return false };
        let place = places.swap_remove(position);
        if places.is_empty() {
            *places = Vec::new(); // Frees the memory for earlier channels.
        }
        self.leave(connections, key, place);
        true
    }

    /// Removes a connection from all its channels.
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
        if gone.is_first {
            connection.held_count -= 1;
            lock(&self.holdings).remove((connection.network(), connection.session.user()), connection.held_count);
        }
        let (device, client) = (connection.identity.device, connection.client());
        self.hub.unsubscribe(&entry.channel, self.loop_id, client, device, gone.form);
        self.metrics.receipts_dropped_total.add(connection.pings.drop_channel(place.channel) as u64);
        if entry.subscribers.is_empty() {
            let entry = self.channels.remove(place.channel);
            self.by_name.remove(entry.channel.name());
        } else if entry.subscribers.has_moved() && gone.next < entry.next {
            // It was the last of the slowest: the channel can free the frames that only they wanted. Nobody is
            // overtaken by that.
            self.unsettled.insert(place.channel);
        }
    }

    /// A connection has lost the proof that it is the device.
    pub(crate) fn disown(&mut self, connection: &mut Connection, device: DeviceNumber) {
        let _owner = panics::owner();
        let client = connection.client();
        connection.places.iter().for_each(|place| self.channels[place.channel].channel.disown(client, device));
        self.metrics.receipts_dropped_total.add(connection.pings.drop_device() as u64);
    }

    /// Asks for the receipts of what was written to a connection: now if possible, else when its first second is over
    /// or when the ping in flight is answered. A ping is written at the next flush.
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

    /// When [`Fanout::ask_due`] or [`Fanout::write_due`] is due.
    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        let asked = self.quiet.peek().map(|Reverse((at, _))| *at);
        let written = self.waiting.peek().map(|Reverse((at, ..))| *at);
        asked.into_iter().chain(written).min()
    }

    /// Asks the connections whose first second is over, as many as a stint serves. Returns the connections to
    /// flush. A key may by now belong to another connection; to ask that one does no harm.
    pub(crate) fn ask_due(&mut self, connections: &mut Slab<Connection>, now: Instant) -> Vec<Key> {
        let (mut asked, mut stint) = (Vec::new(), Stint::begin());
        while self.quiet.peek().is_some_and(|Reverse((at, _))| *at <= now) && stint.goes_on() {
            let Some(Reverse((_, key))) = self.quiet.pop() else { break };
            let Some(connection) = connections.get_mut(key) else { continue };
            self.ask(connection, key, now);
            asked.push(key);
        }
        asked
    }

    /// Writes to the subscriptions whose time has come, as many as a stint serves. Returns what became of their connections. A key
    /// may by now belong to another connection; to write to that one does no harm.
    pub(crate) fn write_due(&mut self, connections: &mut Slab<Connection>, now: Instant) -> Vec<(Key, CaughtUp)> {
        let _owner = panics::owner();
        let (mut written, mut stint) = (Vec::new(), Stint::begin());
        while self.waiting.peek().is_some_and(|Reverse((at, ..))| *at <= now) && stint.goes_on() {
            let Some(Reverse((_, key, wait))) = self.waiting.pop() else { break };
            let Some(connection) = connections.get_mut(key) else { continue };
            let Wait::Subscription(slot) = wait else {
                connection.is_resting = false;
                if !connection.blocked {
                    let caught_up = self.catch_up(connections, key, now);
                    let is_resting = &mut connections[key].is_resting;
                    if caught_up == CaughtUp::More && !std::mem::replace(is_resting, true) {
                        self.waiting.push(Reverse((now, key, Wait::Connection)));
                    }
                    written.push((key, caught_up));
                }
                continue;
            };
            let Some(&place) = connection.places.iter().find(|place| place.channel == slot) else { continue };
            let Some(thin) = self.channels[slot].subscribers.thin_mut(place.index) else { continue };
            thin.is_waiting = false;
            if connection.blocked || connection.is_resting {
                continue; // It is written with all of its connection.
            }
            if self.is_early(place, now) {
                self.wait(key, place, now); // The entry was of an earlier subscription.
                continue;
            }
            let caught_up = self.catch_up_in(connection, place, self.turn_bytes_max, now);
            self.rest(connection, key, now);
            if caught_up == CaughtUp::More {
                self.wait(key, place, now);
            }
            self.ask(&mut connections[key], key, now);
            written.push((key, caught_up));
        }
        self.settle_all(connections);
        written
    }

    /// Counts what a connection was written. If that is all that it may be for now, it waits for its time.
    fn rest(&mut self, connection: &mut Connection, key: Key, now: Instant) {
        let written = connection.output.written();
        if let Some(allowance) = &mut connection.allowance
            && let Some(at) = allowance.count(written, now)
            && !std::mem::replace(&mut connection.is_resting, true)
        {
            self.waiting.push(Reverse((at, key, Wait::Connection)));
        }
    }

    /// The subscription is written when its time comes.
    fn wait(&mut self, key: Key, place: Place, now: Instant) {
        let Some(thin) = self.channels[place.channel].subscribers.thin_mut(place.index) else { return };
        if !std::mem::replace(&mut thin.is_waiting, true) {
            let at = thin.due.map_or(now, |due| due.max(now));
            self.waiting.push(Reverse((at, key, Wait::Subscription(place.channel))));
        }
    }

    /// Whether a step is due even if the mailbox is empty.
    pub(crate) fn has_more(&self) -> bool {
        let is_settled = self.unsettled.is_empty() && self.lost.is_empty();
        !self.turn.ready.is_empty() || !self.again.is_empty() || !is_settled
    }

    /// The next connection that the tail has overtaken: it is to be closed as slow.
    pub(crate) fn pop_lost(&mut self, connections: &Slab<Connection>) -> Option<Key> {
        loop {
            let (key, client) = self.lost.pop_front()?;
            if connections.get(key).is_some_and(|connection| connection.client() == client) {
                return Some(key);
            }
        }
    }

    /// One step: writes to the next connections of the current turn, or begins a turn with what is new in the `dirty`
    /// channels.
    pub(crate) fn step(&mut self, connections: &mut Slab<Connection>, dirty: &mut Vec<Arc<Channel>>) -> Leftover {
        let (mut left, mut stint) = (Leftover::default(), Stint::begin());
        if self.turn.ready.is_empty() {
            self.begin_turn(connections, dirty);
        } else {
            self.again.append(dirty); // For the next turn.
        }
        let mut turn = std::mem::take(&mut self.turn);
        while !turn.ready.is_empty() && stint.goes_on() {
            if let Some(key) = turn.ready.pop_front() {
                self.write(connections, key, &turn, &mut left);
            }
        }
        if turn.ready.is_empty() {
            self.adapt();
            turn.events.receipts.clear();
            turn.has_restarts = false;
            for window in turn.windows.drain(..) {
                if self.channels.get(window.slot).is_some_and(|entry| Arc::ptr_eq(&entry.channel, &window.channel)) {
                    self.unsettled.insert(window.slot);
                }
            }
        }
        self.turn = turn;
        self.settle_all(connections);
        left
    }

    /// A turn has ended. One that takes long delays what is new in other channels, so the next one takes less of each.
    fn adapt(&mut self) {
        let time = self.turn_began.elapsed();
        if time > TURN_TIME_MAX {
            self.turn_bytes = (self.turn_bytes / 2).max(TURN_BYTES_MIN.min(self.turn_bytes_max));
        } else if time < TURN_TIME_MAX / 4 {
            self.turn_bytes = (self.turn_bytes * 2).min(self.turn_bytes_max);
        }
    }

    /// Fetches what is new, once for all connections, and marks the readers. Channels for which there is no time are in the next
    /// turn.
    fn begin_turn(&mut self, connections: &mut Slab<Connection>, dirty: &mut Vec<Arc<Channel>>) {
        let mut channels = std::mem::take(&mut self.again).into_iter().chain(dirty.drain(..));
        self.turn.number += 1;
        self.turn_began = Instant::now();
        let mut stint = Stint::begin();
        while stint.goes_on()
            && let Some(channel) = channels.next()
        {
            self.fetch(channel, connections);
        }
        // Those that have not had their turn are before those that have more.
        let more = std::mem::take(&mut self.again);
        self.again.extend(channels);
        self.again.extend(more);
        for &key in &self.turn.ready {
            connections[key].is_ready = false;
        }
    }

    /// Fetches a channel's new frames and marks the connections that need them.
    fn fetch(&mut self, channel: Arc<Channel>, connections: &mut Slab<Connection>) {
        let Some(&slot) = self.by_name.get(channel.name()) else { return };
        let entry = &mut self.channels[slot];
        // A channel may be both left over from the last turn and in the mailbox: then its window of this turn stays.
        // Frames that came since belong to the next turn, because the first look cleared the dirty mark. A channel that
        // was deleted and made anew has no reader here.
        if !Arc::ptr_eq(&entry.channel, &channel) || entry.window.0 == self.turn.number {
            return;
        }
        let midway = channel.clear_dirty(self.loop_id).unwrap_or(0);
        let (base, mut frames) = (entry.next, Vec::new());
        match channel.fetch(base, self.turn_bytes, &mut frames) {
            Ok((next, more)) => {
                entry.next = next;
                if more {
                    self.again.push(channel.clone());
                }
            }
            Err(Lagged { missed }) => {
                // The tail overtook the whole loop: subscribers that were in sync have missed frames.
                entry.next = base + missed;
                self.again.push(channel);
                self.overtake(slot, base + missed, connections);
                return;
            }
        }
        if frames.is_empty() {
            return;
        }
        if self.timing.is_some() {
            self.turn.events.add(&frames, &self.hub);
        }
        self.turn.has_restarts |= frames.iter().any(Frame::is_restart);
        entry.window = (self.turn.number, self.turn.windows.len());
        let (mut apart, mut late_count) = (Vec::new(), 0);
        for (index, subscriber) in entry.subscribers.iter().enumerate() {
            let key = subscriber.connection;
            late_count += usize::from(subscriber.may_be_lost_before(midway));
            if !connections[key].takes_publications() {
                continue; // It is written with all of its connection.
            }
            if subscriber.has_own_time() {
                apart.push((key, Place { channel: slot, index }));
            } else if subscriber.next >= base
                && !subscriber.is_lost
                && !std::mem::replace(&mut connections[key].is_ready, true)
            {
                self.turn.ready.push_back(key);
            }
        }
        let are_late = late_count > 1 && late_count * LATE_PART > entry.subscribers.len();
        channel.on_fetched(self.loop_id, entry.next, are_late);
        self.turn.windows.push(Window { slot, channel, base, frames, verdicts: Verdicts::default() });
        if !apart.is_empty() {
            let now = Instant::now();
            apart.into_iter().for_each(|(key, place)| self.wait(key, place, now));
        }
    }

    /// Writes to a connection everything that this turn has for it. The key may by now belong to another connection, so
    /// the positions of the connection decide what it gets.
    fn write(&mut self, connections: &mut Slab<Connection>, key: Key, turn: &Turn, left: &mut Leftover) {
        let Some(connection) = connections.get_mut(key).filter(|it| it.takes_publications()) else { return };
        let variant = connection.session.variant();
        let owed = |&place: &Place| -> Option<Batch<'_>> {
            let frames = before_restart(self.owed(place, turn)?, turn.has_restarts);
            let LoopChannel { subscribers, window, .. } = &self.channels[place.channel];
            let (subscriber, window) = (subscribers.at(place.index), &turn.windows[window.1]);
            let from = (subscriber.next - window.base) as usize;
            let wanted = || window.verdicts.wanted(&subscriber.wishes, &window.frames, from);
            (!frames.is_empty()).then(|| Batch::of(place, subscriber, frames, wanted()))
        };
        let mut owed = connection.places.iter().filter_map(owed);
        let Some(first) = owed.next() else {
            if self.is_at_restart(connection, turn) {
                left.restarted.push(key);
            }
            return;
        };
        // Most connections have something in one channel only: nothing is allocated for them. The last batch is a ping.
        let ping = Batch::new(Place::default(), variant, &self.ping);
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
        let is_wanted = |batch: &Batch<'_>| turn.events.wanting(batch.rest(), identity).next().is_some();
        let may_answer = !turn.events.receipts.is_empty() && connection.pings.are_answered();
        let is_asked = may_answer && batches[..count].iter().any(is_wanted);
        let asked_at = is_asked.then(Instant::now);
        let with_ping = asked_at.is_some_and(|now| connection.pings.may_ask(now));
        let result = connection.output.write(&connection.socket, &mut batches[..count + usize::from(with_ping)]);
        let now = process_micros();
        let (owed, ping) = batches.split_at(count);
        for batch in owed {
            let subscribers = &mut self.channels[batch.place.channel].subscribers;
            subscribers.advance(batch.place.index, batch.passed, batch.has_base);
            if let Some(thin) = subscribers.thin_mut(batch.place.index) {
                thin.on_written(batch.publications().map(|frame| frame.offset), Instant::now());
            }
            let mut count = 0;
            for frame in batch.publications() {
                self.latency.record_micros(now.saturating_sub(frame.published_micros));
                count += 1;
            }
            self.metrics.deliveries_total.add(count);
        }
        if let Some(now) = asked_at {
            for batch in owed {
                remember(connection, batch, &turn.events, &self.metrics);
            }
            match self.timing.filter(|_| ping[0].passed > 0) {
                Some(timing) => connection.on_ping_written(timing, now),
                None if !with_ping => self.ask(connection, key, now),
                None => {} // No room: the ping follows when the connection has caught up.
            }
        }
        match result {
            Ok(false) => {}
            Ok(true) => connection.block(),
            Err(_) => left.failed.push(key),
        }
        if connection.allowance.is_some() {
            self.rest(connection, key, Instant::now());
        }
        if self.is_at_restart(connection, turn) {
            left.restarted.push(key);
        }
    }

    /// The frames of this turn that the connection with this place has not got; `None`: there are none.
    fn owed<'a>(&self, place: Place, turn: &'a Turn) -> Option<&'a [Frame]> {
        let entry = &self.channels[place.channel];
        let window = (entry.window.0 == turn.number).then(|| &turn.windows[entry.window.1])?;
        let subscriber = entry.subscribers.at(place.index);
        let is_in_turn = !subscriber.has_own_time() && !subscriber.is_lost;
        let from = subscriber.next.checked_sub(window.base).filter(|_| is_in_turn)?;
        window.frames.get(usize::try_from(from).ok()?..).filter(|frames| !frames.is_empty())
    }

    /// Whether the connection has come to a restart frame: it has all that stands before it in that channel.
    fn is_at_restart(&self, connection: &Connection, turn: &Turn) -> bool {
        let is_at = |&place: &Place| self.owed(place, turn).is_some_and(|frames| frames[0].is_restart());
        turn.has_restarts && connection.places.iter().any(is_at)
    }

    /// Writes to a connection whose socket takes bytes again what it lacks, at most one turn's share.
    pub(crate) fn catch_up(&mut self, connections: &mut Slab<Connection>, key: Key, now: Instant) -> CaughtUp {
        let _owner = panics::owner();
        let connection = &mut connections[key];
        connection.blocked = false;
        let mut caught_up = write_own(connection);
        if caught_up != CaughtUp::Yes {
            return caught_up;
        }
        if connection.is_resting {
            return CaughtUp::Yes;
        }
        let count = connection.places.len();
        let allowance = connection.allowance.as_ref();
        let first = allowance.map_or(0, |allowance| allowance.first(count));
        let bytes_max = allowance.map_or(usize::MAX, |allowance| allowance.share(count)).min(self.turn_bytes_max);
        let mut stint = Stint::begin();
        for position in (first..count).chain(0..first) {
            let place = connection.places[position];
            if !self.lacks_some(place) {
                continue;
            }
            if self.is_early(place, now) {
                self.wait(key, place, now);
                continue;
            }
            if !stint.goes_on() {
                caught_up = CaughtUp::More; // What was written is passed over next time.
                break;
            }
            match self.catch_up_in(connection, place, bytes_max, now) {
                CaughtUp::Yes => {}
                CaughtUp::More => caught_up = CaughtUp::More,
                CaughtUp::Full => {
                    caught_up = CaughtUp::Full;
                    break;
                }
                other => return other,
            }
            self.rest(connection, key, now);
            if connection.is_resting {
                connection.allowance.iter_mut().for_each(|allowance| allowance.go_on_after(position));
                caught_up = CaughtUp::Yes; // The rest is for later.
                break;
            }
        }
        self.ask(connection, key, now); // On a full socket the ping goes out first.
        let flushed = if connection.blocked { CaughtUp::Yes } else { write_own(connection) };
        if flushed == CaughtUp::Yes { caught_up } else { flushed }
    }

    /// Whether there is something that the subscription has not got.
    fn lacks_some(&self, place: Place) -> bool {
        let entry = &self.channels[place.channel];
        entry.subscribers.next(place.index) < entry.next
    }

    /// Whether the subscription lacks something, and its time has not come.
    fn is_early(&self, place: Place, now: Instant) -> bool {
        let thin = self.channels[place.channel].subscribers.at(place.index).thin.as_ref();
        self.lacks_some(place) && thin.is_some_and(|thin| thin.due.is_some_and(|due| due > now))
    }

    fn catch_up_in(&mut self, connection: &mut Connection, place: Place, bytes_max: usize, now: Instant) -> CaughtUp {
        let entry = &mut self.channels[place.channel];
        let subscriber = entry.subscribers.at(place.index);
        let next = subscriber.next;
        if subscriber.is_lost {
            return CaughtUp::Slow;
        }
        if next >= entry.next {
            return CaughtUp::Yes;
        }
        let Some(lacking) = entry.lacking(subscriber, bytes_max) else { return CaughtUp::Slow };
        let wanted = Wanted::of(&subscriber.wishes, &lacking.frames);
        let mut batches = [Batch::of(place, subscriber, &lacking.frames, wanted)];
        let result = connection.output.write(&connection.socket, &mut batches);
        let [batch] = batches;
        let last = batch.passed.checked_sub(1).map_or(next, |last| lacking.indices[last] + 1);
        let has_all = batch.passed == lacking.frames.len();
        let reached = if has_all { lacking.end } else { last };
        let lacks_base = batch.passed.checked_sub(1).is_some_and(|last| lacking.lacks_base.get(last) == Some(&true));
        let has_base = batch.has_base && reached == last && !lacks_base;
        entry.subscribers.advance(place.index, (reached - next) as usize, has_base);
        self.unsettled.insert(place.channel);
        self.metrics.deliveries_total.add(batch.publications().count() as u64);
        let skipped_count: u64 = lacking.skipped_counts.iter().take(batch.passed).sum();
        self.metrics.publications_skipped_total.add(skipped_count);
        if let Some(thin) = entry.subscribers.thin_mut(place.index) {
            thin.on_written(batch.publications().map(|frame| frame.offset), now);
            let untold_count = batch.passed.checked_sub(1).and_then(|last| lacking.untold_counts.get(last));
            if has_all {
                thin.missed_count = lacking.untold_count;
            } else if let Some(untold_count) = untold_count {
                thin.missed_count = *untold_count;
            }
            if has_all && lacking.is_cut {
                thin.due = None; // It has not seen yet what it gets this time.
            }
        }
        let in_sync = entry.subscribers.next(place.index) == entry.next;
        let is_at_restart = lacking.is_at_restart && has_all;
        if connection.pings.are_answered() && lacking.frames.iter().any(|frame| frame.receipt.is_some()) {
            let mut events = Events::default();
            events.add(batch.written(), &self.hub);
            remember(connection, &batch, &events, &self.metrics);
        }
        match result {
            Ok(is_full) => {
                if is_full {
                    connection.block();
                }
                match is_full {
                    _ if is_at_restart => CaughtUp::Restarted,
                    true => CaughtUp::Full,
                    false if in_sync => CaughtUp::Yes,
                    false => CaughtUp::More,
                }
            }
            Err(_) => CaughtUp::Failed,
        }
    }

    /// Tells the channels the positions of this loop's slowest subscribers.
    fn settle_all(&mut self, connections: &Slab<Connection>) {
        while let Some(slot) = self.unsettled.pop_first() {
            let Some(LoopChannel { channel, next, subscribers, .. }) = self.channels.get_mut(slot) else { continue };
            let slowest = subscribers.slowest().unwrap_or(*next);
            let base = channel.settle(self.loop_id, slowest);
            if slowest < base {
                self.overtake(slot, base, connections);
            }
        }
    }

    /// The tail begins at `base` now. Subscribers that may get less go on there; the others are lost.
    fn overtake(&mut self, slot: usize, base: u64, connections: &Slab<Connection>) {
        let LoopChannel { channel, subscribers, .. } = &mut self.channels[slot];
        let (lost, moved) = subscribers.overtake(base, channel.restart_end());
        self.lost.extend(lost.into_iter().map(|key| (key, connections[key].client())));
        let now = Instant::now();
        for index in moved {
            let key = self.channels[slot].subscribers.at(index).connection;
            if connections[key].takes_publications() {
                self.wait(key, Place { channel: slot, index }, now);
            }
        }
    }

    /// Hands the measured latencies to the registry; called at each sweep.
    pub(crate) fn flush_metrics(&mut self) {
        self.latency.flush();
    }
}

/// Writes the connection's own bytes: replies and pings.
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

/// Remembers the events of `batch` that want this connection's receipt; they wait for a pong.
fn remember(connection: &mut Connection, batch: &Batch<'_>, events: &Events, metrics: &EdgeMetrics) {
    for event in events.wanting(batch.written(), connection.identity) {
        metrics.receipts_asked_total.inc();
        metrics.receipts_dropped_total.add(connection.pings.on_written(event.clone(), batch.place.channel) as u64);
    }
}

/// The frames before the first restart frame, if there may be one.
fn before_restart(frames: &[Frame], may_restart: bool) -> &[Frame] {
    let restart = if may_restart { frames.iter().position(Frame::is_restart) } else { None };
    &frames[..restart.unwrap_or(frames.len())]
}
