//! The memory sum: what the parts of a server may hold in memory, as each of them says, with the bounds of a configuration.
//!
//! Not in the sum: the kernel's socket buffers, the program itself, and subscriptions of devices (about 5 bytes each).

use std::sync::Arc;

use tidings_config::Config;
use tidings_telemetry::memory::MemorySum;
use tidings_telemetry::trace;
use tidings_types::{Epoch, Offset, StreamPosition};

use crate::settings::{
    api_config, changes_config, edge_config, hub_config, listener_limits, loop_count, sender_config, store_config,
};
use crate::{connections, console, histories, hooks, log, metrics, providers, tls, webhook};

/// Computes the sum of a configuration, with the parts in the order in which an event passes them.
pub fn memory_sum(config: &Config) -> MemorySum {
    let namespaces = Arc::new(config.namespaces());
    let start = StreamPosition { epoch: Epoch::from_random(0), offset: Offset(0) };
    let (devices, connections) = (config.store.device_count_max as usize, config.client.connection_count_max);
    let hub = tidings_hub::MemoryUse {
        durable_channel_count_max: config.store.channel_count_max as usize,
        durable_histories_bytes_max: config.store.history_cache_bytes.as_usize(),
        subscription_count_max: connections.saturating_mul(config.client.channel_count_max),
    };
    let edge = tidings_edge::MemoryUse {
        loop_count: loop_count(config),
        channel_count_max: config.client.channel_count_max,
        publication_bytes_max: config.http.body_bytes_max.as_usize(),
        has_tags_filters: namespaces.all().any(|it| it.allow_tags_filter),
        has_emulation: config.client.sse || config.client.http_stream,
    };
    let (known, received): (Vec<_>, Vec<_>) =
        config.feeds.values().map(|feed| (feed.known_count_max, feed.received)).unzip();
    let received = received.into_iter().filter(|received| *received).count();

    let others = [config.http.internal_listen.is_some(), config.http.tls.listen.is_some()];
    let listener_count = 1 + others.into_iter().filter(|is_there| *is_there).count();

    let mut terms = listener_limits(config).memory_terms(listener_count);
    terms.extend(tls::memory_terms(config));
    terms.extend(connections::memory_terms());
    terms.extend(api_config(config).memory_terms());
    terms.extend(edge_config(config, "").memory_terms(edge));
    terms.extend(hooks::memory_terms(config));
    terms.extend(tidings_intake::memory_terms(&known, received));
    terms.extend(hub_config(config, namespaces.clone(), start).memory_terms(hub));
    terms.extend(histories::memory_terms(&namespaces));
    terms.extend(store_config(config).memory_terms());
    let lanes = providers::lane_count(config);
    terms.extend(sender_config(config, None, None).memory_terms(devices, connections, lanes));
    terms.extend(providers::room(config).memory_terms());
    terms.extend(webhook::memory_terms(config));
    terms.extend(changes_config(config).iter().flat_map(|changes| changes.memory_terms()));
    terms.extend(console::settings(config).iter().flat_map(|console| console.memory_terms()));
    if config.influx.address.is_some() {
        terms.extend(metrics::influx::memory_terms(&config.influx));
    }
    if config.traces.endpoint.is_some() {
        terms.extend(trace::memory_terms());
    }
    if config.audit.enabled {
        terms.extend(tidings_audit::memory_terms());
    }
    #[cfg(feature = "cluster")]
    terms.extend(crate::cluster::memory::terms(&config.cluster));
    terms.extend(log::memory_terms());
    MemorySum { terms }
}

#[cfg(test)]
mod tests;
