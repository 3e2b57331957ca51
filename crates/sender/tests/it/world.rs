//! A store in a temporary folder, devices in it, who of them reads along, and a provider that takes from a lake and
//! answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roaring::RoaringBitmap;
use tempfile::TempDir;
use tidings_buffer::{Consumer, Lake};
use tidings_gettext::{Catalogue, Plural, Template, Translations};
use tidings_hub::{Arrival, EventReceipts, FanOut, Receipts};
use tidings_protocol::ClientId;
use tidings_push::{Lakes, Notification, Outcome, OutcomeSink, Settled, TokenGone};
use tidings_sender::{CurrentTopics, Pool, Sender, SenderConfig, StartError, TopicTemplates, Topics};
use tidings_store::{
    CommitSink, DurableChannel, NewDevice, NewEvent, NewImport, QueueLimit, Store, StoreConfig, StoredPublication,
};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, ChannelName, DeviceId, DeviceNumber, DeviceToken, Environment, Event, EventId, EventPriority,
    JournalPosition, Locale, ParamValue, Platform, Present, Provider, PushPolicy, ReceiptPolicy, ReceiptRequest,
    ReceiptTerms, StreamPosition, Subject, Timestamp, TopicName,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const DEADLINE: Duration = Duration::from_secs(40);

/// A receipt whose connection and time do not matter.
pub(crate) fn arrival() -> Arrival {
    Arrival { client: ClientId::from_random(1), at: Timestamp(1) }
}

const POLISH: &str = r#"
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\nLanguage: pl\nPlural-Forms: nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);\n"

msgid "Goal for %{team}!"
msgstr "Gol dla %{team}!"

msgid "%{goals} goal by %{team}"
msgid_plural "%{goals} goals by %{team}"
msgstr[0] "%{goals} gol, %{team}"
msgstr[1] "%{goals} gole, %{team}"
msgstr[2] "%{goals} goli, %{team}"
"#;

const ARABIC: &str = r#"
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\nLanguage: ar\nPlural-Forms: nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);\n"

msgid "Goal for %{team}!"
msgstr "هدف لفريق %{team}!"
"#;

/// The topic `goal`, with a plural, in English, Polish (both texts) and Arabic (title only).
pub(crate) fn topics() -> Arc<Topics> {
    let catalogue =
        |locale: &str, text: &str| (Locale::new(locale).unwrap(), Catalogue::parse(text.as_bytes()).unwrap());
    let translations = Translations::new(vec![catalogue("pl", POLISH), catalogue("ar", ARABIC)]);
    let plural = Plural { msgid_plural: "%{goals} goals by %{team}", count: "goals" };
    let goal = TopicTemplates {
        title: Template::new(None, "Goal for %{team}!", None).unwrap(),
        body: Template::new(None, "%{goals} goal by %{team}", Some(plural)).unwrap(),
        domain: "match".to_owned(),
        present: Present::default(),
        told_only_in: None,
    };
    assert_eq!(translations.check([&goal.title, &goal.body]), []);
    let topics = BTreeMap::from([(TopicName::new("goal").unwrap(), goal)]);
    let topics = Topics::new(topics, BTreeMap::from([("match".to_owned(), translations)]));
    Arc::new(topics.for_providers([Provider::Apns]))
}

pub(crate) fn current() -> Arc<CurrentTopics> {
    Arc::new(CurrentTopics::new(topics()))
}

/// More than the receipts of a test take.
const RECEIPT_BYTES_MAX: usize = 4 << 20;

/// The hub, as far as the sender sees it: an event's receipts are open, with its readers, before the event is told of.
struct Live {
    receipts: Arc<Receipts>,
    fan_out: Arc<FanOut>,
    readers: Mutex<RoaringBitmap>,
}

