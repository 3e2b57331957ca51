//! What the devices of all jobs went through, kept for a stated time: [`Trails`].
//!
//! A job writes into its trail with every change of its books. Whoever asks why a device did or did not get an event reads
//! it ([`crate::Sender::why`]). The trail stays for `why_ttl` after the job is done. A trail is in memory only: after a
//! restart, what happened before is unknown, and a job that goes on begins a trail that says so.
//!
//! Bound: `why_bytes_max` for all trails together, counted when a job is done and looked at every second for running jobs.
//! When it is exceeded, the trails of the jobs that were done first are forgotten. When there are none, the oldest running
//! job begins a new trail. Nothing is sent or counted by a trail.
//!
//! Locks: that of the table of trails, and one for each trail. Both are held shortly, the former never while the latter is
//! waited for, except to count bytes.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_hub::EventReceipts;
use tidings_jobs::{JobPart, Note, Trail};
use tidings_telemetry::panics::{Locked, lock};
use tidings_types::{AppId, JournalPosition, Locale, Provider, Timestamp};

/// The shortest time between two looks at what is too old or too much: a look goes over all open trails.
const TRIM_PERIOD: Duration = Duration::from_secs(1);
/// About the bytes of a trail beside its sets.
const TRAIL_BYTES: usize = 512;

/// The trails of the jobs that are not done, and of those that are done since `ttl` at most.
pub(crate) struct Trails {
    ttl: Duration,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    open: BTreeMap<JournalPosition, Arc<Mutex<JobTrail>>>,
    closed: BTreeMap<JournalPosition, Closed>,
    /// The closed ones in the order in which they were closed.
    order: VecDeque<(Timestamp, JournalPosition)>,
    closed_bytes: usize,
    trimmed_at: Timestamp,
}

struct Closed {
    trail: Arc<Mutex<JobTrail>>,
    bytes: usize,
}

/// The trail of one job.
pub(crate) struct JobTrail {
    pub(crate) trail: Trail,
    /// Who got the event over a live connection.
    pub(crate) receipts: Option<Arc<EventReceipts>>,
    /// What the cells of texts mean. Known when the job is done.
    pub(crate) texts: Vec<Text>,
    /// The job is done.
    pub(crate) is_closed: bool,
}

/// What the devices of one cell were told in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) provider: Provider,
    pub(crate) app: AppId,
    /// `None`: the source language of the topic.
    pub(crate) locale: Option<Locale>,
}

impl From<&JobPart> for Text {
    fn from(part: &JobPart) -> Self {
        Self { provider: part.provider, app: part.app.clone(), locale: part.locale.clone() }
    }
}

impl JobTrail {
    pub(crate) fn new(is_whole: bool, now: Timestamp) -> Self {
        Self { trail: Trail::new(is_whole, now), receipts: None, texts: Vec::new(), is_closed: false }
    }

    fn bytes_len(&self) -> usize {
        TRAIL_BYTES + self.trail.bytes_len() + self.receipts.as_ref().map_or(0, |receipts| receipts.bytes_len())
    }
}

impl Trails {
    pub(crate) fn new(ttl: Duration, bytes_max: usize) -> Self {
        Self { ttl, bytes_max, kept: Mutex::default() }
    }

    /// The trail of a job that is not done. If there is none yet, it begins; `is_whole` if its job begins as well.
    pub(crate) fn open(&self, position: JournalPosition, is_whole: bool, now: Timestamp) -> Arc<Mutex<JobTrail>> {
        let new = || Arc::new(Mutex::new(JobTrail::new(is_whole, now)));
        lock(&self.kept).open.entry(position).or_insert_with(new).clone()
    }

    /// This happened to devices of a job that does not run.
    pub(crate) fn note(&self, position: JournalPosition, note: Note, devices: RoaringBitmap, now: Timestamp) {
        // If its trail was forgotten, a new one does not know what was before.
        let trail = self.open(position, false, now);
        lock(&trail).trail.note(note, devices, now);
    }

    /// The job is done.
    pub(crate) fn close(&self, position: JournalPosition, parts: &[JobPart], now: Timestamp) {
        let mut kept = lock(&self.kept);
        let Some(trail) = kept.open.remove(&position) else { return };
        let bytes = {
            let mut trail = lock(&trail);
            trail.texts = parts.iter().map(Text::from).collect();
            trail.is_closed = true;
            trail.trail.close();
            trail.bytes_len()
        };
        kept.closed_bytes += bytes;
        kept.order.push_back((now, position));
        kept.closed.insert(position, Closed { trail, bytes });
    }

    /// The trail of a job, while it is kept.
    pub(crate) fn get(&self, position: JournalPosition) -> Option<Arc<Mutex<JobTrail>>> {
        let kept = lock(&self.kept);
        let closed = || kept.closed.get(&position).map(|closed| closed.trail.clone());
        kept.open.get(&position).cloned().or_else(closed)
    }

