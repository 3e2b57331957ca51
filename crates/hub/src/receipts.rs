//! Receipts: which devices and users have shown that an event reached them.
//!
//! ```text
//!   publish_durable ──► open: readers = proven devices in the channels ──┐
//!   edge ──► on_written, on_received, on_resumed ────────────────────────┼─► EventReceipts ──► changed ──► sender, API
//!   edge ──► set_visible: devices whose app is on the screen ────────────┘
//! ```
//!
//! [`Receipts`] knows the events whose receipts are collected now, and which devices are visible. It decides nothing
//! about pings or pushes. A device may be connected several times: it is visible while any of its connections is, and
//! has received what any of them has received. Visibility expires: [`Receipts::sweep`] removes it within about a
//! second. The edge judges exactly, at the moment of the pong, whether a receipt counts.
//!
//! For the question why a device got an event, an event also keeps over which connection each device has answered
//! ([`EventReceipts::arrival`]), for the first
//! [`ARRIVAL_COUNT_MAX`] devices.
//!
//! # Life of an event
//! ```text
//!   open ──RECEIPTS_TTL after its time──► kept: for whoever still holds it ──► gone
//!     ├──no memory──► bare: only who has received it      │
//!     └──one too many, or still no memory──► forgotten ◄──┘ no memory
//! ```
//! What decides no push goes first: when, where and by which users an event was received. Then events are forgotten, those
//! first whose time for receipts ends first. Forgetting empties an event at once, also for the jobs and connections that hold
//! it. It never suppresses a push: of a forgotten event nobody is known to have received it ([`EventReceipts::received`] is
//! `None`), so its devices are pushed. If the newest event alone is too large, it is forgotten itself. A forgotten event is not
//! opened again.
//!
//! # Bounds
//! `event_count_max` open events, and `bytes_max` for all events together ([`Budget`]): the open ones, those that
//! somebody still holds, and what other nodes of a cluster report of events that are not open here yet ([`Early`]). Beyond
//! that events are forgotten, those that are no longer open first. The bytes may be exceeded by what
//! is added at this moment: a receipt or the readers of a channel for each thread, or the report of another node. A
//! forgotten event takes a few hundred bytes while somebody holds it. An event has two sets of device
//! numbers and at most [`RECEIPT_USER_COUNT_MAX`] users of [`USER_BYTES_MAX`] bytes. Visible devices are bounded by
//! the connections.
//!
//! # Locks
//! The table of events, then one event. Only [`Table::make_room`] holds both, and who opens an event of which others have
//! reported. Whoever has added to an event releases its lock before it makes room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use roaring::RoaringBitmap;
use tidings_protocol::ClientId;
use tidings_telemetry::panics::lock;
use tidings_types::{
    DeviceNumber, JournalPosition, Offset, ReceiptPolicy, ReceiptRequest, ReceiptTerms, TimeTo, Timestamp,
};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::budget::{Budget, Charge, Numbers};
use crate::reports::{Answer, Early, Elsewhere, EventReport, RECEIPTS_TTL, Report, Reports};

/// The most users that are listed as having received an event.
pub const RECEIPT_USER_COUNT_MAX: usize = 1000;
/// The most bytes of a listed user's name, as in [`UserId`](tidings_types::UserId). A token may have a longer name,
/// which is not listed.
const USER_BYTES_MAX: usize = 128;

/// The most devices of an event of which the connection is known: 8.4 MiB.
pub const ARRIVAL_COUNT_MAX: usize = 100_000;
/// The bytes of one of those: 50 to 72, measured, as the nodes of the tree may be half full; and the time in a list that may be
/// half empty.
pub const ARRIVAL_BYTES: usize = 72 + 16;
/// An event without sets and users: locks, counts, and entries in the table and in up to 16 channels.
const EVENT_BYTES: usize = 1 << 10;
/// A listed user, except the name: its place in a tree whose nodes may be half full, and what its allocation adds (53 to 66
/// together, measured).
const USER_BYTES: usize = 80;

/// Events whose receipts are collected, and the devices whose app is visible.
#[derive(Debug)]
pub struct Receipts {
    table: Arc<Table>,
    devices: Arc<Devices>,
}

