//! Counts what scans read, by the place in the code that asks.
//!
//! A scan skips deleted rows that no compaction has dropped yet, and fjall does not tell how many. They show as time: if a place
//! takes much longer per row than before, its scans skip many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Who reads rows in a range, and at most how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Opening a store, or beginning to lead: all rows of a table.
    Open,
    /// Checking and restoring a backup: all rows of a table.
    Backup,
    /// The subscriptions or mutes of one device: `subscription_count_max`, `mute_count_max`.
    Device,
    /// The history of one channel: its `history_size`.
    History,
    /// A page of the journal: what its reader asks for, and about 8 MiB.
    Journal,
    /// A page of scheduled events, like that of the journal; or the next one.
    Later,
    /// All ids of events, for scheduled events behind an unreadable block.
    LaterIds,
    /// A page of a list or an export of devices: what its reader asks for.
    DeviceIds,
    /// What is known of one feed: its bound of entries.
    Feed,
    /// All pauses: [`PAUSE_COUNT_MAX`](crate::brakes::PAUSE_COUNT_MAX).
    Brakes,
    /// A round that deletes changes, ends mutes, forgets channels, finds idle devices, or reads ids into memory: the bound
    /// that the round states.
    Changes,
    MuteEnds,
    Channels,
    IdleDevices,
    IdHints,
}

impl Place {
    pub(crate) const ALL: [Self; 15] = [
        Self::Open,
        Self::Backup,
        Self::Device,
        Self::History,
        Self::Journal,
        Self::Later,
        Self::LaterIds,
        Self::DeviceIds,
        Self::Feed,
        Self::Brakes,
        Self::Changes,
        Self::MuteEnds,
        Self::Channels,
        Self::IdleDevices,
        Self::IdHints,
    ];

    /// The value of the label `place`.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Backup => "backup",
            Self::Device => "device",
            Self::History => "history",
            Self::Journal => "journal",
            Self::Later => "later",
            Self::LaterIds => "later_ids",
            Self::DeviceIds => "device_ids",
            Self::Feed => "feed",
            Self::Brakes => "brakes",
            Self::Changes => "changes",
            Self::MuteEnds => "mute_ends",
            Self::Channels => "channels",
            Self::IdleDevices => "idle_devices",
            Self::IdHints => "id_hints",
        }
    }
}

/// The counters of all places.
#[derive(Debug, Default)]
pub(crate) struct Scans([Count; Place::ALL.len()]);

#[derive(Debug, Default)]
struct Count {
    scans: AtomicU64,
    rows: AtomicU64,
    nanoseconds: AtomicU64,
}

/// What one place has read since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) scans: u64,
    pub(crate) rows: u64,
    pub(crate) elapsed: Duration,
}

impl Scans {
    pub(crate) fn of(&self, place: Place) -> Scanned {
        let Count { scans, rows, nanoseconds } = &self.0[place as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Scanned { scans: read(scans), rows: read(rows), elapsed: Duration::from_nanos(read(nanoseconds)) }
    }

    /// Counts a scan until the result is dropped.
    pub(super) fn begin(&self, place: Place) -> Scan<'_> {
        Scan { count: &self.0[place as usize], began: Instant::now(), rows: 0 }
    }
}

pub(super) struct Scan<'a> {
    count: &'a Count,
    began: Instant,
    rows: u64,
}

impl Scan<'_> {
    pub(super) fn visit(&mut self) {
        self.rows += 1;
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.count.scans.fetch_add(1, Ordering::Relaxed);
        self.count.rows.fetch_add(self.rows, Ordering::Relaxed);
        let nanoseconds = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.count.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

// The position of a place in `ALL` is its value as an integer.
const _: () = {
    let mut place = 0;
    while place < Place::ALL.len() {
        assert!(Place::ALL[place] as usize == place);
        place += 1;
    }
};
