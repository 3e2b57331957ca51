//! The ledger: what each device got.
//!
//! For each device address (token or endpoint) it keeps the accepted notifications in the order of their first
//! acceptance: the id, the hash of the tag, and how often the notification was accepted. For FCM and Web Push it also
//! keeps the title, and which notifications are still shown. Counters tell everything else: other answers, and faults of
//! connections. The ledger is in memory only. It outlives connections, and a stop of the simulator.
//!
//! APNs' notifications have an id from the sender. The others have none: two notifications with the same content for the
//! same device count as one notification that came twice.
//!
//! The ledger has [`SHARD_COUNT`] shards by address. Each has its own lock, which is held for one look-up. A shard has a
//! table from address to device, an array of notifications (40 bytes each, chained per device) and an index of the
//! notifications by (device, id). The hash of an address gives both its shard and its position there. A million devices
//! with four notifications each take about 300 MiB. Equal titles are stored once, at most [`TITLE_COUNT_MAX`] per shard.
//!
//! The bounds for devices and notifications are divided evenly over the shards. A notification that finds its shard full
//! is counted as `unrecorded` and not kept. Repeats of kept notifications are still counted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use tidings_types::{DeviceToken, Timestamp};
use uuid::Uuid;

use crate::{Reason, Refusal};

/// Enough that a few threads rarely wait for each other.
const SHARD_COUNT: usize = 16;

/// Different titles kept per shard. Notifications with further titles are kept without a title.
const TITLE_COUNT_MAX: usize = 10_000;
/// A longer title is cut.
const TITLE_CHARACTERS_MAX: usize = 256;

/// No index: the end of a chain of notifications, or no title.
const NONE: u32 = u32::MAX;

/// What was accepted for each device, and counters of everything else.
pub struct Ledger<R = Reason> {
    shards: Box<[Mutex<Shard>]>,
    hasher: FxBuildHasher,
    device_count_max: usize,
    notification_count_max: usize,
    pub(crate) counters: Counters,
    rejected: Box<[AtomicU64]>,
    _reasons: PhantomData<fn() -> R>,
}

/// A notification that a device got from APNs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Its `apns-id`.
    pub apns_id: Uuid,
    /// [`collapse_hash`] of the `apns-collapse-id`, if there is one, at the first acceptance.
    pub collapse_hash: Option<u64>,
    /// How often it was accepted; more than 1 is a duplicate.
    pub count: u32,
}

/// A notification that a device got, from any provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageEntry {
    /// APNs: the `apns-id`. FCM and Web Push: a digest of the content.
    pub id: Uuid,
    /// [`collapse_hash`] of the tag, if there is one, at the first acceptance. The tag is the `apns-collapse-id`, Android's
    /// notification tag, or the tag in a Web Push.
    pub tag_hash: Option<u64>,
    /// FCM and Web Push: the title.
    pub title: Option<Arc<str>>,
    /// How often it was accepted; more than 1 is a duplicate.
    pub count: u32,
}

impl From<MessageEntry> for LedgerEntry {
    fn from(entry: MessageEntry) -> Self {
        Self { apns_id: entry.id, collapse_hash: entry.tag_hash, count: entry.count }
    }
}

/// An accepted notification, to be recorded.
pub(crate) struct Accepted<'a> {
    pub(crate) address: &'a [u8],
    pub(crate) id: Uuid,
    /// The notification replaces earlier ones with the same tag.
    pub(crate) tag: Option<&'a [u8]>,
    /// With a title, the ledger also tracks what is shown.
    pub(crate) title: Option<&'a str>,
}

/// The counters of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "R: Refusal")]
pub struct LedgerSummary<R = Reason> {
    /// Acceptances, repeats included.
    pub accepted: u64,
    /// Acceptances of a notification that the device already had.
    pub repeated: u64,
    /// Acceptances that were not recorded because the ledger is full.
    pub unrecorded: u64,
    /// Devices that got something.
    pub devices: u64,
    /// Different (device, notification) pairs accepted.
    pub notifications: u64,
    /// Rejections by reason; reasons that did not occur are left out.
    pub rejected: BTreeMap<R, u64>,
    /// The time of the first acceptance.
    pub first_at: Option<Timestamp>,
    /// The time of the last acceptance.
    pub last_at: Option<Timestamp>,
    /// Connections with a finished handshake.
    pub connections: u64,
    /// Connections closed at once, by a fault or because there were too many.
    pub connections_refused: u64,
    /// Connections reset by a fault.
    pub resets: u64,
    /// Streams refused by a fault or above the limit.
    pub streams_refused: u64,
    /// GOAWAYs by a fault.
    pub goaways: u64,
    /// Stalls by a fault.
    pub stalls: u64,
    /// The most streams that were open at once on one connection.
    pub streams_open_max: u64,
    /// Streams opened above the limit that the client had acknowledged.
    pub stream_limit_violations: u64,
}

