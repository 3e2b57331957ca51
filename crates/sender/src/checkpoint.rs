//! Writes the progress of the jobs into the store.
//!
//! Each checkpoint is one atomic batch: the rows of all jobs that changed, and the journal position up to which events
//! have a job. A checkpoint may lag behind the facts but is never ahead. So after a crash nothing is skipped, and only
//! what was handed out since is repeated. When the store refuses a checkpoint, the next one includes its changes.
//!
//! A job that takes devices over from older ones hands nothing out before it and they are in a checkpoint
//! ([`crate::supersede`]): such a job asks for one. If the store refuses that checkpoint, the job goes on nevertheless.
//!
//! Pace: one per `checkpoint_interval`, or [`PAUSE_MIN`] after the last one when it is asked for, but at most
//! [`BYTES_PER_SECOND_MAX`], because the row of a job that waits for one of several pools holds a bit per device.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tidings_jobs::{JobRow, Telling};
use tidings_store::{Store, WriteError};
use tidings_telemetry::{chain, unix_now};
use tidings_types::JournalPosition;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::job::Job;
use crate::phase::Phase;
use crate::registry::{Finished, JobRegistry, Table};

/// Bytes of rows per second, so that checkpoints leave the disk to events.
const BYTES_PER_SECOND_MAX: u32 = 32 << 20;
/// The shortest time between two checkpoints.
const PAUSE_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Checkpointer {
    pub(crate) store: Store,
    pub(crate) registry: Arc<JobRegistry>,
    pub(crate) interval: Duration,
    pub(crate) report_count_max: usize,
    /// Whether reports are delivered. If not, undelivered reports are not kept longer than others.
    pub(crate) tell_finished: bool,
    /// The position up to which the store knows that events have a job.
    pub(crate) dispatched: JournalPosition,
    /// Jobs are deleted before their report was delivered. Logged once.
    pub(crate) losing_untold: bool,
}

/// The content of one checkpoint.
struct Snapshot {
    rows: Vec<(JournalPosition, Vec<u8>)>,
    /// The finished jobs of `rows`, with the state of their report.
    finished: Vec<(JournalPosition, Option<Telling>)>,
    /// The jobs that wait for it.
    barred: Vec<Arc<Job>>,
    next: JournalPosition,
    floor: JournalPosition,
}

