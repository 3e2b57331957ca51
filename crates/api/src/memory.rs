//! What requests may hold in memory.

use tidings_store::EXPORT_PAGE_BYTES;
use tidings_telemetry::memory::Term;

use crate::centrifugo::idempotency::{KEY_BYTES_MAX, KEY_COUNT_MAX};
use crate::centrifugo::{ANSWER_BYTES_MAX, LARGE_ANSWER_COUNT_MAX};
use crate::config::ApiConfig;

impl ApiConfig {
    /// What requests in work, large answers, and idempotency keys of channels in memory may take.
    pub fn memory_terms(&self) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            body_bytes_max,
            request_count_max,
            subscription_count_max: _, // In the body.
            mute_count_max: _,
            key_rate: _,
            event_channels: _,
        } = self;
        // A MessagePack body and its JSON are in memory at the same time.
        let request = body_bytes_max.saturating_mul(2);
        vec![
            Term::peak("requests", *request_count_max, request, "http.request_count_max, http.body_bytes_max"),
            // One is being sent, and one waits.
            Term::peak("pages of answers", self.waiting_count_max(), 2 * EXPORT_PAGE_BYTES, "http.request_count_max"),
            // The results, and the answer that is made of them.
            Term::peak("large answers", LARGE_ANSWER_COUNT_MAX, 2 * ANSWER_BYTES_MAX, "fixed"),
            Term::peak("idempotency keys", KEY_COUNT_MAX, KEY_BYTES_MAX, "fixed"),
        ]
    }
}
