//! Sinks for inspection, and configurations.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_batch::{Announce, BatchConfig, BatchWriter, Counters, Full, Sink};
use tokio::sync::Semaphore;

/// Long enough for a busy machine, short enough for a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn config(page_bytes: usize, count_max: usize, full: Full) -> BatchConfig {
    BatchConfig {
        page_bytes,
        count_max,
        bytes_max: 1 << 20,
        full,
        linger: Duration::ZERO,
        write_timeout: Duration::from_secs(60),
        announce: Some(Announce::line()),
    }
}

/// Stores its pages, and accepts one for each permit.
#[derive(Clone)]
pub(crate) struct Gate {
    pages: Arc<Mutex<Vec<String>>>,
    permits: Arc<Semaphore>,
    closed: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn open() -> Self {
        let gate = Self::closed();
        gate.allow(Semaphore::MAX_PERMITS);
        gate
    }

    pub(crate) fn closed() -> Self {
        Self { pages: Arc::default(), permits: Arc::new(Semaphore::new(0)), closed: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) fn allow(&self, page_count: usize) {
        self.permits.add_permits(page_count);
    }

    pub(crate) fn pages(&self) -> Vec<String> {
        self.pages.lock().unwrap().clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.available_permits() == 1
    }
}

impl Sink for Gate {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.permits.acquire().await.unwrap().forget();
        self.pages.lock().unwrap().push(String::from_utf8(page.to_vec()).unwrap());
        Ok(())
    }

    async fn close(&mut self) {
        self.closed.add_permits(1);
    }
}

/// Ends with the test.
pub(crate) struct Running(tokio::task::JoinSet<()>);

impl Running {
    /// The driver has ended by itself.
    pub(crate) async fn ended(mut self) {
        tokio::time::timeout(PATIENCE, self.0.join_next()).await.unwrap().unwrap().unwrap();
    }

    /// The task is cut off.
    pub(crate) async fn aborted(mut self) {
        self.0.shutdown().await;
    }
}

pub(crate) fn start(writer: &BatchWriter) -> Running {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(writer.driver().unwrap().run());
    Running(tasks)
}

/// Waits until the counters are as `check` says.
pub(crate) async fn until(writer: &BatchWriter, check: impl Fn(&Counters) -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !check(&writer.counters()) {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", writer.counters());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn write_all(writer: &BatchWriter, messages: &[&str]) {
    for message in messages {
        writer.write(message.as_bytes()).unwrap();
    }
}

#[track_caller]
pub(crate) fn check_law(counters: &Counters) {
    let held = (counters.waiting + counters.in_flight) as u64;
    assert_eq!(counters.total, counters.sent + counters.dropped + counters.refused + held, "{counters:?}");
}
