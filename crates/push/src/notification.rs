//! One push to one device, and what it shares with all others of the same text.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tidings_types::{AppId, CollapseKey, DeviceNumber, DeviceToken, JournalPosition, NotificationId, Timestamp};

use crate::apns;

/// One push to one device. Cheap to clone but for the token; a repeat is the same value again.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Its identity, the same in every repeat (`apns-id`).
    pub id: NotificationId,
    /// The device's address.
    pub token: DeviceToken,
    /// What it says.
    pub rendering: Arc<Rendering>,
    /// What the sender recognises it by.
    pub ticket: Ticket,
}

/// Names one notification in the sender's books: which job, which device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The job, named by its event's place in the journal.
    pub job: JournalPosition,
    /// The device.
    pub device: DeviceNumber,
}

/// What kind of push it is, as APNs must be told (`apns-push-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushType {
    /// Shown to the user.
    Alert,
    /// Wakes the app without showing anything; its priority must be [`Priority::Considerate`].
    Background,
}

impl PushType {
    /// The header's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Background => "background",
        }
    }
}

/// How urgently the provider delivers (`apns-priority`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// At once: 10.
    Immediate,
    /// When it suits the device's battery: 5.
    Considerate,
}

impl Priority {
    /// The header's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Immediate => "10",
            Self::Considerate => "5",
        }
    }
}

/// What a [`Rendering`] is made of.
#[derive(Clone)]
pub struct RenderingParts {
    /// The application (`apns-topic`).
    pub app: AppId,
    /// What kind of push it is.
    pub push_type: PushType,
    /// How urgently it is delivered.
    pub priority: Priority,
    /// After this moment it is neither sent nor kept by the provider for a device that is off.
    pub expires_at: Timestamp,
    /// What it replaces on the device; always set, which is what makes a repeat harmless.
    pub collapse_id: CollapseKey,
    /// The body, as [`crate::payload::ApnsPayload::encode`] made it.
    pub payload: Bytes,
}

/// What all notifications of one job to one app in one locale share. Built once, shared by reference.
pub struct Rendering {
    parts: RenderingParts,
    /// The request headers that do not differ per device, so that they are built once and not per notification.
    headers: HeaderMap,
}

impl Rendering {
    /// Prepares the parts for sending.
    pub fn new(parts: RenderingParts) -> Self {
        let headers = apns::shared_headers(&parts);
        Self { parts, headers }
    }

    /// The application.
    pub fn app(&self) -> &AppId {
        &self.parts.app
    }

    /// When it is no longer worth sending.
    pub fn expires_at(&self) -> Timestamp {
        self.parts.expires_at
    }

    /// The body.
    pub fn payload(&self) -> &Bytes {
        &self.parts.payload
    }

    /// All it is made of.
    pub fn parts(&self) -> &RenderingParts {
        &self.parts
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

// Payloads never reach a log (invariant 9).
impl fmt::Debug for RenderingParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderingParts")
            .field("app", &self.app)
            .field("push_type", &self.push_type)
            .field("priority", &self.priority)
            .field("expires_at", &self.expires_at)
            .field("collapse_id", &self.collapse_id)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.fmt(f)
    }
}
