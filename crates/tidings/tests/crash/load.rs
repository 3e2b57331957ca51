//! The load: devices that register and change their subscriptions, events that are posted, all through kills.
//!
//! Tasks on one thread, each with a connection of its own. A device belongs to one task, so its requests come one after
//! the other; whatever is not acknowledged is repeated as it was ([`Caller::insist`]). The pace is that of the pulse: the
//! server is asked how many jobs it has, and each task does one thing at each answer, so that there is
//! always something in work and never more than the server can do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::Method;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidings_trial::caller::{Answer, Caller};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::model::{Acknowledged, Key, World};
use crate::simulators::Addresses;
use crate::verdict::Logs;
use crate::{API_KEY, APP, CHANNEL_COUNT, LEAGUE, SUBJECT_COUNT, TOPICS, device_id, event_id, subject};

const DEVICE_TASK_COUNT: u32 = 16;
const EVENT_TASK_COUNT: u32 = 4;
const PUBLISH_TASK_COUNT: u32 = 2;
/// The share of devices that is registered before the first event; the rest comes under load.
const EARLY_SHARE: f64 = 0.8;
/// One in so many devices changes its subscriptions during the campaign.
const MOVER_EVERY: u32 = 10;
/// With fewer jobs running, another event is pushed.
const JOB_COUNT_TARGET: u64 = 8;
const EVENTS_PER_REQUEST_MAX: usize = 4;
/// Of publications with idempotency keys, one in so many is repeated though it was answered.
const REPEAT_EVERY: u32 = 4;
const CHANNELS_PER_PUBLICATION_MAX: usize = 8;
const PULSE: Duration = Duration::from_millis(20);
/// The topic that only the last event has.
const FINAL: u8 = 2;
const LOCALES: [&str; 4] = ["en", "de", "pl", "sv-SE"];

/// What is running.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    monitor: JoinSet<()>,
    stop: watch::Sender<bool>,
}

struct Shared {
    addr: SocketAddr,
    world: Mutex<World>,
    addresses: Arc<Addresses>,
    /// `None` while the server does not answer.
    pulse: watch::Receiver<Option<Jobs>>,
    stopped: watch::Receiver<bool>,
    /// Device tasks that have registered their early devices.
    prepared: AtomicUsize,
}

impl Load {
    /// Begins to register devices; events follow with [`Load::start_events`].
    pub(crate) fn start(addr: SocketAddr, addresses: Arc<Addresses>, seed: u64) -> Self {
        let (beat, pulse) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let world = Mutex::new(World::with_devices(addresses.count() as usize));
        let shared = Arc::new(Shared { addr, world, addresses, pulse, stopped, prepared: AtomicUsize::new(0) });
        let (mut tasks, mut monitor) = (JoinSet::new(), JoinSet::new());
        monitor.spawn(watch_jobs(addr, beat));
        for task in 0..DEVICE_TASK_COUNT {
            tasks.spawn(Worker::new(&shared, seed, task).tend_devices(task));
        }
        Self { shared, tasks, monitor, stop }
    }

    /// Whether the early devices are registered and subscribed.
    pub(crate) fn is_prepared(&self) -> bool {
        self.shared.prepared.load(Relaxed) == DEVICE_TASK_COUNT as usize
    }

    /// Begins to post events and to publish.
    pub(crate) fn start_events(&mut self, seed: u64) {
        for task in 0..EVENT_TASK_COUNT {
            self.tasks.spawn(Worker::new(&self.shared, seed, DEVICE_TASK_COUNT + task).post_events());
        }
        for task in 0..PUBLISH_TASK_COUNT {
            let task = DEVICE_TASK_COUNT + EVENT_TASK_COUNT + task;
            self.tasks.spawn(Worker::new(&self.shared, seed, task).publish_all());
        }
    }

