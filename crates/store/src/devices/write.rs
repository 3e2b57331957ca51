//! Registers and changes devices, and deletes them with all their data.

use tidings_types::{Device, DeviceId, DeviceNumber, DeviceToken, JournalPosition, Timestamp, TokenRef, UserId};

use crate::committer::draft::{Draft, Undo};
use crate::committer::effect::{Before, Effect};
use crate::devices::credential::Credential;
use crate::devices::rows::device::DeviceRow;
use crate::devices::{NewDevice, Precondition, PutTerms, Registered, USER_DEVICE_COUNT_MAX};
use crate::engine::{EngineError, Table};
use crate::error::{ChangeError, WriteError};
use crate::hash::Hash32;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// Devices of a user that are deleted in one step. Each may have thousands of subscriptions.
const ERASE_COUNT: usize = 16;

/// The origin of a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// The device or the application: a new device gets a secret.
    Device { proven: Option<bool> },
    /// An import: no secret is issued, a given one counts.
    Import { credential: Option<Hash32>, proven: bool, seen_at: Option<Timestamp>, token_at: Option<Timestamp> },
}

impl Store {
    /// Registers a device, or replaces its data; its subscriptions and mutes stay. A new device gets a credential.
    ///
    /// # Errors
    /// When the precondition does not hold, or the store is overloaded, has `device_count_max` devices, or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: registered or not; the credential of a new device is then lost.
    pub async fn put_device(
        &self,
        device: NewDevice,
        terms: PutTerms,
        now: Timestamp,
    ) -> Result<Registered, ChangeError> {
        let put = move |draft: &mut Draft<'_>| {
            draft.advance(now);
            draft.put_device(device, terms, now)
        };
        self.write(Class::Devices, weight::DEVICE, put).await?
    }

    /// Deletes a device with its subscriptions and mutes; false when there is no such device.
    ///
    /// # Errors
    /// When the precondition does not hold, or the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: deleted or not. Call again to be sure.
    pub async fn delete_device(&self, id: &DeviceId, precondition: Precondition) -> Result<bool, ChangeError> {
        let id = id.clone();
        self.write(Class::Devices, weight::DEVICE, move |draft| draft.delete_device(&id, precondition)).await?
    }

    /// Deletes all devices of a user with their tokens, secrets, subscriptions and mutes, some at a time. Returns how many
    /// devices were deleted.
    ///
    /// Other data about the user is not kept with devices and disappears by itself. Events in the journal that name the user,
    /// and their jobs, stay until the sender is done with them and their ids are forgotten (`id_window`). Scheduled events
    /// stay until they are due or cancelled. Publications in durable channels, with their publishers, stay for the channel's
    /// `history_ttl`. The hub, not the store, has the presence of connections until they end.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. Some devices may be deleted by then. Repeat the call until it returns 0.
    ///
    /// # Cancel safety
    /// Dropped: done in part, as after an error.
    pub async fn erase_user(&self, user: &UserId) -> Result<u64, WriteError> {
        let mut erased = 0;
        loop {
            let user = user.clone();
            match self.write(Class::Devices, weight::ERASE, move |draft| draft.erase_user(&user)).await? {
                0 => return Ok(erased),
                count => erased += count as u64,
            }
        }
    }

    /// Notes that a device was seen, so that it does not expire (`idle_max`). It writes at most one row per device and day.
    /// Not synced. An unknown device is skipped.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. The next call will note it.
    ///
    /// # Cancel safety
    /// Dropped: noted or not.
    pub async fn touch(&self, id: &DeviceId, now: Timestamp) -> Result<(), WriteError> {
        // If the day is already noted, this does not wait for a write. A damaged row is left to the committer.
        if self.device(id).is_ok_and(|device| device.is_none_or(|device| device.seen_at >= now.start_of_day())) {
            return Ok(());
        }
        let id = id.clone();
        let touch = move |draft: &mut Draft<'_>| {
            draft.advance(now);
            draft.touch(&id, now)
        };
        self.write_lazily(Class::Devices, weight::NAMES, touch).await
    }

    /// Gives a device a new secret. From the acknowledgement on, the old one proves nothing. `None`: no such device. The
    /// caller must revoke the proof of live connections that used the old secret.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. The write may be done nevertheless, so call again.
    ///
    /// # Cancel safety
    /// Dropped: done or not; the new secret is then lost. Another call issues another one.
    pub async fn rotate_credential(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, WriteError> {
        let id = id.clone();
        self.write(Class::Devices, weight::DEVICE, move |draft| draft.rotate_credential(&id)).await
    }

    /// Removes the user, the subscriptions and the mutes of a device and gives it a new secret, in one step. Its token stays.
    /// `None`: no such device. Jobs that have already selected their audience may still contain the device, but it does not
    /// get their events, because these were for its former user.
    ///
    /// # Errors
    /// As [`Store::rotate_credential`].
    ///
    /// # Cancel safety
    /// As [`Store::rotate_credential`].
    pub async fn log_out(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, WriteError> {
        let id = id.clone();
        self.write(Class::Devices, weight::DEVICE, move |draft| draft.log_out(&id)).await
    }
}

impl Draft<'_> {
    pub(crate) fn put_device(
        &mut self,
        device: NewDevice,
        PutTerms { proven, precondition }: PutTerms,
        now: Timestamp,
    ) -> Result<Result<Registered, ChangeError>, EngineError> {
        if let Err(error) = self.check(&device.id, precondition)? {
            return Ok(Err(error));
        }
        let registered = self.register(device, now, Origin::Device { proven })?;
        Ok(registered.map(|(_, registered)| registered))
    }

    fn check(&self, id: &DeviceId, precondition: Precondition) -> Result<Result<(), ChangeError>, EngineError> {
        if precondition == Precondition::None {
            return Ok(Ok(()));
        }
        let revision = self.find(id)?.map(|(_, row)| row.device.revision);
        Ok(if precondition.holds(revision) { Ok(()) } else { Err(ChangeError::PreconditionFailed { revision }) })
    }

    pub(crate) fn register(
        &mut self,
        new: NewDevice,
        now: Timestamp,
        origin: Origin,
    ) -> Result<Result<(DeviceNumber, Registered), ChangeError>, EngineError> {
        let known = self.find(&new.id)?;
        let created = known.is_none();
        let former = known.as_ref().and_then(|(_, row)| row.device.user.as_ref());
        if let Some(user) = new.user.as_ref().filter(|user| former != Some(*user))
            && matches!(origin, Origin::Device { .. })
        {
            let (limit, count) = (USER_DEVICE_COUNT_MAX, self.user_device_count(user) + 1);
            if count > u64::from(limit) {
                return Ok(Err(ChangeError::TooManyDevices { limit, count }));
            }
        }
        let (number, old) = match known {
            Some((number, row)) => (number, Some(row)),
            None => {
                self.forget_damaged(&new.id)?;
                match self.new_number(&new)? {
                    Ok(number) => (number, None),
                    Err(error) => return Ok(Err(error.into())),
                }
            }
        };
        let known_credential = old.as_ref().and_then(|old| old.credential);
        let old = old.map(|old| old.device);
        let (issued, credential) = match origin {
            Origin::Device { .. } if created => Some(Credential::generate()).unzip(),
            Origin::Import { credential: Some(given), .. } => (None, Some(given)),
            Origin::Device { .. } | Origin::Import { credential: None, .. } => (None, known_credential),
        };
        let is_same_address = old.as_ref().is_some_and(|old| is_same_address(old, &new));
        let stated = match origin {
            Origin::Device { proven } => proven,
            Origin::Import { proven, .. } => proven.then_some(true),
        };
        let is_proven = stated.or((!is_same_address).then_some(false)); // A new token is unproven.
        if let Some(is_proven) = is_proven {
            self.set_proven(number, is_proven && new.token.is_some());
        }
        let old_token = old.as_ref().and_then(|old| old.token.as_ref());
        self.move_token(number, old_token, new.token.as_ref())?;
        let mut device = merge(new, old.as_ref(), origin, now, JournalPosition(self.state.journal_end));
        self.note_written(device.seen_at);
        if created {
            self.set_subscription_count(number, 0);
        }
        if created || !self.is_named(&device.id, number) {
            self.rows.put(Table::DeviceId, rows::device_id_key(&device.id), rows::number_key(number));
        }
        let is_repeated = matches!(origin, Origin::Import { .. }) && credential == known_credential;
        if !is_repeated || old.as_ref() != Some(&device) {
            device.revision = self.put_row(number, DeviceRow { device: device.clone(), credential }, old);
        }
        Ok(Ok((number, Registered { device, created, credential: issued })))
    }

    pub(crate) fn delete_device(
        &mut self,
        id: &DeviceId,
        precondition: Precondition,
    ) -> Result<Result<bool, ChangeError>, EngineError> {
        if let Err(error) = self.check(id, precondition)? {
            return Ok(Err(error));
        }
        let Some((number, row)) = self.find(id)? else { return self.forget_damaged(id).map(Ok) };
        self.remove_device(number, row)?;
        Ok(Ok(true))
    }

    /// Deletes some devices of the user and returns how many; 0 when there are no more.
    pub(crate) fn erase_user(&mut self, user: &UserId) -> Result<usize, EngineError> {
        // The index does not have the changes of this batch yet.
        let new = self.effects.iter().filter_map(|effect| match effect {
            Effect::DeviceSet { number, device, .. } if device.user.as_ref() == Some(user) => Some(*number),
            _ => None,
        });
        let new: Vec<DeviceNumber> = new.collect();
        let mut erased = 0;
        for number in new {
            erased += usize::from(erased < ERASE_COUNT && self.erase(number, user)?);
        }
        let mut next = Some(DeviceNumber(0));
        while let Some(start) = next.filter(|_| erased < ERASE_COUNT) {
            let known: Vec<DeviceNumber> =
                self.shared.index.read().devices_of_user_from(user, start).take(ERASE_COUNT - erased).collect();
            next = known.last().and_then(|last| last.0.checked_add(1)).map(DeviceNumber);
            for number in known {
                erased += usize::from(self.erase(number, user)?);
            }
        }
        Ok(erased)
    }

    /// Deletes a device that belongs to the user according to memory; false when this is not so any more.
    fn erase(&mut self, number: DeviceNumber, user: &UserId) -> Result<bool, EngineError> {
        match self.row(number)? {
            Some(row) if row.device.user.as_ref() == Some(user) => self.remove_device(number, row)?,
            None if self.is_left(number) => self.forget(number)?,
            Some(_) | None => return Ok(false),
        }
        Ok(true)
    }

    /// Deletes a device with all its data.
    pub(crate) fn remove_device(&mut self, number: DeviceNumber, row: DeviceRow) -> Result<(), EngineError> {
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        if let Some(token) = &row.device.token {
            self.rows.delete(Table::Token, rows::token_key(token));
        }
        self.set_proven(number, false);
        // After damage, there may be two devices with one id.
        let names_another = |named: Option<DeviceNumber>| named.is_some_and(|named| named != number);
        if !self.named_number(&row.device.id).is_ok_and(names_another) {
            self.rows.delete(Table::DeviceId, rows::device_id_key(&row.device.id));
        }
        self.rows.delete(Table::Device, rows::number_key(number));
        self.free_number(number);
        self.count_user_device(row.device.user.as_ref(), None);
        self.effects.push(Effect::DeviceRemoved { number, before: Before::Device(Box::new(row.device)) });
        Ok(())
    }

    /// See [`Store::touch`].
    pub(crate) fn touch(&mut self, id: &DeviceId, now: Timestamp) -> Result<(), EngineError> {
        if let Some((number, row)) = self.find(id)?.filter(|(_, row)| row.device.seen_at < now.start_of_day()) {
            self.note_seen(number, row, now);
        }
        Ok(())
    }

    /// Deletes the remains of a device whose row is damaged.
    fn forget_damaged(&mut self, id: &DeviceId) -> Result<bool, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(false) };
        self.rows.delete(Table::DeviceId, rows::device_id_key(id));
        if self.row(number)?.is_some() {
            return Ok(false); // The number belongs to another device.
        }
        self.forget(number)?;
        Ok(true)
    }

    /// Whether a device without a readable row is still in memory.
    pub(crate) fn is_left(&self, number: DeviceNumber) -> bool {
        let is_untouched = self.rows.get(Table::Device, &rows::number_key(number)).is_none();
        is_untouched && self.shared.table.read().contains(number)
    }

    /// Deletes a device without a readable row. Its id and token are taken from memory.
    pub(crate) fn forget(&mut self, number: DeviceNumber) -> Result<(), EngineError> {
        if let Some((id, token)) = self.address_in_memory(number) {
            if self.is_named(&id, number) {
                self.rows.delete(Table::DeviceId, rows::device_id_key(&id));
            }
            let key = token.as_ref().map(rows::token_key);
            if let Some(key) = key
                && self.holders(&key)?.contains(&number)
            {
                self.rows.delete(Table::Token, key);
            }
        }
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        self.set_proven(number, false);
        self.rows.delete(Table::Device, rows::number_key(number));
        self.free_number(number);
        self.effects.push(Effect::DeviceRemoved { number, before: Before::Unknown });
        Ok(())
    }

    pub(crate) fn address_in_memory(&self, number: DeviceNumber) -> Option<(DeviceId, Option<DeviceToken>)> {
        let table = self.shared.table.read();
        let found = table.recipient(number).ok().flatten()?;
        Some((DeviceId::new(found.id).ok()?, found.token.map(TokenRef::to_token)))
    }

    /// See [`Store::rotate_credential`].
    pub(crate) fn rotate_credential(
        &mut self,
        id: &DeviceId,
    ) -> Result<Option<(DeviceNumber, Credential)>, EngineError> {
        let Some((number, mut row)) = self.find(id)? else { return Ok(None) };
        let (credential, hash) = Credential::generate();
        row.credential = Some(hash);
        self.put_row_of_same_user(number, row);
        Ok(Some((number, credential)))
    }

    /// See [`Store::log_out`].
    pub(crate) fn log_out(&mut self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, EngineError> {
        let Some((number, mut row)) = self.find(id)? else { return Ok(None) };
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        let (credential, hash) = Credential::generate();
        row.credential = Some(hash);
        row.device.since = JournalPosition(self.state.journal_end); // Waiting pushes are for its former user.
        let before = row.device.clone();
        row.device.user = None;
        self.put_row(number, row, Some(before));
        Ok(Some((number, credential)))
    }

    /// Counts a device that moves from one user to another.
    pub(crate) fn count_user_device(&mut self, before: Option<&UserId>, after: Option<&UserId>) {
        if before == after {
            return;
        }
        for (user, change) in [(before, -1), (after, 1)] {
            let Some(user) = user else { continue };
            let count = self.user_device_count(user).saturating_add_signed(change);
            let known = self.user_device_counts.insert(user.clone(), count);
            self.undo.push(Undo::UserDeviceCount(user.clone(), known));
        }
    }

    /// The device count of a user after this batch.
    pub(crate) fn user_device_count(&self, user: &UserId) -> u64 {
        self.user_device_counts
            .get(user)
            .copied()
            .unwrap_or_else(|| self.shared.index.read().devices_of_user_from(user, DeviceNumber(0)).count() as u64)
    }

    /// Writes a changed row and returns its new revision.
    fn put_row(&mut self, number: DeviceNumber, mut row: DeviceRow, before: Option<Device>) -> u64 {
        self.state.revision += 1;
        row.device.revision = self.state.revision;
        self.rows.put(Table::Device, rows::number_key(number), rows::encode_device(&row));
        self.count_user_device(before.as_ref().and_then(|before| before.user.as_ref()), row.device.user.as_ref());
        self.effects.push(Effect::DeviceSet {
            number,
            device: row.device,
            before: before.map_or(Before::Nothing, |device| Before::Device(Box::new(device))),
        });
        self.state.revision
    }

    pub(crate) fn put_row_of_same_user(&mut self, number: DeviceNumber, row: DeviceRow) {
        let before = row.device.clone();
        self.put_row(number, row, Some(before));
    }
}

