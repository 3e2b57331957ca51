//! What a source of events has done, for operators: its status, its counters, and log lines that do not repeat.
//!
//! Every source has one [`Tracker`], whatever its kind. Texts of entries never reach the log: the log says where an
//! entry is wrong, and the status says why.
//!
//! Bounds: [`SOURCE_COUNT_MAX`] sources, because each has its own series of metrics; [`WRONG_COUNT_MAX`] wrong entries
//! are in the status, the newest; [`TOLD_COUNT_MAX`] different reasons are logged, each once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use tidings_telemetry::metrics::intake as table;
use tidings_telemetry::{Counter, Gauge, Registry, panics, unix_now};
use tidings_types::Timestamp;
use tracing::{info, warn};

/// Sources of one server.
pub const SOURCE_COUNT_MAX: usize = 64;
/// Wrong entries that a report or a status names.
pub const WRONG_COUNT_MAX: usize = 20;
/// Reasons for skipping that a report names; entries with further reasons are counted under one name.
pub const REASON_COUNT_MAX: usize = 16;
/// Different reasons of wrong entries that are logged.
const TOLD_COUNT_MAX: usize = 100;
/// Characters of a text in the status. A longer one is cut.
const TEXT_CHARACTERS_MAX: usize = 500;

/// What became of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Entries that were sent as events.
    pub sent: u64,
    /// Entries that had been sent before.
    pub repeated: u64,
    /// Entries that are not to be sent.
    pub skipped: u64,
    /// Entries that cannot be sent.
    pub wrong: u64,
}

impl Counts {
    /// All entries.
    pub fn entries(&self) -> u64 {
        self.sent + self.repeated + self.skipped + self.wrong
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.repeated += other.repeated;
        self.skipped += other.skipped;
        self.wrong += other.wrong;
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            repeated: self.repeated - before.repeated,
            skipped: self.skipped - before.skipped,
            wrong: self.wrong - before.wrong,
        }
    }
}

/// An entry that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongEntry {
    /// Where it is in its document.
    pub at: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What became of the entries of one document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The numbers.
    pub counts: Counts,
    /// How many entries were skipped for which reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first wrong entries.
    pub wrong: Vec<WrongEntry>,
}

impl Report {
    pub(crate) fn skip(&mut self, reason: &str) {
        self.counts.skipped += 1;
        let is_room = self.reasons.len() < REASON_COUNT_MAX || self.reasons.contains_key(reason);
        *self.reasons.entry(if is_room { reason } else { "other reasons" }.to_owned()).or_default() += 1;
    }

    pub(crate) fn note_wrong(&mut self, wrong: WrongEntry) {
        self.counts.wrong += 1;
        if self.wrong.len() < WRONG_COUNT_MAX {
            self.wrong.push(wrong);
        }
    }
}

/// The status of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// The operator's name for it.
    pub name: String,
    /// What it consists of, such as `rss`.
    pub kind: &'static str,
    /// How its entries come: `polled`, `received`, `files` and so on.
    pub how: &'static str,
    /// Where they come from, without secrets.
    pub place: Option<String>,
    /// It is being read.
    pub is_reading: bool,
    /// When it was last read or tried.
    pub read_at: Option<Timestamp>,
    /// When that last worked.
    pub worked_at: Option<Timestamp>,
    /// When it is read next.
    pub next_at: Option<Timestamp>,
    /// The `ETag` of its last document.
    pub etag: Option<String>,
    /// Entries that are known.
    pub known: usize,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure of these.
    pub error: Option<String>,
    /// The entries of the last document that had any.
    pub last: Counts,
    /// The entries since the server started.
    pub total: Counts,
    /// The newest wrong entries.
    pub wrong: VecDeque<WrongEntry>,
}

/// Keeps the status of a source, and its metrics.
#[derive(Debug)]
pub struct Tracker {
    status: Mutex<SourceStatus>,
    told: Mutex<HashSet<u64>>,
    hasher: RandomState,
    metrics: Metrics,
}

