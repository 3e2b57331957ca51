//! What callers ask of the committer, each with the way to answer. Dropped without an answer, the caller is told that the
//! store cannot write now.
//!
//! A command is a piece of work on the draft of a batch. What the work is, its subject's folder says: there is no list of
//! commands here.

use tidings_types::JournalPosition;
use tokio::sync::oneshot;

use crate::committer::draft::Draft;
use crate::engine::EngineError;

/// The other end of a caller that waits.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// Answers a caller, once the batch is durable.
pub(crate) type Ack = Box<dyn FnOnce()>;

/// Adds something to a batch, and says how its caller is answered. A refusal is an answer too and waits like the others: it
/// may rest on rows of this batch.
pub(crate) type Work = Box<dyn FnOnce(&mut Draft<'_>) -> Result<Ack, EngineError> + Send>;

pub(crate) enum Command {
    /// As [`Store::put_jobs`](crate::Store::put_jobs) and [`Store::remove_jobs`](crate::Store::remove_jobs) say.
    Jobs {
        put: Vec<(JournalPosition, Vec<u8>)>,
        remove: Vec<JournalPosition>,
        dispatched: Option<JournalPosition>,
        reply: Reply<()>,
    },
    /// Anything else.
    Write(Work),
}

impl Command {
    pub(crate) fn perform(self, draft: &mut Draft<'_>) -> Result<Ack, EngineError> {
        match self {
            Self::Jobs { put, remove, dispatched, reply } => {
                draft.jobs(put, remove, dispatched);
                Ok(answer(reply, ()))
            }
            Self::Write(work) => work(draft),
        }
    }
}

pub(crate) fn answer<T: 'static>(reply: Reply<T>, value: T) -> Ack {
    Box::new(move || drop(reply.send(value))) // A caller that went away needs no answer.
}
