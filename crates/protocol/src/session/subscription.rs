//! The session's record of one subscription.

use tidings_types::{ChannelName, Json, Timestamp};

use crate::admission::SubscriptionTerms;

/// One channel of a connection.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) channel: ChannelName,
    /// The lasting terms, if there are any.
    pub(super) grant: Option<Box<Grant>>,
    pub(super) origin: Origin,
    /// The server chooses the publications that the client may get.
    pub(super) is_filtered: bool,
    /// Whether the driver has subscribed.
    pub(super) is_made: bool,
}

/// Who wanted a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The client.
    Client,
    /// The connection's admission: a refresh must grant it too.
    Admission,
    /// The server otherwise.
    Server,
}

/// The lasting terms of a subscription.
#[derive(Debug)]
pub(super) struct Grant {
    info: Option<Json>,
    expires_at: Option<Timestamp>,
}

impl Grant {
    pub(super) fn of(terms: &SubscriptionTerms) -> Option<Box<Self>> {
        (terms.info.is_some() || terms.expires_at.is_some())
            .then(|| Box::new(Self { info: terms.info.clone(), expires_at: terms.expires_at }))
    }
}

impl Subscription {
    pub(super) fn info(&self) -> Option<&Json> {
        self.grant.as_ref()?.info.as_ref()
    }

    /// Lasts until `expires_at` from now on.
    pub(super) fn extend(&mut self, expires_at: Option<Timestamp>) {
        if let Some(grant) = &mut self.grant {
            grant.expires_at = expires_at;
        }
    }

    /// Others see this of it from now on.
    pub(super) fn set_info(&mut self, info: Json) {
        if let Some(grant) = &mut self.grant {
            grant.info = Some(info);
        }
    }

    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.grant.as_ref()?.expires_at
    }
}
