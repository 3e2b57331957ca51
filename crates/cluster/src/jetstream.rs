//! The broker: a stream of NATS JetStream.
//!
//! The stream has one subject, on which only entries are published, each with the header `Nats-Expected-Last-Sequence`. The
//! leader of the stream refuses an entry whose expectation is not what it has proposed last. Entries are read one by one
//! from the leader, never from a replica, which may lag. Who has put an entry tells the others by an empty message (`NAME.grown`),
//! so that they need not ask often. Nobody may subscribe to the subject without a consumer: otherwise the
//! broker no longer reports that no stream takes it.
//!
//! Source: nats-server 2.15, ADR-56 (what JetStream guarantees), docs.nats.io "JetStream wire API".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, DiscardPolicy, LastRawMessageErrorKind, StorageType, Stream};
use futures_util::StreamExt as _;
use serde::Serialize;
use tidings_telemetry::chain;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::log::{Broker, Unreached};
use crate::writer::Reply;

/// How long a request may take. After it the entry is in doubt, and is put again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a request without an answer.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause between two lines about entries that are not taken.
const SAY_PAUSE: Duration = Duration::from_secs(10);
/// How long a reader waits before it asks again for an entry that is not there: at first, and at most.
const LOOK_PAUSE: Duration = Duration::from_millis(2);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Which stream it is, and how it is made if it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// Its name.
    pub name: String,
    /// On how many servers each entry is.
    pub replica_count: usize,
    /// Bytes of all entries. When it is full, nothing is written until entries are trimmed.
    pub bytes_max: i64,
}

/// A stream of NATS JetStream as a broker. It is used from a thread without a runtime of its own, and the runtime in which it was
/// opened must outlive it.
pub struct JetStream {
    runtime: Handle,
    context: Context,
    stream: Stream<()>,
    name: String,
    subject: String,
    /// Where a new entry is told.
    grown: String,
    has_grown: Arc<Notify>,
    stopped: Arc<AtomicBool>,
    /// When it was said last that an entry is not taken.
    said: Mutex<Option<Instant>>,
    #[expect(dead_code, reason = "ends with the log")]
    tasks: JoinSet<()>,
}

impl std::fmt::Debug for JetStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JetStream").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The stream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// NATS does not answer or refuses. Trying again may help.
    #[error("the stream {name} cannot be used")]
    Unreached {
        /// The stream.
        name: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// NATS has less disk than its entries may take. More disk helps.
    #[error(
        "NATS has less disk than the {bytes_max} bytes that the stream {name} may take: lower cluster.log_bytes_max, \
         or give each NATS server more (max_file_store; by default three quarters of what is free)"
    )]
    NoRoom {
        /// The stream.
        name: String,
        /// Bytes that it may take.
        bytes_max: i64,
    },
    /// It was made with another setting, with which entries could be lost.
    #[error(
        "the stream {name} has another setting {setting} than this program needs: delete it if it has nothing of value"
    )]
    Settings {
        /// The stream.
        name: String,
        /// The setting, as NATS calls it.
        setting: &'static str,
    },
}

impl JetStream {
    /// The stream, which is made if it is not there. `stopped` ends all attempts. Must be called in a runtime.
    ///
    /// # Errors
    /// When no server answers, or when the stream is there with other settings.
    ///
    /// # Cancel safety
    /// Dropped: the stream is made or not.
    pub async fn open(context: Context, config: &StreamConfig, stopped: Arc<AtomicBool>) -> Result<Self, StreamError> {
        let StreamConfig { name, replica_count, bytes_max } = config;
        let subject = format!("{name}.log");
        let wanted = stream::Config {
            name: name.clone(),
            subjects: vec![subject.clone()],
            num_replicas: *replica_count,
            max_bytes: *bytes_max,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            deny_delete: true,
            ..stream::Config::default()
        };
        let failed = |source| StreamError::Unreached { name: name.clone(), source };
        let made = context.get_or_create_stream(wanted.clone()).await.map_err(|error| match has_no_room(&error) {
            true => StreamError::NoRoom { name: name.clone(), bytes_max: *bytes_max },
            false => failed(error.into()),
        })?;
        if let Some(setting) = difference(&made.cached_info().config, &wanted) {
            return Err(StreamError::Settings { name: name.clone(), setting });
        }
        let stream = context.get_stream_no_info(name).await.map_err(|error| failed(error.into()))?;
        let (grown, has_grown) = (format!("{name}.grown"), Arc::<Notify>::default());
        let mut told = context.client().subscribe(grown.clone()).await.map_err(|error| failed(error.into()))?;
        let (heard, mut tasks) = (has_grown.clone(), JoinSet::new());
        tasks.spawn(async move {
            while told.next().await.is_some() {
                heard.notify_one();
            }
        });
        Ok(Self {
            grown,
            has_grown,
            tasks,
            runtime: Handle::current(),
            context,
            stream,
            name: name.clone(),
            subject,
            stopped,
            said: Mutex::default(),
        })
    }

