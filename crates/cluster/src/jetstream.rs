//! The broker: a stream of NATS JetStream.
//!
//! The stream has one subject, on which only entries are published, each with the header `Nats-Expected-Last-Sequence`. The
//! leader of the stream refuses an entry whose expectation is not what it has proposed last. Entries are read one by one
//! from the leader, never from a replica, which may lag. Nobody may subscribe to the subject without a consumer: then the
//! broker would not say any more that no stream takes it.
//!
//! Source: nats-server 2.15, ADR-56 (what JetStream guarantees), docs.nats.io "JetStream wire API".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, DiscardPolicy, LastRawMessageErrorKind, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::log::{Broker, Unreached};
use crate::writer::Reply;

/// How long a request may take. After it the entry is in doubt, and is put again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a request without an answer.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a reader waits before it asks again for an entry that is not there.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

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

/// A stream of NATS JetStream as a broker. It is used from a thread without a runtime of its own.
pub struct JetStream {
    runtime: Handle,
    context: Context,
    stream: Stream<()>,
    subject: String,
    stopped: Arc<AtomicBool>,
}

impl std::fmt::Debug for JetStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JetStream").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The stream cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the stream {name} cannot be used")]
pub struct StreamError {
    name: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl JetStream {
    /// The stream, which is made if it is not there. `stopped` ends all attempts. Must be called in a runtime.
    ///
    /// # Errors
    /// When no server answers, or when the stream is there with other settings.
    ///
    /// # Cancel safety
    /// Dropped: the stream is made or not.
    pub async fn open(
        client: async_nats::Client,
        config: &StreamConfig,
        stopped: Arc<AtomicBool>,
    ) -> Result<Self, StreamError> {
        let StreamConfig { name, replica_count, bytes_max } = config;
        let context = jetstream::new(client);
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
        let failed = |source| StreamError { name: name.clone(), source };
        context.get_or_create_stream(wanted).await.map_err(|error| failed(error.into()))?;
        let stream = context.get_stream_no_info(name).await.map_err(|error| failed(error.into()))?;
        Ok(Self { runtime: Handle::current(), context, stream, subject, stopped })
    }

    async fn publish(&self, after: u64, entry: &[u8]) -> Reply {
        let message = PublishMessage::build().payload(entry.to_vec().into()).expected_last_sequence(after);
        let published =
            timeout(REQUEST_TIMEOUT, async { self.context.send_publish(self.subject.clone(), message).await?.await });
        match published.await {
            Ok(Ok(_)) => return Reply::Stored,
            Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => return Reply::Taken,
            Ok(Err(_)) | Err(_) => {}
        }
        sleep(PAUSE).await;
        Reply::Nothing
    }

    async fn read(&self, sequence: u64, patience: Duration) -> Reply {
        let end = Instant::now() + patience;
        loop {
            let reply = match timeout(REQUEST_TIMEOUT, self.stream.get_raw_message(sequence)).await {
                Ok(Ok(message)) => return Reply::Found(Some(message.payload.to_vec())),
                Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Reply::Found(None),
                Ok(Err(_)) | Err(_) => Reply::Nothing,
            };
            if reply == Reply::Nothing || Instant::now() >= end {
                sleep(LOOK_PAUSE).await; // Or a writer would ask without a rest.
                return reply;
            }
            sleep(LOOK_PAUSE).await;
        }
    }
}

impl Broker for JetStream {
    fn put(&mut self, after: u64, entry: &[u8]) -> Reply {
        self.runtime.block_on(self.publish(after, entry))
    }

    fn look(&mut self, sequence: u64, patience: Duration) -> Reply {
        self.runtime.block_on(self.read(sequence, patience))
    }

    fn last(&mut self) -> Result<u64, Unreached> {
        let info = self.runtime.block_on(async { timeout(REQUEST_TIMEOUT, self.stream.get_info()).await });
        info.ok().and_then(Result::ok).map(|info| info.state.last_sequence).ok_or(Unreached)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
