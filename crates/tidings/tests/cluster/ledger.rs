//! What was posted and acknowledged, and whether the server that leads at the end has all of it, once, where it said.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, timeout};

use crate::http::Caller;
use crate::nodes::{PATIENCE, PULSE, readiness, until};
use crate::watchers::Got;

pub(crate) const CHANNEL: &str = "match:1";
const WORKER_COUNT: usize = 3;
/// Between two events of a worker.
const PACE: Duration = Duration::from_millis(20);
/// After this a worker looks for another server. What was not answered it posts again.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// What the answer to an event said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    position: u64,
    offset: u64,
}

#[derive(Default)]
struct Book {
    /// The number of the next event.
    next: u64,
    acks: BTreeMap<u64, Ack>,
    last: Option<Instant>,
    gap: Duration,
    /// When each event was posted first.
    posted: BTreeMap<u64, Instant>,
    /// For the foreign checker.
    history: Vec<Operation>,
    /// What workers were told instead of an acknowledgement.
    refusals: Vec<String>,
}

/// Something that was asked of the channel, and answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) kind: &'static str,
    pub(crate) called: Instant,
    pub(crate) returned: Instant,
    /// Of the publication; of a reader, that of the last publication.
    pub(crate) offset: u64,
}

impl Book {
    fn new_event(&mut self) -> u64 {
        self.posted.insert(self.next, Instant::now());
        self.next += 1;
        self.next - 1
    }

    fn note(&mut self, number: u64, ack: Ack) {
        let before = self.acks.insert(number, ack);
        assert!(before.is_none_or(|before| before == ack), "event {number} was {before:?}, is {ack:?}");
        if before.is_none() {
            let (called, returned) = (self.posted[&number], Instant::now());
            self.history.push(Operation { kind: "append", called, returned, offset: ack.offset });
        }
        let since = self.last.replace(Instant::now()).map_or(Duration::ZERO, |last| last.elapsed());
        self.gap = self.gap.max(since);
    }
}

/// Events that are posted until they are acknowledged.
pub(crate) struct Ledger {
    book: Arc<Mutex<Book>>,
    addrs: Vec<SocketAddr>,
    workers: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Ledger {
    pub(crate) fn new(addrs: Vec<SocketAddr>) -> Self {
        Self { book: Arc::default(), addrs, workers: JoinSet::new(), stop: watch::channel(false).0 }
    }

    /// Begins to post without an end.
    pub(crate) fn start(&mut self) {
        self.stop.send_replace(false);
        for index in 0..WORKER_COUNT {
            let (mut worker, stopped) = (self.worker_at(index % self.addrs.len()), self.stop.subscribe());
            self.workers.spawn(async move {
                while !*stopped.borrow() {
                    worker.post_next().await;
                    sleep(PACE).await;
                }
            });
        }
    }

    /// Begins to read, at whichever server is ready, without an end.
    pub(crate) fn start_to_read(&mut self) {
        let (mut worker, stopped) = (self.worker(), self.stop.subscribe());
        self.workers.spawn(async move {
            while !*stopped.borrow() {
                worker.read_last().await;
                sleep(PACE).await;
            }
        });
    }

    /// Ends that; each event that was begun is acknowledged.
    pub(crate) async fn finish(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker failed");
        }
    }

    fn worker(&self) -> Worker {
        self.worker_at(0)
    }

    /// One that begins at this server.
    fn worker_at(&self, at: usize) -> Worker {
        let (book, addrs) = (self.book.clone(), self.addrs.clone());
        Worker { caller: Caller::new(addrs[at]), book, addrs, at }
    }

    /// Posts so many, one after the other.
    pub(crate) async fn post(&self, count: usize) {
        let mut worker = self.worker();
        for _ in 0..count {
            worker.post_next().await;
        }
    }

    /// Waits until so many more are acknowledged.
    pub(crate) async fn grow(&mut self, count: usize) {
        let enough = self.len() + count;
        until("events are acknowledged", async || {
            if let Some(ended) = self.workers.try_join_next() {
                ended.expect("a worker failed");
            }
            (self.len() >= enough).then_some(())
        })
        .await;
    }

    fn len(&self) -> usize {
        lock(&self.book).acks.len()
    }

    /// The longest time without an acknowledgement, in seconds, since this was last asked.
    pub(crate) fn gap(&self) -> f64 {
        std::mem::take(&mut lock(&self.book).gap).as_secs_f64()
    }

    /// What was answered instead of an acknowledgement so far.
    pub(crate) fn refusals(&self) -> Vec<String> {
        lock(&self.book).refusals.clone()
    }

    /// Callers that are connected with this server.
    pub(crate) async fn visitors(&self, addr: SocketAddr, count: usize) -> Vec<Caller> {
        let mut callers: Vec<_> = (0..count).map(|_| Caller::new(addr)).collect();
        for caller in &mut callers {
            caller.call(Method::GET, "/ready", None).await.expect("it answers");
        }
        callers
    }

