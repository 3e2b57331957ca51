//! Rows of subscriptions. A subscription is a key; the row is empty.

use tidings_types::{DeviceNumber, Subject, TopicName};

use crate::engine::{EngineError, Table};
use crate::rows::parts::number_key;

pub(crate) fn subscription_key(number: DeviceNumber, subject: &Subject, topic: &TopicName) -> Vec<u8> {
    [&number_key(number), subject.as_str().as_bytes(), &[0], topic.as_str().as_bytes()].concat()
}

pub(crate) fn subject_prefix(number: DeviceNumber, subject: &Subject) -> Vec<u8> {
    [&number_key(number), subject.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn decode_subscription(key: &[u8]) -> Result<(DeviceNumber, Subject, TopicName), EngineError> {
    fn parse(key: &[u8]) -> Option<(DeviceNumber, Subject, TopicName)> {
        let (number, names) = key.split_first_chunk::<4>()?;
        let (subject, topic) = std::str::from_utf8(names).ok()?.split_once('\0')?;
        let number = DeviceNumber(u32::from_be_bytes(*number));
        Some((number, Subject::new(subject).ok()?, TopicName::new(topic).ok()?))
    }
    parse(key).ok_or_else(|| EngineError::damaged(Table::Subscription, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_key_reads_back() {
        let (subject, topic) = (Subject::new("team:42").unwrap(), TopicName::new("goal").unwrap());
        let key = subscription_key(DeviceNumber(0x0100), &subject, &topic);
        assert!(key.starts_with(&subject_prefix(DeviceNumber(0x0100), &subject)));
        assert!(key.starts_with(&number_key(DeviceNumber(0x0100))));
        assert_eq!(decode_subscription(&key).unwrap(), (DeviceNumber(0x0100), subject, topic));
        assert!(decode_subscription(b"\0\0\0\x01team:42").is_err());
    }
}
