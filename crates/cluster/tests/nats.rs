//! Nodes on real NATS servers that are killed: what was acknowledged is on every node, once.
//!
//! `cargo xtask cluster` runs it: it needs `nats-server`, whose path is in the variable `NATS_SERVER`.

mod brokers;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidings_cluster::{JetStream, Log, StreamConfig};
use tidings_store::{CommitSink, DurableChannel, NewEvent, QueueLimit, Role, Store, StoreConfig, StoredPublication};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, Event, EventId, JournalPosition, StreamPosition, Subject, TopicName};
use tokio::time::{Instant, interval, timeout};

use brokers::Brokers;

const PATIENCE: Duration = Duration::from_secs(60);

/// A client of them all.
async fn client(brokers: &Brokers) -> async_nats::Client {
    let servers: Vec<async_nats::ServerAddr> =
        brokers.ports.iter().map(|port| format!("nats://127.0.0.1:{port}").parse().unwrap()).collect();
    let connected = until("a broker answers", || async {
        async_nats::ConnectOptions::new().connection_timeout(Duration::from_secs(2)).connect(&servers).await.ok()
    });
    connected.await
}

/// Which of them leads the stream.
async fn leader(brokers: &Brokers) -> usize {
    let context = async_nats::jetstream::new(client(brokers).await);
    let leader = until("the stream has a leader", || async {
        context.get_stream("test").await.ok()?.cached_info().cluster.as_ref()?.leader.clone()
    });
    leader.await.trim_start_matches('n').parse().unwrap()
}

/// Asks until there is an answer.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let mut pulse = interval(Duration::from_millis(20));
    let asked = async {
        loop {
            pulse.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

struct Nobody;

impl CommitSink for Nobody {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {}
}

/// A node: a store that shares the log.
struct Node {
    store: Store,
    stopped: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

impl Node {
    async fn start(brokers: &Brokers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (client, stopped) = (client(brokers).await, Arc::<AtomicBool>::default());
        let stream = StreamConfig { name: "test".to_owned(), replica_count: brokers.ports.len(), bytes_max: 1 << 30 };
        let broker = until("the stream is there", || async {
            JetStream::open(async_nats::jetstream::new(client.clone()), &stream, stopped.clone()).await.ok()
        });
        let log = Log::new(broker.await);
        let config = config(folder.path());
        let opened = tokio::task::spawn_blocking(move || Store::join(config, Box::new(log), Arc::new(Nobody)));
        Self { store: opened.await.unwrap().unwrap(), stopped, _folder: folder }
    }

    async fn becomes(&self, role: Role) {
        let mut roles = self.store.role();
        timeout(PATIENCE, roles.wait_for(|now| *now == role)).await.expect("its role changes").unwrap();
    }

    /// Appends until it is acknowledged; the time that this took.
    async fn append(&self, id: u64) -> Duration {
        let began = Instant::now();
        until("the event is acknowledged", || async { self.store.append_events(event(id), unix_now()).await.ok() })
            .await;
        began.elapsed()
    }

    /// The ids of its events, in order.
    fn ids(&self) -> Vec<String> {
        let events = self.store.events_from(JournalPosition(0), 1_000_000).unwrap();
        events.iter().map(|(_, accepted)| accepted.event.id.as_str().to_owned()).collect()
    }

    /// Waits until it has so many events.
    async fn has(&self, count: usize) -> Vec<String> {
        until("it has followed", || async { Some(self.ids()).filter(|ids| ids.len() >= count) }).await
    }

    async fn stop(self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.store.close().await;
    }
}

fn event(id: u64) -> Vec<NewEvent> {
    let subjects = vec![Subject::new("team:1").unwrap()];
    let event = Event::new(EventId::new(&format!("e{id}")).unwrap(), TopicName::new("goal").unwrap(), subjects);
    vec![NewEvent { event, channels: Vec::new(), audience_max: None }]
}

fn config(path: &Path) -> StoreConfig {
    let queue = QueueLimit { count: 1024, bytes: 16 << 20 };
    let day = Duration::from_hours(24);
    StoreConfig {
        path: path.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 1_000_000,
        journal_bytes_max: 1 << 30,
        later_count_max: 100,
        id_window: day,
        id_window_count: 1_000_000,
        device_count_max: 1000,
        subscription_count_max: 100,
        mute_count_max: 8,
        idle_max: None,
        channel_count_max: 100,
        channel_ttl: day,
        checkpoint_change_count: 100_000,
        reopen_backoff_min: Duration::from_millis(10),
        reopen_backoff_max: Duration::from_millis(100),
        cache_bytes: 1 << 20,
        clock: unix_now,
    }
}

fn is_each_once(ids: &[String], count: u64) {
    let distinct: HashSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (count as usize, count as usize), "each event once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broker_may_be_killed_and_nothing_acknowledged_is_lost() {
    let mut brokers = Brokers::start(1);
    let leader = Node::start(&brokers).await;
    leader.store.lead(true);
    leader.becomes(Role::Leading).await;
    let follower = Node::start(&brokers).await;
    for id in 0..300 {
        if id % 100 == 50 {
            brokers.kill(0);
            brokers.restart(0);
        }
        leader.append(id).await;
    }
    is_each_once(&leader.ids(), 300);
    assert_eq!(follower.has(300).await, leader.ids());
    leader.stop().await;
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the times are for people to read")]
async fn of_three_brokers_the_leading_one_may_be_killed_and_another_node_takes_over() {
    let mut brokers = Brokers::start(3);
    let mut nodes = vec![Node::start(&brokers).await];
    nodes[0].store.lead(true);
    nodes[0].becomes(Role::Leading).await;
    nodes.push(Node::start(&brokers).await);
    let mut times = Vec::new();
    for id in 0..200 {
        times.push(nodes[0].append(id).await);
    }
    times.sort();
    println!("an event on three brokers: p50 {:?}, p99 {:?}", times[100], times[198]);

    let killed = leader(&brokers).await;
    brokers.kill(killed);
    println!("the first event after the leading broker was killed: {:?}", nodes[0].append(200).await);
    brokers.restart(killed);

    // The leading node goes away without a word; the other one has everything.
    let former = nodes.remove(0);
    let began = Instant::now();
    nodes[0].store.lead(true);
    nodes[0].becomes(Role::Leading).await;
    println!("another node leads after {:?}", began.elapsed());
    nodes[0].append(201).await;
    let refused = former.store.append_events(event(202), unix_now()).await;
    assert!(refused.is_err(), "it is fenced: {refused:?}");
    former.store.lead(false);
    nodes[0].append(203).await;
    let ids = nodes[0].ids();
    is_each_once(&ids, 203); // All but 202, of which nobody was told that it is there.
    assert_eq!(former.has(203).await, ids);
    former.stop().await;
    nodes.remove(0).stop().await;
}
