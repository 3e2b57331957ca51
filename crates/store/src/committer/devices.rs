//! Devices, their tokens and subscriptions.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use tidings_types::{
    Device, DeviceId, DeviceNumber, DeviceToken, JournalPosition, Subject, Timestamp, TopicName, UserId,
};
use tracing::error;

use super::draft::{Draft, Effect};
use crate::device::{Credential, GoneToken, Imported, NewDevice, NewImport, Registered, Selection};
use crate::engine::{EngineError, Table};
use crate::error::{SubscribeError, WriteError};
use crate::hash::{self, Hash16, Hash32};
use crate::rows::{self, DeviceRow};
use crate::service::read_lock;

type Pairs = Vec<(Subject, TopicName)>;
/// A device's number, if it has one, and the subscriptions of an import that are new to it.
type Wanted<'a> = (Option<DeviceNumber>, BTreeSet<&'a (Subject, TopicName)>);

/// Who says what is put into a device's row.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// The device itself, or who speaks for it: it gets a secret when it is new, and may say that its token is proven,
    /// or not.
    Device { proven: Option<bool> },
    /// An import: no secret is made; a given one counts.
    Import { credential: Option<Hash32>, proven: bool },
}

impl Draft<'_> {
    pub(super) fn put_device(
        &mut self,
        device: NewDevice,
        proven: Option<bool>,
        now: Timestamp,
    ) -> Result<Result<Registered, WriteError>, EngineError> {
        Ok(self.register(device, now, Origin::Device { proven })?.map(|(_, registered)| registered))
    }

    fn register(
        &mut self,
        new: NewDevice,
        now: Timestamp,
        origin: Origin,
    ) -> Result<Result<(DeviceNumber, Registered), WriteError>, EngineError> {
        let known = self.find(&new.id)?;
        let created = known.is_none();
        let mut issued: Option<Credential> = None;
        let old = known.map(|(number, row)| (number, row.device, row.credential));
        let (number, old, mut credential) = match old {
            Some((number, device, credential)) => (number, Some(device), credential),
            None => {
                let limit = self.shared.config.device_count_max;
                if self.state.device_next >= limit {
                    return Ok(Err(WriteError::Overloaded { what: "the set of devices", limit: u64::from(limit) }));
                }
                self.forget_damaged(&new.id)?;
                let number = DeviceNumber(self.state.device_next);
                self.state.device_next += 1;
                (number, None, None)
            }
        };
        match origin {
            Origin::Device { .. } if created => {
                let (secret, hash) = hash::new_credential();
                (issued, credential) = (Some(secret), Some(hash));
            }
            Origin::Import { credential: Some(given), .. } => credential = Some(given),
            Origin::Device { .. } | Origin::Import { credential: None, .. } => {}
        }
        let is_same_address = old.as_ref().is_some_and(|old| is_same_address(old, &new));
        let stated = match origin {
            Origin::Device { proven } => proven,
            Origin::Import { proven, .. } => proven.then_some(true),
        };
        let is_proven = stated.or((!is_same_address).then_some(false)); // A new address has proven nothing.
        if let Some(is_proven) = is_proven {
            self.set_proven(number, is_proven && new.token.is_some());
        }
        let since = old.as_ref().map_or(JournalPosition(self.state.journal_end), |old| old.since);
        let (old_token, old_token_at, user_before) =
            old.map_or((None, Timestamp(0), None), |old| (old.token, old.token_at, old.user));
        self.move_token(number, old_token.as_ref(), new.token.as_ref())?;
        // Only the device itself knows that its token lives now: what a provider says of an imported one counts always.
        let token_at = match (origin, old_token == new.token) {
            (Origin::Device { .. }, _) => now,
            (Origin::Import { .. }, true) => old_token_at,
            (Origin::Import { .. }, false) => Timestamp(0),
        };
        let NewDevice { id, user, app, platform, environment, token, locale, country } = new;
        let device = Device { id, user, app, platform, environment, token, locale, country, token_at, since };
        if created {
            self.set_subscription_count(number, 0);
        }
        if created || !self.is_named(&device.id, number) {
            self.rows.put(Table::DeviceId, rows::device_id_key(&device.id), rows::number_key(number));
        }
        self.put_row(number, DeviceRow { device: device.clone(), credential }, user_before);
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
                error!(%error, "Who has a token is asked of memory");
                let table = read_lock(&self.shared.table);
                Ok(table.find_all(|found| found.token.is_some_and(|token| rows::token_key(token) == *key)))
            }
            holder => Ok(holder?.into_iter().collect()),
        }
    }

    pub(super) fn delete_device(&mut self, id: &DeviceId) -> Result<bool, EngineError> {
        let Some((number, row)) = self.find(id)? else { return self.forget_damaged(id) };
        self.remove_subscriptions(number)?;
        if let Some(token) = &row.device.token {
            self.rows.delete(Table::Token, rows::token_key(token));
        }
        self.set_proven(number, false);
        self.rows.delete(Table::DeviceId, rows::device_id_key(id));
        self.rows.delete(Table::Device, rows::number_key(number));
        self.effects.push(Effect::DeviceRemoved { number, user: row.device.user });
        Ok(true)
    }

    /// Takes away what is left of a device whose row is damaged; its number is told nothing any more.
    fn forget_damaged(&mut self, id: &DeviceId) -> Result<bool, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(false) };
        self.remove_subscriptions(number)?;
        self.set_proven(number, false);
        self.rows.delete(Table::DeviceId, rows::device_id_key(id));
        self.rows.delete(Table::Device, rows::number_key(number));
        // Whose it was, nobody knows; the set of that user keeps the number until the store is opened again.
        self.effects.push(Effect::DeviceRemoved { number, user: None });
        Ok(true)
    }

    /// A new secret for the device; the old one proves nothing from now on.
    pub(super) fn rotate_credential(
        &mut self,
        id: &DeviceId,
    ) -> Result<Option<(DeviceNumber, Credential)>, EngineError> {
        let Some((number, mut row)) = self.find(id)? else { return Ok(None) };
        let (credential, hash) = hash::new_credential();
        row.credential = Some(hash);
        self.put_row_of_same_user(number, row);
        Ok(Some((number, credential)))
    }

    /// The device is nobody's and subscribed to nothing; its address stays for its next user.
    pub(super) fn log_out(&mut self, id: &DeviceId) -> Result<Option<(DeviceNumber, Credential)>, EngineError> {
        let Some((number, mut row)) = self.find(id)? else { return Ok(None) };
        self.remove_subscriptions(number)?;
        let (credential, hash) = hash::new_credential();
        row.credential = Some(hash);
        row.device.since = JournalPosition(self.state.journal_end); // What waits to be pushed is its former user's.
        let user_before = row.device.user.take();
        self.put_row(number, row, user_before);
        Ok(Some((number, credential)))
    }

    pub(super) fn subscribe(
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

    fn add_subscriptions(
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

    pub(super) fn unsubscribe(
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

    fn remove_subscriptions(&mut self, number: DeviceNumber) -> Result<(), EngineError> {
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

    pub(super) fn tokens_gone(&mut self, tokens: Vec<GoneToken>) -> Result<usize, EngineError> {
        let mut taken = 0;
        for GoneToken { number, token, gone_at } in tokens {
            let Some(mut row) = self.row(number)? else { continue };
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

    /// A chunk of an import, done as a whole or not at all.
    pub(super) fn import(
        &mut self,
        devices: Vec<NewImport>,
        now: Timestamp,
    ) -> Result<Result<Imported, SubscribeError>, EngineError> {
        if let Err(error) = self.check_import(&devices)? {
            return Ok(Err(error));
        }
        let mut imported = Imported::default();
        for NewImport { device, subscriptions, credential, proven } in devices {
            let credential = credential.map(|credential| hash::hash32(credential.as_bytes()));
            let done = self
                .register(device, now, Origin::Import { credential, proven })?
                .map_err(SubscribeError::from)
                .and_then(|(number, registered)| {
                    Ok((registered.created, self.add_subscriptions(number, subscriptions)?))
                });
            let (created, added) = done.expect("check_import found room for all");
            imported.created += u64::from(created);
            imported.updated += u64::from(!created);
            imported.subscribed += added as u64;
        }
        Ok(Ok(imported))
    }

    /// Whether all of the chunk fits. What a device has already counts once, so that an import can be repeated.
    fn check_import(&self, devices: &[NewImport]) -> Result<Result<(), SubscribeError>, EngineError> {
        let (device_limit, limit) = (self.shared.config.device_count_max, self.shared.config.subscription_count_max);
        let mut created = 0;
        let mut seen: HashMap<&DeviceId, Wanted<'_>> = HashMap::new();
        for NewImport { device, subscriptions, .. } in devices {
            if !seen.contains_key(&device.id) {
                let number = self.find(&device.id)?.map(|(number, _)| number);
                created += u64::from(number.is_none());
                seen.insert(&device.id, (number, BTreeSet::new()));
            }
            let (number, added) = seen.get_mut(&device.id).expect("just put there");
            added.extend(subscriptions.iter().filter(|(subject, topic)| {
                number.is_none_or(|number| {
                    let key = rows::subscription_key(number, subject, topic);
                    !self.is_subscribed(&key, number, subject, topic)
                })
            }));
            let known = number.map_or(0, |number| u64::from(self.subscription_count(number)));
            let count = known + added.len() as u64;
            if count > u64::from(limit) {
                return Ok(Err(SubscribeError::TooMany { limit, count }));
            }
        }
        if self.state.device_next as u64 + created > u64::from(device_limit) {
            let limit = u64::from(device_limit);
            return Ok(Err(WriteError::Overloaded { what: "the set of devices", limit }.into()));
        }
        Ok(Ok(()))
    }

    /// The device's number. Where the row that says it is damaged, memory knows.
    fn find_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        match self.named_number(id) {
            Err(error) if error.is_damage() => {
                error!(%error, "A device is looked for in memory");
                Ok(read_lock(&self.shared.table).find_all(|found| found.id == id).pop())
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

    fn find(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(None) };
        // A row of another device is not this one's, whatever names it.
        Ok(self.row(number)?.filter(|row| row.device.id == *id).map(|row| (number, row)))
    }

    /// What is kept of a device. One whose row is damaged is not known: registered again, it gets a new number.
    fn row(&self, number: DeviceNumber) -> Result<Option<DeviceRow>, EngineError> {
        let key = rows::number_key(number);
        let row = self.get(Table::Device, &key)?.map(|row| rows::decode(Table::Device, &key, &row));
        match row.transpose() {
            Err(error) if error.is_damage() => {
                error!(%error, "A device is not known any more");
                Ok(None)
            }
            row => row,
        }
    }

    fn put_row(&mut self, number: DeviceNumber, row: DeviceRow, user_before: Option<UserId>) {
        self.rows.put(Table::Device, rows::number_key(number), rows::encode(&row));
        self.effects.push(Effect::DeviceSet { number, device: row.device, user_before });
    }

    fn put_row_of_same_user(&mut self, number: DeviceNumber, row: DeviceRow) {
        let user = row.device.user.clone();
        self.put_row(number, row, user);
    }
}

/// Whether what the provider said of the one's token holds for the other's: a browser with new keys is not the same.
fn is_same_address(old: &Device, new: &NewDevice) -> bool {
    (&old.token, &old.app, old.platform, old.environment) == (&new.token, &new.app, new.platform, new.environment)
}