    /// Each of these posts an event, once, and waits long for the answer.
    pub(crate) fn visit(&self, callers: Vec<Caller>) -> JoinSet<(u64, Result<Ack, String>)> {
        let mut visits = JoinSet::new();
        for mut caller in callers {
            let number = lock(&self.book).new_event();
            visits.spawn(async move { (number, post(&mut caller, number).await) });
        }
        visits
    }

    /// Posts again what these have posted. What one of them was told must be confirmed. Returns how many were told something.
    pub(crate) async fn settle(&self, mut visits: JoinSet<(u64, Result<Ack, String>)>) -> usize {
        let (mut worker, mut count) = (self.worker(), 0);
        while let Some(visit) = visits.join_next().await {
            let (number, told) = visit.expect("a visitor failed");
            if let Ok(ack) = told {
                lock(&self.book).note(number, ack);
                count += 1;
            }
            worker.post_until_acknowledged(number).await; // Fails if the answer is another one.
        }
        count
    }

    /// What was asked of the channel so far.
    pub(crate) fn history(&self) -> Vec<Operation> {
        lock(&self.book).history.clone()
    }

    /// The event that was acknowledged last in the channel.
    pub(crate) fn last(&self) -> String {
        let book = lock(&self.book);
        id(*book.acks.iter().max_by_key(|(_, ack)| ack.offset).expect("one was acknowledged").0)
    }

    /// Fails if anything acknowledged is not there, once, where it was said to be. Nothing may be posted meanwhile. Returns
    /// what is in the channel.
    pub(crate) async fn judge(&self, leader: SocketAddr) -> Vec<Got> {
        let acks = lock(&self.book).acks.clone();
        let found = Found::ask(leader, acks.keys().copied()).await;
        let wrongs = check(&acks, &found);
        assert!(wrongs.is_empty(), "{} of {} events:\n{}", wrongs.len(), acks.len(), wrongs.join("\n"));
        println!("  {} events acknowledged; all are there, once", acks.len());
        found.history.into_iter().map(|(offset, id)| Got { offset, id }).collect()
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().expect("a failed worker ends the test")
}

struct Worker {
    book: Arc<Mutex<Book>>,
    addrs: Vec<SocketAddr>,
    /// Where `caller` is connected.
    at: usize,
    caller: Caller,
}

impl Worker {
    async fn post_next(&mut self) {
        let number = lock(&self.book).new_event();
        self.post_until_acknowledged(number).await;
    }

    async fn post_until_acknowledged(&mut self, number: u64) {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "event {number} is not acknowledged within {PATIENCE:?}");
            match timeout(TRY_TIMEOUT, post(&mut self.caller, number)).await {
                Ok(Ok(ack)) => return lock(&self.book).note(number, ack),
                Ok(Err(refusal)) => lock(&self.book).refusals.push(refusal),
                Err(_) => lock(&self.book).refusals.push("no answer".to_owned()),
            }
            self.go_to_a_server().await;
        }
    }

    /// Asks for the offset of the last publication. An answer that does not come in time tells nothing.
    async fn read_last(&mut self) {
        let (called, body) = (Instant::now(), json!({"channel": CHANNEL, "limit": 0}));
        let answer = timeout(TRY_TIMEOUT, self.caller.call(Method::POST, "/api/history", Some(&body))).await;
        let offset = match answer {
            Ok(Ok(answer)) if answer.status == 200 => answer.json()["result"]["offset"].as_u64(),
            _ => None,
        };
        match offset {
            Some(offset) => {
                let read = Operation { kind: "read", called, returned: Instant::now(), offset };
                lock(&self.book).history.push(read);
            }
            None => self.go_to_a_server().await,
        }
    }

    /// Looks for a server that is ready, beginning behind the one where it was. A standby is, also while nobody leads.
    async fn go_to_a_server(&mut self) {
        let (began, mut pulse) = (Instant::now(), interval_at(Instant::now() + PULSE, PULSE));
        while began.elapsed() < PATIENCE {
            pulse.tick().await;
            self.at = (self.at + 1) % self.addrs.len();
            if readiness(self.addrs[self.at]).await.is_some_and(|(status, _)| status == 200) {
                break;
            }
        }
        self.caller = Caller::new(self.addrs[self.at]);
    }
}

fn id(number: u64) -> String {
    format!("event-{number}")
}

/// One try: what it was told, or why it was told nothing.
async fn post(caller: &mut Caller, number: u64) -> Result<Ack, String> {
    let body = json!({
        "id": id(number),
        "topic": "goal",
        "subjects": [CHANNEL],
        "params": {"number": number},
        "push": "never",
    });
    let answer = caller.call(Method::POST, "/v1/events", Some(&body)).await?;
    match answer.status {
        200..300 => Ok(read(&answer.json())),
        // It may have been carried out, if a standby has passed it on.
        503 => Err(String::from_utf8_lossy(&answer.body).into_owned()),
        status => panic!("event {number}: {status} {}", String::from_utf8_lossy(&answer.body)),
    }
}