    async fn publish(&self, after: u64, entry: &[u8]) -> Reply {
        let message = PublishMessage::build().payload(entry.to_vec().into());
        let message = message.expected_last_sequence(after).expected_stream(&self.name);
        // Without a connection the client would keep each copy until there is one.
        if is_connected(&self.context) {
            let published = timeout(REQUEST_TIMEOUT, async {
                self.context.send_publish(self.subject.clone(), message).await?.await
            });
            match published.await {
                Ok(Ok(ack)) if ack.sequence == after + 1 => {
                    let _ = self.context.client().publish(self.grown.clone(), "".into()).await; // Else they ask.
                    return Reply::Stored;
                }
                Ok(Ok(_)) => return Reply::Taken,
                Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => return Reply::Taken,
                Ok(Err(error)) => self.say(&error),
                Err(_) => {}
            }
        }
        sleep(PAUSE).await;
        Reply::Nothing
    }

    /// Says why an entry is not taken, now and then: it is put again and again.
    fn say(&self, error: &PublishError) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= SAY_PAUSE) {
            *said = Some(Instant::now());
            warn!(error = chain(error), stream = self.name, "NATS does not take an entry of the log; it is put again");
        }
    }

    async fn read(&self, sequence: u64, patience: Duration) -> Reply {
        let (end, mut pause) = (Instant::now() + patience, LOOK_PAUSE);
        loop {
            let reply = match timeout(REQUEST_TIMEOUT, self.stream.get_raw_message(sequence)).await {
                Ok(Ok(message)) => return Reply::Found(Some(message.payload.to_vec())),
                Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Reply::Found(None),
                Ok(Err(_)) | Err(_) => Reply::Nothing,
            };
            tokio::select! {
                () = sleep(pause) => {} // Also before it answers, or a writer would ask without a rest.
                () = self.has_grown.notified(), if reply != Reply::Nothing => {}
            }
            if reply == Reply::Nothing || Instant::now() >= end {
                return reply;
            }
            pause = (2 * pause).min(LOOK_PAUSE_MAX);
        }
    }
}

/// Whether a message would be sent now.
pub(crate) fn is_connected(context: &Context) -> bool {
    context.client().connection_state() == State::Connected
}

/// How much a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LogState {
    /// The number of its first entry.
    pub first: u64,
    /// The number of its last entry; 0: there never was one.
    pub last: u64,
    /// Bytes of its entries.
    pub bytes: u64,
    /// Bytes that it may have.
    pub bytes_max: u64,
}

/// A log from beside: it is looked at and trimmed.
pub(crate) struct Trimmer(Stream<()>);

impl Trimmer {
    /// The log of the cluster with this name; `None`: NATS does not answer.
    pub(crate) async fn open(context: &Context, name: &str) -> Option<Self> {
        context.get_stream_no_info(name).await.ok().map(Self)
    }

    /// How much it has; `None`: NATS does not answer, or there is no such log.
    pub(crate) async fn state(&self) -> Option<LogState> {
        let info = timeout(REQUEST_TIMEOUT, self.0.get_info()).await.ok()?.ok()?;
        let stream::State { first_sequence, last_sequence, bytes, .. } = info.state;
        let bytes_max = u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX); // -1: no limit.
        Some(LogState { first: first_sequence, last: last_sequence, bytes, bytes_max })
    }

    /// The bytes of an entry. `None`: NATS does not answer; `Some(None)`: there is no such entry.
    pub(crate) async fn entry(&self, sequence: u64) -> Option<Option<Vec<u8>>> {
        match timeout(REQUEST_TIMEOUT, self.0.get_raw_message(sequence)).await {
            Ok(Ok(message)) => Some(Some(message.payload.to_vec())),
            Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Some(None),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Removes the entries before this one. If it cannot now, it can later.
    pub(crate) async fn trim(&self, first: u64) -> bool {
        timeout(REQUEST_TIMEOUT, self.0.purge().sequence(first).into_future()).await.is_ok_and(|purged| purged.is_ok())
    }
}

/// Whether the disk of a NATS server is too small for the stream. When there are several servers, it is told in words only.
fn has_no_room(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else { return false };
    error.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED || error.to_string().contains("insufficient storage")
}

/// The first setting of a stream in which entries could be lost or go elsewhere, and which is not as wanted.
fn difference(found: &stream::Config, wanted: &stream::Config) -> Option<&'static str> {
    let settings = [
        ("subjects", found.subjects == wanted.subjects),
        ("storage", found.storage == wanted.storage),
        ("num_replicas", found.num_replicas == wanted.num_replicas),
        ("discard", found.discard == wanted.discard),
        ("retention", found.retention == wanted.retention),
        ("max_age", found.max_age == wanted.max_age),
        ("deny_delete", found.deny_delete == wanted.deny_delete),
    ];
    settings.into_iter().find(|(_, is_same)| !is_same).map(|(name, _)| name)
}

impl Broker for JetStream {
    fn put(&mut self, after: u64, entry: &[u8]) -> Reply {
        self.runtime.block_on(self.publish(after, entry))
    }

    fn look(&mut self, sequence: u64, patience: Duration) -> Reply {
        self.runtime.block_on(self.read(sequence, patience))
    }

    fn range(&mut self) -> Result<(u64, u64), Unreached> {
        let info = self.runtime.block_on(async { timeout(REQUEST_TIMEOUT, self.stream.get_info()).await });
        let state = info.ok().and_then(Result::ok).ok_or(Unreached)?.state;
        let first = if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence };
        Ok((first, state.last_sequence))
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
