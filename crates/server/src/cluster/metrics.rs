//! The metrics of a server in its cluster.

use std::sync::Arc;

use tidings_cluster::Standing;
use tidings_store::{Role, Store};
use tidings_telemetry::{Registry, metrics as table};
use tokio::sync::watch;

/// Makes those of the server in its cluster part of `/metrics`. `opened`: its store, if it has one already.
pub(super) fn register(
    registry: &Registry,
    standing: &watch::Receiver<Standing>,
    opened: &watch::Receiver<Option<Store>>,
) {
    let computed = |metric, of: fn(&Store) -> f64| {
        let opened = opened.clone();
        registry.computed(metric, &[], Arc::new(move || opened.borrow().as_ref().map_or(0.0, of)));
    };
    computed(&table::cluster::LEADS, |store| has_role(store, Role::Leading));
    computed(&table::cluster::LOST, |store| has_role(store, Role::Lost));
    computed(&table::cluster::ENTRY, |store| store.log_position().sequence as f64);
    let standing = standing.clone();
    let is_heard = move || f64::from(u8::from(standing.borrow().is_heard));
    registry.computed(&table::cluster::HEARD, &[], Arc::new(is_heard));
}

fn has_role(store: &Store, role: Role) -> f64 {
    f64::from(u8::from(*store.role().borrow() == role))
}
