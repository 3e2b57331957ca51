//! Durable channels for the hub: their positions at the start, and their publications when somebody asks for them.

use std::sync::Arc;

use tidings_hub::{Histories, HistoryFuture, Hub};
use tidings_protocol::{Namespaces, Publication};
use tidings_store::{RestoredChannel, Store};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{chain, unix_now};
use tidings_types::ChannelName;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tracing::warn;

use crate::error::ServeError;
use crate::journal::publication;

/// Histories that are read at a time. Further ones wait.
const HISTORY_COUNT_MAX: usize = 16;

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
        Self { store, runtime: Handle::current(), places: Arc::new(Semaphore::new(HISTORY_COUNT_MAX)) }
    }
}

impl Histories for StoredHistories {
    fn read(&self, channel: &ChannelName) -> HistoryFuture {
        let (store, runtime, channel) = (self.store.clone(), self.runtime.clone(), channel.clone());
        let places = self.places.clone();
        Box::pin(async move {
            let place = places.acquire_owned().await.ok()?;
            let (answer, answered) = oneshot::channel();
            runtime.spawn_blocking(move || {
                let read = panics::catch(Work::Connection, || read_history(&store, &channel)).unwrap_or_default();
                drop(place);
                let _ = answer.send(read); // Nobody may wait for it any more.
            });
            answered.await.ok().flatten()
        })
    }
}

fn read_history(store: &Store, channel: &ChannelName) -> Option<Vec<Publication>> {
    let read = store.history(channel, unix_now());
    let read =
        read.inspect_err(|error| warn!(%channel, error = chain(error), "The history of a channel cannot be read"));
    Some(read.ok()?.into_iter().map(|(offset, stored)| publication(offset, stored)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidings_hub::Histories as _;
    use tidings_store::DurableChannel;
    use tidings_types::{Json, Offset};

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
        let histories = Arc::new(StoredHistories::new(store.clone()));
        let hub = Hub::new(crate::settings::hub_config(&config, namespaces.clone(), &store), 1);
        let hub = hub.with_histories(histories.clone(), 1 << 20);
        restore(&store, &hub, &namespaces).unwrap();
        assert!(hub.history(&name, Default::default()).unwrap().0.is_empty());
        hub.load(&name, None).unwrap().await;
        let (publications, top) = hub.history(&name, Default::default()).unwrap();
        let found: Vec<_> = publications.iter().map(|one| (one.offset.0, one.data.as_str())).collect();
        assert_eq!((found, top.offset), (vec![(2, "2"), (3, "3")], Offset(3)));
        store.close().await;
        assert!(histories.read(&name).await.is_none(), "it cannot be read any more");
    }
}