fn read(answer: &Value) -> Ack {
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {answer}"));
    assert_eq!(answer["channels"][0]["channel"].as_str(), Some(CHANNEL), "{answer}");
    Ack { position: number(&answer["position"]), offset: number(&answer["channels"][0]["offset"]) }
}

/// What the server has.
struct Found {
    /// Of each event that was asked for.
    positions: BTreeMap<u64, Option<u64>>,
    /// Offsets and ids, as the channel's history has them.
    history: Vec<(u64, String)>,
}

impl Found {
    async fn ask(leader: SocketAddr, numbers: impl Iterator<Item = u64>) -> Self {
        let (mut caller, mut positions) = (Caller::new(leader), BTreeMap::new());
        for number in numbers {
            let answer = caller.call(Method::GET, &format!("/v1/events/{}", id(number)), None).await;
            let answer = answer.unwrap_or_else(|error| panic!("event {number} cannot be asked for: {error}"));
            let position = if answer.status == 200 { answer.json()["position"].as_u64() } else { None };
            positions.insert(number, position);
        }
        let body = json!({"channel": CHANNEL, "limit": -1});
        let answer = caller.insist(Method::POST, "/api/history", Some(&body)).await.json();
        let list = answer["result"]["publications"].as_array().unwrap_or_else(|| panic!("no history in {answer}"));
        let entry = |entry: &Value| Some((entry["offset"].as_u64()?, entry["tags"]["event"].as_str()?.to_owned()));
        let entry = |one: &Value| entry(one).unwrap_or_else(|| panic!("no offset or no event in {one}"));
        Self { positions, history: list.iter().map(entry).collect() }
    }
}

/// What is wrong.
fn check(acks: &BTreeMap<u64, Ack>, found: &Found) -> Vec<String> {
    let (mut wrongs, mut taken) = (Vec::new(), HashMap::new());
    for (number, ack) in acks {
        let position = found.positions.get(number).copied().flatten();
        if position != Some(ack.position) {
            wrongs.push(format!("event {number} was acknowledged as {ack:?} and is at {position:?}"));
        }
        if let Some(other) = taken.insert(ack.position, number) {
            wrongs.push(format!("events {other} and {number} have one position, {}", ack.position));
        }
    }
    let mut expected: BTreeMap<u64, String> = BTreeMap::new();
    for (number, ack) in acks {
        if let Some(other) = expected.insert(ack.offset, id(*number)) {
            wrongs.push(format!("{other} and event {number} have one offset, {}", ack.offset));
        }
    }
    for ((place, entry), wanted) in (1..).zip(&found.history).zip(expected) {
        if entry.0 != place || *entry != wanted {
            wrongs.push(format!("place {place} of the channel has {entry:?}, not {wanted:?}"));
        }
    }
    if found.history.len() != acks.len() {
        wrongs.push(format!("{} in the channel, {} acknowledged", found.history.len(), acks.len()));
    }
    wrongs
}

#[test]
fn the_ledger_of_a_cluster_finds_what_is_wrong() {
    let ack = |position, offset| Ack { position, offset };
    let found = |positions: [u64; 3], offsets: &[u64]| Found {
        positions: (0..).zip(positions.map(Some)).collect(),
        history: offsets.iter().map(|offset| (*offset, id(offset - 1))).collect(),
    };
    let acks = BTreeMap::from([(0, ack(7, 1)), (1, ack(8, 2)), (2, ack(9, 3))]);
    assert_eq!(check(&acks, &found([7, 8, 9], &[1, 2, 3])), [""; 0]);
    let lost =
        Found { positions: BTreeMap::from([(0, Some(7)), (1, None), (2, Some(9))]), ..found([0; 3], &[1, 2, 3]) };
    let twice = BTreeMap::from([(0, ack(7, 1)), (1, ack(7, 2)), (2, ack(9, 3))]);
    for (what, acks, found) in [
        ("lost", &acks, lost),
        ("moved", &acks, found([7, 8, 10], &[1, 2, 3])),
        ("two in one place", &twice, found([7, 7, 9], &[1, 2, 3])),
        ("a gap", &acks, found([7, 8, 9], &[1, 3])),
        ("twice in the channel", &acks, found([7, 8, 9], &[1, 2, 2])),
        ("not in the channel", &acks, found([7, 8, 9], &[1, 2])),
        ("too many in the channel", &acks, found([7, 8, 9], &[1, 2, 3, 4])),
    ] {
        assert!(!check(acks, &found).is_empty(), "{what}");
    }
}