impl<R> Default for LedgerSummary<R> {
    fn default() -> Self {
        Self {
            accepted: 0,
            repeated: 0,
            unrecorded: 0,
            devices: 0,
            notifications: 0,
            rejected: BTreeMap::new(),
            first_at: None,
            last_at: None,
            connections: 0,
            connections_refused: 0,
            resets: 0,
            streams_refused: 0,
            goaways: 0,
            stalls: 0,
            streams_open_max: 0,
            stream_limit_violations: 0,
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    repeated: AtomicU64,
    unrecorded: AtomicU64,
    /// Zero before the first acceptance.
    first_at: AtomicU64,
    last_at: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) streams_refused: AtomicU64,
    pub(crate) goaways: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) streams_open_max: AtomicU64,
    pub(crate) stream_limit_violations: AtomicU64,
}

#[derive(Default)]
struct Shard {
    devices: HashTable<Device>,
    notifications: Vec<Notification>,
    index: HashTable<u32>,
    titles: Titles,
    /// The last accepted notification of each device and tag hash. Bounded by the notifications.
    shown: HashMap<(u32, u64), u32>,
}

/// Invariant: `numbers` has the index of each text in `texts`.
#[derive(Default)]
struct Titles {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

struct Device {
    address: Box<[u8]>,
    chain: DeviceChain,
}

#[derive(Clone, Copy)]
struct DeviceChain {
    number: u32,
    newest: u32,
}

/// 40 bytes each; there may be millions.
struct Notification {
    id: [u8; 16],
    /// 0 without a tag.
    tag_hash: u64,
    count: u32,
    device: u32,
    earlier: u32,
    title: u32,
}

impl<R: Refusal> Ledger<R> {
    pub(crate) fn new(device_count_max: usize, notification_count_max: usize) -> Self {
        let per_shard = |bound: usize| bound.div_ceil(SHARD_COUNT).min(NONE as usize - 1);
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: FxBuildHasher,
            device_count_max: per_shard(device_count_max),
            notification_count_max: per_shard(notification_count_max),
            counters: Counters::default(),
            rejected: R::EVERY.iter().map(|_| AtomicU64::new(0)).collect(),
            _reasons: PhantomData,
        }
    }

    /// Acceptances, repeats included.
    pub fn accepted_total(&self) -> u64 {
        self.counters.accepted.load(Relaxed)
    }

    /// Rejections for `reason`.
    pub fn rejected_total(&self, reason: R) -> u64 {
        self.rejected[reason.index()].load(Relaxed)
    }

    /// The notifications that the device with this address got, the earliest first. An address is APNs' token in bytes,
    /// FCM's token, or a browser's endpoint.
    pub fn for_address(&self, address: &[u8]) -> Vec<MessageEntry> {
        let hash = self.hasher.hash_one(address);
        let shard = self.shard(hash);
        shard.device(hash, address).map(|device| shard.entries(device)).unwrap_or_default()
    }

    /// The notifications that the device still shows: of those with the same tag, only the last one. For FCM and Web Push
    /// only.
    pub fn shown_at(&self, address: &[u8]) -> Vec<MessageEntry> {
        let hash = self.hasher.hash_one(address);
        let shard = self.shard(hash);
        let Some(device) = shard.device(hash, address) else { return Vec::new() };
        let is_shown = |(at, notification): &(u32, &Notification)| {
            let tagged = (device.number, notification.tag_hash);
            notification.tag_hash == 0 || shard.shown.get(&tagged).is_some_and(|last| last == at)
        };
        let shown: Vec<_> = shard.chain(device).filter(is_shown).collect();
        shown.into_iter().rev().map(|(_, notification)| shard.entry(notification)).collect()
    }

