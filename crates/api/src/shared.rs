//! What the handlers share, and how they read the store.
//!
//! Bounds: [`Shared::waiting_place`] for requests that wait, permits for reads of the store; one audience is counted at
//! a time.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tidings_audit::Audit;
use tidings_hub::Hub;
use tidings_store::Store;
use tidings_telemetry::Registry;
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::trace::Tracer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::apps::Gate;
use crate::auth::Caller;
use crate::centrifugo::{CentrifugoMetrics, Idempotency};
use crate::config::ApiConfig;
use crate::feed::Feeds;
use crate::job::Jobs;
use crate::places::Places;
use crate::ports::{Connections, EventCheck, Node, System, Texts};
use crate::problem::{Kind, Problem};
use crate::turns::Turns;
use crate::warnings::Configured;

/// How long a request waits for its turn to count an audience: a large one takes a good part of a second.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) config: ApiConfig,
    pub(crate) hub: Arc<Hub>,
    pub(crate) store: Store,
    pub(crate) check: Arc<dyn EventCheck>,
    pub(crate) configured: Arc<dyn Configured>,
    pub(crate) jobs: Arc<dyn Jobs>,
    pub(crate) connections: Arc<dyn Connections>,
    /// `None`: there are none.
    pub(crate) feeds: Option<Arc<dyn Feeds>>,
    pub(crate) texts: Arc<dyn Texts>,
    /// `None`: nothing is recorded.
    pub(crate) audit: Option<Audit>,
    /// `None`: spans go nowhere.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) system: Arc<dyn System>,
    pub(crate) registry: Registry,
    pub(crate) node: Node,
    pub(crate) started: Instant,
    pub(crate) turns: Turns,
    pub(crate) user_turns: Turns,
    /// `None`: apps may not call.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) idempotency: Idempotency,
    pub(crate) centrifugo: CentrifugoMetrics,
    /// Places for requests that wait.
    pub(crate) waits: Places,
    /// Places for large answers of Centrifugo's API.
    pub(crate) large_answers: Places,
    /// Permits for reads of the store: short ones, and those of many rows.
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) page_reads: Arc<Semaphore>,
    /// Permits for reads for apps that have proven nothing yet, so that such callers never delay a backend's read.
    pub(crate) app_reads: Arc<Semaphore>,
    /// One audience is counted at a time.
    pub(crate) previews: Arc<Semaphore>,
}

impl Shared {
    /// A place for a request that may wait for a long time without work. There are a quarter as many as places for all
    /// requests.
    pub(crate) fn waiting_place(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        self.waits.take(caller).ok_or_else(|| {
            let (max, of_key) = (self.waits.count_max(), self.waits.key_count_max());
            let detail = format!(
                "at most {max} requests may wait, a quarter of http.request_count_max, at most {of_key} of one API key"
            );
            Problem::new(Kind::Overloaded, detail).limit(of_key as u64)
        })
    }

    /// Reads the store on a thread that may block. A slow disk must not delay the runtime's own threads, which serve
    /// all connections.
    ///
    /// # Cancel safety
    /// If the future is dropped, the read goes on to its end, and its result is lost.
    pub(crate) async fn read<T, E>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        Ok(self.blocking(&self.reads, read).await.ok_or_else(stopping)??)
    }

    /// Like [`Shared::read`], for a page of an answer, whose many rows take longer. `None`: the server is stopping.
    pub(crate) async fn read_page<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        self.blocking(&self.page_reads, read).await
    }

    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        permits: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = permits.clone().acquire_owned().await.expect("it is never closed");
        let shared = self.clone();
        let working = blocking(move || {
            let _permit = permit; // Held also if the caller hangs up.
            work(&shared)
        });
        working.await.ok()
    }

    /// Waits for the turn to walk over an audience; the caller holds a [`Shared::waiting_place`]. The turn ends when
    /// this is dropped.
    pub(crate) async fn counting_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        match timeout(TURN_TIMEOUT, self.previews.clone().acquire_owned()).await {
            Ok(turn) => Ok(turn.expect("it is never closed")),
            Err(_) => {
                let seconds = TURN_TIMEOUT.as_secs();
                let detail =
                    format!("one audience is counted at a time, and its turn did not come within {seconds} seconds");
                Err(Problem::new(Kind::Overloaded, detail).limit(seconds))
            }
        }
    }
}

pub(crate) fn stopping() -> Problem {
    Problem::new(Kind::Unavailable, "the server is stopping")
}

/// Runs `work` for a request on a thread that may block. A panic there ends this request only.
///
/// # Cancel safety
/// If the future is dropped, `work` goes on to its end.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(|| panics::part_of(Work::Request, work)).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => stopping(),
    })
}
