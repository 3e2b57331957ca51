//! Gives numbers to devices, and makes the numbers of deleted devices free again (`blocks.rs` says when).

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tidings_types::DeviceNumber;
use tokio::time::Instant;
use tracing::error;

use crate::blocks::{Blocks, Given, Traits};
use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::NewDevice;
use crate::engine::{EngineError, Table};
use crate::error::WriteError;
use crate::rows;

/// How long a number rests after the last job that may hold it. Zero in the store's own tests.
const REST: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(60) };
/// Free numbers that a new device tries. If all of these have rows of their former devices, the store is badly damaged.
const TRY_COUNT: usize = 16;
/// Blocks whose numbers one round makes free.
const RIPE_BLOCK_COUNT: usize = 64;

impl Draft<'_> {
    /// Beside the committer only a metric takes this lock, for a moment, so there is hardly any waiting.
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.shared.blocks.lock().unwrap_or_else(PoisonError::into_inner) // It is valid after each step.
    }

    /// A number for a new device; refused when there are `device_count_max` devices.
    ///
    /// # Errors
    /// When [`TRY_COUNT`] free numbers, or all there are, have rows of their former devices.
    pub(crate) fn new_number(&mut self, device: &NewDevice) -> Result<Result<DeviceNumber, WriteError>, EngineError> {
        let limit = self.shared.config.device_count_max;
        let mut last_burnt = None;
        for _ in 0..TRY_COUNT {
            let mut blocks = self.blocks();
            let (given, end) = (blocks.give(Traits::of(device), limit), blocks.end());
            drop(blocks);
            let Some(Given { number, row, is_again }) = given else { break };
            self.state.device_next = end;
            if let Some((first, block)) = row {
                self.rows.put(Table::Block, rows::block_key(first), rows::block_row(&block));
            }
            if !is_again {
                return Ok(Ok(number));
            }
            if damage::tolerate(self.clean(number), "Rows of a deleted device cannot be read")? == Some(true) {
                return Ok(Ok(number));
            }
            error!(device = number.0, "A number is not used again: rows of its former device are left or unreadable");
            self.blocks().burn(number);
            last_burnt = Some(number);
        }
        match last_burnt {
            Some(number) => Err(EngineError::damaged(Table::Device, &rows::number_key(number))),
            None => Ok(Err(WriteError::Overloaded { what: "the set of devices", limit: u64::from(limit) })),
        }
    }

    /// Whether there is room for `count` new devices.
    pub(crate) fn check_number_room(&self, count: u64) -> Result<(), WriteError> {
        let limit = self.shared.config.device_count_max;
        let room = self.blocks().room(limit);
        let full = WriteError::Overloaded { what: "the set of devices", limit: u64::from(limit) };
        if count <= room { Ok(()) } else { Err(full) }
    }

    /// This batch deletes the device with this number.
    pub(crate) fn free_number(&mut self, number: DeviceNumber) {
        self.blocks().delete(number, self.state.journal_end);
    }

    /// Makes numbers free that have rested. The sender needs no event before `trim_to`. True when there may be more. Reads no
    /// row, so that the deleted devices of a year cost nothing, also after a restart.
    pub(crate) fn ripen_numbers(&mut self, trim_to: u64, now: Instant) -> bool {
        self.shared.counters.looks.fetch_add(1, Ordering::Relaxed);
        let mut blocks = self.blocks();
        blocks.rest(trim_to, now + REST);
        blocks.ripen(now, RIPE_BLOCK_COUNT)
    }

    /// Deletes subscriptions and mutes that damage left under a number. False if a row of its device is left.
    fn clean(&mut self, number: DeviceNumber) -> Result<bool, EngineError> {
        let key = rows::number_key(number);
        if self.get(Table::Device, &key)?.is_some() {
            return Ok(false);
        }
        let left = self.with_prefix(Table::Subscription, &key)?;
        if !left.is_empty() {
            self.remove_subscriptions(number)?;
            // Also those that cannot be read, or that the index does not know.
            left.into_keys().for_each(|key| self.rows.delete(Table::Subscription, key));
        }
        self.remove_mutes(number)?;
        Ok(true)
    }
}
