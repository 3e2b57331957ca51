//! Receipts in a cluster: each node reports to all others what its connections show. The one that leads decides by that who is
//! pushed, and the others know enough to lead next.
//!
//! ```text
//!   a node:       connections ──► receipts ──► what was not reported yet ──(take)──► Report ···► the other nodes
//!   another one:  Report ──► the receipts of the event, as if its own connections had answered
//!                       └──► which devices are connected elsewhere, and which are visible there
//! ```
//!
//! - The home must know who may answer before an event comes, because a push that was handed out cannot be taken back. So a node
//!   reports which proven devices are connected to it. Until the home hears more, each of them may answer ([`Elsewhere`]).
//!   It announces a device before it lets the client in, and counts it as connected and visible for a moment.
//! - What a node reports of an event is added to what another one knows, and is not reported by that one. A report that is
//!   lost makes one push too many, never one too few.
//! - A node may hear of receipts before it has opened the event itself ([`Early`]).
//!
//! Bounds: what waits to be reported is bounded by the connections and those that are being let in, and to
//! [`EVENT_COUNT_MAX`] events. What came early is bounded to [`EARLY_EVENT_COUNT_MAX`] events, counts in the budget of all
//! receipts, and is kept for [`RECEIPTS_TTL`].

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tidings_protocol::ClientId;
use tidings_telemetry::panics::lock;
use tidings_types::{DeviceNumber, JournalPosition, Timestamp};
use tokio::sync::Notify;

use crate::budget::{Budget, Charge};

/// How long an event's receipts can still be read after their time.
pub const RECEIPTS_TTL: Duration = Duration::from_secs(60);
/// Events of which something waits to be reported.
const EVENT_COUNT_MAX: usize = 1024;
/// Events that are not open here of which something was reported.
const EARLY_EVENT_COUNT_MAX: usize = 256;

/// What a node reports to the home. Its serde form is JSON, for the wire between nodes of one version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// It has all devices of the node, not only what has changed.
    #[serde(rename = "all", default)]
    is_whole: bool,
    /// Devices that are connected now, and were not at the last report.
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    came: Vec<u32>,
    /// Devices that were connected, and are not any more.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<u32>,
    /// Devices whose app is visible now.
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    shown: Vec<u32>,
    /// Devices whose app was visible.
    #[serde(rename = "h", default, skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<u32>,
    /// It was made after this announcement of the node, and before the next one.
    #[serde(rename = "n", default)]
    announcement: u64,
    /// What was received.
    #[serde(rename = "e", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) events: Vec<EventReport>,
}

/// What a node reports of one event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct EventReport {
    #[serde(rename = "p")]
    pub(crate) event: JournalPosition,
    /// Connections to which it was written.
    #[serde(rename = "w", default)]
    pub(crate) written: u64,
    /// Devices that read it.
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) readers: Vec<u32>,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<Answer>,
}

impl EventReport {
    /// How many bytes it takes in memory, about; its lists may be half empty.
    fn bytes_len(&self) -> usize {
        let of_answer = |answer: &Answer| 2 * size_of::<Answer>() + answer.user.len();
        let of_answers = self.answers.iter().map(of_answer).sum::<usize>();
        size_of::<Self>() + 2 * size_of::<u32>() * self.readers.len() + of_answers
    }
}

/// A receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(rename = "u", default, skip_serializing_if = "str::is_empty")]
    pub(crate) user: Box<str>,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceNumber>,
    #[serde(rename = "v", default)]
    pub(crate) is_visible: bool,
    #[serde(rename = "c")]
    pub(crate) client: ClientId,
    #[serde(rename = "t")]
    pub(crate) at: Timestamp,
    /// By the position of a client that came back, not by a pong.
    #[serde(rename = "b", default)]
    pub(crate) has_resumed: bool,
}

impl Report {
    /// About how many bytes it takes on the wire.
    pub fn weight(&self) -> usize {
        let devices = self.came.len() + self.gone.len() + self.shown.len() + self.hidden.len();
        let of_event = |event: &EventReport| {
            let users: usize = event.answers.iter().map(|answer| answer.user.len()).sum();
            64 + 8 * event.readers.len() + 120 * event.answers.len() + users
        };
        8 * devices + self.events.iter().map(of_event).sum::<usize>()
    }
}

/// What a node has yet to report. Off until [`Reports::begin`].
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// The devices are known from then on.
    is_on: AtomicBool,
    /// What is received is collected.
    has_listeners: AtomicBool,
    unsent: Mutex<Unsent>,
    waiting: Notify,
}

