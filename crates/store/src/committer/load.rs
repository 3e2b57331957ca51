//! Reading at open what is kept in memory.

use std::ops::Bound;

use tidings_audience::Index;

use super::Derived;
use crate::engine::{Engine, EngineError, Table};
use crate::rows::{self, DeviceRow, STATE_KEY, State};
use crate::table::DeviceTable;

/// The committer's counters, the device table and the audience index as the rows say.
pub(crate) fn load(engine: &Engine) -> Result<(State, Derived), EngineError> {
    let state = engine.get(Table::Meta, STATE_KEY)?.ok_or(EngineError::damaged(Table::Meta))?;
    let state: State = rows::decode(Table::Meta, state.as_ref())?;
    let (mut table, mut index) = (DeviceTable::default(), Index::new());
    engine.scan(Table::Device, Bound::Unbounded, |key, row| {
        let DeviceRow { device, .. } = rows::decode(Table::Device, row)?;
        table.set(rows::decode_number(Table::Device, key)?, device);
        Ok::<_, EngineError>(true)
    })?;
    engine.scan(Table::Subscription, Bound::Unbounded, |key, _| {
        let (number, subject, topic) = rows::decode_subscription(key)?;
        if index.insert(number, &subject, &topic) {
            table.count_subscription(number, 1);
        }
        Ok::<_, EngineError>(true)
    })?;
    Ok((state, Derived { table, index }))
}