/// All events.
#[derive(Debug)]
struct Table {
    event_count_max: usize,
    budget: Arc<Budget>,
    events: Mutex<Events>,
}

/// Invariant: no event is both open and early; an open one is whole or bare.
#[derive(Debug, Default)]
struct Events {
    open: BTreeMap<JournalPosition, Arc<EventReceipts>>,
    /// The open ones in the order in which their time ends: those that have all, and those that are bare.
    whole: BTreeSet<(Timestamp, JournalPosition)>,
    bare: BTreeSet<(Timestamp, JournalPosition)>,
    /// Those that are no longer open, while somebody holds them: a job, or its trail for the question why. Oldest first.
    kept: VecDeque<Weak<EventReceipts>>,
    early: Early,
    /// The last event that was removed: those before it that are not open will not be opened.
    removed: Option<JournalPosition>,
}

impl Table {
    /// Forgets the oldest events, as long as there are too many or they take too much. No event's lock may be held.
    fn make_room(&self) {
        if self.budget.is_exceeded() {
            self.make_room_in(&mut lock(&self.events));
        }
    }

    fn make_room_in(&self, events: &mut Events) {
        while events.open.len() > self.event_count_max && events.forget_open() {}
        while self.budget.is_exceeded() {
            if events.forget_kept() || events.strip_open() {
                continue;
            }
            if !events.forget_open() && !events.early.forget() {
                return; // All there is belongs to threads that are about to make room.
            }
            self.budget.on_dropped();
        }
    }
}

impl Events {
    fn is_over(&self, event: JournalPosition) -> bool {
        self.removed.is_some_and(|removed| event <= removed)
    }

    fn add(&mut self, event: Arc<EventReceipts>) {
        self.whole.insert((event.terms.until, event.event));
        self.open.insert(event.event, event);
    }

    /// Forgets the open event whose time ends first; false if there is none.
    fn forget_open(&mut self) -> bool {
        let Some((_, position)) = self.whole.first().into_iter().chain(self.bare.first()).min().copied() else {
            return false;
        };
        self.remove(position).inspect(|event| event.forget());
        true
    }

    /// Strips the open event whose time ends first, of those that are whole; false if there is none.
    fn strip_open(&mut self) -> bool {
        let Some((until, position)) = self.whole.pop_first() else { return false };
        self.bare.insert((until, position));
        self.open.get(&position).inspect(|event| event.strip());
        true
    }

    fn remove(&mut self, position: JournalPosition) -> Option<Arc<EventReceipts>> {
        let event = self.open.remove(&position)?;
        let end = (event.terms.until, position);
        let _ = self.whole.remove(&end) || self.bare.remove(&end);
        self.removed = self.removed.max(Some(position));
        Some(event)
    }

    /// Forgets the oldest event that is no longer open; false if there is none.
    fn forget_kept(&mut self) -> bool {
        let Some(event) = self.kept.pop_front() else { return false };
        event.upgrade().inspect(|event| event.forget());
        true
    }

    /// Whoever still holds events that are over at `now` keeps them.
    fn close(&mut self, now: Timestamp) {
        self.kept.retain(|event| event.strong_count() > 0);
        let is_over = |(until, _): &(Timestamp, JournalPosition)| now >= until.saturating_add(RECEIPTS_TTL);
        let ends =
            self.whole.iter().take_while(|end| is_over(end)).chain(self.bare.iter().take_while(|end| is_over(end)));
        for (_, position) in ends.copied().collect::<Vec<_>>() {
            let Some(event) = self.remove(position) else { continue };
            self.kept.extend((Arc::strong_count(&event) > 1).then(|| Arc::downgrade(&event)));
        }
    }
}

/// What is known of devices apart from events.
#[derive(Debug)]
struct Devices {
    visible: Mutex<Visible>,
    /// What is to be reported to the home of a cluster.
    reports: Reports,
    /// At the home: what others have reported.
    elsewhere: Elsewhere,
}

