//! What bounds the API; the defaults are the binary's.

use tidings_types::EventChannels;

use crate::rate::Rate;

/// What bounds the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Bytes of a request's body; over it: 413.
    pub body_bytes_max: usize,
    /// Requests in work at a time; over it: 503.
    pub request_count_max: usize,
    /// Subscriptions of one device, as the store has it: a request with more is refused before anything is changed.
    pub subscription_count_max: usize,
    /// Mutes of one device, as the store has it: how long a line of an import may be depends on it.
    pub mute_count_max: usize,
    /// How fast the holder of one key may ask; `None`: at any rate.
    pub key_rate: Option<Rate>,
    /// Where events are published that name no channel.
    pub event_channels: EventChannels,
}