impl Checkpointer {
    /// Writes checkpoints until the sender closes, then the last one, which it repeats until it is written.
    pub(crate) async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        loop {
            let closing = *phase.borrow_and_update() == Phase::Closing;
            let written = self.write().await;
            self.registry.trails.trim(unix_now());
            if closing && written.is_ok() {
                return;
            }
            let bytes = written.unwrap_or(0);
            let pause = Duration::from_secs_f64(bytes as f64 / f64::from(BYTES_PER_SECOND_MAX));
            let asked = async {
                sleep(pause.max(PAUSE_MIN)).await;
                self.registry.more_barred.notified().await;
            };
            tokio::select! {
                () = sleep(pause.max(self.interval)) => {}
                () = asked => {}
                _ = phase.wait_for(|phase| *phase == Phase::Closing), if !closing => {}
            }
        }
    }

    /// Writes what has changed and returns the number of bytes.
    async fn write(&mut self) -> Result<usize, WriteError> {
        let Snapshot { rows, finished, barred, next, floor } = self.snapshot();
        if rows.is_empty() && next == self.dispatched && barred.is_empty() {
            // Too many kept reports would block new jobs. That happens after a start with a smaller limit, or after a
            // failure here.
            self.forget(&[]).await?;
            return Ok(0);
        }
        let bytes = rows.iter().map(|(_, row)| row.len()).sum();
        let positions: Vec<JournalPosition> = rows.iter().map(|&(position, _)| position).collect();
        let metrics = &self.registry.metrics;
        let written = self.store.put_jobs(rows, Some(next)).await;
        barred.iter().for_each(|job| job.unbar(metrics));
        if let Err(error) = written {
            metrics.checkpoints_failed.inc();
            tracing::debug!(error = chain(&error), "a checkpoint was not written");
            self.spoil(&positions);
            return Err(error);
        }
        metrics.checkpoints.inc();
        metrics.checkpoint_bytes.add(bytes as u64);
        self.dispatched = next;
        self.store.trim(floor);
        self.forget(&finished).await?;
        Ok(bytes)
    }

    fn snapshot(&self) -> Snapshot {
        let mut table = self.registry.table();
        let (next, floor) = (table.next, table.floor());
        let running: Vec<_> = table.running.values().cloned().collect();
        let waiting = table.waiting.take_dirty();
        let barred = mem::take(&mut table.barred);
        let finished: Vec<_> = dirty(&table).map(|(&position, finished)| (position, finished.telling)).collect();
        let mut rows: Vec<_> = dirty(&table).map(|(&position, finished)| (position, row(finished))).collect();
        drop(table);
        // Outside of the table's lock. A job that finishes meanwhile gets a running row with nothing left to do.
        rows.extend(waiting.into_iter().map(|(position, progress)| (position, JobRow::Running(progress).encode())));
        rows.extend(running.iter().filter_map(|job| Some((job.position, job.checkpoint()?))));
        Snapshot { rows, finished, barred, next, floor }
    }

    fn spoil(&self, positions: &[JournalPosition]) {
        let mut table = self.registry.table();
        for &position in positions {
            table.running.get(&position).into_iter().for_each(|job| job.spoil_checkpoint());
            table.waiting.spoil_checkpoint(position);
        }
    }

    /// Keeps only the last finished jobs. Jobs whose finished row is not in the store yet stay, because their old rows
    /// say "running". Jobs with an undelivered report are deleted last, if reports are delivered at all.
    async fn forget(&mut self, written: &[(JournalPosition, Option<Telling>)]) -> Result<(), WriteError> {
        self.clear(written);
        let old: Vec<JournalPosition> = {
            let table = self.registry.table();
            let excess = table.finished.len().saturating_sub(self.report_count_max);
            let tells = self.tell_finished;
            let clean = |spared| {
                let finished = table.finished.iter();
                finished.filter(move |(_, finished)| !finished.dirty && (tells && finished.is_owed()) == spared)
            };
            clean(false).chain(clean(true)).map(|(&position, _)| position).take(excess).collect()
        };
        if old.is_empty() {
            return Ok(());
        }
        self.store.remove_jobs(old.clone()).await?;
        let untold = {
            let mut table = self.registry.table();
            let Table { finished, untold, .. } = &mut *table;
            let removed = old.iter().filter_map(|position| {
                untold.remove(position);
                finished.remove(position)
            });
            removed.filter(Finished::is_owed).count()
        };
        self.registry.metrics.jobs_untold.sub(untold as i64);
        self.registry.metrics.untold_forgotten.add(untold as u64);
        if untold > 0 && !self.losing_untold {
            tracing::warn!(limit = self.report_count_max, "finished jobs are forgotten before they were told");
        }
        self.losing_untold = untold > 0;
        Ok(())
    }

    /// Marks the written jobs as stored, unless they have changed since. Only now may their reports be sent, so that a
    /// report says what a restart finds.
    fn clear(&self, written: &[(JournalPosition, Option<Telling>)]) {
        let mut table = self.registry.table();
        let Table { finished, untold, unwritten, .. } = &mut *table;
        let mut more = false;
        for &(position, telling) in written {
            unwritten.remove(&position);
            if let Some(finished) = finished.get_mut(&position).filter(|finished| finished.telling == telling) {
                finished.dirty = false;
                more |= finished.is_owed() && untold.insert(position);
            }
        }
        drop(table);
        if more {
            self.registry.more_untold.notify_one();
        }
    }
}

fn dirty(table: &Table) -> impl Iterator<Item = (&JournalPosition, &Finished)> {
    table.finished.iter().filter(|(_, finished)| finished.dirty)
}

fn row(Finished { report, telling, .. }: &Finished) -> Vec<u8> {
    JobRow::Finished(Box::new(report.clone()), *telling).encode()
}
