//! The traffic while processes are killed: one task posts numbered events, and three clients read them.
//!
//! The events are posted one after the other, to all servers in turn. An event that is not acknowledged is posted again
//! with the same id, to the next server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tidings_trial::caller::Answer;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::caller::Callers;
use super::client::Client;
use super::ledger::{Place, Verdict};
use super::report::Tally;
use super::shared::{Shared, Whereabouts};
use super::stage::{CHANNEL, NODE_COUNT, TOPIC, node_name};

/// Events that are looked up at the same time.
const LOOK_UP_COUNT: usize = 8;

/// The traffic. It ends when this is dropped.
pub(super) struct Traffic {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    poster: JoinSet<()>,
    #[expect(dead_code, reason = "ends the clients when dropped")]
    clients: JoinSet<()>,
}

impl Traffic {
    /// Starts the clients.
    pub(super) fn start(addrs: &[SocketAddr], key: &str) -> Self {
        let shared = Arc::new(Shared::new(addrs, key));
        let mut clients = JoinSet::new();
        for index in 0..NODE_COUNT {
            clients.spawn(Client::new(shared.clone(), index).run());
        }
        Self { shared, stop: watch::Sender::new(false), poster: JoinSet::new(), clients }
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

    /// Where each client is.
    pub(super) fn whereabouts(&self) -> [Whereabouts; NODE_COUNT] {
        *self.shared.whereabouts()
    }

    pub(super) fn acknowledged_count(&self) -> usize {
        self.shared.ledger().acknowledged_count()
    }

    /// Everything that is counted.
    pub(super) fn tally(&self) -> Tally {
        let ledger = self.shared.ledger();
        Tally {
            events: ledger.acknowledged_count(),
            taken: ledger.taken(),
            got: ledger.got_counts(),
            connections: self.whereabouts().map(|client| client.connections),
        }
    }

    /// Whether each client has got the first `count` events.
    pub(super) fn have_got(&self, count: usize) -> bool {
        self.shared.ledger().have_got(count)
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

    /// Asks for each of these events. Whichever server is asked, the leader answers.
    pub(super) async fn look_up(&self, numbers: std::ops::Range<usize>) {
        let mut askers = JoinSet::new();
        for first in numbers.start..numbers.end.min(numbers.start + LOOK_UP_COUNT) {
            let (shared, numbers) = (self.shared.clone(), (first..numbers.end).step_by(LOOK_UP_COUNT));
            askers.spawn(async move {
                let mut callers = Callers::new(&shared.addrs, &shared.key);
                for number in numbers {
                    let path = format!("/v1/events/{}", event_id(number));
                    let (_, answer) = callers.insist(Method::GET, &path, None).await;
                    shared.ledger().look_up(number, position_of(number, &answer));
                }
            });
        }
        while askers.join_next().await.is_some() {} // A panic was reported already.
    }
}

fn event_id(number: usize) -> String {
    format!("event-{number}")
}

/// The position of an event that was found.
fn position_of(number: usize, answer: &Answer) -> Option<u64> {
    let told = answer.value();
    let is_found = answer.status == 200 && told["id"] == event_id(number);
    told["position"].as_u64().filter(|_| is_found)
}

/// Posts one event after the other, until it is told to stop.
async fn post_all(shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    let mut callers = Callers::new(&shared.addrs, &shared.key);
    for number in 0.. {
        if *stop.borrow() {
            return;
        }
        let (server, answer) = callers.insist(Method::POST, "/v1/events", Some(&event(number))).await;
        match place_of(&answer) {
            Some(place) => shared.acknowledge(server, place),
            None => {
                let why = format!("server {} answered {}: {}", node_name(server), answer.status, answer.text());
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
    let told = answer.value();
    let position = told["position"].as_u64()?;
    let offset = told["channels"][0]["offset"].as_u64()?;
    (answer.status == 202).then_some(Place { position, offset })
}