/// Which devices are visible, by connection.
///
/// Invariant: `devices` are those with an entry in `connections`; no entry expires before `sweep_at`.
#[derive(Debug)]
struct Visible {
    devices: RoaringBitmap,
    connections: BTreeMap<(DeviceNumber, ClientId), Timestamp>,
    sweep_at: Timestamp,
}

impl Visible {
    fn set(&mut self, device: DeviceNumber, client: ClientId, until: Timestamp) {
        self.connections.insert((device, client), until);
        self.devices.insert(device.0);
        self.sweep_at = self.sweep_at.min(until);
    }

    fn clear(&mut self, device: DeviceNumber, client: ClientId) {
        if self.connections.remove(&(device, client)).is_none() {
            return;
        }
        // The keys are ordered, so another connection of the device would be next to this one.
        let before = self.connections.range(..(device, client)).next_back();
        let after = self.connections.range((device, client)..).next();
        if !before.into_iter().chain(after).any(|((other, _), _)| *other == device) {
            self.devices.remove(device.0);
        }
    }

    /// Searches all entries only when one may have expired: most are renewed long before. Returns the devices that are not
    /// visible any more.
    fn sweep(&mut self, now: Timestamp) -> Vec<DeviceNumber> {
        if now < self.sweep_at {
            return Vec::new();
        }
        let over: Vec<_> = self.connections.iter().filter(|(_, until)| **until <= now).map(|(key, _)| *key).collect();
        over.iter().for_each(|(device, client)| self.clear(*device, *client));
        self.sweep_at = self.connections.values().copied().min().unwrap_or(Timestamp(u64::MAX));
        over.into_iter().map(|(device, _)| device).filter(|device| !self.devices.contains(device.0)).collect()
    }
}

impl Receipts {
    /// No events yet; never more than `event_count_max` are open, and all of them together take no more than `bytes_max`.
    pub fn new(event_count_max: usize, bytes_max: usize) -> Self {
        let table = Table { event_count_max, budget: Budget::new(bytes_max), events: Mutex::default() };
        let visible =
            Visible { devices: RoaringBitmap::new(), connections: BTreeMap::new(), sweep_at: Timestamp(u64::MAX) };
        let (visible, reports, elsewhere) = (Mutex::new(visible), Reports::default(), Elsewhere::default());
        Self { table: Arc::new(table), devices: Arc::new(Devices { visible, reports, elsewhere }) }
    }

    /// The receipts of an event. If they are not collected yet, this starts it.
    pub fn open(&self, request: &ReceiptRequest) -> Arc<EventReceipts> {
        let mut events = lock(&self.table.events);
        if let Some(event) = events.open.get(&request.event) {
            return event.clone();
        }
        let event = Arc::new(EventReceipts::new(request, self.devices.clone(), &self.table));
        if events.is_over(request.event) {
            event.forget(); // For another channel of the event it was open before.
            return event;
        }
        events.add(event.clone());
        for report in events.early.take(request.event) {
            event.take_in(report);
        }
        self.table.make_room_in(&mut events);
        event
    }

    /// The receipts of an event, while they are collected.
    pub fn get(&self, event: JournalPosition) -> Option<Arc<EventReceipts>> {
        lock(&self.table.events).open.get(&event).cloned()
    }