impl CommitSink for Live {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, stored: &StoredPublication, _: &DurableChannel) {
        if let Some(request) = &stored.receipt {
            self.receipts.open(request).add_readers(&self.readers.lock().unwrap());
        }
    }

    fn on_events(&self, _: JournalPosition) {}
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) store: Store,
    live: Arc<Live>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap(), Duration::from_secs(3600))
    }

    fn open(folder: TempDir, id_window: Duration) -> Self {
        let receipts = Arc::new(Receipts::new(1000, RECEIPT_BYTES_MAX));
        let live = Arc::new(Live { receipts, fan_out: Arc::default(), readers: Mutex::default() });
        Self { store: open(&folder, live.clone(), id_window), folder, live }
    }

    /// Closes the store and opens it again, as a restart does: of receipts nothing is known. The sender must be gone.
    pub(crate) async fn restarted(self) -> Self {
        self.restarted_with(Duration::from_secs(3600)).await
    }

    /// As [`World::restarted`], and ids are remembered for so long from now on.
    pub(crate) async fn restarted_with(self, id_window: Duration) -> Self {
        let Self { folder, store, live: _ } = self;
        timeout(DEADLINE, store.close()).await.expect("somebody still has the store");
        drop(store);
        Self::open(folder, id_window)
    }

    pub(crate) fn number(&self, index: usize) -> DeviceNumber {
        self.store.device_number(&device(index).id).unwrap().expect("a registered device")
    }

    /// These devices are connected and read the channels of all events from now on.
    pub(crate) fn connect(&self, indexes: impl IntoIterator<Item = usize>) {
        let numbers = indexes.into_iter().map(|index| self.number(index).0);
        self.live.readers.lock().unwrap().extend(numbers);
    }

    pub(crate) fn receipts(&self, position: JournalPosition) -> Arc<EventReceipts> {
        self.live.receipts.get(position).expect("an event that asks for receipts")
    }

    /// An event comes that needs all memory for its own receipts: those of all others are forgotten.
    pub(crate) fn use_up_receipts(&self) {
        let until = unix_now().saturating_add(Duration::from_secs(99_999)); // It ends last.
        let terms = ReceiptTerms { until, every_client: false, policy: ReceiptPolicy::Any };
        let large = self.live.receipts.open(&ReceiptRequest { event: JournalPosition(1 << 40), terms });
        large.add_readers(&(0..1 << 15).map(|number| number << 16).collect());
        assert!(self.live.receipts.dropped_count() > 0);
    }

    /// From now on an edge loop has always something to write.
    pub(crate) fn keep_loops_busy(&self) {
        self.live.fan_out.begin();
    }

    /// The pongs of these devices' connections come.
    pub(crate) fn receive(&self, position: JournalPosition, indexes: impl IntoIterator<Item = usize>) {
        let receipts = self.receipts(position);
        indexes.into_iter().for_each(|index| receipts.on_received("", Some(self.number(index)), false, arrival()));
    }

    /// Registers devices that all follow `team:1`.
    pub(crate) async fn register(&self, devices: impl IntoIterator<Item = NewDevice>) {
        self.register_for(devices, &["team:1"]).await;
    }

    pub(crate) async fn register_for(&self, devices: impl IntoIterator<Item = NewDevice>, subjects: &[&str]) {
        let goal = TopicName::new("goal").unwrap();
        let follows: Vec<_> = subjects.iter().map(|subject| (Subject::new(subject).unwrap(), goal.clone())).collect();
        let import = |device| NewImport { subscriptions: follows.clone(), ..NewImport::from(device) };
        self.store.import_devices(devices.into_iter().map(import).collect(), None, unix_now()).await.unwrap();
    }

    pub(crate) async fn accept(&self, event: Event) -> JournalPosition {
        self.accept_at(event, unix_now()).await
    }

    pub(crate) async fn accept_at(&self, event: Event, now: Timestamp) -> JournalPosition {
        let name = ChannelName::new(event.subjects[0].as_str()).unwrap();
        let channel = DurableChannel { name, history_size: 10, history_ttl: Duration::from_secs(60), has_texts: false };
        let events = vec![NewEvent { event, channels: vec![channel], audience_max: None }];
        self.store.append_events(events, now).await.unwrap()[0].position().expect("it is due")
    }

    pub(crate) fn start(&self, config: SenderConfig, pools: Vec<Pool>) -> Sender {
        self.try_start(config, pools).unwrap()
    }

    pub(crate) fn try_start(&self, config: SenderConfig, pools: Vec<Pool>) -> Result<Sender, StartError> {
        Sender::start(config, self.store.clone(), current(), pools, self.live(), &Registry::new())
    }

    /// As [`World::start`], with metrics that can be read.
    pub(crate) fn start_measured(&self, config: SenderConfig, pools: Vec<Pool>, registry: &Registry) -> Sender {
        self.start_telling(config, pools, current(), registry)
    }

    /// As [`World::start_measured`], with topics that the test can replace.
    pub(crate) fn start_telling(
        &self,
        config: SenderConfig,
        pools: Vec<Pool>,
        topics: Arc<CurrentTopics>,
        registry: &Registry,
    ) -> Sender {
        Sender::start(config, self.store.clone(), topics, pools, self.live(), registry).unwrap()
    }

    fn live(&self) -> (Arc<Receipts>, Arc<FanOut>) {
        (self.live.receipts.clone(), self.live.fan_out.clone())
    }

    /// Accepts by a clock that is ahead: the event's times run in full from when its job begins, however long the disk
    /// takes to write it.
    pub(crate) async fn accept_ahead(&self, event: Event) -> JournalPosition {
        self.accept_at(event, unix_now().saturating_add(Duration::from_secs(3600))).await
    }

    /// What the store has of a job, as JSON.
    pub(crate) fn row(&self, position: JournalPosition) -> Option<serde_json::Value> {
        let rows = self.store.jobs().unwrap();
        let (_, row) = rows.into_iter().find(|(found, _)| *found == position)?;
        Some(serde_json::from_slice(&row).unwrap())
    }
}

