//! The settings of the API; the defaults are in the binary.

use tidings_types::EventChannels;

use crate::rate::Rate;

/// The settings of the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// The most bytes of a request's body; above that 413.
    pub body_bytes_max: usize,
    /// The most requests in work at a time; above that 503.
    pub request_count_max: usize,
    /// The most subscriptions of one device, as in the store. A request with more is refused before anything is
    /// changed.
    pub subscription_count_max: usize,
    /// The most mutes of one device, as in the store. The longest line of an import depends on it.
    pub mute_count_max: usize,
    /// How fast the holder of one key may ask; `None`: at any rate.
    pub key_rate: Option<Rate>,
    /// The channels of an event that names none.
    pub event_channels: EventChannels,
}

impl ApiConfig {
    /// How many of the requests in work may wait, or be answered in pages.
    pub(crate) fn waiting_count_max(&self) -> usize {
        (self.request_count_max / 4).max(1)
    }
}
