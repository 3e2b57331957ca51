//! Reading the subscriptions of a device.

use std::ops::Bound;

use tidings_types::{DeviceId, DeviceNumber, Subject, TopicName};

use crate::damage;
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;
use crate::subscriptions::Selection;

impl Store {
    /// What a device is subscribed to, in the order of names; `None` when there is no such device.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn subscriptions(&self, id: &DeviceId) -> Result<Option<Selection>, ReadError> {
        self.with_engine(|engine| {
            let Some(number) = self.find_number(engine, id)? else { return Ok(None) };
            let mut selection = Selection::new();
            let leave_out =
                |error| damage::tolerate(Err::<(), _>(error), "A subscription is left out of a list").map(drop);
            for (subject, topic) in read_subscriptions(engine, number, leave_out)? {
                match selection.last_mut() {
                    Some((last, topics)) if *last == subject => topics.push(topic),
                    _ => selection.push((subject, vec![topic])),
                }
            }
            Ok(Some(selection))
        })
    }
}

/// What a device is subscribed to, in the order of names. `on_damage` says whether to go on without one.
pub(crate) fn read_subscriptions(
    engine: &Engine,
    number: DeviceNumber,
    on_damage: impl Fn(EngineError) -> Result<(), EngineError>,
) -> Result<Vec<(Subject, TopicName)>, EngineError> {
    let (prefix, mut subscriptions) = (rows::number_key(number), Vec::new());
    engine.scan(Table::Subscription, Bound::Included(&prefix), |key, _| {
        let is_ours = key.starts_with(&prefix);
        match rows::decode_subscription(key) {
            Ok((_, subject, topic)) if is_ours => subscriptions.push((subject, topic)),
            Err(error) if is_ours => on_damage(error)?,
            Ok(_) | Err(_) => {}
        }
        Ok::<_, EngineError>(is_ours)
    })?;
    Ok(subscriptions)
}