fn open(folder: &TempDir, live: Arc<Live>, id_window: Duration) -> Store {
    let queue = QueueLimit { count: 4096, bytes: 64 << 20 };
    let config = StoreConfig {
        path: folder.path().join("store"),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 100_000,
        journal_bytes_max: 1 << 30,
        id_window,
        id_window_count: 100_000,
        later_count_max: 1000,
        device_count_max: 1_000_000,
        subscription_count_max: 1000,
        channel_count_max: 1000,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(10),
        reopen_backoff_max: Duration::from_millis(100),
        cache_bytes: 8 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: 8,
        idle_max: None,
        clock: tidings_telemetry::unix_now,
    };
    Store::open(config, live).unwrap()
}

/// Small windows, so that a few devices make many; checkpoints at once.
pub(crate) fn config() -> SenderConfig {
    SenderConfig {
        window_device_count: 16,
        window_open_count_max: 4,
        checkpoint_interval: Duration::from_millis(5),
        ..SenderConfig::default()
    }
}

pub(crate) fn pool(name: &str, app: &str, capacity: usize) -> Pool {
    Pool {
        name: name.to_owned(),
        provider: Provider::Apns,
        environment: Environment::Production,
        apps: vec![AppId::new(app).unwrap()],
        services: None,
        lakes: Lakes::new(capacity),
        quarantine: None,
        gauge: None,
    }
}

/// The lake of events without a priority.
pub(crate) fn lake(pool: &Pool) -> &Arc<Lake<Notification>> {
    pool.lakes.of(EventPriority::Normal)
}

pub(crate) fn device(index: usize) -> NewDevice {
    let (id, app) = (DeviceId::new(&format!("d{index}")).unwrap(), AppId::new("app").unwrap());
    let new = NewDevice::new(id, app, Platform::Ios, Locale::new("en").unwrap());
    NewDevice { token: Some(token(index, 0)), ..new }
}

/// The address of a device after so many registrations.
pub(crate) fn token(index: usize, generation: u8) -> DeviceToken {
    let mut bytes = (index as u32).to_be_bytes().to_vec();
    bytes.push(generation);
    DeviceToken::from(&bytes[..])
}

/// Which device a notification goes to, by its address.
pub(crate) fn addressee(notification: &Notification) -> usize {
    let bytes = notification.token.as_bytes().first_chunk().expect("tokens of tests have four bytes and more");
    u32::from_be_bytes(*bytes) as usize
}

pub(crate) fn goal(id: &str) -> Event {
    let team = ParamValue::Text("Vega".to_owned());
    let subjects = vec![Subject::new("team:1").unwrap()];
    let mut event = Event::new(EventId::new(id).unwrap(), TopicName::new("goal").unwrap(), subjects);
    event.params = BTreeMap::from([("team".to_owned(), team), ("goals".to_owned(), ParamValue::Integer(3))]);
    (event.push, event.ttl) = (PushPolicy::Always, Duration::from_secs(3600));
    event
}

