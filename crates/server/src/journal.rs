//! Connects store, hub and edge, which do not see each other. It publishes what became durable, and proves devices from their
//! stored records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidings_edge::{DeviceDirectory, Edge, ProveFuture, PublishFuture, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{ClientInfo, DeviceClaim, ErrorCode, NamespaceOptions, Namespaces, Publication, Tags};
use tidings_store::{CommitSink, DurableChannel, ReadError, Role, Store, StoredPublication, WriteError};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::trace::{Span, Tracer, part, span_id};
use tidings_telemetry::{chain, unix_nanos, unix_now};
use tidings_types::{ChannelName, DeviceId, DeviceNumber, JournalPosition, Json, Offset, StreamPosition};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;
use tracing::{debug, error, warn};

use crate::link::Link;

/// The longest sleep until a scheduled event is due.
const LATER_STEP: Duration = Duration::from_secs(1);
/// Pause before the store is asked again.
const LATER_RETRY: Duration = Duration::from_millis(100);

/// Publishes what has become durable, on the committer's thread and before the acknowledgement.
#[derive(Default)]
pub(super) struct Sink {
    /// Whether a hub is about to follow.
    is_awaited: AtomicBool,
    hub: OnceLock<Arc<Hub>>,
    /// What came while a hub was awaited, in order. Bound: what the log brings while the durable channels are read.
    early: Mutex<Vec<News>>,
    edge: OnceLock<Weak<Edge>>,
    tracer: OnceLock<Tracer>,
}

/// What a hub must know of durable channels.
enum News {
    Published(ChannelName, Offset, StoredPublication),
    Forgotten(ChannelName, Offset),
    Removed(ChannelName, Offset),
}

impl News {
    fn tell(self, hub: &Hub) {
        match self {
            Self::Published(channel, offset, stored) => publish(hub, &channel, offset, stored),
            Self::Forgotten(channel, floor) => hub.on_channel_forgotten(&channel, floor),
            Self::Removed(channel, until) => hub.remove_history(&channel, Some(until)),
        }
    }
}

impl Sink {
    /// From now on, what a hub would miss that is about to be made is kept for it.
    pub(super) fn await_hub(&self) {
        self.is_awaited.store(true, Ordering::Release);
    }

    /// From now on, publications go to the hub. Called once, after the durable channels were restored.
    pub(super) fn follow(&self, hub: Arc<Hub>) {
        let mut early = self.early.lock();
        std::mem::take(&mut *early).into_iter().for_each(|news| news.tell(&hub));
        assert!(self.hub.set(hub).is_ok(), "the sink follows one hub");
    }

    /// Tells the hub, or keeps the news for it. Before a hub is awaited, nobody has use for them.
    fn tell(&self, news: News) {
        if let Some(hub) = self.hub.get() {
            return news.tell(hub);
        }
        let mut early = self.early.lock();
        match self.hub.get() {
            Some(hub) => news.tell(hub),
            None if self.is_awaited.load(Ordering::Acquire) => early.push(news),
            None => {}
        }
    }

    /// From now on, publications of events in recorded traces are spans. Called at most once.
    pub(super) fn trace_with(&self, tracer: Tracer) {
        assert!(self.tracer.set(tracer).is_ok(), "the sink knows one tracer");
    }

    /// From now on, connections of deleted devices lose their proof. Called once, before the listeners open.
    pub(super) fn revoke_at(&self, edge: &Arc<Edge>) {
        assert!(self.edge.set(Arc::downgrade(edge)).is_ok(), "the sink knows one edge");
    }
}

fn publish(hub: &Hub, channel: &ChannelName, offset: Offset, stored: StoredPublication) {
    let time = stored.time;
    if let Err(error) = hub.publish_durable(channel, offset, publication(offset, stored), time) {
        // The publication is durable: clients that subscribe when there is room get it from the history.
        warn!(%channel, error = chain(&error), "A durable publication reaches no live reader");
    }
}

impl CommitSink for Sink {
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        stored: &StoredPublication,
        _: &DurableChannel,
    ) {
        let began = unix_nanos();
        match self.hub.get() {
            Some(hub) => publish(hub, channel, position.offset, stored.clone()),
            None => self.tell(News::Published(channel.clone(), position.offset, stored.clone())),
        }
        if let Some((tracer, trace)) = self.tracer.get().zip(stored.trace.as_ref().filter(|trace| trace.is_sampled)) {
            let commit = trace.within(trace.part(part::COMMIT));
            tracer.record(Span::within(&commit, span_id(), "publish", began).with("channel", channel.as_str()));
        }
    }

    fn on_channel_forgotten(&self, channel: &ChannelName, floor: Offset) {
        self.tell(News::Forgotten(channel.clone(), floor));
    }

    fn on_history_removed(&self, channel: &ChannelName, until: Offset) {
        self.tell(News::Removed(channel.clone(), until));
    }

    fn on_events(&self, _: JournalPosition) {} // The sender follows the journal by itself.

    fn on_device_removed(&self, device: DeviceNumber) {
        if let Some(edge) = self.edge.get().and_then(Weak::upgrade) {
            edge.revoke(device, false);
        }
    }
}

