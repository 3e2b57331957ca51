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
/// Numbers that one round makes free.
const RIPE_COUNT: usize = 256;

impl Draft<'_> {
    /// Only the committer takes this lock, so there is no waiting.
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.shared.blocks.lock().unwrap_or_else(PoisonError::into_inner) // It is valid after each step.
    }

    /// A number for a new device; an error when there are `device_count_max` devices.
    pub(crate) fn new_number(&mut self, device: &NewDevice) -> Result<DeviceNumber, WriteError> {
        let limit = self.shared.config.device_count_max;
        let mut blocks = self.blocks();
        let (given, end) = (blocks.give(Traits::of(device), limit), blocks.end());
        drop(blocks);
        let full = WriteError::Overloaded { what: "the set of devices", limit: u64::from(limit) };
        let Given { number, row } = given.ok_or(full)?;
        self.state.device_next = end;
        if let Some((first, block)) = row {
            self.rows.put(Table::Block, rows::block_key(first), rows::block_row(&block));
        }
        Ok(number)
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

    /// Makes numbers free that have rested. The sender needs no event before `trim_to`. True when there may be more.
    pub(crate) fn ripen_numbers(&mut self, trim_to: u64, now: Instant) -> Result<bool, EngineError> {
        self.shared.counters.looks.fetch_add(1, Ordering::Relaxed);
        self.blocks().rest(trim_to, now + REST);
        for _ in 0..RIPE_COUNT {
            let ripe = self.blocks().ripe(now);
            let Some(number) = ripe else { return Ok(false) };
            if damage::tolerate(self.clean(number), "Rows of a deleted device cannot be read")? == Some(true) {
                self.blocks().free(number);
            } else {
                error!(
                    device = number.0,
                    "A number is not used again: rows of its former device are left or unreadable"
                );
                self.blocks().burn(number);
            }
        }
        Ok(true)
    }

    /// Deletes subscriptions and mutes that damage left under a number. False if a row of its device is left.
    fn clean(&mut self, number: DeviceNumber) -> Result<bool, EngineError> {
        if self.get(Table::Device, &rows::number_key(number))?.is_some() {
            return Ok(false);
        }
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        Ok(true)
    }
}