    /// All notifications with the address of their device. Devices have no order; the notifications of a device come
    /// earliest first.
    ///
    /// Copies one shard at a time: notifications that are accepted meanwhile may be missing.
    pub fn all(&self) -> impl Iterator<Item = (Box<[u8]>, MessageEntry)> + '_ {
        self.shards.iter().flat_map(|shard| {
            let shard = lock(shard);
            let entries = |device: &Device| {
                let address = device.address.clone();
                shard.entries(device.chain).into_iter().map(move |entry| (address.clone(), entry))
            };
            shard.devices.iter().flat_map(entries).collect::<Vec<_>>()
        })
    }

    /// The counters. While requests run, they may be from slightly different moments.
    pub fn summary(&self) -> LedgerSummary<R> {
        let counters = &self.counters;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let moment = |counter: &AtomicU64| Some(count(counter)).filter(|at| *at > 0).map(Timestamp);
        let (mut devices, mut notifications) = (0, 0);
        for shard in &self.shards {
            let shard = lock(shard);
            devices += shard.devices.len() as u64;
            notifications += shard.notifications.len() as u64;
        }
        let rejected = R::EVERY.iter().map(|reason| (*reason, self.rejected_total(*reason)));
        LedgerSummary {
            accepted: count(&counters.accepted),
            repeated: count(&counters.repeated),
            unrecorded: count(&counters.unrecorded),
            devices,
            notifications,
            rejected: rejected.filter(|(_, count)| *count > 0).collect(),
            first_at: moment(&counters.first_at),
            last_at: moment(&counters.last_at),
            connections: count(&counters.connections),
            connections_refused: count(&counters.connections_refused),
            resets: count(&counters.resets),
            streams_refused: count(&counters.streams_refused),
            goaways: count(&counters.goaways),
            stalls: count(&counters.stalls),
            streams_open_max: count(&counters.streams_open_max),
            stream_limit_violations: count(&counters.stream_limit_violations),
        }
    }

    pub(crate) fn record_accepted(&self, accepted: &Accepted<'_>, now: Timestamp) {
        let counters = &self.counters;
        match self.keep(accepted) {
            Kept::First => {}
            Kept::Again => bump(&counters.repeated),
            Kept::Full => bump(&counters.unrecorded),
        }
        bump(&counters.accepted);
        if counters.first_at.load(Relaxed) == 0 {
            let _ = counters.first_at.compare_exchange(0, now.as_millis(), Relaxed, Relaxed);
        }
        counters.last_at.fetch_max(now.as_millis(), Relaxed);
    }

    pub(crate) fn record_rejected(&self, reason: R) {
        bump(&self.rejected[reason.index()]);
    }

    fn keep(&self, accepted: &Accepted<'_>) -> Kept {
        let hash_of = |device: u32, id: &[u8; 16]| self.hasher.hash_one((device, id));
        let (id, tag_hash) = (accepted.id.into_bytes(), accepted.tag.map_or(0, collapse_hash));
        let hash = self.hasher.hash_one(accepted.address);
        let mut shard = self.shard(hash);
        let Shard { devices, notifications, index, titles, shown } = &mut *shard;
        let device_count = devices.len();
        let is_same = |device: &Device| *device.address == *accepted.address;
        let entry = devices.entry(hash, is_same, |device| self.hasher.hash_one(&*device.address));
        if let Entry::Occupied(known) = &entry {
            let device = known.get().chain;
            let same = |at: &u32| {
                let notification = &notifications[*at as usize];
                notification.device == device.number && notification.id == id
            };
            if let Some(at) = index.find(hash_of(device.number, &id), same) {
                let notification = &mut notifications[*at as usize];
                notification.count = notification.count.saturating_add(1);
                if accepted.title.is_some() && notification.tag_hash != 0 {
                    shown.insert((device.number, notification.tag_hash), *at);
                }
                return Kept::Again;
            }
        }
        if notifications.len() >= self.notification_count_max {
            return Kept::Full;
        }
        let at = notifications.len() as u32; // Below NONE: see the bound in `new`.
        let (device, earlier) = match entry {
            Entry::Occupied(mut known) => {
                let chain = &mut known.get_mut().chain;
                (chain.number, std::mem::replace(&mut chain.newest, at))
            }
            Entry::Vacant(_) if device_count >= self.device_count_max => return Kept::Full,
            Entry::Vacant(place) => {
                let number = device_count as u32;
                place.insert(Device { address: accepted.address.into(), chain: DeviceChain { number, newest: at } });
                (number, NONE)
            }
        };
        if accepted.title.is_some() && tag_hash != 0 {
            shown.insert((device, tag_hash), at);
        }
        let title = accepted.title.map_or(NONE, |title| titles.number(title));
        notifications.push(Notification { id, tag_hash, count: 1, device, earlier, title });
        index.insert_unique(hash_of(device, &id), at, |at| {
            let notification = &notifications[*at as usize];
            hash_of(notification.device, &notification.id)
        });
        Kept::First
    }

    /// The shard for this hash. The middle bits choose it: the tables use the lowest and the highest bits, which must
    /// differ within a shard.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(hash >> 32) as usize % SHARD_COUNT])
    }
}

