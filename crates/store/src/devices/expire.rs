//! Devices that nobody has seen for longer than `idle_max` are deleted.
//!
//! A device is seen when it registers, changes itself or proves itself. All devices are walked over, some each second: 20
//! million in six hours. However many are idle, a look takes no more than a part: a clock that jumps for a moment, or a
//! policy that was set wrong, takes days to cost everything, and is seen in the counter before.

use std::ops::Bound;
use std::time::Duration;

use tidings_types::{DeviceNumber, Timestamp};
use tracing::info;

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Devices that one look reads, and those of them that it may delete.
const LOOK_COUNT: usize = 1000;
const EXPIRE_COUNT: usize = LOOK_COUNT / 8;
/// Changes in memory after which a look deletes no more: a device may have thousands of subscriptions.
const EFFECT_COUNT: usize = 16 * LOOK_COUNT;
/// When in its day a device was seen is not kept.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Draft<'_> {
    /// Walks on over the devices behind `cursor` and deletes those that nobody has seen for longer than `idle_max`; tells
    /// how many.
    pub(crate) fn expire_devices(&mut self, idle_max: Duration, cursor: &mut Vec<u8>) -> Result<u64, EngineError> {
        let (mut idle, mut unknown) = (Vec::new(), Vec::new());
        let (mut seen_count, mut last) = (0, Vec::new());
        let now = self.wall();
        let scanned = self.engine.scan(Table::Device, Bound::Excluded(cursor), |key, row| {
            (seen_count, last) = (seen_count + 1, key.to_vec());
            // A damaged one was left out at open, or is found by whoever asks for it.
            if let (Ok(number), Ok(row)) = (rows::decode_number(Table::Device, key, key), rows::decode_device(key, row))
            {
                match last_seen(&row) {
                    None => unknown.push((number, row)),
                    Some(at) if now.saturating_since(at) > idle_max + DAY => idle.push((number, row)),
                    Some(_) => {}
                }
            }
            Ok::<_, EngineError>(seen_count < LOOK_COUNT)
        });
        *cursor = match damage::tolerate(scanned, "Idle devices are looked for behind what cannot be read")? {
            None if seen_count == 0 => next_key(cursor),
            Some(()) if seen_count < LOOK_COUNT => Vec::new(), // At the end the next look begins again.
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

    /// Writes the day on which a device was seen. Nobody in memory asks for it, and it is no change of the device.
    pub(crate) fn note_seen(&mut self, number: DeviceNumber, mut row: DeviceRow, at: Timestamp) {
        row.device.seen_at = row.device.seen_at.max(at.start_of_day()); // The clock may have been set back.
        self.rows.put(Table::Device, rows::number_key(number), rows::encode_device(&row));
    }
}

/// `None`: nobody noted when, as an older version did not. When its token was registered says nothing of that.
fn last_seen(row: &DeviceRow) -> Option<Timestamp> {
    Some(row.device.seen_at).filter(|at| *at > Timestamp(0))
}

/// One number further; from the last one to the beginning.
fn next_key(cursor: &[u8]) -> Vec<u8> {
    let next = match rows::decode_number(Table::Device, cursor, cursor) {
        Ok(DeviceNumber(last)) => last.checked_add(1),
        Err(_) => Some(0),
    };
    next.map_or(Vec::new(), |next| rows::number_key(DeviceNumber(next)).to_vec())
}