#[derive(Debug, Default)]
struct Unsent {
    connected: RoaringBitmap,
    /// Connections beyond the first of a device.
    more: HashMap<u32, u32>,
    visible: RoaringBitmap,
    /// Devices that count as connected and visible until then.
    announced: BTreeMap<u32, Timestamp>,
    /// How many announcements there were.
    announcement: u64,
    /// What the last report made of them.
    told_connected: RoaringBitmap,
    told_visible: RoaringBitmap,
    /// The next report has all devices.
    is_whole: bool,
    events: BTreeMap<JournalPosition, EventReport>,
}

impl Reports {
    /// From now on there is something to report.
    pub(crate) fn begin(&self) {
        self.is_on.store(true, Ordering::Relaxed);
        self.has_listeners.store(true, Ordering::Relaxed);
        self.forget();
    }

    /// There is nobody to report to for now. The devices are still known, for a later [`Reports::begin`].
    pub(crate) fn end(&self) {
        self.has_listeners.store(false, Ordering::Relaxed);
        lock(&self.unsent).events.clear();
    }

    fn note(&self, note: impl FnOnce(&mut Unsent)) {
        if self.is_on.load(Ordering::Relaxed) {
            note(&mut lock(&self.unsent));
            self.waiting.notify_one();
        }
    }

    pub(crate) fn on_event(&self, event: JournalPosition, note: impl FnOnce(&mut EventReport)) {
        if !self.has_listeners.load(Ordering::Relaxed) {
            return;
        }
        self.note(|unsent| {
            note(unsent.events.entry(event).or_insert_with(|| EventReport { event, ..EventReport::default() }));
            if unsent.events.len() > EVENT_COUNT_MAX {
                unsent.events.pop_first(); // Nobody takes reports. Its devices are pushed.
            }
        });
    }

    pub(crate) fn on_connected(&self, device: DeviceNumber) {
        self.note(|unsent| {
            if !unsent.connected.insert(device.0) {
                *unsent.more.entry(device.0).or_default() += 1;
            }
        });
    }

    pub(crate) fn on_gone(&self, device: DeviceNumber) {
        self.note(|unsent| match unsent.more.get_mut(&device.0) {
            Some(1) => drop(unsent.more.remove(&device.0)),
            Some(count) => *count -= 1,
            None => drop(unsent.connected.remove(device.0)),
        });
    }

    /// A client on the device is about to be let in. That it is gone says nothing: it may have been the one before. Returns the
    /// number of this announcement.
    pub(crate) fn announce(&self, device: DeviceNumber, until: Timestamp) -> u64 {
        let mut number = 0;
        self.note(|unsent| {
            unsent.announced.insert(device.0, until);
            unsent.announcement += 1;
            number = unsent.announcement;
        });
        number
    }

    /// The client is let in: its connection counts now, and whether its app is visible is known.
    pub(crate) fn settle(&self, device: DeviceNumber) {
        self.note(|unsent| _ = unsent.announced.remove(&device.0));
    }

    /// Forgets announcements whose time is over.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut unsent = lock(&self.unsent);
        let count = unsent.announced.len();
        unsent.announced.retain(|_, until| now < *until);
        if unsent.announced.len() < count {
            self.waiting.notify_one();
        }
    }

    /// Whether the device is visible over any connection.
    pub(crate) fn on_visible(&self, device: DeviceNumber, is_visible: bool) {
        self.note(|unsent| {
            let _was = if is_visible { unsent.visible.insert(device.0) } else { unsent.visible.remove(device.0) };
        });
    }

    /// What there is to report; afterwards nothing is. `None`: nothing.
    pub(crate) fn take(&self) -> Option<Report> {
        let mut unsent = lock(&self.unsent);
        let Unsent { connected, visible, announced, told_connected, told_visible, .. } = &mut *unsent;
        let announced = RoaringBitmap::from_sorted_iter(announced.keys().copied()).expect("a map is sorted");
        let (came, gone) = difference(told_connected, &*connected | &announced);
        let (shown, hidden) = difference(told_visible, &*visible | &announced);
        let events = mem::take(&mut unsent.events).into_values().collect();
        let is_whole = mem::take(&mut unsent.is_whole);
        let report = Report { is_whole, came, gone, shown, hidden, announcement: 0, events };
        (report != Report::default()).then_some(Report { announcement: unsent.announcement, ..report })
    }

    /// The next report has all devices again.
    pub(crate) fn forget(&self) {
        let mut unsent = lock(&self.unsent);
        (unsent.told_connected, unsent.told_visible) = Default::default();
        unsent.is_whole = true;
        self.waiting.notify_one();
    }

    /// Resolves when there is something to report.
    pub(crate) async fn waiting(&self) {
        self.waiting.notified().await;
    }
}

/// What is new and what is gone; `told` is as `now` afterwards.
fn difference(told: &mut RoaringBitmap, now: RoaringBitmap) -> (Vec<u32>, Vec<u32>) {
    let (new, gone) = ((&now - &*told).iter().collect(), (&*told - &now).iter().collect());
    *told = now;
    (new, gone)
}

