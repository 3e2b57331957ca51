//! The part of a session that carries out orders from outside.

use tidings_types::{ChannelName, Json, Timestamp};

use super::Session;
use super::effect::SubscribeEffect;
use super::subscription::{Grant, Origin};
use crate::admission::SubscriptionTerms;
use crate::command::{ClientPosition, SubscribeRequest};
use crate::reply::ExpiryResult;
use crate::{Disconnect, ErrorCode};

/// Why the server cannot subscribe a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSubscribed {
    /// The channel cannot exist, or not with these terms.
    Error(ErrorCode),
    /// The client has too many channels: close the connection with this.
    Disconnect(Disconnect),
}

impl Session {
    /// Subscribes the client to a channel because the server wants it. The driver then joins the channel; the answer of
    /// [`Session::on_subscribed`] is a push. `None`: there is nothing to join, because the client has the channel or is
    /// not connected. A subscription that the server has made before takes the new terms, except their tags filter.
    ///
    /// # Errors
    /// See [`NotSubscribed`].
    pub fn subscribe_by_server(
        &mut self,
        channel: &ChannelName,
        terms: SubscriptionTerms,
        since: Option<ClientPosition>,
    ) -> Result<Option<SubscribeEffect>, NotSubscribed> {
        if let Some(index) = self.position_of(channel.as_str()) {
            let subscription = &mut self.subscriptions[index];
            if subscription.origin != Origin::Client {
                subscription.grant = Grant::of(&terms);
            }
            return Ok(None);
        }
        if !self.is_connected() {
            return Ok(None);
        }
        if self.subscriptions.len() >= self.config.channel_count_max {
            return Err(NotSubscribed::Disconnect(Disconnect::CHANNEL_LIMIT));
        }
        let (channel, options) = self.known_channel(channel.as_str()).map_err(NotSubscribed::Error)?;
        let recover = since.is_some();
        let ClientPosition { offset, epoch } = since.unwrap_or_default();
        let request = SubscribeRequest { recover, offset: offset.0, epoch, ..SubscribeRequest::default() };
        let begun = self.begin(0, Origin::Server, channel, options, terms, request);
        begun.map(Some).map_err(NotSubscribed::Error)
    }

    /// The server says until when the connection lasts, and what others see of it. Returns the push to write.
    pub fn refresh_by_server(
        &mut self,
        expires_at: Option<Timestamp>,
        info: Option<Json>,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        self.expires_at = expires_at;
        self.conn_info = info.or(self.conn_info.take());
        let mut push = Vec::new();
        ExpiryResult::until(expires_at, now).encode_push(self.variant, &mut push);
        self.is_connected().then_some(push)
    }
}
