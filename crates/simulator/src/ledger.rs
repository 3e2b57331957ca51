//! What each device got.
//!
//! Per device token the accepted notifications in the order of their first acceptance: id, hash of the collapse id,
//! how often accepted. Beside it counters of everything else that was answered or done to a connection. A ledger
//! outlives connections and stops of the simulator; it is in memory only.
//!
//! Shape: [`SHARD_COUNT`] shards by token, each behind its own lock, held for one look-up. A shard is a map from token
//! to device, an array of notifications (40 bytes each, chained per device) and an index of them by (device, id). A
//! million devices with four notifications each take about 300 MiB.
//!
//! Full (devices or notifications, each bound shared out evenly over the shards): the acceptance is counted as
//! `unrecorded` and not kept; what is already kept still counts its repeats.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use tidings_types::{DeviceToken, Timestamp};
use uuid::Uuid;

use crate::Reason;

/// Shards: enough that a handful of threads seldom meet.
const SHARD_COUNT: usize = 16;

/// Ends a chain of notifications.
const NONE: u32 = u32::MAX;

/// What was accepted for each device, and how often anything else happened.
pub struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    device_count_max: usize,
    notification_count_max: usize,
    pub(crate) counters: Counters,
}

/// One notification a device got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Its `apns-id`.
    pub apns_id: Uuid,
    /// [`collapse_hash`] of its `apns-collapse-id`, if it had one, as of its first acceptance.
    pub collapse_hash: Option<u64>,
    /// How often it was accepted; more than 1 is a duplicate.
    pub count: u32,
}

/// The ledger in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerSummary {
    /// Acceptances, repeats included.
    pub accepted: u64,
    /// Acceptances of an `apns-id` that the token had already got.
    pub repeated: u64,
    /// Acceptances that found the ledger full.
    pub unrecorded: u64,
    /// Devices that got something.
    pub devices: u64,
    /// Different (token, `apns-id`) pairs accepted.
    pub notifications: u64,
    /// Rejections by reason; reasons that did not occur are left out.
    pub rejected: BTreeMap<Reason, u64>,
    /// The first acceptance.
    pub first_at: Option<Timestamp>,
    /// The last acceptance.
    pub last_at: Option<Timestamp>,
    /// Connections whose handshake was finished.
    pub connections: u64,
    /// Connections closed at once, by fault or because there were too many.
    pub connections_refused: u64,
    /// Connections reset by fault.
    pub resets: u64,
    /// Streams refused by fault or above the limit.
    pub streams_refused: u64,
    /// GOAWAYs by fault.
    pub goaways: u64,
    /// Stalls by fault.
    pub stalls: u64,
    /// The most streams seen open at once on one connection.
    pub streams_open_max: u64,
    /// Streams opened above the limit that the client had acknowledged.
    pub stream_limit_violations: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    repeated: AtomicU64,
    unrecorded: AtomicU64,
    rejected: [AtomicU64; Reason::ALL.len()],
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
    devices: HashMap<DeviceToken, DeviceChain>,
    notifications: Vec<Notification>,
    index: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct DeviceChain {
    number: u32,
    newest: u32,
}

/// 40 bytes; there may be millions.
struct Notification {
    apns_id: [u8; 16],
    /// Zero without a collapse id.
    collapse_hash: u64,
    count: u32,
    device: u32,
    earlier: u32,
}

