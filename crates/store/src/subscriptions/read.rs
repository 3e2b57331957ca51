//! Reading the subscriptions of a device.

use tidings_types::{DeviceId, DeviceNumber, Subject, TopicName};

use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;
use crate::subscriptions::Selection;

impl Store {
    /// The subscriptions of a device, in the order of their names; `None` when there is no such device.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn subscriptions(&self, id: &DeviceId) -> Result<Option<Selection>, ReadError> {
        self.with_engine(|engine| {
            let Some(number) = self.find_number(engine, id)? else { return Ok(None) };
            let mut selection = Selection::new();
            let cost = Some("A subscription is left out of a list");
            for (subject, topic) in read_subscriptions(engine, number, cost)? {
                match selection.last_mut() {
                    Some((last, topics)) if *last == subject => topics.push(topic),
                    _ => selection.push((subject, vec![topic])),
                }
            }
            Ok(Some(selection))
        })
    }
}

/// The subscriptions of a device, in the order of their names; see [`rows::read_rows_of_device`] for `cost`.
pub(crate) fn read_subscriptions(
    engine: &Engine,
    number: DeviceNumber,
    cost: Option<&str>,
) -> Result<Vec<(Subject, TopicName)>, EngineError> {
    let decode = |key: &[u8], _: &[u8]| rows::decode_subscription(key).map(|(_, subject, topic)| (subject, topic));
    rows::read_rows_of_device(engine, Table::Subscription, number, decode, cost)
}