    /// Those of `listed` whose receipts are still collected.
    pub(crate) fn resolve<'a>(
        &self,
        listed: impl Iterator<Item = &'a (Offset, JournalPosition)>,
    ) -> Vec<(Offset, Arc<EventReceipts>)> {
        let events = lock(&self.table.events);
        listed.filter_map(|(offset, event)| Some((*offset, events.open.get(event)?.clone()))).collect()
    }

    pub(crate) fn is_open(&self, event: JournalPosition) -> bool {
        lock(&self.table.events).open.contains_key(&event)
    }

    /// A connection says that the app of its proven device is on the screen until `until`; `None`: it is hidden, or the
    /// connection has ended. This replaces what the connection said before.
    pub fn set_visible(&self, device: DeviceNumber, client: ClientId, until: Option<Timestamp>) {
        let mut visible = lock(&self.devices.visible);
        match until {
            Some(until) => visible.set(device, client, until),
            None => visible.clear(device, client),
        }
        self.devices.reports.on_visible(device, visible.devices.contains(device.0));
    }

    /// A connection has proven to be the device.
    pub fn on_connected(&self, device: DeviceNumber) {
        self.devices.reports.on_connected(device);
    }

    /// A client that has proven to be the device is about to be let in. This node reports the device as connected and visible,
    /// until [`Receipts::settle`] or until this time. Meanwhile a push to it waits for a receipt, and is not lost. Returns the number
    /// of this announcement, for [`Receipts::take_announced`] on other nodes.
    pub fn announce(&self, device: DeviceNumber, until: Timestamp) -> u64 {
        self.devices.reports.announce(device, until)
    }

    /// A client of the device is let in. Call it after [`Receipts::on_connected`] and [`Receipts::set_visible`].
    pub fn settle(&self, device: DeviceNumber) {
        self.devices.reports.settle(device);
    }

    /// Another node announces these devices, the last one with this number.
    pub fn take_announced(&self, node: u64, devices: &[u32], number: u64) {
        self.devices.elsewhere.announce(node, devices, number);
    }

    /// A connection that had proven to be the device has ended, or lost its proof.
    pub fn on_gone(&self, device: DeviceNumber) {
        self.devices.reports.on_gone(device);
    }

    /// How many bytes all of them take at most.
    pub fn bytes_len(&self) -> usize {
        self.table.budget.used()
    }

    /// How many events were forgotten because all of them took too much memory.
    pub fn dropped_count(&self) -> u64 {
        self.table.budget.dropped()
    }

    /// Removes events whose time is over, and visibility that has expired.
    pub fn sweep(&self, now: Timestamp) {
        let mut events = lock(&self.table.events);
        events.close(now);
        events.early.sweep(now);
        drop(events);
        self.devices.reports.sweep(now);
        for hidden in lock(&self.devices.visible).sweep(now) {
            self.devices.reports.on_visible(hidden, false);
        }
    }

    /// From now on this node of a cluster reports to the others. Call it before there are connections.
    pub fn begin_reports(&self) {
        self.devices.reports.begin();
    }

    /// This node is the home now: it reports to nobody.
    pub fn end_reports(&self) {
        self.devices.reports.end();
    }

    /// What is to be reported to the home; afterwards nothing is. `None`: nothing.
    pub fn take_report(&self) -> Option<Report> {
        self.devices.reports.take()
    }

    /// The next report has all devices, for a home that knows none.
    pub fn report_all(&self) {
        self.devices.reports.forget();
    }

    /// Resolves when there is something to report.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn has_report(&self) {
        self.devices.reports.waiting().await;
    }

    /// Takes the report of another node. This node does not report what is in it. Every node takes in the reports of all
    /// others, so that the next home knows who is connected. Returns whether all devices of the node are known now; if not,
    /// the node is to be told to [report all](Self::report_all).
    ///
    /// What it has of an event that is not open here yet is kept until it is.
    pub fn take_in(&self, node: u64, report: Report) -> bool {
        let is_known = self.devices.elsewhere.take(node, &report);
        for report in report.events {
            self.take_in_event(report);
            self.table.make_room();
        }
        is_known
    }

    fn take_in_event(&self, report: EventReport) {
        let mut events = lock(&self.table.events);
        match events.open.get(&report.event).cloned() {
            Some(receipts) => {
                drop(events);
                receipts.take_in(report);
            }
            None if events.is_over(report.event) => {}
            None => events.early.put(report, &self.table.budget),
        }
    }

    /// Whether all devices of this other node are known.
    pub fn knows(&self, node: u64) -> bool {
        self.devices.elsewhere.knows(node)
    }

    /// A report of this node may be lost. Its devices are not known until it reports all of them; those that are known may
    /// answer until then.
    pub fn forget_node(&self, node: u64) {
        self.devices.elsewhere.forget(node);
    }

    /// Forgets the devices of nodes that are not among these.
    pub fn retain_nodes(&self, nodes: &[u64]) {
        self.devices.elsewhere.retain(nodes);
    }
}

