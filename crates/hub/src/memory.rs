//! What the hub may hold in memory.

use tidings_protocol::{NamespaceOptions, SlowReaders};
use tidings_stream::TailBounds;
use tidings_telemetry::memory::Term;

use crate::HubConfig;
use crate::changes::ChangesConfig;

/// A channel without publications: name, lock, positions, readers (1.2 KiB, measured); its entry in the roster, in a tree whose
/// nodes may be half full, and its shares of what is counted (computed).
const CHANNEL_BYTES: usize = 1280 + 96;
/// A publication in a history. A typical size: the only limit is that of a request's body.
pub const PUBLICATION_BYTES: usize = 1 << 10;
/// A change of who is here that is not told yet: a name of about 200 bytes, and its entries in two tables.
const CHANGE_BYTES: usize = 512;
/// A reader in the presence of a channel, computed: client and user in two tables, with names of some 20 bytes.
const MEMBER_BYTES: usize = 320;

/// What the memory of the hub depends on, besides its own settings.
#[derive(Debug, Clone, Copy)]
pub struct MemoryUse {
    /// Durable channels.
    pub durable_channel_count_max: usize,
    /// Bytes of their histories.
    pub durable_histories_bytes_max: usize,
    /// Subscriptions of all connections.
    pub subscription_count_max: usize,
}

impl HubConfig {
    /// What channels, their publications and readers, and receipts may take.
    pub fn memory_terms(&self, hub: MemoryUse) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            namespaces,
            channel_count_max,
            tail: TailBounds { frame_count_max: _, bytes_max: _ }, // In `tails_bytes_max`.
            tails_bytes_max,
            history_bytes_max,
            durable_start: _,
            receipt_event_count_max: _, // In `receipt_bytes_max`.
            receipt_bytes_max,
        } = self;
        let has_durable = namespaces.all().any(|it| it.durable);
        let durable = if has_durable { hub.durable_channel_count_max } else { 0 };
        let has_histories = namespaces.all().any(|it| !it.durable && it.has_history());
        let channels = channel_count_max.saturating_add(durable);
        let mut terms = vec![
            Term::standing(
                "channels",
                channels,
                CHANNEL_BYTES,
                "channels.count_max, with durable ones store.channel_count_max",
            ),
            Term::standing(
                "durable histories",
                has_durable.into(),
                hub.durable_histories_bytes_max,
                "store.history_cache_bytes",
            ),
            Term::peak("channel logs", 1, *tails_bytes_max, "edge.memory_bytes_max"),
            Term::standing("channel histories", has_histories.into(), *history_bytes_max, "channels.history_bytes_max"),
            Term::peak("receipts", 1, *receipt_bytes_max, "edge.receipt_bytes_max"),
        ];
        if namespaces.all().any(|it| it.presence) {
            let settings = "client.channel_count_max, presence";
            terms.push(Term::estimate("presence", hub.subscription_count_max, MEMBER_BYTES, settings));
        }
        if namespaces.all().any(may_get_less) {
            // The publications of the logs, to tell slow readers what they have not got. They are no larger than what is written.
            let settings = "edge.memory_bytes_max, slow_readers, allow_thinning";
            terms.push(Term::peak("slow readers", 1, *tails_bytes_max, settings));
        }
        terms
    }
}

fn may_get_less(options: &NamespaceOptions) -> bool {
    options.allow_thinning || options.thinning.slow_readers != SlowReaders::Disconnect
}

impl ChangesConfig {
    /// What changes that are not told yet may take.
    pub fn memory_terms(&self) -> Vec<Term> {
        let Self { users: _, delay: _, count_max } = self;
        let settings = "webhook.presence_url, webhook.presence_count_max";
        vec![Term::peak("presence changes", *count_max, CHANGE_BYTES, settings)]
    }
}
