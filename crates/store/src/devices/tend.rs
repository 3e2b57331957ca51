//! Tending the device table: writing lost records anew, collecting garbage of its heap and putting it in order, telling
//! it who has which number. A bounded look each time.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use tidings_telemetry::chain;
use tidings_types::{DeviceId, DeviceNumber};
use tracing::{error, info, warn};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::rows;
use crate::table::{DeviceTable, Ids};

/// Rows one look reads.
const REPAIR_COUNT: usize = 256;
/// Ids one look reads: a millisecond.
const ID_COUNT: usize = if cfg!(test) { 8 } else { 1024 };

impl Draft<'_> {
    /// Nothing of it is a change: no row is written. True when there may be more.
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

    /// Tells the table who has which number. Nothing of it is a change. True when there may be more.
    pub(crate) fn hint_at_ids(&mut self) -> Result<bool, EngineError> {
        let outgrown = self.shared.table.read().outgrown_hints();
        if let Some(device_count) = outgrown {
            let hints = Ids::for_twice(device_count); // Megabytes: neither made nor freed under the lock.
            let _old = self.shared.table.write().replace_hints(hints);
        }
        let Some(after) = self.shared.table.read().next_unhinted() else { return Ok(false) };
        let (mut found, mut seen_count, mut last) = (Vec::new(), 0, None);
        let scanned = self.engine.scan(Table::DeviceId, Bound::Excluded(&after), |key, number| {
            // What is damaged is asked of the rows, which say so.
            let id = std::str::from_utf8(key).ok().and_then(|id| DeviceId::new(id).ok());
            found.extend(id.zip(rows::decode_number(Table::DeviceId, key, number).ok()));
            (seen_count, last) = (seen_count + 1, Some(key.to_vec()));
            Ok::<_, EngineError>(seen_count < ID_COUNT)
        });
        if let Err(error) = &scanned {
            // Nobody needs a hint: of who has none the rows are asked, and only then is it an error.
            warn!(error = chain(&error), "Ids of devices are not all kept in memory, for rows cannot be read");
        }
        let next = last.filter(|_| scanned.is_ok() && seen_count == ID_COUNT);
        let has_more = next.is_some();
        self.shared.table.write().hint_at_rows(&found, next);
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
        let row = damage::tolerate_quietly(row)?.flatten();
        let mut table = self.shared.table.write();
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
