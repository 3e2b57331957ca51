//! Reading at open what is kept in memory.

use std::ops::Bound;
use std::sync::Arc;

use tidings_audience::Index;
use tidings_types::BrakeScope;
use tracing::{error, warn};

use super::Derived;
use crate::brakes::Brakes;
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
    let mut state: State = rows::decode(Table::Meta, STATE_KEY, state.as_ref())?;
    count_later(engine, &mut state)?;
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
    engine.scan(Table::Proven, Bound::Unbounded, |key, row| {
        leave_out_damaged(&mut damaged_count, || {
            let (chunk, bits) = rows::decode_proven(key, row)?;
            table.set_proven_chunk(chunk, bits);
            Ok(())
        })
    })?;
    let brakes = load_brakes(engine, &mut damaged_count)?;
    Ok((state, Derived { table, index, brakes }))
}

/// A pause that cannot be read holds everything: what it held must not be sent. Resuming everything forgets it.
fn load_brakes(engine: &Engine, damaged_count: &mut usize) -> Result<Brakes, EngineError> {
    let mut brakes = Brakes::default();
    engine.scan(Table::Brake, Bound::Unbounded, |key, row| {
        leave_out_damaged(damaged_count, || {
            let (scope, since) = rows::decode_brake(key, row).inspect_err(|error| {
                error!(%error, "All sending is paused, for a pause cannot be read; `tidings jobs resume everything` ends it");
                Arc::make_mut(&mut brakes.paused).entry(BrakeScope::Everything).or_default();
            })?;
            Arc::make_mut(&mut brakes.paused).insert(scope, since);
            Ok(())
        })
    })?;
    engine.scan(Table::Cancelled, Bound::Unbounded, |key, _| {
        leave_out_damaged(damaged_count, || {
            brakes.cancelled.insert(rows::decode_position(Table::Cancelled, key, key)?);
            Ok(())
        })
    })?;
    Ok(brakes)
}

/// Counts the events for later anew if the first is not the one that the counters say: a version that knows of none has
/// written them meanwhile, and what was accepted is still owed.
fn count_later(engine: &Engine, state: &mut State) -> Result<(), EngineError> {
    let mut first = None;
    let scanned = engine.scan(Table::Later, Bound::Unbounded, |key, _| {
        first = rows::decode_later_key(key);
        Ok::<_, EngineError>(first.is_none())
    });
    match scanned {
        Err(error) if error.is_damage() => {
            error!(%error, "Events for later cannot be counted; the counters are believed");
            return Ok(());
        }
        scanned => scanned?,
    }
    if first == state.later_first {
        return Ok(());
    }
    (state.later_first, state.later_count, state.later_bytes) = (first, 0, 0);
    engine.scan(Table::Later, Bound::Unbounded, |key, row| {
        state.later_count += 1;
        state.later_bytes += row.len() as u64;
        let arrival = rows::decode_later_key(key).map_or(0, |key| key.arrival + 1);
        state.later_arrival = state.later_arrival.max(arrival);
        Ok::<_, EngineError>(true)
    })?;
    warn!(count = state.later_count, "Events for later were counted anew");
    Ok(())
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