impl Ledger {
    /// The notifications that a device got more than once, with its token.
    pub fn duplicates(&self) -> Vec<(DeviceToken, LedgerEntry)> {
        if self.counters.repeated.load(Relaxed) == 0 {
            return Vec::new(); // The usual case. It must not search millions of notifications.
        }
        self.entries().filter(|(_, entry)| entry.count > 1).collect()
    }

    /// The notifications that the device with this token got, the earliest first. Empty for a text that is not a token.
    pub fn for_token(&self, token_hex: &str) -> Vec<LedgerEntry> {
        DeviceToken::from_hex(token_hex).map(|token| self.for_device(&token)).unwrap_or_default()
    }

    /// The notifications that the device with this token got, the earliest first.
    pub fn for_device(&self, token: &DeviceToken) -> Vec<LedgerEntry> {
        self.for_address(token.as_bytes()).into_iter().map(LedgerEntry::from).collect()
    }

    /// [`all`](Self::all), by token.
    pub fn entries(&self) -> impl Iterator<Item = (DeviceToken, LedgerEntry)> + '_ {
        self.all().map(|(address, entry)| (DeviceToken::from(&*address), entry.into()))
    }
}

impl Titles {
    fn number(&mut self, title: &str) -> u32 {
        let end = title.char_indices().nth(TITLE_CHARACTERS_MAX).map_or(title.len(), |(at, _)| at);
        let title = &title[..end];
        if let Some(number) = self.numbers.get(title) {
            return *number;
        }
        if self.texts.len() >= TITLE_COUNT_MAX {
            return NONE;
        }
        let (number, text) = (self.texts.len() as u32, Arc::<str>::from(title));
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}

impl Shard {
    fn device(&self, hash: u64, address: &[u8]) -> Option<DeviceChain> {
        Some(self.devices.find(hash, |device| *device.address == *address)?.chain)
    }

    /// The device's notifications with their indexes, the latest first.
    fn chain(&self, device: DeviceChain) -> impl Iterator<Item = (u32, &Notification)> {
        let at = |at: u32| Some((at, self.notifications.get(at as usize)?)); // NONE is beyond the end.
        std::iter::successors(at(device.newest), move |(_, notification)| at(notification.earlier))
    }

    fn entry(&self, notification: &Notification) -> MessageEntry {
        MessageEntry {
            id: Uuid::from_bytes(notification.id),
            tag_hash: Some(notification.tag_hash).filter(|hash| *hash != 0),
            title: self.titles.texts.get(notification.title as usize).cloned(),
            count: notification.count,
        }
    }

