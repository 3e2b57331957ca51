//! Devices that nobody has seen for longer than `idle_max` are deleted (R7).
//!
//! A device is seen when it registers, changes itself or proves itself. All devices are walked over, some each second: 20
//! million in six hours. However many are idle, a look takes no more than a part: a clock that jumps for a moment, or a
//! policy that was set wrong, takes days to cost everything, and is seen in the counter before.

use std::ops::Bound;
use std::time::Duration;

use tidings_types::{DeviceNumber, Timestamp};
use tracing::info;

use super::draft::Draft;
use crate::engine::{EngineError, Table};
use crate::rows::{self, DeviceRow};

/// Devices that one look reads, and those of them that it may delete.
const LOOK_COUNT: usize = 1000;
const EXPIRE_COUNT: usize = LOOK_COUNT / 8;
/// When in its day a device was seen is not kept.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Draft<'_> {
    /// Walks on over the devices behind `cursor` and deletes those that nobody has seen for longer than `idle_max`; tells
    /// how many.
    pub(super) fn expire_devices(&mut self, idle_max: Duration, cursor: &mut Vec<u8>) -> Result<u64, EngineError> {
        let (mut idle, mut unknown) = (Vec::new(), Vec::new());
        let (mut seen_count, mut last) = (0, Vec::new());
        self.engine.scan(Table::Device, Bound::Excluded(cursor), |key, row| {
            (seen_count, last) = (seen_count + 1, key.to_vec());
            // A damaged one was left out at open, or is found by whoever asks for it.
            if let (Ok(number), Ok(row)) = (rows::decode_number(Table::Device, key, key), rows::decode_device(key, row))
            {
                match last_seen(&row) {
                    None => unknown.push((number, row)),
                    Some(at) if self.now.saturating_since(at) > idle_max + DAY => idle.push((number, row)),
                    Some(_) => {}
                }
            }
            Ok::<_, EngineError>(seen_count < LOOK_COUNT)
        })?;
        // At the end the next look begins again.
        *cursor = if seen_count < LOOK_COUNT { Vec::new() } else { last };
        for (number, row) in unknown {
            self.note_seen(number, row, self.now);
        }
        let (idle_count, count) = (idle.len(), idle.len().min(EXPIRE_COUNT));
        for (number, row) in idle.into_iter().take(EXPIRE_COUNT) {
            self.remove_device(number, row)?;
        }
        if count > 0 {
            info!(count, idle = idle_count, "Idle devices expired");
        }
        Ok(count as u64)
    }

    /// Writes the day on which a device was seen. Nobody in memory asks for it, and it is no change of the device.
    pub(super) fn note_seen(&mut self, number: DeviceNumber, mut row: DeviceRow, at: Timestamp) {
        row.device.seen_at = at.start_of_day();
        self.rows.put(Table::Device, rows::number_key(number), rows::encode_device(&row));
    }
}

/// `None`: an older version imported it, and did not note when.
fn last_seen(row: &DeviceRow) -> Option<Timestamp> {
    let last = row.device.seen_at.max(row.device.token_at);
    (last > Timestamp(0)).then_some(last)
}
