//! Deletes devices that were not seen for longer than `idle_max`.
//!
//! A device is seen when it registers, changes itself or proves itself. A pass reads all devices, some in each round: 20
//! million in six hours. A round deletes only a part of what it reads. So after a clock jump or with a wrong setting it takes
//! days until many devices are deleted, and the counter shows it before. Behind the last device, the pass knows when the next
//! of them is due, and there is no further one until then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings_types::{DeviceNumber, Timestamp};
use tracing::info;

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Place, Span, Table};
use crate::rows;

/// Numbers that one round looks at, deleted ones among them, and how many devices it may delete.
const READ_COUNT: u32 = 250;
const EXPIRE_COUNT: usize = READ_COUNT as usize / 8;
/// After this many changes in memory a round deletes no more, because a device may have thousands of subscriptions.
const EFFECT_COUNT: usize = 16_000;
/// Only the day is stored on which a device was seen, so it is kept one day longer.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A pass over all devices.
#[derive(Debug, Default)]
pub(crate) struct IdlePass {
    /// The next number to look at.
    pub(crate) next: u32,
    /// When the first of the devices that were read is due. At first all are.
    due: Timestamp,
}

impl IdlePass {
    /// What was read may be wrong, so another pass follows this one.
    pub(crate) fn repeat(&mut self) {
        self.due = Timestamp(0);
    }
}

impl Draft<'_> {
    /// Continues the pass, or begins one if a device is due: deletes devices that were not seen for longer than `idle_max`, and
    /// returns their number.
    pub(crate) fn expire_devices(&mut self, idle_max: Duration, pass: &mut IdlePass) -> Result<u64, EngineError> {
        let now = self.wall();
        // An import may have brought devices that were last seen long ago.
        let new = self.shared.devices_seen.swap(u64::MAX, Ordering::Relaxed);
        pass.due = pass.due.min(due_at(Timestamp(new), idle_max));
        if pass.next == 0 {
            if pass.due > now {
                return Ok(0);
            }
            pass.due = Timestamp(u64::MAX);
        }
        let (mut idle, mut unknown) = (Vec::new(), Vec::new());
        let (first, end) = (pass.next, pass.next.saturating_add(READ_COUNT));
        let span = Span::closed(&rows::number_key(DeviceNumber(first)), &rows::number_key(DeviceNumber(end - 1)));
        let scanned = self.engine.scan(Place::IdleDevices, Table::Device, &span, |key, row| {
            // A damaged device is handled where it is read by its number.
            let Ok(number) = rows::decode_number(Table::Device, key, key) else { return Ok(true) };
            pass.next = number.0 + 1;
            let Ok(row) = rows::decode_device(key, row) else { return Ok(true) };
            match last_seen(&row) {
                None => unknown.push((number, row)),
                Some(at) if now.saturating_since(at) > idle_max + DAY => idle.push((number, row)),
                Some(at) => pass.due = due_at(at, idle_max).min(pass.due),
            }
            Ok(true)
        });
        pass.next = match damage::tolerate(scanned, "The search for idle devices skips an unreadable block")? {
            None => pass.next.max(first + 1),
            Some(()) if end >= self.state.device_next => 0, // At the end, the pass is over.
            Some(()) => end,
        };
        if !unknown.is_empty() {
            pass.due = due_at(now.start_of_day(), idle_max).min(pass.due);
        }
        for (number, row) in unknown {
            self.note_seen(number, row, now);
        }
        let (idle_count, mut count) = (idle.len(), 0);
        let effect_count_max = self.effects.len() + EFFECT_COUNT;
        for (number, row) in idle {
            if count == EXPIRE_COUNT || self.effects.len() >= effect_count_max || !self.may_go_on(count) {
                pass.due = now; // The others are for the next pass.
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

    /// A device that was last seen then is written.
    pub(crate) fn note_written(&self, seen_at: Timestamp) {
        self.shared.devices_seen.fetch_min(seen_at.0, Ordering::Relaxed);
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

/// When a device that was seen at this time has expired.
fn due_at(seen_at: Timestamp, idle_max: Duration) -> Timestamp {
    seen_at.saturating_add(idle_max.saturating_add(DAY)).saturating_add(Duration::from_millis(1))
}
