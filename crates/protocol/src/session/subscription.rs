//! The session's record of one subscription.

use tidings_types::{ChannelName, Json, Timestamp};

use crate::token::SubscriptionClaims;

/// One channel of a connection.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) channel: ChannelName,
    /// The lasting claims of its token, if there are any.
    pub(super) grant: Option<Box<Grant>>,
    /// Whether the driver has subscribed.
    pub(super) is_made: bool,
}

/// The lasting claims of a subscription token.
#[derive(Debug)]
pub(super) struct Grant {
    info: Option<Json>,
    expires_at: Option<Timestamp>,
}

impl Grant {
    pub(super) fn of(claims: Option<&SubscriptionClaims>) -> Option<Box<Self>> {
        let claims = claims?;
        (claims.info.is_some() || claims.expires_at.is_some())
            .then(|| Box::new(Self { info: claims.info.clone(), expires_at: claims.expires_at }))
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