/// The receipts of one event.
pub struct EventReceipts {
    event: JournalPosition,
    terms: ReceiptTerms,
    known: Arc<Devices>,
    budget: Arc<Budget>,
    table: Weak<Table>,
    written: AtomicU64,
    /// `None`: forgotten.
    state: Mutex<Option<State>>,
    changed: Notify,
}

struct State {
    /// For all of this.
    charge: Charge,
    /// Proven devices that read a channel of the event.
    readers: Numbers,
    /// Devices whose receipt counts.
    devices: Numbers,
    /// Connections that have answered.
    received: u64,
    users: BTreeSet<Box<str>>,
    user_bytes: usize,
    /// There were more users than are listed.
    is_cut: bool,
    /// There was no memory for more than the sets.
    is_bare: bool,
    /// By device, where and when its receipt came.
    arrivals: BTreeMap<u32, Arrival>,
    /// When they came, in this order: the clock may be set back, so not quite in the order of time.
    arrived: Vec<Timestamp>,
}

impl State {
    fn new(budget: &Arc<Budget>) -> Self {
        let mut state = Self {
            charge: Charge::none(budget),
            readers: Numbers::default(),
            devices: Numbers::default(),
            received: 0,
            users: BTreeSet::new(),
            user_bytes: 0,
            is_cut: false,
            is_bare: false,
            arrivals: BTreeMap::new(),
            arrived: Vec::new(),
        };
        state.recharge();
        state
    }

    /// After everything that adds something.
    fn recharge(&mut self) {
        let of_sets = self.readers.bytes_max() + self.devices.bytes_max();
        self.charge.set(EVENT_BYTES + of_sets + self.user_bytes + self.arrivals.len() * ARRIVAL_BYTES);
    }
}

/// A receipt of a proven device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The connection that has answered, or has resumed behind the event.
    pub client: ClientId,
    /// When it has.
    pub at: Timestamp,
}

/// Receipts in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptSummary {
    /// Connections to which the event was written and that were asked for a receipt.
    pub written: u64,
    /// Those connections that have answered.
    pub received: u64,
    /// The users who answered, in order, at most [`RECEIPT_USER_COUNT_MAX`]; only if the event asks every client.
    pub users: Vec<String>,
    /// Whether `users` lists all users who answered; a name of over 128 bytes is not listed.
    pub users_complete: bool,
}

impl EventReceipts {
    fn new(request: &ReceiptRequest, known: Arc<Devices>, table: &Arc<Table>) -> Self {
        Self {
            event: request.event,
            terms: request.terms,
            known,
            budget: table.budget.clone(),
            table: Arc::downgrade(table),
            written: AtomicU64::new(0),
            state: Mutex::new(Some(State::new(&table.budget))),
            changed: Notify::new(),
        }
    }

    /// The event's position in the journal.
    pub fn event(&self) -> JournalPosition {
        self.event
    }

    /// The receipts that the event asks for.
    pub fn terms(&self) -> &ReceiptTerms {
        &self.terms
    }

    /// Adds proven devices that read a channel when the event was published there, or that resumed over the event.
    pub fn add_readers(&self, devices: &RoaringBitmap) {
        self.note_readers(devices);
        self.make_room();
        self.known.reports.on_event(self.event, |event| event.readers.extend(devices));
    }