/// The new data of a device. An import never moves `seen_at`, or `token_at` of the same token, back.
fn merge(new: NewDevice, old: Option<&Device>, origin: Origin, now: Timestamp, journal_end: JournalPosition) -> Device {
    let known_token_at = old.filter(|old| old.token == new.token).map(|old| old.token_at);
    let (token_at, seen_at) = match origin {
        // `max`, because the clock may have been set back.
        Origin::Device { .. } => (now, now.start_of_day().max(old.map_or(Timestamp(0), |old| old.seen_at))),
        // If the registration time of an imported token is unknown, it is 0: a report that it is gone always counts.
        Origin::Import { seen_at, token_at, .. } => {
            let seen_at = seen_at.map(|seen_at| seen_at.min(now).start_of_day());
            let known = old.map(|old| old.seen_at);
            let token_at = token_at.map(|token_at| token_at.min(now)).max(known_token_at);
            (token_at.unwrap_or_default(), seen_at.max(known).unwrap_or(now.start_of_day()))
        }
    };
    // A new user must not get the waiting pushes of the former user.
    let is_taken_over = old.is_some_and(|old| old.user.is_some() && old.user != new.user);
    let since = old.filter(|_| !is_taken_over).map_or(journal_end, |old| old.since);
    let NewDevice { id, user, app, platform, environment, token, locale, country, time_zone, push_permission } = new;
    Device {
        id,
        user,
        app,
        platform,
        environment,
        token,
        locale,
        country,
        time_zone,
        push_permission,
        token_at,
        since,
        revision: old.map_or(0, |old| old.revision),
        seen_at,
    }
}

/// Whether the proof of the old token holds for the new one. A browser with new keys has a new token.
fn is_same_address(old: &Device, new: &NewDevice) -> bool {
    (&old.token, &old.app, old.platform, old.environment) == (&new.token, &new.app, new.platform, new.environment)
}
