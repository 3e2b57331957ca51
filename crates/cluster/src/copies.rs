//! A copy of the store beside the log, for nodes that cannot read the log from its beginning: one object of JetStream's
//! object store, which is replaced as a whole. Then the log is trimmed.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context as Polling, Poll, ready};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::object_store::{self, InfoErrorKind, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::StorageType;
use futures_util::TryStreamExt as _;
use tidings_store::Store;
use tidings_store::backup::{Backup, BackupError};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The only object.
const OBJECT: &str = "store";
/// The key of its metadata that says how far it is in the log.
const SEQUENCE: &str = "sequence";
/// Bytes of a message.
const CHUNK_BYTES: usize = 512 << 10;
/// Blocks that wait on their way.
const BLOCK_COUNT: usize = 2;
/// How long one read from the broker may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The copy cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The broker does not take it or give it.
    #[error("NATS does not keep or give the copy of the store")]
    Broker(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store does not give it or take it.
    #[error("the store cannot be copied")]
    Store(#[from] BackupError),
}

fn broker(error: impl std::error::Error + Send + Sync + 'static) -> CopyError {
    CopyError::Broker(Box::new(error))
}

fn bucket(prefix: &str) -> String {
    format!("{prefix}_copy")
}

pub(crate) struct Copies {
    store: ObjectStore,
    context: Context,
    bucket: String,
}

impl Copies {
    /// The bucket, which is made if it is not there.
    pub(crate) async fn open(context: &Context, prefix: &str, replica_count: usize) -> Result<Self, CopyError> {
        if let Some(found) = Self::find(context, prefix).await {
            return Ok(found);
        }
        let config = object_store::Config {
            bucket: bucket(prefix),
            num_replicas: replica_count,
            storage: StorageType::File,
            max_bytes: -1,
            ..object_store::Config::default()
        };
        let store = context.create_object_store(config).await.map_err(broker)?;
        Ok(Self { store, context: context.clone(), bucket: bucket(prefix) })
    }

    /// The bucket, if it is there and NATS answers.
    pub(crate) async fn find(context: &Context, prefix: &str) -> Option<Self> {
        let bucket = bucket(prefix);
        let store = context.get_object_store(&bucket).await.ok()?;
        Some(Self { store, context: context.clone(), bucket })
    }

    /// How far in the log the copy is; `None`: there is none.
    pub(crate) async fn sequence(&self) -> Result<Option<u64>, CopyError> {
        match self.store.info(OBJECT).await {
            Ok(info) if info.deleted => Ok(None),
            Ok(info) => Ok(info.metadata.get(SEQUENCE).and_then(|sequence| sequence.parse().ok())),
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
            Err(error) => Err(broker(error)),
        }
    }

    /// Removes the pieces of copies that broke off. NATS does not know that nobody needs them.
    async fn clear(&self) -> Result<(), CopyError> {
        let pieces = format!("$O.{}.C.*", self.bucket);
        let current = match self.store.info(OBJECT).await {
            Ok(info) => Some(pieces.replace('*', &info.nuid)),
            Err(error) if error.kind() == InfoErrorKind::NotFound => None,
            Err(error) => return Err(broker(error)),
        };
        let stream = self.context.get_stream_no_info(format!("OBJ_{}", self.bucket)).await.map_err(broker)?;
        let mut subjects = stream.info_with_subjects(&pieces).await.map_err(broker)?;
        while let Some((subject, _)) = subjects.try_next().await.map_err(broker)? {
            if Some(&subject) != current.as_ref() {
                stream.purge().filter(subject).await.map_err(broker)?;
            }
        }
        Ok(())
    }

    /// Replaces the copy by one of this store. Returns how far in the log it is.
    ///
    /// # Cancel safety
    /// Dropped: the copy before stays. The next call removes what is left.
    pub(crate) async fn put(&self, store: Store) -> Result<u64, CopyError> {
        self.clear().await?;
        let begun = tokio::task::spawn_blocking(move || store.begin_backup()).await;
        let backup = begun.map_err(broker)??;
        let sequence = backup.log_position()?.map_or(0, |position| position.sequence);
        let (blocks, received) = mpsc::channel(BLOCK_COUNT);
        let made = tokio::task::spawn_blocking(move || send(backup, &blocks));
        let metadata = [(SEQUENCE.to_owned(), sequence.to_string())].into();
        let about = ObjectMetadata {
            name: OBJECT.to_owned(),
            chunk_size: Some(CHUNK_BYTES),
            metadata,
            ..ObjectMetadata::default()
        };
        let put =
            self.store.put(about, &mut Blocks { received, block: Vec::new(), taken: 0, sending: JoinSet::new() }).await;
        made.await.map_err(broker)??; // Its error says more than the broker's.
        put.map(|_| sequence).map_err(broker)
    }

    /// The bytes of the copy, to be read on a thread that may block; `None`: there is none.
    pub(crate) async fn get(&self) -> Result<Option<impl Read + Send + use<>>, CopyError> {
        if self.sequence().await?.is_none() {
            return Ok(None);
        }
        let mut object = self.store.get(OBJECT).await.map_err(broker)?;
        let (blocks, received) = mpsc::channel(BLOCK_COUNT);
        let mut sending = JoinSet::new();
        sending.spawn(async move {
            loop {
                let mut block = vec![0; CHUNK_BYTES];
                let read = timeout(READ_TIMEOUT, object.read(&mut block)).await;
                let read = read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let (is_end, block) = match read {
                    Ok(0) => return,
                    Ok(count) => {
                        block.truncate(count);
                        (false, Ok(block))
                    }
                    Err(error) => (true, Err(error)),
                };
                if blocks.send(block).await.is_err() || is_end {
                    return; // The reader has gone, or is told why it ends here.
                }
            }
        });
        Ok(Some(Blocks { received, block: Vec::new(), taken: 0, sending }))
    }
}

/// Sends the blocks of a backup. An error ends them, so that the receiver does not take them for the whole.
fn send(mut backup: Backup, blocks: &mpsc::Sender<io::Result<Vec<u8>>>) -> Result<(), BackupError> {
    loop {
        match backup.next_block() {
            Ok(None) => return Ok(()),
            Ok(Some(block)) => {
                if blocks.blocking_send(Ok(block)).is_err() {
                    return Ok(()); // Nobody wants it any more.
                }
            }
            Err(error) => {
                let _ = blocks.blocking_send(Err(io::Error::other("the backup broke off"))); // As above.
                return Err(error);
            }
        }
    }
}

/// Reads blocks that another task sends.
struct Blocks {
    received: mpsc::Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    taken: usize,
    #[expect(dead_code, reason = "ends with the reader")]
    sending: JoinSet<()>,
}

impl Blocks {
    fn next(&mut self, count_max: usize) -> &[u8] {
        let begin = self.taken;
        self.taken = self.block.len().min(begin + count_max);
        &self.block[begin..self.taken]
    }
}

impl AsyncRead for Blocks {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Polling<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.taken == self.block.len() {
            match ready!(self.received.poll_recv(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(block) => (self.block, self.taken) = (block?, 0),
            }
        }
        let room = out.remaining();
        out.put_slice(self.next(room));
        Poll::Ready(Ok(()))
    }
}

impl Read for Blocks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.block.len() {
            match self.received.blocking_recv() {
                None => return Ok(0),
                Some(block) => (self.block, self.taken) = (block?, 0),
            }
        }
        let taken = self.next(out.len());
        out[..taken.len()].copy_from_slice(taken);
        Ok(taken.len())
    }
}
