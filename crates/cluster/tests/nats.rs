//! Nodes on real NATS servers that are killed: what was acknowledged is on every node, once.
//!
//! `cargo xtask cluster` runs it: it needs `nats-server`, whose path is in the variable `NATS_SERVER`.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidings_cluster::{
    Cluster, ClusterConfig, JetStream, Log, NewsPart, NewsReceiver, PART_BYTES_MAX, Peers, StreamConfig, StreamError,
    Unanswered,
};
use tidings_store::{CommitSink, DurableChannel, NewEvent, QueueLimit, Role, Store, StoreConfig, StoredPublication};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, Event, EventId, JournalPosition, StreamPosition, Subject, TopicName};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use tidings_trial::brokers::Brokers;
use tidings_trial::wait::{PATIENCE, until};

/// Of the logs here: less than every disk has.
const LOG_BYTES_MAX: i64 = 64 << 20;

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
        let stream =
            StreamConfig { name: "test".to_owned(), replica_count: brokers.ports.len(), bytes_max: LOG_BYTES_MAX };
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
        namespace_ttls: BTreeMap::new(),
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

/// The bytes of the next message, and whether nothing is missing before it. `next`: the number that its first part should have.
async fn hear(news: &mut NewsReceiver, next: &mut u64) -> (Vec<u8>, bool) {
    let (mut whole, mut is_next) = (Vec::new(), true);
    loop {
        let heard = timeout(PATIENCE, news.next()).await.expect("news in time");
        let NewsPart { number, has_more, bytes, .. } = heard.expect("the client goes on");
        is_next &= number == *next;
        *next = number + 1;
        whole.extend_from_slice(&bytes);
        if !has_more {
            return (whole, is_next);
        }
    }
}

/// As a node that is stopped for a moment right after it has made the first store of a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_cluster_another_has_begun_on_a_broker_joins_it_anew() {
    let brokers = Brokers::start(1);
    let folder = tempfile::tempdir().unwrap();
    let mut late = Cluster::connect(cluster_config(&brokers, "late")).await.unwrap();
    let made = late.join(config(folder.path()), Arc::new(Nobody)).await.unwrap();
    let first = Node::start(&brokers).await;
    first.store.lead(true);
    first.becomes(Role::Leading).await;
    first.append(1).await;
    let leads = timeout(PATIENCE, late.leads(&made)).await.expect("it learns that another was first");
    assert!(!leads, "it has to begin anew");
    made.close().await;
    let anew = late.join(config(folder.path()), Arc::new(Nobody)).await.unwrap();
    let count = || async { Some(anew.events_from(JournalPosition(0), 10).unwrap().len()).filter(|count| *count == 1) };
    until("it has what the other has written", count).await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_may_take_more_than_the_disk_of_a_broker_is_told_as_that() {
    for count in [1, 3] {
        let brokers = Brokers::start(count);
        let context = async_nats::jetstream::new(client(&brokers).await);
        let stream = StreamConfig { name: "test".to_owned(), replica_count: count, bytes_max: 1 << 40 };
        let refused = until("the brokers are together", || async {
            let opened = JetStream::open(context.clone(), &stream, Arc::default()).await;
            opened.err().filter(|error| matches!(error, StreamError::NoRoom { .. }))
        });
        assert!(refused.await.to_string().contains("lower cluster.log_bytes_max"));
    }
}

