//! The traffic while processes are killed: one task posts numbered events, and one client reads them.
//!
//! The events are posted one after the other, to the server that leads. An event that is not acknowledged is posted again
//! with the same id. The client follows the leader too. After a break it resumes from the last publication that it got.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, is_ping};
use tidings_telemetry::chain;
use tidings_types::Format;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::caller::{Answer, Callers};
use super::ledger::{Ledger, Place, Verdict};
use super::stage::{CHANNEL, TOPIC};

/// How long the client waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After this long without a message, not even a ping, the client takes the connection for broken.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The pause before the client connects again.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Events that are looked up at the same time.
const LOOK_UP_COUNT: usize = 8;

/// The traffic. It ends when this is dropped.
pub(super) struct Traffic {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    poster: JoinSet<()>,
    #[expect(dead_code, reason = "ends the client when dropped")]
    client: JoinSet<()>,
}

struct Shared {
    addrs: Vec<SocketAddr>,
    key: String,
    ledger: Mutex<Ledger>,
    pace: Mutex<Pace>,
    /// Subscriptions that the client has made, one on each connection.
    connections: AtomicU32,
    /// Why posting cannot go on.
    failure: OnceLock<String>,
}

/// How regularly events are acknowledged.
struct Pace {
    last: Instant,
    /// The longest time without an acknowledgement since it was last asked for.
    longest: Duration,
}

impl Traffic {
    /// Starts the client.
    pub(super) fn start(addrs: &[SocketAddr], key: &str) -> Self {
        let shared = Arc::new(Shared {
            addrs: addrs.to_vec(),
            key: key.to_owned(),
            ledger: Mutex::default(),
            pace: Mutex::new(Pace { last: Instant::now(), longest: Duration::ZERO }),
            connections: AtomicU32::new(0),
            failure: OnceLock::new(),
        });
        let mut client = JoinSet::new();
        client.spawn(read_all(shared.clone()));
        Self { shared, stop: watch::Sender::new(false), poster: JoinSet::new(), client }
    }

    /// Starts to post events.
    pub(super) fn post(&mut self) {
        self.shared.pace().last = Instant::now();
        self.poster.spawn(post_all(self.shared.clone(), self.stop.subscribe()));
    }

    /// Lets the last event be acknowledged, and posts no more.
    pub(super) async fn stop_posting(&mut self) {
        self.stop.send_replace(true);
        while self.poster.join_next().await.is_some() {} // A panic was reported already.
    }

