//! Deletes devices that were not seen for longer than `idle_max`.
//!
//! A device is seen when it registers, changes itself or proves itself. Each second, a round reads some of all devices: 20
//! million in six hours. A round deletes only a part of what it reads. So after a clock jump or with a wrong setting it takes
//! days until many devices are deleted, and the counter shows it before.

use std::ops::Bound;
use std::time::Duration;

use tidings_types::{DeviceNumber, Timestamp};
use tracing::info;

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Devices that one round reads, and how many of them it may delete.
const READ_COUNT: usize = 1000;
const EXPIRE_COUNT: usize = READ_COUNT / 8;
/// After this many changes in memory a round deletes no more, because a device may have thousands of subscriptions.
const EFFECT_COUNT: usize = 16 * READ_COUNT;
/// Only the day is stored on which a device was seen, so it is kept one day longer.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Draft<'_> {
    /// Continues over the devices behind `cursor`, deletes those that were not seen for longer than `idle_max`, and returns
    /// their number.
    pub(crate) fn expire_devices(&mut self, idle_max: Duration, cursor: &mut Vec<u8>) -> Result<u64, EngineError> {
        let (mut idle, mut unknown) = (Vec::new(), Vec::new());
        let (mut seen_count, mut last) = (0, Vec::new());
        let now = self.wall();
        let scanned = self.engine.scan(Table::Device, Bound::Excluded(cursor), |key, row| {
            (seen_count, last) = (seen_count + 1, key.to_vec());
            // A damaged device is handled where it is read by its number.
            if let (Ok(number), Ok(row)) = (rows::decode_number(Table::Device, key, key), rows::decode_device(key, row))
            {
                match last_seen(&row) {
                    None => unknown.push((number, row)),
                    Some(at) if now.saturating_since(at) > idle_max + DAY => idle.push((number, row)),
                    Some(_) => {}
                }
            }
            Ok(seen_count < READ_COUNT)
        });
        *cursor = match damage::tolerate(scanned, "The search for idle devices skips an unreadable block")? {
            None if seen_count == 0 => next_key(cursor),
            Some(()) if seen_count < READ_COUNT => Vec::new(), // At the end of the table, the next round begins again.
            Some(()) | None => last,
        };
        for (number, row) in unknown {
            self.note_seen(number, row, now);
        }
        let (idle_count, mut count) = (idle.len(), 0);
        let effect_count_max = self.effects.len() + EFFECT_COUNT;
        for (number, row) in idle {
            if count == EXPIRE_COUNT || self.effects.len() >= effect_count_max {
                break;
            }
            self.remove_device(number, row)?;
            count += 1;
        }
        if count > 0 {
            info!(count, idle = idle_count, "Idle devices expired");
        }
        Ok(count as u64)
    }

    /// Writes the day on which a device was seen. This is not in memory, and it does not change the revision.
    pub(crate) fn note_seen(&mut self, number: DeviceNumber, mut row: DeviceRow, at: Timestamp) {
        row.device.seen_at = row.device.seen_at.max(at.start_of_day()); // The clock may have been set back.
        self.rows.put(Table::Device, rows::number_key(number), rows::encode_device(&row));
    }
}

/// `None` in a row of an older version that did not store it.
fn last_seen(row: &DeviceRow) -> Option<Timestamp> {
    Some(row.device.seen_at).filter(|at| *at > Timestamp(0))
}

/// The key of the next number; after the last number, the beginning.
fn next_key(cursor: &[u8]) -> Vec<u8> {
    let next = match rows::decode_number(Table::Device, cursor, cursor) {
        Ok(DeviceNumber(last)) => last.checked_add(1),
        Err(_) => Some(0),
    };
    next.map_or(Vec::new(), |next| rows::number_key(DeviceNumber(next)).to_vec())
}