pub(super) fn publication(offset: Offset, stored: StoredPublication) -> Publication {
    let info = stored.info.and_then(|info| {
        let parsed = serde_json::from_str::<ClientInfo>(info.as_str());
        parsed
            .inspect_err(|error| error!(error = chain(&error), "A stored publication has an unreadable client: a bug"))
            .ok()
    });
    let StoredPublication { data, tags, receipt, texts, .. } = stored;
    Publication { offset, data, info: info.map(Arc::new), tags: tags.into(), receipt, texts: texts.map(Arc::from) }
}

/// Moves each scheduled event that is due into the journal. What the store refuses is tried again.
pub(super) async fn release_later(store: Store) {
    let mut next = store.next_later();
    loop {
        let due = *next.borrow_and_update();
        // In short steps, so that a change of the clock is noticed.
        let pause = due.map(|due| due.saturating_since(unix_now()).min(LATER_STEP));
        if !pause.is_some_and(|pause| pause.is_zero()) {
            tokio::select! {
                changed = next.changed() => if changed.is_err() { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
            continue;
        }
        match store.release_later(unix_now()).await {
            Ok(0) => sleep(LATER_RETRY).await, // Nothing was due yet: the store's next due time is about to change.
            Ok(_) => {}
            Err(error) => {
                debug!(error = chain(&error), "The store does not take scheduled events that are due, trying again");
                sleep(LATER_RETRY).await;
            }
        }
    }
}

/// Where clients' publications into durable channels go.
#[derive(Clone)]
pub(super) struct Journal {
    store: Store,
    namespaces: Arc<Namespaces>,
}

impl Journal {
    pub(super) fn new(store: Store, namespaces: Arc<Namespaces>) -> Self {
        Self { store, namespaces }
    }
}

impl Publisher for Journal {
    fn is_home(&self) -> bool {
        true
    }

    fn publish(&self, channel: ChannelName, new: NewPublication) -> PublishFuture {
        let Some(options) = self.namespaces.options(&channel).copied() else {
            return Box::pin(std::future::ready(Err(ErrorCode::UnknownChannel)));
        };
        let store = self.store.clone();
        Box::pin(async move {
            let NamespaceOptions { history_size, history_ttl, .. } = options;
            let durable = DurableChannel { name: channel, history_size, history_ttl, has_texts: false }; // It is no event's.
            let Publication { data, info, tags, .. } = new.publication;
            let (tags, info) = (owned(&tags), info.map(|info| Json::of(&*info)));
            match store.append_publication(durable, data, tags, info, unix_now()).await {
                Ok(_) => Ok(()),
                Err(WriteError::Overloaded { .. }) => Err(ErrorCode::TooManyRequests),
                Err(WriteError::Unavailable) => Err(ErrorCode::Internal),
            }
        })
    }
}

pub(super) fn owned(tags: &Tags) -> BTreeMap<String, String> {
    tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Proofs that read the disk at a time. Further proofs wait, at most as long as the edge allows.
const PROOF_COUNT_MAX: usize = 16;
/// Writes of `last seen` at a time. A further device is noted when it connects again.
const NOTE_COUNT_MAX: usize = 64;

/// Proves devices, on threads for blocking work, because it reads the disk.
pub(super) struct Devices {
    store: Store,
    /// To the leader, which notes who was seen; `None`: this server is alone.
    link: Option<Arc<dyn Link>>,
    runtime: Handle,
    proofs: Arc<Semaphore>,
    notes: Arc<Semaphore>,
}

impl Devices {
    /// Uses the blocking threads of the runtime that this is called in.
    pub(super) fn new(store: Store, link: Option<Arc<dyn Link>>) -> Self {
        let [proofs, notes] = [PROOF_COUNT_MAX, NOTE_COUNT_MAX].map(|count| Arc::new(Semaphore::new(count)));
        Self { store, link, runtime: Handle::current(), proofs, notes }
    }
}

impl DeviceDirectory for Devices {
    fn prove(&self, claim: DeviceClaim) -> ProveFuture {
        let (store, link, runtime) = (self.store.clone(), self.link.clone(), self.runtime.clone());
        let (proofs, notes) = (self.proofs.clone(), self.notes.clone());
        let announcing = self.link.clone();
        Box::pin(async move {
            let place = proofs.acquire_owned().await.ok()?;
            let (answer, answered) = oneshot::channel();
            let blocking = runtime.clone();
            runtime.spawn_blocking(move || {
                let proven = panics::catch(Work::Connection, || prove(&store, &claim)).unwrap_or_default();
                drop(place);
                let _ = answer.send(proven); // The client may have gone.
                if let (Some(_), Ok(_place)) = (proven, notes.try_acquire()) {
                    blocking.block_on(note_seen(&store, link.as_deref(), claim.device()));
                }
            });
            let proven = answered.await.ok().flatten();
            if let Some((link, device)) = announcing.zip(proven) {
                link.announce(device).await; // An event may come right after the client is let in.
            }
            proven
        })
    }
}

fn prove(store: &Store, claim: &DeviceClaim) -> Option<DeviceNumber> {
    let proven = match claim {
        DeviceClaim::Signed(device) => store.prove(device, None),
        DeviceClaim::Credential { device, credential } => store.prove(device, Some(credential.as_str())),
    };
    // Unproven for now, so the device is pushed: the safe side. The store has already logged once that it cannot read.
    if let Err(error @ ReadError::Engine(_)) = &proven {
        warn!(device = %claim.device(), error = chain(&error), "A device cannot be looked up");
    }
    proven.ok().flatten()
}

/// Nobody waits for this write, and the store makes it once a day.
async fn note_seen(store: &Store, link: Option<&dyn Link>, device: &DeviceId) {
    let Err(error) = store.touch(device, unix_now()).await else { return };
    if let Some(link) = link.filter(|_| *store.role().borrow() != Role::Leading) {
        link.seen(device.clone()).await;
    } else {
        debug!(%device, error = chain(&error), "Cannot note when a device was last seen");
    }
}

#[cfg(test)]
mod tests {
    use tidings_protocol::DeviceCredential;
    use tidings_store::{NewDevice, PutTerms};
    use tidings_types::{AppId, Locale, Platform, Timestamp};

    use super::*;

    fn config(folder: &std::path::Path, more: &str) -> tidings_config::Config {
        let text = format!("data_dir = {folder:?}\n{more}");
        tidings_config::parse("tidings.toml", &text, []).unwrap().config
    }

    async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let waiting = async {
            while !is_so() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(what);
    }

    /// What idles while nobody follows is told to the hub when it does.
    #[tokio::test]
    async fn a_channel_that_the_store_gives_back_leaves_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let durable = "[store]\nchannel_ttl = \"3s\"\n[channel.namespaces.chat]\ndurable = true\nhistory_size = 9\n\
                       history_ttl = \"1s\"";
        let config = config(folder.path(), durable);
        let namespaces = Arc::new(config.namespaces());
        let start = |sink: &Arc<Sink>| {
            let store = Store::open(crate::settings::store_config(&config), sink.clone()).unwrap();
            let hub =
                Arc::new(Hub::new(crate::settings::hub_config(&config, namespaces.clone(), store.channel_start()), 1));
            crate::histories::restore(&store, &hub, &namespaces).unwrap();
            (store, hub)
        };
        let name = ChannelName::new("chat:1").unwrap();
        let publish = async |store: &Store, now| {
            let history_ttl = Duration::from_secs(1);
            let channel = DurableChannel { name: name.clone(), history_size: 9, history_ttl, has_texts: false };
            store.append_publication(channel, Json::of(&1), Default::default(), None, now).await.unwrap().offset
        };
        let mut last = Offset(0);
        for is_followed_late in [false, true] {
            let (store, _) = start(&Arc::new(Sink::default()));
            let published = publish(&store, unix_now()).await;
            assert!(published > last, "{published:?} was given to another one");
            last = published;
            store.close().await;

            let sink = Arc::new(Sink::default());
            sink.await_hub();
            let (store, hub) = start(&sink);
            assert_eq!(hub.history(&name, Default::default()).unwrap().1.offset, last, "it comes back as it was");
            if is_followed_late {
                until("the store forgets it", || !sink.early.lock().is_empty()).await;
            }
            sink.follow(hub.clone());
            until("it begins behind what it was", || {
                hub.sweep(unix_now());
                hub.history(&name, Default::default()).unwrap().1.offset > last
            })
            .await;
            store.close().await;
        }
    }

    #[tokio::test]
    async fn who_proves_itself_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        let store = Store::open(crate::settings::store_config(&config), Arc::new(Sink::default())).unwrap();
        let devices = Devices::new(store.clone(), None);
        let (app, locale) = (AppId::new("app").unwrap(), Locale::new("sv").unwrap());
        let id = DeviceId::new("phone").unwrap();
        let new = NewDevice::new(id.clone(), app, Platform::Ios, locale);
        let secret = store.put_device(new, PutTerms::default(), Timestamp(1)).await.unwrap().credential.unwrap();
        let seen_at = || store.device(&id).unwrap().unwrap().seen_at;
        let claim = |credential: &str| {
            let credential = DeviceCredential::new(credential.to_owned()).unwrap();
            DeviceClaim::Credential { device: id.clone(), credential }
        };
        assert_eq!(devices.prove(claim("not its secret")).await, None);
        assert_eq!(seen_at(), Timestamp(0));
        assert!(devices.prove(claim(secret.as_str())).await.is_some());
        until("it is noted", || seen_at() != Timestamp(0)).await;
        assert_eq!(seen_at(), seen_at().start_of_day());
    }
}
