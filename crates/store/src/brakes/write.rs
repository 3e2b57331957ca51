//! Pausing, resuming and cancelling: writes the rows and makes a new [`Brakes`] for the watchers.

use std::sync::Arc;

use tidings_types::{BrakeScope, JournalPosition, Timestamp};
use tokio::sync::watch;

use crate::brakes::{Brakes, PAUSE_COUNT_MAX};
use crate::committer::draft::Draft;
use crate::engine::{EngineError, Place, Span, Table};
use crate::error::WriteError;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Watches pauses and cancelled jobs. A change is visible here before it is acknowledged.
    pub fn brakes(&self) -> watch::Receiver<Arc<Brakes>> {
        self.shared().brakes.subscribe()
    }

    /// Pauses a scope until [`Store::resume`]. False when it was paused already; then the earlier time stays.
    ///
    /// # Errors
    /// When [`PAUSE_COUNT_MAX`](crate::PAUSE_COUNT_MAX) scopes are paused, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: paused or not.
    pub async fn pause(&self, scope: BrakeScope, now: Timestamp) -> Result<bool, WriteError> {
        self.write(Class::Brakes, weight::NAMES, move |draft| Ok(draft.pause(scope, now))).await?
    }

    /// Ends the pause of exactly this scope; false when it was not paused. Resuming `Everything` also ends the pauses that
    /// could not be read when the store was opened.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: resumed or not.
    pub async fn resume(&self, scope: BrakeScope) -> Result<bool, WriteError> {
        self.write(Class::Brakes, weight::NAMES, move |draft| draft.resume(&scope)).await
    }

    /// Cancels the job of the event at `position` permanently. False when it was cancelled already or no such event is in
    /// the journal. The store does not know whether the job is finished. The mark is deleted with the job's row
    /// ([`Store::remove_jobs`]) or the event.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: cancelled or not.
    pub async fn cancel(&self, position: JournalPosition) -> Result<bool, WriteError> {
        self.write(Class::Brakes, weight::NAMES, move |draft| Ok(draft.cancel(position))).await
    }
}

impl Draft<'_> {
    /// False when the scope was paused already.
    pub(crate) fn pause(&mut self, scope: BrakeScope, now: Timestamp) -> Result<bool, WriteError> {
        let paused = &self.brakes.paused;
        if paused.contains_key(&scope) {
            return Ok(false);
        }
        if paused.len() >= PAUSE_COUNT_MAX {
            return Err(WriteError::Overloaded { what: "the set of paused scopes", limit: PAUSE_COUNT_MAX as u64 });
        }
        self.rows.put(Table::Brake, scope.to_string(), now.0.to_be_bytes());
        Arc::make_mut(&mut self.change_brakes().paused).insert(scope, now);
        Ok(true)
    }

    pub(crate) fn resume(&mut self, scope: &BrakeScope) -> Result<bool, EngineError> {
        if !self.brakes.is_paused(scope) {
            return Ok(false);
        }
        if *scope == BrakeScope::Everything {
            self.delete_damaged_pauses()?;
        }
        self.rows.delete(Table::Brake, scope.to_string());
        Arc::make_mut(&mut self.change_brakes().paused).remove(scope);
        Ok(true)
    }

    /// Otherwise they would pause everything again when the store is opened.
    fn delete_damaged_pauses(&mut self) -> Result<(), EngineError> {
        let rows = &mut self.rows;
        self.engine.scan(Place::Brakes, Table::Brake, &Span::all(), |key, row| {
            if rows::decode_brake(key, row).is_err() && rows.get(Table::Brake, key).is_none() {
                rows.delete(Table::Brake, key);
            }
            Ok(true)
        })
    }

    /// False when it was cancelled already, or when there is no such event, so that the journal bounds the set.
    pub(crate) fn cancel(&mut self, position: JournalPosition) -> bool {
        let in_journal = self.state.journal_base..self.state.journal_end;
        if self.brakes.cancelled.contains(&position) || !in_journal.contains(&position.0) {
            return false;
        }
        self.rows.put(Table::Cancelled, rows::position_key(position), []);
        self.change_brakes().cancelled.insert(position);
        true
    }

    /// The job or the event at `position` is deleted.
    pub(crate) fn forget_cancelled(&mut self, position: JournalPosition) {
        if self.brakes.cancelled.contains(&position) {
            self.rows.delete(Table::Cancelled, rows::position_key(position));
            self.change_brakes().cancelled.remove(position);
        }
    }

    fn change_brakes(&mut self) -> &mut Brakes {
        self.brakes_changed = true;
        Arc::make_mut(&mut self.brakes)
    }
}
