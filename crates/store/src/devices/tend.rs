//! Maintenance of the device table in bounded rounds: writes damaged records anew, collects garbage of its heap, puts its
//! records in order, and fills its cache of device numbers by id.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use tidings_telemetry::chain;
use tidings_types::{DeviceId, DeviceNumber};
use tracing::{error, info, warn};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Place, Span, Table};
use crate::rows;
use crate::table::{DeviceTable, Ids};

/// Rows that one round reads.
const REPAIR_COUNT: usize = 256;
/// Ids that one round reads.
const ID_COUNT: usize = if cfg!(test) { 8 } else { 512 };

impl Draft<'_> {
    /// Repairs and tidies the table. Writes no row. True when there may be more to do.
    pub(crate) fn tend_table(&mut self) -> Result<bool, EngineError> {
        let lost = self.shared.losses.take(REPAIR_COUNT);
        let mut forgotten = BTreeSet::new();
        let repaired = lost.iter().try_for_each(|number| self.repair(*number, &mut forgotten));
        if !forgotten.is_empty() {
            self.shared.index.write().forget_devices(&forgotten);
        }
        repaired?;
        if !lost.is_empty() {
            self.shared.counters.repaired.fetch_add(lost.len() as u64, Ordering::Relaxed);
            info!(count = lost.len(), "Devices were written anew from their rows");
        }
        DeviceTable::prepare_collect(&self.shared.table);
        let collected = self.shared.table.write().collect();
        self.shared.checkpoint.on_moves(collected.count, self.shared.config.checkpoint_change_count);
        Ok(collected.has_more || lost.len() == REPAIR_COUNT)
    }

    /// Fills the table's cache of device numbers. Writes no row. True when there may be more to do.
    pub(crate) fn hint_at_ids(&mut self) -> Result<bool, EngineError> {
        let outgrown = self.shared.table.read().outgrown_hints();
        if let Some(device_count) = outgrown {
            let hints = Ids::for_twice(device_count); // Megabytes, so it is made and freed without the lock.
            let _old = self.shared.table.write().replace_hints(hints);
        }
        let Some(after) = self.shared.table.read().next_unhinted() else { return Ok(false) };
        let (mut found, mut seen_count, mut last) = (Vec::new(), 0, None);
        let scanned = self.engine.scan(Place::IdHints, Table::DeviceId, &Span::all().behind(&after), |key, number| {
            // Damaged rows are skipped here. The damage is reported when such a device is read.
            let id = std::str::from_utf8(key).ok().and_then(|id| DeviceId::new(id).ok());
            found.extend(id.zip(rows::decode_number(Table::DeviceId, key, number).ok()));
            (seen_count, last) = (seen_count + 1, Some(key.to_vec()));
            Ok(seen_count < ID_COUNT)
        });
        if let Err(error) = &scanned {
            // Without a hint, the row is read; only then is damage an error.
            warn!(error = chain(&error), "Not all ids of devices are kept in memory, because rows cannot be read");
        }
        let next = last.filter(|_| scanned.is_ok() && seen_count == ID_COUNT);
        let has_more = next.is_some();
        self.shared.table.write().hint_at_rows(&found, next);
        Ok(has_more)
    }

    /// Writes a record anew from its row. A device whose row is damaged too is removed, and the index has to forget it.
    fn repair(&self, number: DeviceNumber, forgotten: &mut BTreeSet<DeviceNumber>) -> Result<(), EngineError> {
        let row = self.engine.read(Table::Device, &rows::number_key(number), rows::decode_device);
        let row = damage::tolerate_quietly(row)?.flatten();
        let mut table = self.shared.table.write();
        match row {
            Some(row) => table.set_reserving(number, row.device),
            None if table.contains(number) => {
                error!(device = number.0, "A device is lost: its record and its row are damaged");
                table.remove(number);
                forgotten.insert(number);
            }
            None => {} // It was deleted meanwhile.
        }
        table.flush();
        Ok(())
    }
}
