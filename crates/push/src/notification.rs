//! One push to one device, and what it shares with all others of the same text.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tidings_types::{AppId, DeviceNumber, DeviceToken, JournalPosition, NotificationId, Provider, Timestamp};

use crate::kind::{Priority, PushType};
use crate::parts::RenderingParts;
use crate::payload::{ApnsBody, Encoded, FCM_ENVELOPE_BYTES_MAX, FcmBody, WebPushBody};
use crate::{apns, web_push};

/// One push to one device. Cheap to clone, except for the token; a repeat is the same value again.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Its identity, the same in every repeat (`apns-id`).
    pub id: NotificationId,
    /// The device's address.
    pub token: DeviceToken,
    /// Its content, shared.
    pub rendering: Arc<Rendering>,
    /// The sender's key for it.
    pub ticket: Ticket,
    /// When it was handed to its lake.
    pub queued_at: Timestamp,
}

/// Names one notification for the sender: its job and its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The job, named by its event's position in the journal.
    pub job: JournalPosition,
    /// The device.
    pub device: DeviceNumber,
    /// The job's counts in which it is counted; a number of the sender.
    pub cell: u16,
}

/// What all notifications of one job to one app in one locale share. Built once, shared by reference.
pub struct Rendering {
    parts: RenderingParts,
    form: Form,
}

/// The part of the request that is the same for all devices, so that it is built once.
pub(crate) enum Form {
    Apns { headers: HeaderMap, body: ApnsBody },
    Fcm(FcmBody),
    WebPush { headers: HeaderMap, body: WebPushBody },
}

impl Rendering {
    /// Prepares the result of [`crate::payload::Content::encode`] for sending. For APNs the app may be one for another
    /// kind of push, for instance for calls: then this is a push of that kind.
    pub fn new(parts: RenderingParts, encoded: Encoded) -> Self {
        let form = match encoded {
            Encoded::Apns(body) => {
                let body = apns::addressed(body, &parts.app);
                Form::Apns { headers: apns::shared_headers(&parts, &body), body }
            }
            Encoded::Fcm(body) => Form::Fcm(body),
            Encoded::WebPush(body) => Form::WebPush { headers: web_push::shared_headers(&parts, &body), body },
        };
        Self { parts, form }
    }

    /// The provider; only tokens of this provider fit.
    pub fn provider(&self) -> Provider {
        match self.form {
            Form::Apns { .. } => Provider::Apns,
            Form::Fcm(_) => Provider::Fcm,
            Form::WebPush { .. } => Provider::WebPush,
        }
    }

    /// The application.
    pub fn app(&self) -> &AppId {
        &self.parts.app
    }

    /// When it is no longer worth sending.
    pub fn expires_at(&self) -> Timestamp {
        self.parts.expires_at
    }

    /// What it shares with renderings in other languages.
    pub fn parts(&self) -> &RenderingParts {
        &self.parts
    }

    /// The encoded content: the body for APNs, the message without its recipient for FCM, the text before encryption
    /// for browsers.
    pub fn payload(&self) -> &Bytes {
        match &self.form {
            Form::Apns { body, .. } => &body.bytes,
            Form::Fcm(body) => body.bytes(),
            Form::WebPush { body, .. } => &body.bytes,
        }
    }

    /// Bytes of the body of its requests; for FCM without the token.
    pub fn payload_bytes(&self) -> usize {
        match &self.form {
            Form::Apns { body, .. } => body.bytes.len(),
            Form::Fcm(body) => body.bytes().len() + FCM_ENVELOPE_BYTES_MAX,
            Form::WebPush { body, .. } => body.bytes.len() + web_push::encryption::OVERHEAD_BYTES,
        }
    }

    /// The kind and urgency for APNs; `None` for the other providers.
    pub fn apns(&self) -> Option<(PushType, Priority)> {
        match &self.form {
            Form::Apns { body, .. } => Some((body.push_type, body.priority)),
            _ => None,
        }
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }
}

// Payloads must never appear in a log.
impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload_bytes = self.payload().len();
        f.debug_struct("Rendering")
            .field("provider", &self.provider())
            .field("parts", &self.parts)
            .field("payload_bytes", &payload_bytes)
            .finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tidings_types::{CollapseKey, DeviceId, EventId};

    use super::*;

    /// What tests send; the collapse id is `match-7`.
    pub(crate) fn parts() -> RenderingParts {
        RenderingParts {
            app: AppId::new("org.example.scores").unwrap(),
            expires_at: Timestamp(1_800_000_000_999),
            collapse_id: CollapseKey::new("match-7").unwrap(),
        }
    }

    /// The notification `goal-1` of `encoded` to the device of `token`.
    pub(crate) fn notification_of(encoded: Encoded, token: DeviceToken, device: u32) -> Notification {
        Notification {
            id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new("phone").unwrap()),
            token,
            rendering: Arc::new(Rendering::new(parts(), encoded)),
            ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device), cell: 0 },
            queued_at: Timestamp(1_800_000_000_000),
        }
    }

    /// One to an iPhone.
    pub(crate) fn notification(device: u32) -> Notification {
        let body =
            ApnsBody { bytes: Bytes::from_static(b"{}"), push_type: PushType::Alert, priority: Priority::Immediate };
        notification_of(Encoded::Apns(body), DeviceToken::from_hex("00Ff12").unwrap(), device)
    }

    #[test]
    fn what_a_notification_says_does_not_show() {
        let shown = format!("{:?}", notification(1));
        assert!(shown.contains("payload_bytes: 2") && !shown.contains("{}"), "{shown}");
    }
}
