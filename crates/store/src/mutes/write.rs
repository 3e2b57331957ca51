//! What devices do not want to be told: muted, unmuted, and ended when the time is over.
//!
//! A mute is a row under its device and, if it ends by itself, another under its end. The index knows only who is muted now;
//! the end is looked for here, several times a second, by the store's clock: in the table of ends, or behind a block of it
//! that cannot be read, among all mutes, which takes longer. At most `mute_count_max` per device.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_telemetry::chain;
use tidings_types::{DeviceId, DeviceNumber, Mute, MuteScope, Timestamp};
use tracing::error;

use crate::committer::draft::{Draft, Effect};
use crate::engine::{EngineError, Table};
use crate::error::SubscribeError;
use crate::rows;

/// Mutes that one look ends, or looks at.
const END_COUNT: usize = 1000;

/// How far the look for mutes that are over is.
#[derive(Debug, Default)]
pub(crate) struct MuteEnds {
    /// No mute that ends before this is left, but for those that are looked for among all.
    pub(crate) ended: Timestamp,
    /// With which key the look at all mutes goes on.
    start: Vec<u8>,
    /// When it began, if it has read all so far.
    began: Option<Timestamp>,
    /// A block was told that cannot be read.
    is_told: bool,
}

impl Draft<'_> {
    /// True when the scope was not muted before. One that is over already ends what there is.
    pub(crate) fn mute(&mut self, id: &DeviceId, mute: Mute) -> Result<Result<bool, SubscribeError>, EngineError> {
        let Some((number, _)) = self.find(id)? else { return Ok(Err(SubscribeError::NotFound)) };
        if mute.until.is_some_and(|until| until <= self.wall()) {
            self.end_mute(number, &mute.scope)?;
            return Ok(Ok(false));
        }
        if self.muted(number, &mute.scope)?.is_none() {
            let (limit, count) = (self.shared.config.mute_count_max, self.mutes(number)?.len() as u64 + 1);
            if count > u64::from(limit) {
                return Ok(Err(SubscribeError::TooManyMutes { limit, count }));
            }
        }
        self.put_mute(number, mute).map(Ok)
    }

    /// True when it was not muted before.
    pub(crate) fn put_mute(&mut self, number: DeviceNumber, Mute { scope, until }: Mute) -> Result<bool, EngineError> {
        let before = self.muted(number, &scope)?;
        if before == Some(until) {
            return Ok(false);
        }
        let key = rows::mute_key(number, &scope);
        if let Some(Some(until)) = before {
            self.rows.delete(Table::MuteEnd, rows::mute_end_key(until, &key));
        }
        if let Some(until) = until {
            self.rows.put(Table::MuteEnd, rows::mute_end_key(until, &key), []);
        }
        self.rows.put(Table::Mute, key, rows::mute_row(until));
        if before.is_none() {
            self.effects.push(Effect::Muted { number, subject: scope.subject().cloned() });
        }
        Ok(before.is_none())
    }

    /// False when it was not muted.
    pub(crate) fn unmute(
        &mut self,
        id: &DeviceId,
        scope: &MuteScope,
    ) -> Result<Result<bool, SubscribeError>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(Err(SubscribeError::NotFound)) };
        self.end_mute(number, scope).map(Ok)
    }

    fn end_mute(&mut self, number: DeviceNumber, scope: &MuteScope) -> Result<bool, EngineError> {
        let Some(until) = self.muted(number, scope)? else { return Ok(false) };
        let key = rows::mute_key(number, scope);
        if let Some(until) = until {
            self.rows.delete(Table::MuteEnd, rows::mute_end_key(until, &key));
        }
        self.rows.delete(Table::Mute, key);
        self.effects.push(Effect::Unmuted { number, subject: scope.subject().cloned() });
        Ok(true)
    }

    pub(crate) fn remove_mutes(&mut self, number: DeviceNumber) -> Result<(), EngineError> {
        for scope in self.mutes(number)?.into_keys() {
            self.end_mute(number, &scope)?;
        }
        Ok(())
    }

    /// Until when it is muted, `Some(None)`: for ever. One whose end cannot be read is taken for one without.
    fn muted(&self, number: DeviceNumber, scope: &MuteScope) -> Result<Option<Option<Timestamp>>, EngineError> {
        let key = rows::mute_key(number, scope);
        Ok(self.get(Table::Mute, &key)?.map(|row| end_of(&key, &row)))
    }

    /// The mutes of a device and their ends, as this batch will leave them.
    pub(crate) fn mutes(&self, number: DeviceNumber) -> Result<BTreeMap<MuteScope, Option<Timestamp>>, EngineError> {
        let prefix = rows::number_key(number);
        let mut mutes = BTreeMap::new();
        self.engine.scan(Table::Mute, Bound::Included(&prefix), |key, row| {
            let is_ours = key.starts_with(&prefix);
            if let Some((_, scope)) = rows::decode_mute_key(key).filter(|_| is_ours) {
                mutes.insert(scope, end_of(key, row));
            }
            Ok::<_, EngineError>(is_ours)
        })?;
        for (key, row) in self.rows.prefix(Table::Mute, &prefix) {
            let Some((_, scope)) = rows::decode_mute_key(key) else { continue };
            match row {
                Some(row) => mutes.insert(scope, end_of(key, row)),
                None => mutes.remove(&scope),
            };
        }
        Ok(mutes)
    }

    /// Ends mutes that are over, some at a time. True when there may be more.
    ///
    /// Where it cannot be read what is muted, the end is forgotten and the mute stays: the others end in time.
    pub(crate) fn end_mutes(&mut self, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let mut over = Vec::new();
        let now = self.wall();
        if now < ends.ended {
            ends.ended = Timestamp(0); // The clock was set back: since then earlier ends may have come.
        }
        let scanned = self.engine.scan(Table::MuteEnd, Bound::Included(&ends.ended.0.to_be_bytes()), |key, _| {
            let is_over = rows::decode_mute_end(key).is_none_or(|(until, _)| until <= now);
            if is_over {
                over.push(key.to_vec());
            }
            Ok::<_, EngineError>(is_over && over.len() < END_COUNT)
        });
        let is_cut = match scanned {
            Err(error) if error.is_damage() => {
                if !std::mem::replace(&mut ends.is_told, true) {
                    error!(error = chain(&error), "Mutes that are over are looked for among all");
                }
                true
            }
            scanned => scanned.map(|()| false)?,
        };
        for key in &over {
            self.rows.delete(Table::MuteEnd, key.as_slice());
            let Some((until, mute_key)) = rows::decode_mute_end(key) else { continue };
            let Some((number, scope)) = rows::decode_mute_key(mute_key) else { continue };
            ends.ended = until;
            match self.end_mute_of(number, &scope, until) {
                Err(error) if error.is_damage() => error!(error = chain(&error), "A mute has no end any more"),
                done => done?,
            }
        }
        if is_cut { self.end_any_mutes(now, ends) } else { Ok(over.len() == END_COUNT) }
    }

    /// Ends what is over among the next of all mutes. True when there are more; at the end it begins again, behind what
    /// was over when it began, if it could read all.
    fn end_any_mutes(&mut self, now: Timestamp, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let MuteEnds { ended, start, began, .. } = ends;
        if start.is_empty() {
            *began = Some(now);
        }
        let (mut over, mut seen_count, mut last) = (Vec::new(), 0, std::mem::take(start));
        let scanned = self.engine.scan(Table::Mute, Bound::Included(&last.clone()), |key, row| {
            (seen_count, last) = (seen_count + 1, key.to_vec());
            if let Ok((number, Mute { scope, until: Some(until) })) = rows::decode_mute(key, row)
                && until <= now
            {
                over.push((number, scope, until));
            }
            Ok::<_, EngineError>(seen_count < END_COUNT)
        });
        let is_cut = match scanned {
            Err(error) if error.is_damage() => true,
            scanned => scanned.map(|()| false)?,
        };
        if is_cut {
            *began = None;
        }
        if is_cut && seen_count == 0 {
            // What cannot be read is passed over, a device at a time.
            let number = last.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
            *start = number.checked_add(1).map_or(Vec::new(), |next| rows::number_key(DeviceNumber(next)).to_vec());
        } else if is_cut || seen_count == END_COUNT {
            *start = [&last[..], &[0]].concat(); // The next key that there can be.
        }
        for (number, scope, until) in over {
            match self.end_mute_of(number, &scope, until) {
                Err(error) if error.is_damage() => error!(error = chain(&error), "A mute does not end"),
                done => done?,
            }
        }
        if start.is_empty() {
            *ended = began.take().map_or(*ended, |began| began.max(*ended));
        }
        Ok(!start.is_empty())
    }

    /// Ends a mute, unless it was muted anew meanwhile and has another end.
    fn end_mute_of(&mut self, number: DeviceNumber, scope: &MuteScope, until: Timestamp) -> Result<(), EngineError> {
        if self.muted(number, scope)? == Some(Some(until)) {
            self.end_mute(number, scope)?;
        }
        Ok(())
    }
}

/// Rather told too little than against somebody's will.
fn end_of(key: &[u8], row: &[u8]) -> Option<Timestamp> {
    rows::decode_mute(key, row).map_or_else(
        |error| {
            error!(error = chain(&error), "A mute is taken for one without an end");
            None
        },
        |(_, mute)| mute.until,
    )
}
