//! Muting and unmuting devices.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tidings_types::{DeviceId, DeviceNumber, Mute, MuteScope, Timestamp};

use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::error::SubscribeError;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Mutes a device, or changes the end of a mute. False when the scope was muted before. A mute with an end in the past
    /// only removes an existing mute of its scope.
    ///
    /// # Errors
    /// When there is no such device or it would have more than `mute_count_max`, or the store is overloaded or cannot
    /// write.
    ///
    /// # Cancel safety
    /// Dropped: muted or not.
    pub async fn mute(&self, id: &DeviceId, mute: Mute, now: Timestamp) -> Result<bool, SubscribeError> {
        let id = id.clone();
        let work = move |draft: &mut Draft<'_>| {
            draft.advance(now);
            draft.mute(&id, mute)
        };
        self.write(Class::Devices, weight::DEVICE, work).await?
    }

    /// Ends the mute of exactly this scope; false when there was none.
    ///
    /// # Errors
    /// When there is no such device, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: ended or not.
    pub async fn unmute(&self, id: &DeviceId, scope: &MuteScope) -> Result<bool, SubscribeError> {
        let (id, scope) = (id.clone(), scope.clone());
        self.write(Class::Devices, weight::DEVICE, move |draft| draft.unmute(&id, &scope)).await?
    }
}

impl Draft<'_> {
    /// True when the scope was not muted before and is now.
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

    /// True when the scope was not muted before.
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
            self.shared.mutes_due.fetch_min(until.0, Ordering::Relaxed);
            // If the clock was set back, the mute may end before those that have ended.
            self.state.mutes_ended = self.state.mutes_ended.min(until);
            self.rows.put(Table::MuteEnd, rows::mute_end_key(until, &key), []);
        }
        self.rows.put(Table::Mute, key, rows::mute_row(until));
        if before.is_none() {
            self.effects.push(Effect::Muted { number, subject: scope.subject().cloned() });
        }
        Ok(before.is_none())
    }

    /// False when the scope was not muted.
    pub(crate) fn unmute(
        &mut self,
        id: &DeviceId,
        scope: &MuteScope,
    ) -> Result<Result<bool, SubscribeError>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(Err(SubscribeError::NotFound)) };
        self.end_mute(number, scope).map(Ok)
    }

    pub(crate) fn end_mute(&mut self, number: DeviceNumber, scope: &MuteScope) -> Result<bool, EngineError> {
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

    /// The end of the mute of this scope; `Some(None)`: it has no end. An unreadable end counts as none.
    pub(crate) fn muted(
        &self,
        number: DeviceNumber,
        scope: &MuteScope,
    ) -> Result<Option<Option<Timestamp>>, EngineError> {
        let key = rows::mute_key(number, scope);
        Ok(self.get(Table::Mute, &key)?.map(|row| end_of(&key, &row)))
    }

    /// The mutes of a device and their ends, as this batch will leave them.
    pub(crate) fn mutes(&self, number: DeviceNumber) -> Result<BTreeMap<MuteScope, Option<Timestamp>>, EngineError> {
        let rows = self.with_prefix(Table::Mute, &rows::number_key(number))?;
        let mutes = rows.iter().filter_map(|(key, row)| Some((rows::decode_mute_key(key)?.1, end_of(key, row))));
        Ok(mutes.collect())
    }
}

/// A mute with an unreadable end stays: a push against the user's will would be worse than a missing one.
fn end_of(key: &[u8], row: &[u8]) -> Option<Timestamp> {
    damage::understood(rows::decode_mute(key, row), "The end of a mute cannot be read; the mute stays")?.1.until
}
