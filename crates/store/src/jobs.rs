//! Checkpoints of the sender's jobs, and up to where events have a job. What is in a checkpoint is the sender's to know.
//!
//! They are handed to the operating system without a sync: the end of the process loses none, a power failure may take the
//! newest.

use std::ops::Bound;

use tidings_types::JournalPosition;

use crate::committer::draft::Draft;
use crate::engine::{EngineError, Table};
use crate::error::{ReadError, WriteError};
use crate::message::Command;
use crate::meta::DISPATCHED_KEY;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Checkpoints jobs, and up to which position (exclusive) all events have one, in one step. Not synced: a power failure
    /// may take the newest checkpoints, the end of the process does not.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all of it is noted or nothing. Requests of one caller keep their order, so a later one still counts last.
    pub async fn put_jobs(
        &self,
        jobs: Vec<(JournalPosition, Vec<u8>)>,
        dispatched: Option<JournalPosition>,
    ) -> Result<(), WriteError> {
        let bytes = weight::JOB + jobs.iter().map(|(_, job)| job.len() + weight::JOB).sum::<usize>();
        let remove = Vec::new();
        self.ask(Class::Jobs, bytes, |reply| Command::Jobs { put: jobs, remove, dispatched, reply }).await
    }

    /// Forgets jobs that are done, and that they were cancelled; as lazily as [`Store::put_jobs`].
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all are forgotten or none. The same request again changes nothing more.
    pub async fn remove_jobs(&self, remove: Vec<JournalPosition>) -> Result<(), WriteError> {
        let (put, dispatched) = (Vec::new(), None);
        self.ask(Class::Jobs, weight::JOB, |reply| Command::Jobs { put, remove, dispatched, reply }).await
    }

    /// All jobs that were checkpointed and not removed, oldest event first.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn jobs(&self) -> Result<Vec<(JournalPosition, Vec<u8>)>, ReadError> {
        let mut jobs = Vec::new();
        self.with_engine(|engine| {
            engine.scan(Table::Job, Bound::Unbounded, |key, row| {
                jobs.push((rows::decode_position(Table::Job, key, key)?, row.to_vec()));
                Ok::<_, EngineError>(true)
            })
        })?;
        Ok(jobs)
    }

    /// Every event before this position has had its job, as last checkpointed; 0 in a new store.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn dispatched(&self) -> Result<JournalPosition, ReadError> {
        self.with_engine(|engine| match engine.get(Table::Meta, DISPATCHED_KEY)? {
            Some(row) => rows::decode_position(Table::Meta, DISPATCHED_KEY, row.as_ref()),
            None => Ok(JournalPosition::default()),
        })
    }
}

impl Draft<'_> {
    pub(crate) fn jobs(
        &mut self,
        put: Vec<(JournalPosition, Vec<u8>)>,
        remove: Vec<JournalPosition>,
        dispatched: Option<JournalPosition>,
    ) {
        for (position, job) in put {
            self.rows.put(Table::Job, rows::position_key(position), job);
        }
        for position in remove {
            self.rows.delete(Table::Job, rows::position_key(position));
            self.forget_cancelled(position);
        }
        if let Some(position) = dispatched {
            self.rows.put(Table::Meta, DISPATCHED_KEY, rows::position_key(position));
        }
    }
}