impl Tracker {
    /// A source that has done nothing yet.
    pub fn new(name: &str, kind: &'static str, how: &'static str, place: Option<String>, registry: &Registry) -> Self {
        let status = SourceStatus {
            name: name.to_owned(),
            kind,
            how,
            place,
            is_reading: false,
            read_at: None,
            worked_at: None,
            next_at: None,
            etag: None,
            known: 0,
            failures: 0,
            error: None,
            last: Counts::default(),
            total: Counts::default(),
            wrong: VecDeque::new(),
        };
        let metrics = Metrics::new(registry, name);
        Self { status: Mutex::new(status), told: Mutex::default(), hasher: RandomState::new(), metrics }
    }

    /// The status now.
    pub fn status(&self) -> SourceStatus {
        panics::lock(&self.status).clone()
    }

    /// Changes the status.
    pub fn update(&self, change: impl FnOnce(&mut SourceStatus)) {
        change(&mut panics::lock(&self.status));
    }

    /// Counts bytes that were read.
    pub fn count_bytes(&self, bytes: u64) {
        self.metrics.bytes.add(bytes);
    }

    /// Counts entries. Call it once for each entry, as soon as its fate is known.
    pub fn count(&self, counts: Counts) {
        let Counts { sent, repeated, skipped, wrong } = counts;
        for (counter, count) in self.metrics.entries.iter().zip([sent, repeated, skipped, wrong]) {
            counter.add(count);
        }
        self.update(|status| status.total += counts);
    }

    /// Notes a wrong entry, and logs its place if the reason is a new one.
    pub fn note_wrong(&self, mut wrong: WrongEntry) -> WrongEntry {
        wrong.reason = cut(&wrong.reason);
        let is_new = {
            let mut told = panics::lock(&self.told);
            told.len() < TOLD_COUNT_MAX && told.insert(self.hasher.hash_one(&wrong.reason))
        };
        let mut status = panics::lock(&self.status);
        if is_new {
            warn!(source = %status.name, at = %wrong.at, "An entry cannot become an event; `tidings feeds status` says why");
        }
        if status.wrong.len() >= WRONG_COUNT_MAX {
            status.wrong.pop_front();
        }
        status.wrong.push_back(wrong.clone());
        wrong
    }

    /// Reading begins.
    pub fn began(&self) {
        self.update(|status| status.is_reading = true);
    }

    /// Reading worked. `last`: the entries, if there was a document.
    pub fn worked(&self, last: Option<Counts>) {
        let now = unix_now();
        self.metrics.documents[usize::from(last.is_none())].inc();
        self.metrics.failures.set(0);
        let mut status = panics::lock(&self.status);
        (status.is_reading, status.read_at, status.worked_at) = (false, Some(now), Some(now));
        if std::mem::take(&mut status.failures) > 0 {
            info!(source = %status.name, "Source can be read again");
        }
        status.error = None;
        status.last = last.unwrap_or(status.last);
    }

    /// There was nothing new to read.
    pub fn looked(&self) {
        let now = unix_now();
        self.metrics.failures.set(0);
        self.update(|status| {
            (status.is_reading, status.read_at, status.worked_at) = (false, Some(now), Some(now));
            (status.failures, status.error) = (0, None);
        });
    }

    /// Reading failed. The first failure in a row is logged.
    pub fn failed(&self, error: &str) {
        self.metrics.documents[2].inc();
        let mut status = panics::lock(&self.status);
        (status.is_reading, status.read_at) = (false, Some(unix_now()));
        status.failures = status.failures.saturating_add(1);
        self.metrics.failures.set(status.failures.into());
        let error = cut(error);
        if status.failures == 1 {
            warn!(source = %status.name, error, "Source cannot be read, it is tried again");
        }
        status.error = Some(error);
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

#[derive(Debug)]
struct Metrics {
    /// Read, unchanged, failed.
    documents: [Counter; 3],
    /// Sent, repeated, skipped, wrong.
    entries: [Counter; 4],
    bytes: Counter,
    failures: Gauge,
}

impl Metrics {
    fn new(registry: &Registry, source: &str) -> Self {
        let documents = |result| registry.counter(&table::DOCUMENTS_TOTAL, &[source, result]);
        let entries = |result| registry.counter(&table::ENTRIES_TOTAL, &[source, result]);
        Self {
            documents: ["read", "unchanged", "failed"].map(documents),
            entries: ["sent", "repeated", "skipped", "wrong"].map(entries),
            bytes: registry.counter(&table::BYTES_TOTAL, &[source]),
            failures: registry.gauge(&table::FAILURES, &[source]),
        }
    }
}
