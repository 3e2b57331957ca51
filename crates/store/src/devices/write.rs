//! Devices, their tokens and subscriptions.

use std::collections::BTreeSet;
use std::ops::Bound;

use tidings_telemetry::chain;
use tidings_types::{
    Device, DeviceId, DeviceNumber, DeviceToken, JournalPosition, Subject, Timestamp, TokenRef, TopicName, UserId,
};
use tracing::error;

use crate::committer::draft::{Draft, Effect};
use crate::devices::credential::Credential;
use crate::devices::rows::device::DeviceRow;
use crate::devices::{GoneToken, NewDevice, Precondition, PutTerms, Registered, USER_DEVICE_COUNT_MAX};
use crate::engine::{EngineError, Table};
use crate::error::{ChangeError, SubscribeError};
use crate::hash::{Hash16, Hash32};
use crate::rows;
use crate::subscriptions::Selection;

type Pairs = Vec<(Subject, TopicName)>;

/// Devices of a user that are deleted in one step: each may take thousands of subscriptions with it.
const ERASE_COUNT: usize = 16;

/// Who says what is put into a device's row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// The device itself, or who speaks for it: it gets a secret when it is new, and may say that its token is proven,
    /// or not.
    Device { proven: Option<bool> },
    /// An import: no secret is made; a given one counts.
    Import { credential: Option<Hash32>, proven: bool, seen_at: Option<Timestamp>, token_at: Option<Timestamp> },
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
                match self.new_number(&new) {
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
        let is_proven = stated.or((!is_same_address).then_some(false)); // A new address has proven nothing.
        if let Some(is_proven) = is_proven {
            self.set_proven(number, is_proven && new.token.is_some());
        }
        let old_token = old.as_ref().and_then(|old| old.token.as_ref());
        self.move_token(number, old_token, new.token.as_ref())?;
        let mut device = merge(new, old.as_ref(), origin, now, JournalPosition(self.state.journal_end));
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

    /// Gives `token` to `number`: whoever had it loses it, and so does `number` the one it had.
    fn move_token(
        &mut self,
        number: DeviceNumber,
        old: Option<&DeviceToken>,
        new: Option<&DeviceToken>,
    ) -> Result<(), EngineError> {
        if let Some(old) = old.filter(|old| Some(*old) != new) {
            self.rows.delete(Table::Token, rows::token_key(old));
        }
        let Some(new) = new else { return Ok(()) };
        let key = rows::token_key(new);
        for holder in self.holders(&key)?.into_iter().filter(|holder| *holder != number) {
            // Whoever has another token by now, as a damaged row may say, keeps it.
            let held = |row: &DeviceRow| row.device.token.as_ref().is_some_and(|token| rows::token_key(token) == key);
            if let Some(mut row) = self.row(holder)?.filter(held) {
                row.device.token = None;
                self.set_proven(holder, false);
                self.put_row_of_same_user(holder, row);
            }
        }
        self.rows.put(Table::Token, key, rows::number_key(number));
        Ok(())
    }

    /// Who has the token of this key. Where its row is damaged, all devices in memory are looked at: an address that
    /// two devices have would be told twice.
    fn holders(&self, key: &Hash16) -> Result<Vec<DeviceNumber>, EngineError> {
        let holder = self
            .get(Table::Token, key)
            .and_then(|row| row.map(|row| rows::decode_number(Table::Token, key, &row)).transpose());
        match holder {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "Who has a token is asked of memory");
                let table = self.shared.table.read();
                Ok(table.find_all(|found| found.token.is_some_and(|token| rows::token_key(&token.to_token()) == *key)))
            }
            holder => Ok(holder?.into_iter().collect()),
        }
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

    /// Deletes some devices of the user and tells how many; 0 when he has none.
    pub(crate) fn erase_user(&mut self, user: &UserId) -> Result<usize, EngineError> {
        // The index does not know yet what this batch says.
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

    /// Deletes a device that memory says is the user's; false when it is not any more.
    fn erase(&mut self, number: DeviceNumber, user: &UserId) -> Result<bool, EngineError> {
        match self.row(number)? {
            Some(row) if row.device.user.as_ref() == Some(user) => self.remove_device(number, row)?,
            None if self.is_left(number) => self.forget(number)?,
            Some(_) | None => return Ok(false),
        }
        Ok(true)
    }

    /// Takes away a device with all that belongs to it.
    pub(crate) fn remove_device(&mut self, number: DeviceNumber, row: DeviceRow) -> Result<(), EngineError> {
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        if let Some(token) = &row.device.token {
            self.rows.delete(Table::Token, rows::token_key(token));
        }
        self.set_proven(number, false);
        // Damage may have left two with one id.
        let names_another = |named: Option<DeviceNumber>| named.is_some_and(|named| named != number);
        if !self.named_number(&row.device.id).is_ok_and(names_another) {
            self.rows.delete(Table::DeviceId, rows::device_id_key(&row.device.id));
        }
        self.rows.delete(Table::Device, rows::number_key(number));
        self.free_number(number);
        self.count_user_device(row.device.user.as_ref(), None);
        self.effects.push(Effect::DeviceRemoved { number, before: Some(Box::new(row.device)) });
        Ok(())
    }

    /// Notes that a device was seen: a new row on a new day.
    pub(crate) fn touch(&mut self, id: &DeviceId, now: Timestamp) -> Result<(), EngineError> {
        if let Some((number, row)) = self.find(id)?.filter(|(_, row)| row.device.seen_at < now.start_of_day()) {
            self.note_seen(number, row, now);
        }
        Ok(())
    }

    /// Takes away what is left of a device whose row is damaged; its number is told nothing any more.
    fn forget_damaged(&mut self, id: &DeviceId) -> Result<bool, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(false) };
        self.rows.delete(Table::DeviceId, rows::device_id_key(id));
        if self.row(number)?.is_some() {
            return Ok(false); // It is another device's by now.
        }
        self.forget(number)?;
        Ok(true)
    }

    /// Whether a device without a row that can be read is left in memory.
    fn is_left(&self, number: DeviceNumber) -> bool {
        let is_untouched = self.rows.get(Table::Device, &rows::number_key(number)).is_none();
        is_untouched && self.shared.table.read().contains(number)
    }

    /// Takes away a device without a row that can be read; its name and address are those that memory has.
    fn forget(&mut self, number: DeviceNumber) -> Result<(), EngineError> {
        if let Some((id, token)) = self.left_address(number) {
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
        self.effects.push(Effect::DeviceRemoved { number, before: None });
        Ok(())
    }

    fn left_address(&self, number: DeviceNumber) -> Option<(DeviceId, Option<DeviceToken>)> {
        let table = self.shared.table.read();
        let found = table.recipient(number).ok().flatten()?;
        Some((DeviceId::new(found.id).ok()?, found.token.map(TokenRef::to_token)))
    }

    /// A new secret for the device; the old one proves nothing from now on.
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

    /// The device is nobody's, subscribed to nothing and has muted nothing; its address stays for its next user.
    pub(crate) fn log_out(&mut self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, EngineError> {
        let Some((number, mut row)) = self.find(id)? else { return Ok(None) };
        self.remove_subscriptions(number)?;
        self.remove_mutes(number)?;
        let (credential, hash) = Credential::generate();
        row.credential = Some(hash);
        row.device.since = JournalPosition(self.state.journal_end); // What waits to be pushed is its former user's.
        let before = row.device.clone();
        row.device.user = None;
        self.put_row(number, row, Some(before));
        Ok(Some((number, credential)))
    }

    pub(crate) fn subscribe(
        &mut self,
        id: &DeviceId,
        selection: Selection,
    ) -> Result<Result<usize, SubscribeError>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(Err(SubscribeError::NotFound)) };
        let pairs = selection
            .into_iter()
            .flat_map(|(subject, topics)| topics.into_iter().map(move |topic| (subject.clone(), topic)));
        Ok(self.add_subscriptions(number, pairs))
    }

    pub(crate) fn add_subscriptions(
        &mut self,
        number: DeviceNumber,
        pairs: impl IntoIterator<Item = (Subject, TopicName)>,
    ) -> Result<usize, SubscribeError> {
        let new: BTreeSet<(Subject, TopicName)> = pairs
            .into_iter()
            .filter(|(subject, topic)| {
                let key = rows::subscription_key(number, subject, topic);
                !self.is_subscribed(&key, number, subject, topic)
            })
            .collect();
        let limit = self.shared.config.subscription_count_max;
        let count = u64::from(self.subscription_count(number)) + new.len() as u64;
        let Some(count) = u32::try_from(count).ok().filter(|count| *count <= limit) else {
            return Err(SubscribeError::TooMany { limit, count });
        };
        self.set_subscription_count(number, count);
        let added = new.len();
        for (subject, topic) in new {
            self.rows.put(Table::Subscription, rows::subscription_key(number, &subject, &topic), []);
            self.effects.push(Effect::Subscribed { number, subject, topic });
        }
        Ok(added)
    }

    pub(crate) fn unsubscribe(
        &mut self,
        id: &DeviceId,
        selection: Selection,
    ) -> Result<Result<usize, SubscribeError>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(Err(SubscribeError::NotFound)) };
        let mut removed = 0;
        for (subject, topics) in selection {
            let pairs: Pairs = if topics.is_empty() {
                self.subscriptions(&rows::subject_prefix(number, &subject))?
            } else {
                topics.into_iter().map(|topic| (subject.clone(), topic)).collect()
            };
            for (subject, topic) in pairs {
                removed += usize::from(self.remove_subscription(number, subject, topic));
            }
        }
        Ok(Ok(removed))
    }

    pub(crate) fn remove_subscriptions(&mut self, number: DeviceNumber) -> Result<(), EngineError> {
        for (subject, topic) in self.subscriptions(&rows::number_key(number))? {
            self.remove_subscription(number, subject, topic);
        }
        Ok(())
    }

    fn remove_subscription(&mut self, number: DeviceNumber, subject: Subject, topic: TopicName) -> bool {
        let key = rows::subscription_key(number, &subject, &topic);
        if !self.is_subscribed(&key, number, &subject, &topic) {
            return false;
        }
        let count = self.subscription_count(number).saturating_sub(1);
        self.set_subscription_count(number, count);
        self.rows.delete(Table::Subscription, key);
        self.effects.push(Effect::Unsubscribed { number, subject, topic });
        true
    }

    /// The subscriptions whose key begins with `prefix`, as this batch will leave them.
    fn subscriptions(&self, prefix: &[u8]) -> Result<Pairs, EngineError> {
        let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
        self.engine.scan(Table::Subscription, Bound::Included(prefix), |key, _| {
            let ours = key.starts_with(prefix);
            if ours {
                keys.insert(key.to_vec());
            }
            Ok::<_, EngineError>(ours)
        })?;
        for (key, row) in self.rows.prefix(Table::Subscription, prefix) {
            match row {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        // One that cannot be read was left out of the index: it is no subscription.
        let names = keys.iter().filter_map(|key| rows::decode_subscription(key).ok());
        Ok(names.map(|(_, subject, topic)| (subject, topic)).collect())
    }

    pub(crate) fn tokens_gone(&mut self, tokens: Vec<GoneToken>) -> Result<usize, EngineError> {
        let mut taken = 0;
        for GoneToken { number, token, gone_at } in tokens {
            let Some(mut row) = self.row(number)? else {
                // Nobody knows it any more, and nobody is told at this address.
                let has_it = |(_, held): (_, Option<DeviceToken>)| held.as_ref() == Some(&token);
                if self.is_left(number) && self.left_address(number).is_some_and(has_it) {
                    self.forget(number)?;
                    taken += 1;
                }
                continue;
            };
            let same = row.device.token.as_ref().is_some_and(|held| rows::token_key(held) == rows::token_key(&token));
            let newer = gone_at.is_some_and(|gone_at| row.device.token_at > gone_at);
            if same && !newer {
                row.device.token = None;
                self.rows.delete(Table::Token, rows::token_key(&token));
                self.set_proven(number, false);
                self.put_row_of_same_user(number, row);
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// The device's number. Memory mostly knows; it does too where the row that says it is damaged.
    pub(crate) fn find_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let is_untouched = self.rows.get(Table::DeviceId, rows::device_id_key(id)).is_none();
        if is_untouched
            && let Some(number) = self.shared.table.read().number_of(id)
            && self.rows.get(Table::Device, &rows::number_key(number)) != Some(None)
        {
            return Ok(Some(number));
        }
        match self.named_number(id) {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "A device is looked for in memory");
                Ok(self.shared.table.read().find_all(|found| found.id == id.as_str()).pop())
            }
            number => number,
        }
    }

    /// What the row says that names the device.
    fn named_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let key = rows::device_id_key(id);
        self.get(Table::DeviceId, key)?.map(|row| rows::decode_number(Table::DeviceId, key, &row)).transpose()
    }

    fn is_named(&self, id: &DeviceId, number: DeviceNumber) -> bool {
        self.named_number(id).is_ok_and(|named| named == Some(number))
    }

    pub(crate) fn find(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(None) };
        // A row of another device is not this one's, whatever names it.
        Ok(self.row(number)?.filter(|row| row.device.id == *id).map(|row| (number, row)))
    }

    /// What is kept of a device. One whose row is damaged is not known: registered again, it gets a new number.
    pub(crate) fn row(&self, number: DeviceNumber) -> Result<Option<DeviceRow>, EngineError> {
        let key = rows::number_key(number);
        let row = self.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, &row));
        match row.transpose() {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "A device is not known any more");
                Ok(None)
            }
            row => row,
        }
    }

    /// Writes a changed row; its new revision.
    fn put_row(&mut self, number: DeviceNumber, mut row: DeviceRow, before: Option<Device>) -> u64 {
        self.state.revision += 1;
        row.device.revision = self.state.revision;
        self.rows.put(Table::Device, rows::number_key(number), rows::encode_device(&row));
        self.count_user_device(before.as_ref().and_then(|before| before.user.as_ref()), row.device.user.as_ref());
        self.effects.push(Effect::DeviceSet { number, device: row.device, before: before.map(Box::new) });
        self.state.revision
    }

    fn put_row_of_same_user(&mut self, number: DeviceNumber, row: DeviceRow) {
        let before = row.device.clone();
        self.put_row(number, row, Some(before));
    }
}