    /// Fails when a task has failed.
    pub(crate) fn check(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            ended.expect("a task of the load failed");
        }
    }

    /// Lets every task finish what it has begun, and registers what devices are left.
    pub(crate) async fn finish(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task of the load failed");
        }
    }

    /// Posts the last event, which is for every device; returns its number.
    pub(crate) async fn post_last_event(&self) -> u32 {
        let mut worker = Worker::new(&self.shared, 0, 0);
        let event = self.world().send_event(FINAL, vec![0, LEAGUE], true);
        worker.post(&[event]).await;
        event
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// What the server says of its jobs; `None` while it does not answer.
    pub(crate) fn jobs(&self) -> Option<Jobs> {
        *self.shared.pulse.borrow()
    }

    /// Posts every event once more; each must have the answer it had. Returns the complaints.
    pub(crate) async fn post_all_again(&self) -> Vec<String> {
        let mut worker = Worker::new(&self.shared, 0, 0);
        let events: Vec<u32> = (0..self.world().events.len() as u32).collect();
        let mut wrongs = Vec::new();
        for events in events.chunks(1000) {
            let answers = worker.exchange(events).await;
            let world = self.world();
            for (event, (answer, repeated)) in events.iter().zip(answers) {
                let first = world.events[*event as usize].answer;
                if first != Some(answer) || !repeated {
                    wrongs
                        .push(format!("event {event} was acknowledged {first:?}, posted again {answer:?}, {repeated}"));
                }
            }
        }
        wrongs
    }

    /// Asks for every device and its subscriptions. Returns the complaints.
    pub(crate) async fn ask_for_all_devices(&self) -> Vec<String> {
        let mut askers = JoinSet::new();
        for task in 0..DEVICE_TASK_COUNT {
            let shared = self.shared.clone();
            askers.spawn(async move {
                let (mut caller, mut wrongs) = (Caller::new(shared.addr, API_KEY), Vec::new());
                for device in shared.devices_of(task) {
                    wrongs.extend(shared.ask_for(device, &mut caller).await);
                }
                wrongs
            });
        }
        let mut wrongs = Vec::new();
        while let Some(asked) = askers.join_next().await {
            wrongs.extend(asked.expect("asking does not panic"));
        }
        wrongs
    }

    /// Ends what is left.
    pub(crate) async fn close(&mut self) {
        self.monitor.shutdown().await;
    }
}

/// The server's jobs that are not finished.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jobs {
    pub(crate) running: u64,
    /// They have not begun, or wait until they may go on.
    pub(crate) waiting: u64,
}

/// Asks for the numbers of jobs, again and again.
async fn watch_jobs(addr: SocketAddr, beat: watch::Sender<Option<Jobs>>) {
    let mut caller = Caller::new(addr, API_KEY);
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        let metrics = caller.call(Method::GET, "/metrics", None).await.ok().filter(|answer| answer.status == 200);
        let text = metrics.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default();
        let value = |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().parse::<u64>().ok());
        let (running, waiting) = (value("tidings_sender_jobs_running "), value("tidings_sender_jobs_waiting "));
        beat.send_replace(running.zip(waiting).map(|(running, waiting)| Jobs { running, waiting }));
    }
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("a failed task ends the test")
    }

    fn devices_of(&self, task: u32) -> impl Iterator<Item = u32> + use<> {
        (task..self.addresses.count()).step_by(DEVICE_TASK_COUNT as usize)
    }

    async fn ask_for(&self, device: u32, caller: &mut Caller) -> Vec<String> {
        let path = format!("/v1/devices/{}", device_id(device));
        let found = caller.insist(Method::GET, &path, None).await.json();
        let list = caller.insist(Method::GET, &format!("{path}/subscriptions"), None).await.json();
        let mut keys = BTreeSet::new();
        for entry in list["subscriptions"].as_array().into_iter().flatten() {
            let topics = entry["topics"].as_array().into_iter().flatten();
            keys.extend(topics.filter_map(|topic| crate::key_of(entry["subject"].as_str()?, topic.as_str()?)));
        }
        let world = self.world();
        let certain = world.devices[device as usize].certain();
        let mut wrongs = Vec::new();
        if found["id"].as_str() != Some(&device_id(device)) || found["app"].as_str() != Some(APP) {
            wrongs.push(format!("device {device} is not as it was registered"));
        }
        if certain != Some(&keys) {
            wrongs.push(format!("device {device} was subscribed to {certain:?}, the server says {keys:?}"));
        }
        wrongs
    }
}

/// One task's own things.
struct Worker {
    shared: Arc<Shared>,
    pulse: watch::Receiver<Option<Jobs>>,
    stopped: watch::Receiver<bool>,
    caller: Caller,
    rng: Xoshiro256PlusPlus,
}

