//! The changes that the checkpoint does not have yet: they are written with each batch, replayed at open, and deleted.

use std::collections::{BTreeMap, BTreeSet};

use tidings_audience::Index;
use tidings_types::DeviceNumber;

use crate::checkpoint::Unusable;
use crate::committer::draft::Draft;
use crate::committer::effect::traits;
use crate::engine::{Engine, EngineError, Place, Span, Table};
use crate::rows::{self, Change, Changes, DeviceRow, State};
use crate::table::DeviceTable;

/// Rows that one round deletes: some tenths of a millisecond.
const TRIM_COUNT: u64 = 500;
/// If no checkpoint can be written and there are more bytes of changes, the oldest are deleted. The next opening then reads
/// all rows.
const CHANGE_BYTES_MAX: u64 = 1 << 30;

/// Replays the changes from `from` on, so that table and index of a checkpoint agree with the rows. Returns their number.
pub(crate) fn replay(
    engine: &Engine,
    from: u64,
    state: &State,
    table: &mut DeviceTable,
    index: &mut Index,
) -> Result<u64, NotReplayed> {
    let to = state.change_end;
    let (mut next, mut count, mut is_complete) = (from, 0, true);
    let mut touched = Touched::default();
    let span = Span::closed(&rows::change_key(from), &rows::change_key(to));
    engine.scan(Place::Open, Table::Change, &span, |key, row| {
        is_complete = key == rows::change_key(next) && next < to;
        if !is_complete {
            return Ok(false);
        }
        next += 1;
        for change in Changes::new(row) {
            let change = change.filter(|(number, _)| number.0 < state.device_next);
            let (number, change) = change.ok_or_else(|| EngineError::damaged(Table::Change, key))?;
            apply(number, change, index, &mut touched);
            count += 1;
        }
        Ok(true)
    })?;
    if !is_complete || next != to {
        return Err(Unusable::Gap { from, to }.into());
    }
    for number in touched.devices {
        match engine.read(Table::Device, &rows::number_key(number), rows::decode_device)? {
            Some(DeviceRow { device, .. }) => {
                index.set_device(number, None, Some(traits(&device)));
                table.set_reserving(number, device);
            }
            None => table.remove(number),
        }
    }
    recount(table, index, &touched.subscribers);
    Ok(count)
}

/// The devices that the changes concern.
#[derive(Default)]
struct Touched {
    devices: BTreeSet<DeviceNumber>,
    /// By device number: whether its subscriptions may have changed.
    subscribers: Vec<bool>,
}

impl Touched {
    fn resubscribe(&mut self, number: DeviceNumber) {
        let place = number.0 as usize;
        if self.subscribers.len() <= place {
            self.subscribers.resize(place + 1, false);
        }
        self.subscribers[place] = true;
    }
}

/// Counts the subscriptions of some devices anew, because a part of the checkpoint may have been written before or after a
/// change.
fn recount(table: &mut DeviceTable, index: &Index, is_recounted: &[bool]) {
    if is_recounted.is_empty() {
        return;
    }
    let counts = table.subscription_counts_mut();
    for (count, _) in counts.iter_mut().zip(is_recounted).filter(|(_, is_recounted)| **is_recounted) {
        *count = 0;
    }
    index.count_into(counts, |number| is_recounted.get(number.0 as usize) == Some(&true));
}

fn apply(number: DeviceNumber, change: Change, index: &mut Index, touched: &mut Touched) {
    match change {
        Change::Device { before } => {
            if let Some(before) = before {
                index.set_device(number, Some(before.get()), None);
            }
            touched.devices.insert(number);
        }
        Change::Forgotten => {
            index.forget_devices(&[number].into());
            touched.devices.insert(number);
        }
        Change::Subscription { subject, topic, is_there } => {
            match is_there {
                true => index.insert(number, &subject, &topic),
                false => index.remove(number, &subject, &topic),
            };
            touched.resubscribe(number);
        }
        Change::Mute { subject, is_there: true } => _ = index.mute(number, subject.as_ref()),
        Change::Mute { subject, is_there: false } => _ = index.unmute(number, subject.as_ref()),
    }
}

/// Why the checkpoint cannot be used. After damage, all rows are read instead.
#[derive(Debug)]
pub(crate) enum NotReplayed {
    Unusable(Unusable),
    Engine(EngineError),
}

impl From<Unusable> for NotReplayed {
    fn from(unusable: Unusable) -> Self {
        Self::Unusable(unusable)
    }
}

impl From<EngineError> for NotReplayed {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Draft<'_> {
    /// Deletes the changes before `taken`, which a checkpoint has. True when there are more.
    ///
    /// It goes by their numbers, not by the rows that are there: a store that began as a copy lacks the oldest rows, but the
    /// other stores of its log have them, and delete what it deletes.
    pub(crate) fn trim_changes(&mut self, taken: u64) -> Result<bool, EngineError> {
        let (first, end) = (self.state.change_base, self.state.change_end);
        let is_needed = |state: &State, number| number >= taken && state.change_bytes <= CHANGE_BYTES_MAX;
        if is_needed(&self.state, first) {
            return Ok(false);
        }
        let (last, mut bytes) = (end.min(first + TRIM_COUNT), BTreeMap::new());
        let span = Span::closed(&rows::change_key(first), &rows::change_key(last));
        self.engine.scan(Place::Changes, Table::Change, &span, |key, row| {
            let Ok(number) = key.try_into().map(u64::from_be_bytes) else { return Ok(false) };
            bytes.insert(number, row.len() as u64);
            Ok(number < last)
        })?;
        for number in first..last {
            if is_needed(&self.state, number) {
                return Ok(false);
            }
            self.rows.delete(Table::Change, rows::change_key(number));
            self.state.change_base = number + 1;
            let freed = bytes.get(&number).copied().unwrap_or_default();
            self.state.change_bytes = self.state.change_bytes.saturating_sub(freed);
        }
        if last == end {
            self.state.change_bytes = 0; // Corrects the sum if rows were missing.
        }
        Ok(last < end)
    }
}
