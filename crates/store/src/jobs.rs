//! Checkpoints of the sender's jobs, and the position up to which events have a job. Only the sender reads the bytes of
//! a checkpoint.
//!
//! The rows are written without a sync: a crash of the process loses none, a power failure may lose the newest.

use tidings_types::JournalPosition;

use crate::committer::draft::Draft;
use crate::engine::{Place, Span, Table};
use crate::error::{ReadError, WriteError};
use crate::meta::DISPATCHED_KEY;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Writes checkpoints of jobs, and the position before which all events have a job, in one step. Not synced: a power
    /// failure may lose the newest checkpoints, a crash of the process does not.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all of it is written or nothing. The requests of one caller keep their order.
    pub async fn put_jobs(
        &self,
        jobs: Vec<(JournalPosition, Vec<u8>)>,
        dispatched: Option<JournalPosition>,
    ) -> Result<(), WriteError> {
        let bytes = weight::JOB + jobs.iter().map(|(_, job)| job.len() + weight::JOB).sum::<usize>();
        let put = move |draft: &mut Draft<'_>| {
            for (position, job) in jobs {
                draft.rows.put(Table::Job, rows::position_key(position), job);
            }
            if let Some(position) = dispatched {
                draft.rows.put(Table::Meta, DISPATCHED_KEY, rows::position_key(position));
            }
            Ok(())
        };
        self.write_lazily(Class::Jobs, bytes, put).await
    }

    /// Deletes the rows of finished jobs, and the marks that they were cancelled. Not synced, like [`Store::put_jobs`].
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all are deleted or none. Repeating the request changes nothing more.
    pub async fn remove_jobs(&self, positions: Vec<JournalPosition>) -> Result<(), WriteError> {
        let remove = move |draft: &mut Draft<'_>| {
            for position in positions {
                draft.rows.delete(Table::Job, rows::position_key(position));
                draft.forget_cancelled(position);
            }
            Ok(())
        };
        self.write_lazily(Class::Jobs, weight::JOB, remove).await
    }

    /// All checkpoints of jobs, oldest event first.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn jobs(&self) -> Result<Vec<(JournalPosition, Vec<u8>)>, ReadError> {
        let mut jobs = Vec::new();
        self.with_engine(|engine| {
            engine.scan(Place::Open, Table::Job, &Span::all(), |key, row| {
                jobs.push((rows::decode_position(Table::Job, key, key)?, row.to_vec()));
                Ok(true)
            })
        })?;
        Ok(jobs)
    }

    /// Every event before this position has had its job, as last checkpointed; 0 in a new store.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn dispatched(&self) -> Result<JournalPosition, ReadError> {
        let decode = |key: &[u8], row: &[u8]| rows::decode_position(Table::Meta, key, row);
        Ok(self.with_engine(|engine| engine.read(Table::Meta, DISPATCHED_KEY, decode))?.unwrap_or_default())
    }
}