/// The devices that are connected to other nodes, by node.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(Mutex<HashMap<u64, Devices>>);

#[derive(Debug, Default)]
struct Devices {
    /// They are all of the node's devices.
    is_whole: bool,
    connected: RoaringBitmap,
    visible: RoaringBitmap,
    /// Devices that were announced after the last report was made, with the number of the announcement. Announcements and reports
    /// overtake each other.
    announced: BTreeMap<u32, u64>,
}

impl Elsewhere {
    /// Takes what a node reports of its devices. Returns whether all of them are known now.
    pub(crate) fn take(&self, node: u64, report: &Report) -> bool {
        let mut nodes = lock(&self.0);
        if report.is_whole {
            let announced = nodes.remove(&node).map(|devices| devices.announced).unwrap_or_default();
            nodes.insert(node, Devices { is_whole: true, announced, ..Devices::default() });
        }
        let Some(devices) = nodes.get_mut(&node) else { return false };
        devices.connected.extend(&report.came);
        devices.visible.extend(&report.shown);
        for (set, removed) in [(&mut devices.connected, &report.gone), (&mut devices.visible, &report.hidden)] {
            *set -= RoaringBitmap::from_iter(removed);
        }
        devices.announced.retain(|_, number| *number > report.announcement);
        devices.connected.extend(devices.announced.keys());
        devices.visible.extend(devices.announced.keys());
        devices.is_whole
    }

    /// The node is about to let clients on these devices in, and reports them in a moment. `number`: that of its last
    /// announcement. A report that was made before takes nothing of it back.
    pub(crate) fn announce(&self, node: u64, devices: &[u32], number: u64) {
        if let Some(known) = lock(&self.0).get_mut(&node) {
            known.connected.extend(devices);
            known.visible.extend(devices);
            known.announced.extend(devices.iter().map(|device| (*device, number)));
        }
    }

    pub(crate) fn knows(&self, node: u64) -> bool {
        lock(&self.0).get(&node).is_some_and(|devices| devices.is_whole)
    }

    /// A report may be lost.
    pub(crate) fn forget(&self, node: u64) {
        if let Some(devices) = lock(&self.0).get_mut(&node) {
            devices.is_whole = false;
        }
    }

    /// Forgets the nodes that are not among these.
    pub(crate) fn retain(&self, nodes: &[u64]) {
        lock(&self.0).retain(|node, _| nodes.contains(node));
    }

    /// All devices that are connected elsewhere, and those of them that are visible there.
    pub(crate) fn all(&self) -> (RoaringBitmap, RoaringBitmap) {
        let nodes = lock(&self.0);
        nodes.values().fold(Default::default(), |(connected, visible), devices| {
            (connected | &devices.connected, visible | &devices.visible)
        })
    }
}

/// What was reported of events that are not open here yet: this node may be later than the one that reports.
///
/// Beyond [`EARLY_EVENT_COUNT_MAX`] events the oldest one goes: its devices are pushed.
#[derive(Debug, Default)]
pub(crate) struct Early(BTreeMap<JournalPosition, EarlyEvent>);

#[derive(Debug)]
struct EarlyEvent {
    reports: Vec<EventReport>,
    bytes: usize,
    /// For them.
    charge: Charge,
    /// When a sweep saw it first.
    seen: Option<Timestamp>,
}

impl Early {
    /// The caller makes room then.
    pub(crate) fn put(&mut self, report: EventReport, budget: &Arc<Budget>) {
        let new = || EarlyEvent { reports: Vec::new(), bytes: 0, charge: Charge::none(budget), seen: None };
        let early = self.0.entry(report.event).or_insert_with(new);
        early.bytes += report.bytes_len();
        early.charge.set(early.bytes);
        early.reports.push(report);
        if self.0.len() > EARLY_EVENT_COUNT_MAX {
            self.forget();
        }
    }

    /// Forgets the oldest event; false if there is none.
    pub(crate) fn forget(&mut self) -> bool {
        self.0.pop_first().is_some()
    }

    /// What they take of the budget.
    #[cfg(test)]
    pub(crate) fn bytes_len(&self) -> usize {
        self.0.values().map(|early| early.charge.bytes()).sum()
    }

    /// The event is open now.
    pub(crate) fn take(&mut self, event: JournalPosition) -> Vec<EventReport> {
        self.0.remove(&event).map(|early| early.reports).unwrap_or_default()
    }

    /// Forgets what nobody has asked for in [`RECEIPTS_TTL`].
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.0.retain(|_, early| now < early.seen.get_or_insert(now).saturating_add(RECEIPTS_TTL));
    }
}

#[cfg(test)]
mod tests;