/// What is kept of a device after `new` was said of it; of an import, what only the device itself knows stays.
fn merge(new: NewDevice, old: Option<&Device>, origin: Origin, now: Timestamp, journal_end: JournalPosition) -> Device {
    let known_token_at = old.filter(|old| old.token == new.token).map(|old| old.token_at);
    let (token_at, seen_at) = match origin {
        // The clock may have been set back.
        Origin::Device { .. } => (now, now.start_of_day().max(old.map_or(Timestamp(0), |old| old.seen_at))),
        // Where nobody knows when an imported token was registered, what a provider says of it counts always.
        Origin::Import { seen_at, token_at, .. } => {
            let seen_at = seen_at.map(|seen_at| seen_at.min(now).start_of_day());
            let known = old.map(|old| old.seen_at);
            let token_at = token_at.map(|token_at| token_at.min(now)).max(known_token_at);
            (token_at.unwrap_or_default(), seen_at.max(known).unwrap_or(now.start_of_day()))
        }
    };
    // What is under way to its former user is not for the next one's eyes.
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

/// Whether what the provider said of the one's token holds for the other's: a browser with new keys is not the same.
fn is_same_address(old: &Device, new: &NewDevice) -> bool {
    (&old.token, &old.app, old.platform, old.environment) == (&new.token, &new.app, new.platform, new.environment)
}