    /// Why posting cannot go on.
    pub(super) fn failure(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// How often the client has connected.
    pub(super) fn connections(&self) -> u32 {
        self.shared.connections.load(Relaxed)
    }

    pub(super) fn acknowledged_count(&self) -> usize {
        self.shared.ledger().acknowledged_count()
    }

    /// How many events the client has got.
    pub(super) fn got_count(&self) -> usize {
        self.shared.ledger().got_count()
    }

    /// Whether the client has got the first `count` events.
    pub(super) fn has_got(&self, count: usize) -> bool {
        self.shared.ledger().has_got(count)
    }

    /// Judges the first `count` events.
    pub(super) fn judge(&self, count: usize) -> Verdict {
        self.shared.ledger().judge(count)
    }

    /// The longest time without an acknowledgement since this was last asked for.
    pub(super) fn longest_pause(&self) -> Duration {
        let mut pace = self.shared.pace();
        let longest = pace.longest.max(pace.last.elapsed());
        pace.longest = Duration::ZERO;
        longest
    }

    /// Asks the leader for each of these events.
    pub(super) async fn look_up(&self, numbers: std::ops::Range<usize>) {
        let mut askers = JoinSet::new();
        for first in numbers.start..numbers.end.min(numbers.start + LOOK_UP_COUNT) {
            let (shared, numbers) = (self.shared.clone(), (first..numbers.end).step_by(LOOK_UP_COUNT));
            askers.spawn(async move {
                let mut callers = Callers::new(&shared.addrs, &shared.key);
                for number in numbers {
                    let path = format!("/v1/events/{}", event_id(number));
                    let answer = callers.insist(Method::GET, &path, None).await;
                    shared.ledger().look_up(number, position_of(number, &answer));
                }
            });
        }
        while askers.join_next().await.is_some() {} // A panic was reported already.
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledge(&self, place: Place) {
        self.ledger().acknowledge(place);
        let mut pace = self.pace();
        pace.longest = pace.longest.max(pace.last.elapsed());
        pace.last = Instant::now();
    }
}

fn event_id(number: usize) -> String {
    format!("event-{number}")
}

/// The position of an event that was found.
fn position_of(number: usize, answer: &Answer) -> Option<u64> {
    let is_found = answer.status == StatusCode::OK && answer.body["id"] == event_id(number);
    answer.body["position"].as_u64().filter(|_| is_found)
}

/// Posts one event after the other, until it is told to stop.
async fn post_all(shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    let mut callers = Callers::new(&shared.addrs, &shared.key);
    for number in 0.. {
        if *stop.borrow() {
            return;
        }
        let answer = callers.insist(Method::POST, "/v1/events", Some(&event(number))).await;
        match place_of(&answer) {
            Some(place) => shared.acknowledge(place),
            None => {
                let why = format!("the server answered {}: {}", answer.status, answer.body);
                let _ = shared.failure.set(why); // Only this task sets it.
                return;
            }
        }
    }
}

fn event(number: usize) -> Value {
    json!({
        "id": event_id(number),
        "topic": TOPIC,
        "subjects": [CHANNEL],
        "params": { "number": number },
        "data": { "number": number },
        "push": "never",
    })
}

/// Where an accepted event is.
fn place_of(answer: &Answer) -> Option<Place> {
    let position = answer.body["position"].as_u64()?;
    let offset = answer.body["channels"][0]["offset"].as_u64()?;
    (answer.status == StatusCode::ACCEPTED).then_some(Place { position, offset })
}

/// The client: connects again and again.
async fn read_all(shared: Arc<Shared>) {
    let mut callers = Callers::new(&shared.addrs, &shared.key);
    let mut position = None;
    loop {
        let leader = callers.find_leader().await;
        // Whatever the reason, the client connects again. What it misses for good, the verdict says.
        let _ = read(&shared, shared.addrs[leader], &mut position).await;
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
}

/// Where the client is in the channel.
struct Position {
    epoch: String,
    offset: u64,
}

/// Reads over one connection until it ends.
async fn read(shared: &Shared, addr: SocketAddr, position: &mut Option<Position>) -> Result<(), String> {
    let url = ServerUrl::of_listener(addr);
    let opened = timeout(CONNECT_TIMEOUT, Socket::open(&url, Format::Json)).await;
    let mut socket = opened.map_err(|error| chain(&error))?.map_err(|error| chain(&error))?;
    let connect = json!({ "connect": { "name": "tidings-demo" } });
    let subscribed = socket.say([connect, subscription(position.as_ref())]).await.map_err(|error| chain(&error))?;
    loop {
        let message = timeout(SILENCE_MAX, socket.next()).await.map_err(|error| chain(&error))?;
        let message = message.map_err(|error| chain(&error))?;
        if is_ping(&message) {
            socket.send(tidings_client::PONG).await.map_err(|error| chain(&error))?;
        } else if message["error"].is_object() {
            return Err(message["error"].to_string());
        } else if message["id"] == subscribed {
            on_subscribed(shared, &message["subscribe"], position);
        } else if message["push"]["pub"].is_object() {
            on_publication(shared, &message["push"]["pub"], position);
        } else if message["push"]["unsubscribe"].is_object() {
            return Err(message["push"].to_string());
        }
    }
}

fn subscription(position: Option<&Position>) -> Value {
    let mut subscribe = json!({ "channel": CHANNEL, "recoverable": true });
    if let Some(Position { epoch, offset }) = position {
        subscribe["recover"] = true.into();
        subscribe["epoch"] = epoch.as_str().into();
        subscribe["offset"] = (*offset).into();
    }
    json!({ "subscribe": subscribe })
}

fn on_subscribed(shared: &Shared, reply: &Value, position: &mut Option<Position>) {
    let is_first = position.is_none();
    let epoch = reply["epoch"].as_str().unwrap_or_default().to_owned();
    if is_first || reply["recovered"] != true {
        let offset = reply["offset"].as_u64().unwrap_or_default();
        *position = Some(Position { epoch, offset });
    }
    if !is_first && reply["recovered"] != true {
        shared.ledger().note_break();
    }
    for publication in reply["publications"].as_array().into_iter().flatten() {
        on_publication(shared, publication, position);
    }
    shared.connections.fetch_add(1, Relaxed);
}

fn on_publication(shared: &Shared, publication: &Value, position: &mut Option<Position>) {
    let offset = publication["offset"].as_u64().unwrap_or_default();
    let number = publication["data"]["number"].as_u64().and_then(|number| usize::try_from(number).ok());
    if let Some(position) = position {
        position.offset = offset;
    }
    shared.ledger().get(offset, number);
}
