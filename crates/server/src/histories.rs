//! Durable channels for the hub: their positions at the start, and their publications when somebody asks for them.

use std::sync::Arc;

use tidings_hub::{Histories, Hub, Kept, Load, PUBLICATION_BYTES};
use tidings_protocol::Namespaces;
use tidings_store::{RestoredChannel, Store};
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{chain, unix_now};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::error::ServeError;
use crate::journal::publication;

/// Histories that are read from the disk at a time. Further ones wait.
const READ_COUNT_MAX: usize = 16;

/// What histories that are being read may take.
pub(super) fn memory_terms(namespaces: &Namespaces) -> Vec<Term> {
    let longest = namespaces.all().filter(|it| it.durable).map(|it| it.history_size).max().unwrap_or(0);
    let bytes_each = longest as usize * PUBLICATION_BYTES;
    let settings = "the longest history_size of durable channels";
    vec![Term::peak("histories being read", READ_COUNT_MAX, bytes_each, settings)]
}

/// Tells the hub of the durable channels. Those whose namespace is no longer configured as durable are left out.
pub(super) fn restore(store: &Store, hub: &Hub, namespaces: &Namespaces) -> Result<(), ServeError> {
    for RestoredChannel { name, top, published_at } in store.durable_channels(unix_now())? {
        if !namespaces.options(&name).is_some_and(|options| options.durable) {
            warn!(channel = %name, "A durable channel's namespace is no longer configured as durable");
            continue;
        }
        hub.restore(&name, top, published_at)?;
    }
    Ok(())
}

/// The histories of durable channels, read on threads for blocking work.
#[derive(Debug)]
pub(super) struct StoredHistories {
    store: Store,
    runtime: Handle,
    places: Arc<Semaphore>,
}

impl StoredHistories {
    /// Uses the blocking threads of the runtime that this is called in.
    pub(super) fn new(store: Store) -> Self {
        Self { store, runtime: Handle::current(), places: Arc::new(Semaphore::new(READ_COUNT_MAX)) }
    }
}

impl Histories for StoredHistories {
    fn begin(&self, load: Load) {
        let (store, places) = (self.store.clone(), self.places.clone());
        self.runtime.spawn(async move {
            let Ok(place) = places.acquire_owned().await else { return };
            tokio::task::spawn_blocking(move || {
                panics::catch(Work::Connection, || read(&store, load)).unwrap_or_default();
                drop(place);
            });
        });
    }
}

fn read(store: &Store, load: Load) {
    let channel = load.channel();
    match store.history(channel, unix_now()) {
        Ok(kept) => {
            let published_at = kept.last().map(|(_, last)| last.time).unwrap_or_default();
            let publications = kept.into_iter().map(|(offset, stored)| publication(offset, stored)).collect();
            load.finish(Kept { publications, published_at });
        }
        Err(error) => warn!(%channel, error = chain(&error), "The history of a channel cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidings_hub::Wanted;
    use tidings_store::DurableChannel;
    use tidings_types::{ChannelName, Json, Offset};

    use super::*;
    use crate::journal::Sink;

    #[tokio::test]
    async fn what_the_store_keeps_is_read_when_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("data_dir = {:?}\n[channel.namespaces.chat]\ndurable = true", folder.path());
        let text = format!("{text}\nhistory_size = 2\nhistory_ttl = \"1h\"");
        let config = tidings_config::parse("tidings.toml", &text, []).unwrap().config;
        let (name, namespaces) = (ChannelName::new("chat:1").unwrap(), Arc::new(config.namespaces()));
        let store = Store::open(crate::settings::store_config(&config), Arc::new(Sink::default())).unwrap();
        for number in 1..=3 {
            let history_ttl = Duration::from_secs(3600);
            let channel = DurableChannel { name: name.clone(), history_size: 2, history_ttl, has_texts: false };
            let data = Json::of(&number);
            store.append_publication(channel, data, Default::default(), None, unix_now()).await.unwrap();
        }
        let new_hub = || {
            let hub = Hub::new(crate::settings::hub_config(&config, namespaces.clone(), store.channel_start()), 1);
            let hub = hub.with_histories(Arc::new(StoredHistories::new(store.clone())), 1 << 20);
            restore(&store, &hub, &namespaces).unwrap();
            hub
        };
        let (hub, other) = (new_hub(), new_hub());
        assert!(hub.history(&name, Default::default()).unwrap().0.is_empty());
        hub.load(&name, Wanted::Any).unwrap().await;
        assert!(!hub.lacks(&name, Wanted::Any));
        let (publications, top) = hub.history(&name, Default::default()).unwrap();
        let found: Vec<_> = publications.iter().map(|one| (one.offset.0, one.data.as_str())).collect();
        assert_eq!((found, top.offset), (vec![(2, "2"), (3, "3")], Offset(3)));
        store.close().await;
        other.load(&name, Wanted::Any).unwrap().await;
        assert!(other.lacks(&name, Wanted::Any), "it cannot be read any more");
    }
}
