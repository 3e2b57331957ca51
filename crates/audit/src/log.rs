//! The handle with which entries are recorded and read.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_batch::{Announce, BatchConfig, BatchWriter, Full, Loss};
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics;
use tidings_telemetry::rfc3339::Rfc3339;
use tidings_telemetry::{Registry, metrics, unix_now};
use tidings_types::Timestamp;
use tracing::info;

use crate::entry::{Entry, LOST};
use crate::files::Files;
use crate::read::{self, Page, Query};
use crate::window::Window;

/// Bytes of lines that wait for the disk.
pub const BUFFER_BYTES: usize = 1 << 20;
/// Lines that wait for the disk.
const LINE_COUNT_MAX: usize = 10_000;
/// Bytes that are written at once.
const PAGE_BYTES: usize = 16 << 10;

/// The settings.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    /// The folder of the files. It is made when the first line is written.
    pub folder: PathBuf,
    /// The most bytes of a file, at least 64 KiB.
    pub file_bytes_max: u64,
    /// The most files, at least 2.
    pub file_count_max: usize,
    /// Whether each line is also logged, with the target `audit`.
    pub is_logged: bool,
}

/// Records and reads entries; cheap to clone.
#[derive(Clone)]
pub struct Audit(Arc<Log>);

struct Log {
    folder: PathBuf,
    is_logged: bool,
    window: Mutex<Window>,
    lines: BatchWriter,
}

/// What the audit log may hold in memory.
pub fn memory_terms() -> Vec<Term> {
    vec![Term::peak("audit lines to write", 1, batching().memory_bytes_max(), "audit.enabled")]
}

fn batching() -> BatchConfig {
    BatchConfig {
        page_bytes: PAGE_BYTES,
        count_max: LINE_COUNT_MAX,
        bytes_max: BUFFER_BYTES,
        full: Full::DropNewest, // What was done before a flood of lines is kept.
        linger: Duration::ZERO,
        write_timeout: Duration::from_secs(60),
        announce: Some(Announce::new(announce)),
    }
}

impl Audit {
    /// Starts the thread that writes. Files are opened when there is something to write, and a folder that cannot be
    /// written makes no difference to callers.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(config: AuditConfig, registry: &Registry) -> io::Result<Self> {
        let AuditConfig { folder, file_bytes_max, file_count_max, is_logged } = config;
        let files = Files::new(folder.clone(), file_bytes_max, file_count_max);
        let lines = BatchWriter::new(batching(), files);
        lines.start_thread("audit")?;
        let audit = Self(Arc::new(Log { folder, is_logged, window: Mutex::default(), lines }));
        audit.register(registry);
        Ok(audit)
    }

    /// Records an attempt. Never waits for the disk.
    pub fn record(&self, entry: Entry) {
        let now = unix_now();
        let mut window = panics::lock(&self.0.window);
        window.turn(now).iter().for_each(|sum| self.write(sum));
        if let Some(entry) = window.offer(entry, now) {
            self.write(&entry);
        }
    }

    /// Writes what was only counted in the seconds before `now`. Call it once a second.
    pub fn sum_up(&self, now: Timestamp) {
        let mut window = panics::lock(&self.0.window);
        window.turn(now).iter().for_each(|sum| self.write(sum));
    }

    fn write(&self, entry: &Entry) {
        let line = entry.line();
        if self.0.is_logged {
            let text = str::from_utf8(&line).unwrap_or_default().trim_end();
            info!(target: "audit", entry = text, "Audit");
        }
        let _ = self.0.lines.write(&line); // The writer counts what is lost.
    }

    /// Entries of the log. Reads files, so it may block.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn read(&self, query: &Query) -> io::Result<Page> {
        read::page(&self.0.folder, query)
    }

    /// Writes all that was recorded, and ends.
    ///
    /// # Cancel safety
    /// If the future is dropped, writing goes on.
    pub async fn close(&self, patience: Duration) {
        self.sum_up(unix_now().saturating_add(Duration::from_secs(1)));
        let _ = self.0.lines.close(patience).await; // What did not get out in time is counted as lost; nobody reads that now.
    }

    fn register(&self, registry: &Registry) {
        let log = Arc::downgrade(&self.0);
        let counted = move |value: fn(&Log) -> u64| -> Arc<dyn Fn() -> f64 + Send + Sync> {
            let log = log.clone();
            Arc::new(move || log.upgrade().map_or(0.0, |log| value(&log) as f64))
        };
        registry.computed(&metrics::audit::LINES_TOTAL, &[], counted(|log| log.lines.counters().sent));
        let lost = |log: &Log| {
            let counters = log.lines.counters();
            counters.dropped + counters.refused + panics::lock(&log.window).lost()
        };
        registry.computed(&metrics::audit::LOST_TOTAL, &[], counted(lost));
    }
}

/// The line that stands in the file where lines are missing.
fn announce(loss: Loss, line: &mut Vec<u8>) {
    let entry = Entry { at: Rfc3339(unix_now()), count: loss.count, ..Entry::of_system(LOST, false) };
    line.extend(entry.line());
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}