    /// The event was written to one more connection, which is asked for a receipt.
    pub fn on_written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.known.reports.on_event(self.event, |event| event.written += 1);
    }

    /// A connection to which the event was written has answered; call it once per connection. `device` is set only if
    /// it is proven; `visible`: its app is on the screen at this moment.
    pub fn on_received(&self, user: &str, device: Option<DeviceNumber>, visible: bool, arrival: Arrival) {
        self.note_received(user, device, visible, arrival);
        self.make_room();
        self.report(user, device, visible, arrival, false);
    }

    /// A client has resumed from a position at or behind this event: a receipt for an earlier connection. That
    /// connection may have answered itself, so a receipt counts only if its device or user is new. For clients without
    /// user and device only pongs count.
    pub fn on_resumed(&self, user: &str, device: Option<DeviceNumber>, visible: bool, arrival: Arrival) {
        if self.note_resumed(user, device, visible, arrival) {
            self.make_room();
            self.report(user, device, visible, arrival, true);
        }
    }

    /// After everything that adds something, without this event's lock.
    fn make_room(&self) {
        if self.budget.is_exceeded()
            && let Some(table) = self.table.upgrade()
        {
            table.make_room();
        }
    }

    /// Frees all but who has received it; from now on only that is collected.
    fn strip(&self) {
        if let Some(state) = &mut *lock(&self.state) {
            state.is_cut |= !state.users.is_empty();
            (state.users, state.user_bytes, state.is_bare) = (BTreeSet::new(), 0, true);
            (state.arrivals, state.arrived) = (BTreeMap::new(), Vec::new());
            state.recharge();
        }
    }

    /// Frees what it has collected; nothing is collected any more.
    fn forget(&self) {
        let state = lock(&self.state).take();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether its receipts were dropped, because there were too many events or they took too much memory.
    pub fn is_forgotten(&self) -> bool {
        lock(&self.state).is_none()
    }

    fn report(&self, user: &str, device: Option<DeviceNumber>, is_visible: bool, arrival: Arrival, has_resumed: bool) {
        let user = if self.terms.every_client { user } else { "" }; // Else nobody asks.
        self.known.reports.on_event(self.event, |event| {
            let Arrival { client, at } = arrival;
            event.answers.push(Answer { user: user.into(), device, is_visible, client, at, has_resumed });
        });
    }

    /// Takes what another node of a cluster reports, as if it had happened here, but does not report it. The caller makes room
    /// then.
    fn take_in(&self, report: EventReport) {
        self.written.fetch_add(report.written, Ordering::Relaxed);
        self.note_readers(&report.readers.into_iter().collect());
        for Answer { user, device, is_visible, client, at, has_resumed } in report.answers {
            let arrival = Arrival { client, at };
            match has_resumed {
                true => _ = self.note_resumed(&user, device, is_visible, arrival),
                false => self.note_received(&user, device, is_visible, arrival),
            }
        }
    }

    fn note_readers(&self, devices: &RoaringBitmap) {
        if let Some(state) = &mut *lock(&self.state) {
            state.readers.extend(devices);
            state.recharge();
        }
        self.changed.notify_waiters();
    }

    fn note_received(&self, user: &str, device: Option<DeviceNumber>, visible: bool, arrival: Arrival) {
        if let Some(state) = &mut *lock(&self.state) {
            self.note(state, user, device, visible, arrival);
            state.recharge();
            self.add_received(state);
        }
        self.changed.notify_waiters();
    }

    /// Returns whether the device had not answered before.
    fn note_resumed(&self, user: &str, device: Option<DeviceNumber>, visible: bool, arrival: Arrival) -> bool {
        if let Some(state) = &mut *lock(&self.state) {
            if device.is_some_and(|device| state.devices.set().contains(device.0)) {
                return false;
            }
            let is_new = self.note(state, user, device, visible, arrival);
            state.recharge();
            if is_new {
                self.add_received(state);
            }
        }
        self.changed.notify_waiters();
        true
    }

    /// Whether this is a device or a user that had not received the event before.
    fn note(
        &self,
        state: &mut State,
        user: &str,
        device: Option<DeviceNumber>,
        visible: bool,
        arrival: Arrival,
    ) -> bool {
        let device = device.filter(|_| visible || self.terms.policy == ReceiptPolicy::Any);
        let is_new_device = device.is_some_and(|device| state.devices.insert(device.0));
        if let Some(device) =
            device.filter(|_| is_new_device && !state.is_bare && state.arrivals.len() < ARRIVAL_COUNT_MAX)
        {
            state.arrivals.insert(device.0, arrival);
            state.arrived.push(arrival.at);
        }
        // An anonymous client has no user to list.
        if !self.terms.every_client || user.is_empty() || state.users.contains(user) {
            return is_new_device;
        }
        if state.is_bare || state.users.len() >= RECEIPT_USER_COUNT_MAX || user.len() > USER_BYTES_MAX {
            state.is_cut = true;
            return is_new_device;
        }
        state.user_bytes += USER_BYTES + user.len();
        state.users.insert(user.into())
    }

    /// Counts a receipt, but never more than were written: a pong may come after its client has resumed elsewhere.
    fn add_received(&self, state: &mut State) {
        if state.received < self.written.load(Ordering::Relaxed) {
            state.received += 1;
        }
    }

    /// Whether a new receipt would still be useful.
    pub(crate) fn is_of_use(&self, now: Timestamp) -> bool {
        self.terms.every_client || now < self.terms.until
    }

    /// Devices whose receipt would count now: readers whose app is visible, or all readers if the event does not ask
    /// for visibility. Devices that have answered are among them. Devices that are connected to another node of a cluster are
    /// taken for readers, because that is not known in time. None if the event is forgotten.
    pub fn may_answer(&self) -> RoaringBitmap {
        let readers = lock(&self.state).as_ref().map(|state| state.readers.set().clone());
        let Some(readers) = readers else { return RoaringBitmap::new() };
        let (connected, visible) = self.known.elsewhere.all();
        match self.terms.policy {
            ReceiptPolicy::Any => readers | connected,
            ReceiptPolicy::Visible => (readers | connected) & (visible | &lock(&self.known.visible).devices),
        }
    }

    /// Devices whose receipt counts. `None` if the event is forgotten: who has received it is not known any more, and no
    /// further receipt will count. So nobody is to be held back for one.
    pub fn received(&self) -> Option<RoaringBitmap> {
        lock(&self.state).as_ref().map(|state| state.devices.set().clone())
    }

    /// Where and when the receipt of a device came; `None` without one that counts, beyond [`ARRIVAL_COUNT_MAX`], and if the
    /// event is forgotten.
    pub fn arrival(&self, device: DeviceNumber) -> Option<Arrival> {
        lock(&self.state).as_ref()?.arrivals.get(&device.0).copied()
    }

    /// When the receipts of devices came, counted from `start`, of the first [`ARRIVAL_COUNT_MAX`]; `None` without any, and
    /// if the event is forgotten.
    pub fn time_to(&self, start: Timestamp) -> Option<TimeTo> {
        let state = lock(&self.state);
        let arrived = &state.as_ref()?.arrived;
        let last = arrived.len().checked_sub(1)?;
        let at = |part: usize| arrived[(arrived.len() * part).div_ceil(100).saturating_sub(1)].saturating_since(start);
        let last = arrived[last].saturating_since(start);
        Some(TimeTo { first: arrived[0].saturating_since(start), p50: at(50), p90: at(90), p99: at(99), p100: last })
    }

    /// Whether a proven connection of the device read a channel of the event when it was published there, or has resumed
    /// over it. `None` if the event is forgotten.
    pub fn is_reader(&self, device: DeviceNumber) -> Option<bool> {
        lock(&self.state).as_ref().map(|state| state.readers.set().contains(device.0))
    }

    /// How many bytes it takes at most.
    pub fn bytes_len(&self) -> usize {
        lock(&self.state).as_ref().map_or(0, |state| state.charge.bytes())
    }

    /// The current numbers. They mean nothing if the event [is forgotten](Self::is_forgotten) after this call.
    pub fn summary(&self) -> ReceiptSummary {
        let state = lock(&self.state);
        let state = state.as_ref();
        ReceiptSummary {
            // Read under the lock: what was received had been written before, so this is not smaller than `received`.
            written: self.written.load(Ordering::Relaxed),
            received: state.map_or(0, |state| state.received),
            users: state.into_iter().flat_map(|state| &state.users).map(|user| user.to_string()).collect(),
            users_complete: state.is_some_and(|state| !state.is_cut),
        }
    }

    /// Resolves after the next change of readers or receipts, also when they are forgotten; several changes may resolve it once. Changes count from
    /// this call on, not from the first poll. So a caller that calls this before it looks misses nothing.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

// Users are often names of people.
impl fmt::Debug for EventReceipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReceipts").field("event", &self.event).field("terms", &self.terms).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
