//! Reading at open what is kept in memory.

use std::ops::Bound;

use tidings_audience::Index;
use tracing::error;

use super::Derived;
use crate::engine::{Engine, EngineError, Table};
use crate::rows::{self, DeviceRow, STATE_KEY, State};
use crate::table::DeviceTable;

/// Damaged rows that are left out, each with a word in the log. More are no accident of single rows, and rather than serve
/// without the rest the store is not opened.
const DAMAGED_COUNT_MAX: usize = 16;

/// The committer's counters, the device table and the audience index as the rows say. Of a few damaged devices and
/// subscriptions only these are missing: a device that registers and subscribes again is as it was.
pub(crate) fn load(engine: &Engine) -> Result<(State, Derived), EngineError> {
    let damaged = || EngineError::damaged(Table::Meta, STATE_KEY);
    let state = engine.get(Table::Meta, STATE_KEY)?.ok_or_else(damaged)?;
    let state: State = rows::decode(Table::Meta, STATE_KEY, state.as_ref())?;
    let (mut table, mut index) = (DeviceTable::default(), Index::new());
    let mut damaged_count = 0;
    engine.scan(Table::Device, Bound::Unbounded, |key, row| {
        leave_out_damaged(&mut damaged_count, || {
            let DeviceRow { device, .. } = rows::decode(Table::Device, key, row)?;
            let number = rows::decode_number(Table::Device, key, key)?;
            if number.0 >= state.device_next {
                return Err(EngineError::damaged(Table::Device, key)); // Never given out; the table would grow up to it.
            }
            index.set_user(number, None, device.user.as_ref());
            table.set(number, device);
            Ok(())
        })
    })?;
    engine.scan(Table::Subscription, Bound::Unbounded, |key, _| {
        leave_out_damaged(&mut damaged_count, || {
            let (number, subject, topic) = rows::decode_subscription(key)?;
            if index.insert(number, &subject, &topic) {
                table.count_subscription(number, 1);
            }
            Ok(())
        })
    })?;
    Ok((state, Derived { table, index }))
}

fn leave_out_damaged(count: &mut usize, read: impl FnOnce() -> Result<(), EngineError>) -> Result<bool, EngineError> {
    match read() {
        Err(error) if error.is_damage() && *count < DAMAGED_COUNT_MAX => {
            error!(%error, "A damaged row is left out");
            *count += 1;
            Ok(true)
        }
        read => read.map(|()| true),
    }
}