    fn entries(&self, device: DeviceChain) -> Vec<MessageEntry> {
        let mut entries: Vec<_> = self.chain(device).map(|(_, notification)| self.entry(notification)).collect();
        entries.reverse();
        entries
    }
}

enum Kept {
    First,
    Again,
    Full,
}

impl<R: Refusal> fmt::Debug for Ledger<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

/// The hash of a collapse id or tag in the ledger: 64-bit FNV-1a, never 0.
pub fn collapse_hash(collapse_id: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(collapse_id);
    hasher.finish().max(1)
}

/// 64-bit FNV-1a (RFC 9923). Its result is the same on every machine and in every version.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn token(number: u8) -> DeviceToken {
        DeviceToken::from([number; 32].as_slice())
    }

    fn accept(ledger: &Ledger, device: u8, id: Uuid, tag: Option<&[u8]>, now: Timestamp) {
        ledger.record_accepted(&Accepted { address: &[device; 32], id, tag, title: None }, now);
    }

    proptest! {
        #[test]
        fn the_last_accepted_notification_of_each_tag_is_shown(sent in prop::collection::vec((0u8..3, 0u8..4), 0..60)) {
            let ledger = Ledger::<crate::FcmReason>::new(1000, 16_000);
            // A notification is repeated if both its tag and its text are repeated.
            let (mut order, mut last): (Vec<(u8, u8)>, BTreeMap<u8, u8>) = Default::default();
            for (tag, text) in &sent {
                let (id, title) = (Uuid::from_u128(u128::from(*tag) << 8 | u128::from(*text)), text.to_string());
                let tag_text = [*tag];
                let tag_text = (*tag > 0).then_some(&tag_text[..]); // 0 stands for no tag.
                let accepted = Accepted { address: b"device", id, tag: tag_text, title: Some(&title) };
                ledger.record_accepted(&accepted, Timestamp(1));
                last.insert(*tag, *text);
                if !order.contains(&(*tag, *text)) {
                    order.push((*tag, *text));
                }
            }
            order.retain(|(tag, text)| *tag == 0 || last[tag] == *text);
            let expected: Vec<_> = order.iter().map(|(_, text)| text.to_string()).collect();
            let shown = ledger.shown_at(b"device");
            let shown: Vec<_> = shown.iter().map(|entry| entry.title.as_deref().unwrap_or_default()).collect();
            prop_assert_eq!(shown, expected);
            prop_assert_eq!(ledger.all().count() as u64, ledger.summary().notifications);
        }

        #[test]
        fn the_ledger_maps_each_token_to_its_ids_in_order(acceptances in prop::collection::vec((0u8..6, 0u8..6), 0..120)) {
            let ledger = Ledger::<Reason>::new(1000, 16_000);
            let mut model: BTreeMap<DeviceToken, Vec<(Uuid, u32)>> = BTreeMap::new();
            for (device, id) in &acceptances {
                let id = Uuid::from_u128(u128::from(*id));
                accept(&ledger, *device, id, None, Timestamp(1));
                let got = model.entry(token(*device)).or_default();
                match got.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, count)) => *count += 1,
                    None => got.push((id, 1)),
                }
            }
            for (token, got) in &model {
                let kept: Vec<_> = ledger.for_device(token).iter().map(|entry| (entry.apns_id, entry.count)).collect();
                prop_assert_eq!(&kept, got);
            }
            let summary = ledger.summary();
            prop_assert_eq!(summary.accepted, acceptances.len() as u64);
            prop_assert_eq!(summary.devices, model.len() as u64);
            prop_assert_eq!(summary.notifications + summary.repeated, summary.accepted);
            prop_assert_eq!(ledger.entries().count() as u64, summary.notifications);
            let repeated = model.values().flatten().filter(|(_, count)| *count > 1).count();
            prop_assert_eq!(ledger.duplicates().len(), repeated);
        }
    }

    #[test]
    fn a_full_ledger_counts_new_notifications_and_still_sees_repeats() {
        let ledger = Ledger::<Reason>::new(SHARD_COUNT, SHARD_COUNT); // One of each per shard.
        for id in 0..2 {
            accept(&ledger, 1, Uuid::from_u128(id), None, Timestamp(5));
        }
        accept(&ledger, 1, Uuid::from_u128(0), None, Timestamp(9));
        let summary = ledger.summary();
        assert_eq!((summary.accepted, summary.unrecorded, summary.repeated), (3, 1, 1));
        assert_eq!((summary.first_at, summary.last_at), (Some(Timestamp(5)), Some(Timestamp(9))));
    }

    #[test]
    fn a_collapse_id_is_remembered_by_the_published_hash() {
        let ledger = Ledger::<Reason>::new(16, 16);
        accept(&ledger, 1, Uuid::nil(), Some(b"a"), Timestamp(1));
        // The FNV-1a test vector for "a" (RFC 9923).
        assert_eq!(ledger.for_device(&token(1))[0].collapse_hash, Some(0xaf63_dc4c_8601_ec8c));
        assert_eq!(collapse_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
