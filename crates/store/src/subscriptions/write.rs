//! Subscribing and unsubscribing devices. A request is done as a whole or not at all.

use std::collections::BTreeSet;

use tidings_types::{DeviceId, DeviceNumber, Subject, TopicName};

use crate::committer::draft::{Draft, Undo};
use crate::committer::effect::Effect;
use crate::engine::{EngineError, Table};
use crate::error::SubscribeError;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::subscriptions::Selection;
use crate::weight;

type Pairs = Vec<(Subject, TopicName)>;

impl Store {
    /// Subscribes a device to topics on subjects; all or nothing. Returns how many subscriptions are new.
    ///
    /// # Errors
    /// When there is no such device or it would have more than `subscription_count_max`.
    ///
    /// # Cancel safety
    /// Dropped: subscribed to all or to none. Repeating the request changes nothing more.
    pub async fn subscribe(&self, id: &DeviceId, selection: Selection) -> Result<usize, SubscribeError> {
        let (id, bytes) = (id.clone(), selection_bytes(&selection));
        self.write(Class::Devices, bytes, move |draft| draft.subscribe(&id, selection)).await?
    }

    /// Removes subscriptions; a subject without topics means all of its topics. Returns how many were removed.
    ///
    /// # Errors
    /// When there is no such device.
    ///
    /// # Cancel safety
    /// Dropped: all are removed or none. Repeating the request changes nothing more.
    pub async fn unsubscribe(&self, id: &DeviceId, selection: Selection) -> Result<usize, SubscribeError> {
        let (id, bytes) = (id.clone(), selection_bytes(&selection));
        self.write(Class::Devices, bytes, move |draft| draft.unsubscribe(&id, selection)).await?
    }
}

fn selection_bytes(selection: &Selection) -> usize {
    weight::NAMES + selection.iter().map(|(_, topics)| weight::NAME * (1 + topics.len())).sum::<usize>()
}

impl Draft<'_> {
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
        let rows = self.with_prefix(Table::Subscription, prefix)?;
        // An unreadable subscription is not in the index, so it does not count.
        let names = rows.keys().filter_map(|key| rows::decode_subscription(key).ok());
        Ok(names.map(|(_, subject, topic)| (subject, topic)).collect())
    }

    /// Whether a subscription exists. The index has all durable ones.
    pub(crate) fn is_subscribed(&self, key: &[u8], number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        match self.rows.get(Table::Subscription, key) {
            Some(row) => row.is_some(),
            None => self.shared.index.read().contains(number, subject, topic),
        }
    }

    pub(crate) fn set_subscription_count(&mut self, number: DeviceNumber, count: u32) {
        let before = self.subscription_counts.insert(number, count);
        self.undo.push(Undo::SubscriptionCount(number, before));
    }

    pub(crate) fn subscription_count(&self, number: DeviceNumber) -> u32 {
        let pending = self.subscription_counts.get(&number).copied();
        pending.unwrap_or_else(|| self.shared.table.read().subscription_count(number))
    }
}
