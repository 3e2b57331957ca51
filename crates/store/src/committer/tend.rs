//! Tending the device table: writing lost records anew, collecting garbage of its heap and putting it in order, telling
//! it who has which number. A bounded look each time.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use tidings_types::DeviceNumber;
use tracing::{error, info};

use super::draft::Draft;
use crate::engine::{EngineError, Table};
use crate::rows;
use crate::service::write_lock;

/// Rows one look reads.
const REPAIR_COUNT: usize = 256;
/// Ids one look reads: a millisecond, for a part of the time of who looks.
const HINT_COUNT: usize = if cfg!(test) { 8 } else { 1024 };

impl Draft<'_> {
    /// Nothing of it is a change: no row is written. True when there may be more.
    pub(super) fn tend_table(&mut self) -> Result<bool, EngineError> {
        let lost = self.shared.losses.take(REPAIR_COUNT);
        let mut forgotten = BTreeSet::new();
        let repaired = lost.iter().try_for_each(|number| self.repair(*number, &mut forgotten));
        if !forgotten.is_empty() {
            write_lock(&self.shared.index).forget_devices(&forgotten);
        }
        repaired?;
        if !lost.is_empty() {
            self.shared.counters.repaired.fetch_add(lost.len() as u64, Ordering::Relaxed);
            info!(count = lost.len(), "Devices were written anew from their rows");
        }
        let collected = write_lock(&self.shared.table).collect();
        self.shared.checkpoint.on_moves(collected.count, self.shared.config.checkpoint_change_count);
        Ok(collected.has_more || lost.len() == REPAIR_COUNT)
    }

    /// Nothing of it is a change. True when there may be more.
    pub(super) fn hint_at_ids(&mut self) -> Result<bool, EngineError> {
        let Some(after) = write_lock(&self.shared.table).next_unhinted() else { return Ok(false) };
        let mut found = Vec::new();
        self.engine.scan(Table::DeviceId, Bound::Excluded(after.as_bytes()), |id, number| {
            let id = std::str::from_utf8(id).ok();
            // What is damaged here is looked for in the rows, which say so.
            let number = rows::decode_number(Table::DeviceId, id.unwrap_or_default().as_bytes(), number).ok();
            found.extend(id.map(str::to_owned).zip(number));
            Ok::<_, EngineError>(found.len() < HINT_COUNT)
        })?;
        let next = found.last().map(|(id, _)| id.clone()).filter(|_| found.len() == HINT_COUNT);
        let has_more = next.is_some();
        write_lock(&self.shared.table).hint_at(&found, next);
        Ok(has_more)
    }

    /// What the row says, whatever the table says. A device whose row is damaged too is known no more, and the index has to
    /// forget it.
    fn repair(&self, number: DeviceNumber, forgotten: &mut BTreeSet<DeviceNumber>) -> Result<(), EngineError> {
        let key = rows::number_key(number);
        let row = self
            .engine
            .get(Table::Device, &key)
            .and_then(|row| row.map(|row| rows::decode_device(&key, row.as_ref())).transpose());
        let row = match row {
            Err(error) if error.is_damage() => None,
            row => row?,
        };
        let mut table = write_lock(&self.shared.table);
        match row {
            Some(row) => table.set_reserving(number, row.device),
            None if table.contains(number) => {
                error!(device = number.0, "A device is lost: its record and its row are damaged");
                table.remove(number);
                forgotten.insert(number);
            }
            None => {} // Deleted since.
        }
        table.flush();
        Ok(())
    }
}