fn cluster_config(brokers: &Brokers, node: &str) -> ClusterConfig {
    let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    ClusterConfig {
        name: "test".to_owned(),
        node: node.to_owned(),
        address: None,
        version: String::new(),
        may_lead: true,
        servers: brokers.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect(),
        tls: Arc::new(tls.with_no_client_auth()),
        credentials: None,
        replica_count: brokers.ports.len(),
        log_bytes_max: LOG_BYTES_MAX,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_ask_each_other_over_a_broker() {
    let brokers = Brokers::start(1);
    let [one, other] = [1, 2].map(|process| (client(&brokers), process));
    let [one, other] =
        [Peers::new(one.0.await, "test".to_owned(), one.1), Peers::new(other.0.await, "test".to_owned(), other.1)];
    let mut questions = other.questions().await.unwrap();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        while let Some(question) = questions.next().await {
            let answer = match &question.bytes[..] {
                b"nothing" => Vec::new(),
                b"much" => (0..3 * PART_BYTES_MAX + 1).map(|byte| byte as u8).collect(),
                short => short.to_vec(),
            };
            question.answer(&answer).await;
        }
    });
    let soon = || Instant::now() + PATIENCE;
    assert_eq!(&one.ask(2, b"who?".to_vec(), soon()).await.unwrap()[..], b"who?");
    assert_eq!(&one.fetch(2, b"nothing".to_vec(), 9, PATIENCE).await.unwrap()[..], b"");
    let much = one.fetch(2, b"much".to_vec(), 4 * PART_BYTES_MAX, PATIENCE).await.unwrap();
    assert!(much.len() == 3 * PART_BYTES_MAX + 1 && much.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    let bounded = one.fetch(2, b"much".to_vec(), PART_BYTES_MAX, PATIENCE).await;
    assert_eq!(bounded, Err(Unanswered::TooLarge));
    assert_eq!(one.ask(2, vec![0; PART_BYTES_MAX + 1], soon()).await, Err(Unanswered::TooLarge));
    for gone in [one.ask(3, b"who?".to_vec(), soon()).await, one.fetch(3, b"who?".to_vec(), 9, PATIENCE).await] {
        assert_eq!(gone, Err(Unanswered::Gone), "nobody has this number");
    }
    answering.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hears_news_over_a_broker_learns_that_some_are_missing() {
    let mut brokers = Brokers::start(1);
    let [one, other] = [
        Peers::new(client(&brokers).await, "test".to_owned(), 1),
        Peers::new(client(&brokers).await, "test".to_owned(), 2),
    ];
    let (mut news, mut own) = (other.news().await.unwrap(), one.news().await.unwrap());
    let (mut sender, mut of_other, mut next) = (one.news_sender(), other.news_sender(), 0);
    sender.tell(b"short").await;
    assert_eq!(hear(&mut news, &mut next).await, (b"short".to_vec(), true));
    let long: Vec<u8> = (0..2 * PART_BYTES_MAX + 7).map(|byte| byte as u8).collect();
    sender.tell(&long).await;
    assert!(hear(&mut news, &mut next).await == (long, true));
    sender.skip();
    sender.tell(b"behind a hole").await;
    assert_eq!(hear(&mut news, &mut next).await, (b"behind a hole".to_vec(), false));
    of_other.tell(b"from the other one").await;
    assert_eq!(hear(&mut own, &mut 0).await, (b"from the other one".to_vec(), true), "nobody hears its own news");

    brokers.kill(0);
    until("the connection is gone", || async {
        let asked = one.ask(2, b"who?".to_vec(), Instant::now() + PATIENCE).await;
        (asked == Err(Unanswered::NotConnected)).then_some(())
    })
    .await;
    sender.tell(b"told to nobody").await;
    brokers.restart(0);
    let later = until("both are connected again", || async { sender_is_heard(&one, &other).await.then_some(()) });
    later.await;
    sender.tell(b"later").await;
    let (heard, is_next) = hear(&mut news, &mut next).await;
    assert!(heard == b"later" && !is_next, "what was told meanwhile is missing: {heard:?}");
}

/// Whether a question from one reaches the other one.
async fn sender_is_heard(one: &Peers, other: &Peers) -> bool {
    let Ok(mut questions) = other.questions().await else { return false };
    let asked = one.ask(other.process(), b"there?".to_vec(), Instant::now() + Duration::from_millis(500));
    let answered = async {
        if let Some(question) = questions.next().await {
            question.answer(b"yes").await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        asked = asked => asked.is_ok(),
        () = answered => false,
    }
}
