//! The JSON body of a notification.
//!
//! Encoded once per job, app and locale, never per device. Beside the provider's own `aps` object stands `tidings`,
//! which tells the app what it got and from where in which channel to resume, and `data`, the producer's own value:
//!
//! ```json
//! {"aps":{"alert":{"title":"Goal!","body":"1 : 0"},"sound":"default","thread-id":"match:7"},
//!  "tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"data":{"score":[1,0]}}
//! ```

use bytes::Bytes;
use serde::Serialize;
use tidings_types::{ChannelName, EventId, Json, Locale, StreamPosition};

/// The most bytes APNs takes for an alert or background push.
pub const APNS_PAYLOAD_BYTES_MAX: usize = 4096;

/// What an APNs notification says.
#[derive(Clone, Copy)]
pub struct ApnsPayload<'a> {
    /// First line.
    pub title: &'a str,
    /// Text.
    pub body: &'a str,
    /// Name of a sound of the app, or `default`; silent without one.
    pub sound: Option<&'a str>,
    /// Notifications with the same one are shown together.
    pub thread: Option<&'a str>,
    /// The event it tells of.
    pub event: &'a EventId,
    /// Where its publication stands: the app resumes from just before it.
    pub stream: Option<(&'a ChannelName, StreamPosition)>,
    /// The producer's own value.
    pub data: Option<&'a Json>,
}

/// The encoded payload is over the provider's limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the payload for locale {locale} has {bytes} bytes, limit {limit}")]
pub struct PayloadTooLarge {
    /// Whose text is too long.
    pub locale: Locale,
    /// Bytes it would have.
    pub bytes: usize,
    /// Bytes allowed.
    pub limit: usize,
}

impl ApnsPayload<'_> {
    /// Encodes it; `locale` is only named in the error.
    ///
    /// # Errors
    /// When it has more than [`APNS_PAYLOAD_BYTES_MAX`] bytes. Nothing is cut: half a sentence is worse than an error.
    pub fn encode(&self, locale: &Locale) -> Result<Bytes, PayloadTooLarge> {
        let body = Body {
            aps: Aps { alert: Alert { title: self.title, body: self.body }, sound: self.sound, thread: self.thread },
            tidings: Origin {
                event: self.event.as_str(),
                channel: self.stream.map(|(channel, _)| channel.as_str()),
                epoch: self.stream.as_ref().map(|(_, position)| position.epoch.as_str()),
                offset: self.stream.map(|(_, position)| position.offset.0),
            },
            data: self.data,
        };
        let encoded = serde_json::to_vec(&body).expect("strings, numbers and valid JSON always encode");
        if encoded.len() > APNS_PAYLOAD_BYTES_MAX {
            let (locale, bytes) = (locale.clone(), encoded.len());
            return Err(PayloadTooLarge { locale, bytes, limit: APNS_PAYLOAD_BYTES_MAX });
        }
        Ok(encoded.into())
    }
}

#[derive(Serialize)]
struct Body<'a> {
    aps: Aps<'a>,
    tidings: Origin<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
}

#[derive(Serialize)]
struct Aps<'a> {
    alert: Alert<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sound: Option<&'a str>,
    #[serde(rename = "thread-id", skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
}

#[derive(Serialize)]
struct Alert<'a> {
    title: &'a str,
    body: &'a str,
}

#[derive(Serialize)]
struct Origin<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

#[cfg(test)]
mod tests {
    use tidings_types::{Epoch, Offset};

    use super::*;

    fn payload<'a>(title: &'a str, event: &'a EventId) -> ApnsPayload<'a> {
        ApnsPayload { title, body: "1 : 0", sound: None, thread: None, event, stream: None, data: None }
    }

    #[test]
    fn everything_is_where_the_app_looks_for_it() {
        let event = EventId::new("goal-1").unwrap();
        let channel = ChannelName::new("match:7").unwrap();
        let position = StreamPosition { offset: Offset(12), epoch: Epoch::try_from("AbCdEfGh".to_owned()).unwrap() };
        let data = Json::parse(br#"{"score":[1,0]}"#).unwrap();
        let full = ApnsPayload {
            sound: Some("default"),
            thread: Some("match:7"),
            stream: Some((&channel, position)),
            data: Some(&data),
            ..payload("Goal \"!\"", &event)
        };
        assert_eq!(
            full.encode(&Locale::new("en").unwrap()).unwrap(),
            concat!(
                r#"{"aps":{"alert":{"title":"Goal \"!\"","body":"1 : 0"},"sound":"default","thread-id":"match:7"},"#,
                r#""tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"#,
                r#""data":{"score":[1,0]}}"#
            )
        );
    }

    #[test]
    fn the_limit_is_exact_and_the_refusal_names_locale_and_bytes() {
        let event = EventId::new("goal-1").unwrap();
        let locale = Locale::new("pt-BR").unwrap();
        let empty = payload("", &event).encode(&locale).unwrap().len();
        let fits = "x".repeat(APNS_PAYLOAD_BYTES_MAX - empty);
        assert_eq!(payload(&fits, &event).encode(&locale).unwrap().len(), APNS_PAYLOAD_BYTES_MAX);
        let over = format!("{fits}x");
        assert_eq!(
            payload(&over, &event).encode(&locale).unwrap_err().to_string(),
            "the payload for locale pt-BR has 4097 bytes, limit 4096"
        );
    }
}