impl Ledger {
    pub(crate) fn new(device_count_max: usize, notification_count_max: usize) -> Self {
        let per_shard = |bound: usize| bound.div_ceil(SHARD_COUNT).min(NONE as usize - 1);
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            device_count_max: per_shard(device_count_max),
            notification_count_max: per_shard(notification_count_max),
            counters: Counters::default(),
        }
    }

    /// Acceptances, repeats included.
    pub fn accepted_total(&self) -> u64 {
        self.counters.accepted.load(Relaxed)
    }

    /// Rejections for `reason`.
    pub fn rejected_total(&self, reason: Reason) -> u64 {
        self.counters.rejected[reason as usize].load(Relaxed)
    }

    /// The notifications that a device got more than once, with its token.
    pub fn duplicates(&self) -> Vec<(DeviceToken, LedgerEntry)> {
        if self.counters.repeated.load(Relaxed) == 0 {
            return Vec::new(); // The usual case must not walk millions of notifications.
        }
        self.entries().filter(|(_, entry)| entry.count > 1).collect()
    }

    /// What the device with this token got, the earliest first; nothing for a text that is no token.
    pub fn for_token(&self, token_hex: &str) -> Vec<LedgerEntry> {
        DeviceToken::from_hex(token_hex).map(|token| self.for_device(&token)).unwrap_or_default()
    }

    /// What the device with this token got, the earliest first.
    pub fn for_device(&self, token: &DeviceToken) -> Vec<LedgerEntry> {
        let shard = self.shard(token);
        shard.devices.get(token).map(|device| shard.entries(*device)).unwrap_or_default()
    }

    /// Everything that any device got, devices in no order, each device's notifications the earliest first.
    ///
    /// Copies one shard at a time: what is accepted meanwhile may be missing.
    pub fn entries(&self) -> impl Iterator<Item = (DeviceToken, LedgerEntry)> + '_ {
        self.shards.iter().flat_map(|shard| {
            let shard = lock(shard);
            let of = |(token, device): (&DeviceToken, &DeviceChain)| {
                let token = token.clone();
                shard.entries(*device).into_iter().map(move |entry| (token.clone(), entry))
            };
            shard.devices.iter().flat_map(of).collect::<Vec<_>>()
        })
    }

    /// The numbers, each right by itself; while requests run, they may be of slightly different moments.
    pub fn summary(&self) -> LedgerSummary {
        let counters = &self.counters;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let moment = |counter: &AtomicU64| Some(count(counter)).filter(|at| *at > 0).map(Timestamp);
        let (mut devices, mut notifications) = (0, 0);
        for shard in &self.shards {
            let shard = lock(shard);
            devices += shard.devices.len() as u64;
            notifications += shard.notifications.len() as u64;
        }
        let rejected = Reason::ALL.iter().map(|reason| (*reason, self.rejected_total(*reason)));
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

    pub(crate) fn record_accepted(&self, token: &DeviceToken, id: Uuid, collapse_id: Option<&[u8]>, now: Timestamp) {
        let counters = &self.counters;
        let collapse_hash = collapse_id.map_or(0, collapse_hash);
        match self.keep(token, id.into_bytes(), collapse_hash) {
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

    pub(crate) fn record_rejected(&self, reason: Reason) {
        bump(&self.counters.rejected[reason as usize]);
    }

    fn keep(&self, token: &DeviceToken, apns_id: [u8; 16], collapse_hash: u64) -> Kept {
        let hash_of = |device: u32, apns_id: &[u8; 16]| self.hasher.hash_one((device, apns_id));
        let mut shard = self.shard(token);
        let Shard { devices, notifications, index } = &mut *shard;
        let device_count = devices.len();
        let known = devices.get_mut(token);
        if let Some(device) = &known {
            let same = |at: &u32| {
                let notification = &notifications[*at as usize];
                notification.device == device.number && notification.apns_id == apns_id
            };
            if let Some(at) = index.find(hash_of(device.number, &apns_id), same) {
                let count = &mut notifications[*at as usize].count;
                *count = count.saturating_add(1);
                return Kept::Again;
            }
        }
        if notifications.len() >= self.notification_count_max {
            return Kept::Full;
        }
        let at = notifications.len() as u32; // Below NONE: see the bound in `new`.
        let (device, earlier) = match known {
            Some(device) => (device.number, std::mem::replace(&mut device.newest, at)),
            None if device_count >= self.device_count_max => return Kept::Full,
            None => {
                let number = device_count as u32;
                devices.insert(token.clone(), DeviceChain { number, newest: at });
                (number, NONE)
            }
        };
        notifications.push(Notification { apns_id, collapse_hash, count: 1, device, earlier });
        index.insert_unique(hash_of(device, &apns_id), at, |at| {
            let notification = &notifications[*at as usize];
            hash_of(notification.device, &notification.apns_id)
        });
        Kept::First
    }

    fn shard(&self, token: &DeviceToken) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(token) as usize % SHARD_COUNT])
    }
}

impl Shard {
    fn entries(&self, device: DeviceChain) -> Vec<LedgerEntry> {
        let mut entries = Vec::new();
        let mut at = device.newest;
        while at != NONE {
            let notification = &self.notifications[at as usize];
            entries.push(LedgerEntry {
                apns_id: Uuid::from_bytes(notification.apns_id),
                collapse_hash: Some(notification.collapse_hash).filter(|hash| *hash != 0),
                count: notification.count,
            });
            at = notification.earlier;
        }
        entries.reverse();
        entries
    }
}

enum Kept {
    First,
    Again,
    Full,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

/// The hash by which the ledger remembers a collapse id: 64-bit FNV-1a; never 0.
pub fn collapse_hash(collapse_id: &[u8]) -> u64 {
    let mut hasher = Fnv::default();
    hasher.write(collapse_id);
    hasher.finish().max(1)
}

/// 64-bit FNV-1a (RFC 9923): the same everywhere and for ever.
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

    proptest! {
        #[test]
        fn the_ledger_is_a_map_from_token_to_ids_in_order(acceptances in prop::collection::vec((0u8..6, 0u8..6), 0..120)) {
            let ledger = Ledger::new(1000, 16_000);
            let mut model: BTreeMap<DeviceToken, Vec<(Uuid, u32)>> = BTreeMap::new();
            for (device, id) in &acceptances {
                let id = Uuid::from_u128(u128::from(*id));
                ledger.record_accepted(&token(*device), id, None, Timestamp(1));
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
    fn a_full_ledger_counts_what_it_cannot_keep_and_still_sees_repeats() {
        let ledger = Ledger::new(SHARD_COUNT, SHARD_COUNT); // One of each per shard.
        for id in 0..2 {
            ledger.record_accepted(&token(1), Uuid::from_u128(id), None, Timestamp(5));
        }
        ledger.record_accepted(&token(1), Uuid::from_u128(0), None, Timestamp(9));
        let summary = ledger.summary();
        assert_eq!((summary.accepted, summary.unrecorded, summary.repeated), (3, 1, 1));
        assert_eq!((summary.first_at, summary.last_at), (Some(Timestamp(5)), Some(Timestamp(9))));
    }

    #[test]
    fn a_collapse_id_is_remembered_by_the_published_hash() {
        let ledger = Ledger::new(16, 16);
        ledger.record_accepted(&token(1), Uuid::nil(), Some(b"a"), Timestamp(1));
        // The FNV-1a test vector for "a" (RFC 9923).
        assert_eq!(ledger.for_device(&token(1))[0].collapse_hash, Some(0xaf63_dc4c_8601_ec8c));
        assert_eq!(collapse_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
