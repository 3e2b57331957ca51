//! What sender and gateways share for one credential: a pool, with its own lakes and gauge.

use std::sync::Arc;

use tidings_push::Lakes;
use tidings_sender::Pool;
use tidings_types::{AppId, Environment, Provider};

/// A pool without a quarantine, for all services of its provider.
pub(super) fn pool(provider: Provider, name: &str, apps: &[AppId], lake_capacity: usize) -> Pool {
    Pool {
        name: name.to_owned(),
        provider,
        environment: Environment::Production,
        apps: apps.to_vec(),
        services: None,
        lakes: Lakes::new(lake_capacity),
        quarantine: None,
        gauge: Some(Arc::default()),
    }
}