    /// The positions of all kept trails before `before`, newest first.
    pub(crate) fn newest(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JournalPosition> {
        let kept = lock(&self.kept);
        let end = before.unwrap_or(JournalPosition(u64::MAX));
        let open = kept.open.range(..end).rev().take(limit).map(|(position, _)| *position);
        let closed = kept.closed.range(..end).rev().take(limit).map(|(position, _)| *position);
        let mut newest: Vec<JournalPosition> = open.chain(closed).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.truncate(limit);
        newest
    }

    /// Forgets what is too old or too much; looks once in [`TRIM_PERIOD`].
    pub(crate) fn trim(&self, now: Timestamp) {
        let mut kept = lock(&self.kept);
        // A clock that was set back must not stop it.
        if now >= kept.trimmed_at && now.saturating_since(kept.trimmed_at) < TRIM_PERIOD {
            return;
        }
        kept.trimmed_at = now;
        while let Some(&(closed_at, _)) = kept.order.front()
            && now.saturating_since(closed_at) >= self.ttl
        {
            kept.forget_first();
        }
        let open_bytes: usize = kept.open.values().map(|trail| lock(trail).bytes_len()).sum();
        while kept.closed_bytes + open_bytes > self.bytes_max && kept.forget_first() {}
        if open_bytes > self.bytes_max
            && let Some(oldest) = kept.open.values().next()
        {
            let mut oldest: Locked<'_, JobTrail> = lock(oldest);
            *oldest = JobTrail { receipts: oldest.receipts.take(), ..JobTrail::new(false, now) };
        }
    }

    /// About how many bytes all trails take.
    #[cfg(test)]
    fn bytes_len(&self) -> usize {
        let kept = lock(&self.kept);
        kept.closed_bytes + kept.open.values().map(|trail| lock(trail).bytes_len()).sum::<usize>()
    }
}

impl Kept {
    /// Forgets the trail of the job that was done first; false if there is none.
    fn forget_first(&mut self) -> bool {
        let Some((_, position)) = self.order.pop_front() else { return false };
        let closed = self.closed.remove(&position);
        self.closed_bytes -= closed.map_or(0, |mut closed| mem::take(&mut closed.bytes));
        true
    }
}

#[cfg(test)]
mod tests {
    use tidings_jobs::DeviceOutcome;
    use tidings_types::DeviceNumber;

    use super::*;

    const TTL: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_000_000).saturating_add(Duration::from_secs(seconds))
    }

    /// A done job for every 64th of so many numbers.
    fn done(trails: &Trails, position: u64, end: u32, now: Timestamp) {
        let position = JournalPosition(position);
        let trail = trails.open(position, true, now);
        let devices = (0..end).step_by(64).collect();
        lock(&trail).trail.note(Note::Ended(DeviceOutcome::Accepted), devices, now);
        trails.close(position, &[], now);
    }

    #[test]
    fn a_trail_is_kept_for_its_time_after_its_job_is_done() {
        let trails = Trails::new(TTL, 1 << 20);
        done(&trails, 1, 64, at(0));
        let running = trails.open(JournalPosition(2), true, at(0));
        done(&trails, 3, 64, at(1800));
        trails.trim(at(3599));
        assert_eq!(trails.newest(None, 9), [3, 2, 1].map(JournalPosition));
        assert_eq!(trails.newest(Some(JournalPosition(3)), 1), [JournalPosition(2)]);
        trails.trim(at(3600));
        assert_eq!(trails.newest(None, 9), [3, 2].map(JournalPosition), "a running job keeps its trail");
        assert!(Arc::ptr_eq(&running, &trails.open(JournalPosition(2), false, at(9))));
        trails.trim(at(9000));
        assert_eq!(trails.newest(None, 9), [JournalPosition(2)]);
        assert!(trails.get(JournalPosition(1)).is_none());
    }

    #[test]
    fn the_oldest_are_forgotten_first_when_there_is_no_room() {
        let bytes_max = 50_000;
        let trails = Trails::new(TTL, bytes_max);
        for position in 1..100 {
            done(&trails, position, 128 * 64, at(position));
            trails.trim(at(position));
            assert!(trails.bytes_len() <= bytes_max, "{}", trails.bytes_len());
        }
        let kept = trails.newest(None, 1000);
        assert!(kept.len() > 10 && kept.len() < 99, "{}", kept.len());
        assert!(kept.iter().copied().eq((1..100).rev().map(JournalPosition).take(kept.len())), "{kept:?}");
    }

    #[test]
    fn a_running_job_with_too_much_begins_anew_and_says_so() {
        let trails = Trails::new(TTL, 10_000);
        let trail = trails.open(JournalPosition(1), true, at(0));
        lock(&trail).trail.note(Note::HandedOut(0), (0..1_000_000).step_by(33).collect(), at(0));
        trails.trim(at(5));
        let trail = lock(&trail);
        assert!(!trail.trail.is_whole() && trail.trail.begun_at() == at(5));
        assert_eq!(trail.trail.of(DeviceNumber(33)), []);
    }
}