impl Worker {
    fn new(shared: &Arc<Shared>, seed: u64, task: u32) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(task) << 32));
        let (pulse, stopped) = (shared.pulse.clone(), shared.stopped.clone());
        Self { shared: shared.clone(), pulse, stopped, caller: Caller::new(shared.addr, API_KEY), rng }
    }

    /// Registers the devices of this task, the late ones under load, and changes subscriptions of some.
    async fn tend_devices(mut self, task: u32) {
        let early = (f64::from(self.shared.addresses.count()) * EARLY_SHARE) as u32;
        let (early, late): (Vec<u32>, Vec<u32>) = self.shared.devices_of(task).partition(|device| *device < early);
        for device in &early {
            self.register(*device).await;
            self.subscribe_first(*device).await;
        }
        self.shared.prepared.fetch_add(1, Relaxed);
        let movers: Vec<u32> =
            early.iter().copied().filter(|device| (device / DEVICE_TASK_COUNT).is_multiple_of(MOVER_EVERY)).collect();
        let mut late = late.into_iter();
        while self.beat().await {
            if self.rng.random()
                && let Some(device) = late.next()
            {
                self.register(device).await;
                self.subscribe_first(device).await;
            } else if let Some(device) = movers.choose(&mut self.rng).copied() {
                self.change(device).await;
            }
        }
        for device in late {
            self.register(device).await;
            self.subscribe_first(device).await;
        }
    }

    /// Posts events until the load is stopped.
    async fn post_events(mut self) {
        while self.beat().await {
            let jobs = *self.pulse.borrow();
            let push = jobs.is_some_and(|jobs| jobs.running < JOB_COUNT_TARGET);
            // Connected clients get more than what is pushed.
            let silent = if push || self.rng.random() { self.rng.random_range(0..EVENTS_PER_REQUEST_MAX) } else { 0 };
            let mut events: Vec<u32> = (0..silent).map(|_| self.new_event(false)).collect();
            if push {
                let event = self.new_event(true);
                events.push(event);
            }
            if !events.is_empty() {
                self.post(&events).await;
            }
        }
    }

    /// Publishes with idempotency keys until the load is stopped.
    async fn publish_all(mut self) {
        while self.beat().await {
            self.publish().await;
        }
    }

    /// Publishes through Centrifugo's server API, under an idempotency key, until it is answered; sometimes once more.
    async fn publish(&mut self) {
        let count = self.rng.random_range(1..=CHANNELS_PER_PUBLICATION_MAX);
        let channels = rand::seq::index::sample(&mut self.rng, usize::from(CHANNEL_COUNT), count);
        let channels: Vec<u16> = channels.into_iter().map(|channel| channel as u16).collect();
        let names: Vec<String> = channels.iter().map(|channel| subject(*channel)).collect();
        let number = self.shared.world().send_publication(channels);
        let id = event_id(number);
        let body = json!({ "channels": names, "data": number, "tags": { "event": id }, "idempotency_key": id });
        let offsets = self.broadcast(&body).await;
        if self.rng.random_ratio(1, REPEAT_EVERY) {
            assert_eq!(self.broadcast(&body).await, offsets, "{id} is published again");
        }
        self.shared.world().acknowledge_publication(number, offsets);
    }

    /// The offset in each channel.
    async fn broadcast(&mut self, body: &Value) -> Vec<u64> {
        let answer = self.caller.insist(Method::POST, "/api/broadcast", Some(body)).await.json();
        let parts = answer["result"]["responses"].as_array().unwrap_or_else(|| panic!("no responses in {answer}"));
        let offset =
            |part: &Value| part["result"]["offset"].as_u64().unwrap_or_else(|| panic!("no offset in {answer}"));
        parts.iter().map(offset).collect()
    }

    /// Waits for the next beat; false when the load is to stop.
    async fn beat(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
            _ = self.pulse.changed() => true,
        }
    }

    async fn register(&mut self, device: u32) {
        self.shared.world().send_registration(device);
        let mut body = self.shared.addresses.registration(device);
        body["app"] = json!(APP);
        body["locale"] = json!(LOCALES.choose(&mut self.rng).expect("there are some"));
        self.caller.insist(Method::PUT, &format!("/v1/devices/{}", device_id(device)), Some(&body)).await;
        self.shared.world().acknowledge_registration(device);
    }

    async fn subscribe_first(&mut self, device: u32) {
        let keys = self.draw_keys();
        self.put_subscriptions(device, Method::PUT, keys.clone(), &keys).await;
    }

    /// A change of one kind or another.
    async fn change(&mut self, device: u32) {
        let latest = self.shared.world().devices[device as usize].latest();
        match self.rng.random_range(0..4) {
            0 => self.register(device).await, // Again, in another language.
            1 => {
                let keys = self.draw_keys();
                self.put_subscriptions(device, Method::PUT, keys.clone(), &keys).await;
            }
            2 => {
                let more = self.draw_keys();
                self.put_subscriptions(device, Method::POST, &latest | &more, &more).await;
            }
            _ => {
                let subjects: Vec<u16> =
                    latest.iter().map(|(subject, _)| *subject).filter(|it| *it != LEAGUE).collect();
                let Some(gone) = subjects.choose(&mut self.rng).copied() else { return };
                let keys = latest.into_iter().filter(|(subject, _)| *subject != gone).collect();
                self.shared.world().send_change(device, keys);
                let path = format!("/v1/devices/{}/subscriptions?subject={}", device_id(device), subject(gone));
                self.caller.insist(Method::DELETE, &path, None).await;
                self.shared.world().acknowledge_change(device);
            }
        }
    }

    /// `body` brings the device to `keys`.
    async fn put_subscriptions(&mut self, device: u32, method: Method, keys: BTreeSet<Key>, body: &BTreeSet<Key>) {
        self.shared.world().send_change(device, keys);
        let mut topics: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        body.iter().for_each(|(subject, topic)| topics.entry(*subject).or_default().push(TOPICS[usize::from(*topic)]));
        let list = topics.iter().map(|(number, topics)| json!({ "subject": subject(*number), "topics": topics }));
        let body = json!({ "subscriptions": list.collect::<Vec<Value>>() });
        self.caller.insist(method, &format!("/v1/devices/{}/subscriptions", device_id(device)), Some(&body)).await;
        self.shared.world().acknowledge_change(device);
    }

    /// A match and up to two teams, goals always and cards sometimes; and what all have.
    fn draw_keys(&mut self) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([(LEAGUE, FINAL)]);
        let teams = self.rng.random_range(0..3);
        let teams: Vec<u16> = (0..teams).map(|_| self.rng.random_range(CHANNEL_COUNT..LEAGUE)).collect();
        for subject in teams.into_iter().chain([self.rng.random_range(0..CHANNEL_COUNT)]) {
            keys.insert((subject, 0));
            keys.extend(self.rng.random::<bool>().then_some((subject, 1)));
        }
        keys
    }

    fn new_event(&mut self, push: bool) -> u32 {
        let mut subjects = vec![self.rng.random_range(0..CHANNEL_COUNT)];
        subjects.extend((0..self.rng.random_range(0..3)).map(|_| self.rng.random_range(CHANNEL_COUNT..SUBJECT_COUNT)));
        subjects.dedup();
        let topic = self.rng.random_range(0..FINAL);
        self.shared.world().send_event(topic, subjects, push)
    }

    async fn post(&mut self, events: &[u32]) {
        let answers = self.exchange(events).await;
        let mut world = self.shared.world();
        for (event, (answer, _)) in events.iter().zip(answers) {
            world.acknowledge_event(*event, answer);
        }
    }

    /// Posts events, one or a list; what was said of each, and whether it was known.
    async fn exchange(&mut self, events: &[u32]) -> Vec<(Acknowledged, bool)> {
        let bodies: Vec<Value> = {
            let world = self.shared.world();
            events.iter().map(|event| event_body(*event, &world)).collect()
        };
        let body = if let [one] = &*bodies { one.clone() } else { Value::Array(bodies) };
        let answer: Answer = self.caller.insist(Method::POST, "/v1/events", Some(&body)).await;
        let answers = match answer.json() {
            Value::Array(answers) => answers,
            one => vec![one],
        };
        assert_eq!(answers.len(), events.len(), "an answer for each event");
        let world = self.shared.world();
        let read = |(event, answer): (&u32, &Value)| {
            let channel = subject(world.events[*event as usize].subjects[0]);
            assert_eq!(answer["id"].as_str(), Some(&*event_id(*event)), "answers come in the order of events");
            assert_eq!(answer["channels"][0]["channel"].as_str(), Some(&*channel), "{answer}");
            let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {answer}"));
            let [position, offset] = [&answer["position"], &answer["channels"][0]["offset"]].map(number);
            (Acknowledged { position, offset }, answer["repeated"].as_bool().unwrap_or(false))
        };
        events.iter().zip(&answers).map(read).collect()
    }
}

/// The same for the same event, always.
fn event_body(event: u32, world: &World) -> Value {
    let state = &world.events[event as usize];
    let subjects: Vec<String> = state.subjects.iter().map(|number| subject(*number)).collect();
    let mut body = json!({
        "id": event_id(event),
        "topic": TOPICS[usize::from(state.topic)],
        "subjects": subjects,
        "params": { "number": event },
        "push": if state.push { "always" } else { "never" },
    });
    if event.is_multiple_of(3) {
        body["data"] = json!({ "number": event, "text": "x".repeat(event as usize % 200) });
    }
    if event.is_multiple_of(5) {
        body["channels"] = json!([subjects[0]]);
    }
    body
}

/// The highest offset of each channel.
pub(crate) fn tops(logs: &Logs) -> HashMap<String, u64> {
    let top = |log: &BTreeMap<u64, u32>| log.last_key_value().map_or(0, |(offset, _)| *offset);
    logs.iter().map(|(channel, log)| (channel.clone(), top(log))).collect()
}