/// Pushed unless received by whatever device within `wait`.
pub(crate) fn quiet_goal(id: &str, wait: Duration) -> Event {
    let mut event = goal(id);
    event.push = PushPolicy::UnlessReceived;
    (event.receipt_wait, event.receipt_policy) = (wait, ReceiptPolicy::Any);
    event
}

/// Waits until `met`; panics with `what` when that takes too long.
pub(crate) async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !met() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// A provider that is worked by hand.
pub(crate) struct Gateway {
    consumer: Consumer<Notification>,
    sink: Arc<dyn OutcomeSink>,
    /// Taken and not answered.
    pub(crate) held: Vec<Notification>,
    /// All that was taken.
    pub(crate) taken: Vec<Notification>,
}

impl Gateway {
    pub(crate) fn new(pool: &Pool, sender: &Sender) -> Self {
        Self::of(lake(pool), sender)
    }

    pub(crate) fn of(lake: &Arc<Lake<Notification>>, sender: &Sender) -> Self {
        let consumer = Consumer::new(lake.clone());
        Self { consumer, sink: sender.sink(), held: Vec::new(), taken: Vec::new() }
    }

    /// Takes exactly `count`.
    pub(crate) async fn take(&mut self, count: usize) {
        let mut new = Vec::new();
        while new.len() < count {
            let demand = count - new.len();
            soon("something in the lake", self.consumer.take(demand, &mut new)).await;
        }
        self.taken.extend(new.iter().cloned());
        self.held.append(&mut new);
    }

    /// Takes and accepts `count`, one after the other.
    pub(crate) async fn accept(&mut self, count: usize) {
        for _ in 0..count {
            self.take(1).await;
            self.answer(1, Outcome::Accepted);
        }
    }

    /// Takes what is there.
    pub(crate) fn try_take(&mut self, demand: usize) {
        let mut new = Vec::new();
        self.consumer.lake().try_take(demand, &mut new);
        self.taken.extend(new.iter().cloned());
        self.held.append(&mut new);
    }

    /// Answers the first `count` held.
    pub(crate) fn answer(&mut self, count: usize, outcome: Outcome) {
        let settled = self.held.drain(..count).map(|notification| settled(&notification, outcome, None));
        self.sink.settle(&mut settled.collect());
    }

    /// Forgets everything it holds, as a killed process does.
    pub(crate) fn into_taken(self) -> Vec<Notification> {
        self.taken
    }
}

pub(crate) fn settled(notification: &Notification, outcome: Outcome, gone_at: Option<Timestamp>) -> Settled {
    let token_gone = gone_at.map(|at| TokenGone { token: notification.token.clone(), at });
    Settled { ticket: notification.ticket, outcome, token_gone, repeats: 0, latency: Duration::ZERO }
}

/// A provider on a task of its own: answers everything by a script, each batch in reverse order.
pub(crate) struct Automatic {
    tasks: JoinSet<()>,
    taken: Arc<Mutex<Vec<Notification>>>,
}

impl Automatic {
    pub(crate) fn accepting(pool: &Pool, sender: &Sender) -> Self {
        Self::new(pool, sender, |notification| settled(notification, Outcome::Accepted, None))
    }

    pub(crate) fn new(
        pool: &Pool,
        sender: &Sender,
        mut script: impl FnMut(&Notification) -> Settled + Send + 'static,
    ) -> Self {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (mut consumer, sink, log) = (Consumer::new(lake(pool).clone()), sender.sink(), taken.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut batch = Vec::new();
            while consumer.take(7, &mut batch).await > 0 {
                log.lock().unwrap().extend(batch.iter().cloned());
                let mut outcomes: Vec<Settled> = batch.drain(..).rev().map(|taken| script(&taken)).collect();
                sink.settle(&mut outcomes);
            }
        });
        Self { tasks, taken }
    }

    /// All that was taken so far; panics if the task has.
    pub(crate) fn taken(&mut self) -> Vec<Notification> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended.expect("the provider does not panic");
        }
        self.taken.lock().unwrap().clone()
    }
}
