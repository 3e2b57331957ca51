//! Events that are posted until they are acknowledged, at whichever server is ready, and whether the server that leads at the end
//! has all of them, once, where it said.
//!
//! The servers need a topic `goal`, and the channel must be durable and keep everything. A ledger keeps all that was
//! acknowledged: some 200 bytes an event.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep, timeout};

use crate::caller::{Caller, readiness};
use crate::judge::{self, Ack, Got};
use crate::wait::{PATIENCE, until};

const WORKER_COUNT: usize = 3;
/// Between two events of a worker where nothing else is said.
const PACE: Duration = Duration::from_millis(20);
/// Between two looks for a server that is ready.
const PULSE: Duration = Duration::from_millis(20);
/// After this a worker looks for another server. What was not answered it posts again.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Book {
    /// The number of the next event.
    next: u64,
    acks: BTreeMap<u64, Ack>,
    last: Option<Instant>,
    gap: Duration,
    /// When each event was posted first.
    posted: BTreeMap<u64, Instant>,
    history: Vec<Operation>,
    /// What workers were told instead of an acknowledgement.
    refusals: Vec<String>,
}

/// Something that was asked of the channel, and answered: for a checker of linearizability.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// `append` or `read`.
    pub kind: &'static str,
    /// When it was asked.
    pub called: Instant,
    /// When it was answered.
    pub returned: Instant,
    /// Of the publication; of a reader, that of the last publication.
    pub offset: u64,
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

/// Where events go.
#[derive(Debug)]
struct Target {
    channel: String,
    key: String,
    addrs: Vec<SocketAddr>,
}

/// Events that are posted until they are acknowledged.
#[derive(Debug)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
    target: Arc<Target>,
    /// Between two events of each of three workers.
    pub pace: Duration,
    workers: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Ledger {
    /// For events into this channel, at these servers, with this API key. Nothing is posted yet.
    pub fn new(channel: &str, key: &str, addrs: Vec<SocketAddr>) -> Self {
        let target = Target { channel: channel.to_owned(), key: key.to_owned(), addrs };
        let stop = watch::Sender::new(false);
        Self { book: Arc::default(), target: Arc::new(target), pace: PACE, workers: JoinSet::new(), stop }
    }

    /// Begins to post without an end.
    pub fn start(&mut self) {
        self.stop.send_replace(false);
        for index in 0..WORKER_COUNT {
            let (mut worker, stopped) = (self.worker_at(index % self.target.addrs.len()), self.stop.subscribe());
            let pace = self.pace;
            self.workers.spawn(async move {
                while !*stopped.borrow() {
                    worker.post_next().await;
                    sleep(pace).await;
                }
            });
        }
    }

    /// Begins to read, at whichever server is ready, without an end.
    pub fn start_to_read(&mut self) {
        let (mut worker, stopped, pace) = (self.worker_at(0), self.stop.subscribe(), self.pace);
        self.workers.spawn(async move {
            while !*stopped.borrow() {
                worker.read_last().await;
                sleep(pace).await;
            }
        });
    }

    /// Ends that; each event that was begun is acknowledged.
    pub async fn finish(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker failed");
        }
    }

    /// One that begins at this server.
    fn worker_at(&self, at: usize) -> Worker {
        let (book, target) = (self.book.clone(), self.target.clone());
        Worker { caller: Caller::new(target.addrs[at], &target.key), book, target, at }
    }

    /// Posts so many, one after the other.
    pub async fn post(&self, count: usize) {
        let mut worker = self.worker_at(0);
        for _ in 0..count {
            worker.post_next().await;
        }
    }

    /// Waits until so many more are acknowledged.
    pub async fn grow(&mut self, count: usize) {
        let enough = self.count() + count;
        until("events are acknowledged", async || {
            if let Some(ended) = self.workers.try_join_next() {
                ended.expect("a worker failed");
            }
            (self.count() >= enough).then_some(())
        })
        .await;
    }

    /// How many are acknowledged.
    pub fn count(&self) -> usize {
        lock(&self.book).acks.len()
    }

    /// The longest time without an acknowledgement, in seconds, since this was last asked.
    pub fn gap(&self) -> f64 {
        std::mem::take(&mut lock(&self.book).gap).as_secs_f64()
    }

    /// What was answered instead of an acknowledgement so far.
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.book).refusals.clone()
    }

    /// Callers that are connected with this server.
    pub async fn visitors(&self, addr: SocketAddr, count: usize) -> Vec<Caller> {
        let mut callers: Vec<_> = (0..count).map(|_| Caller::new(addr, &self.target.key)).collect();
        for caller in &mut callers {
            caller.call(Method::GET, "/ready", None).await.expect("it answers");
        }
        callers
    }

    /// Each of these posts an event, once, and waits long for the answer.
    pub fn visit(&self, callers: Vec<Caller>) -> JoinSet<(u64, Result<Ack, String>)> {
        let mut visits = JoinSet::new();
        for mut caller in callers {
            let (number, target) = (lock(&self.book).new_event(), self.target.clone());
            visits.spawn(async move { (number, target.post(&mut caller, number).await) });
        }
        visits
    }

    /// Posts again what these have posted. What one of them was told must be confirmed. Returns how many were told something.
    pub async fn settle(&self, mut visits: JoinSet<(u64, Result<Ack, String>)>) -> usize {
        let (mut worker, mut count) = (self.worker_at(0), 0);
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
    pub fn history(&self) -> Vec<Operation> {
        lock(&self.book).history.clone()
    }

    /// What was acknowledged so far, by id.
    pub fn acks(&self) -> BTreeMap<String, Ack> {
        lock(&self.book).acks.iter().map(|(number, ack)| (id(*number), *ack)).collect()
    }

    /// The event that was acknowledged last in the channel.
    pub fn last(&self) -> String {
        let book = lock(&self.book);
        id(*book.acks.iter().max_by_key(|(_, ack)| ack.offset).expect("one was acknowledged").0)
    }

    /// Fails if anything acknowledged is not there, once, where it was said to be. Nothing may be posted meanwhile. Returns
    /// what is in the channel.
    #[expect(clippy::print_stdout, reason = "belongs to the report of a campaign")]
    pub async fn judge(&self, leader: SocketAddr) -> Vec<Got> {
        let acks = self.acks();
        let (positions, history) = self.target.ask(leader, acks.keys()).await;
        let wrongs = check(&acks, &positions, &history);
        assert!(wrongs.is_empty(), "{} of {} events:\n{}", wrongs.len(), acks.len(), wrongs.join("\n"));
        println!("  {} events acknowledged; all are there, once", acks.len());
        history
    }
}

/// Everything acknowledged is at its position and in the channel, which has nothing else and no gap.
fn check(acks: &BTreeMap<String, Ack>, positions: &BTreeMap<String, Option<u64>>, history: &[Got]) -> Vec<String> {
    let offsets: BTreeMap<String, u64> = acks.iter().map(|(id, ack)| (id.clone(), ack.offset)).collect();
    let judgements = [
        judge::positions(acks, positions),
        judge::dense(0, history),
        judge::reader(&offsets, &BTreeSet::new(), history),
        judge::complete(&offsets, 0, history),
    ];
    judgements.concat()
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().expect("a failed worker ends the test")
}

struct Worker {
    book: Arc<Mutex<Book>>,
    target: Arc<Target>,
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
            match timeout(TRY_TIMEOUT, self.target.post(&mut self.caller, number)).await {
                Ok(Ok(ack)) => return lock(&self.book).note(number, ack),
                Ok(Err(refusal)) => lock(&self.book).refusals.push(refusal),
                Err(_) => lock(&self.book).refusals.push("no answer".to_owned()),
            }
            self.go_to_a_server().await;
        }
    }

    /// Asks for the offset of the last publication. An answer that does not come in time tells nothing.
    async fn read_last(&mut self) {
        let (called, body) = (Instant::now(), json!({"channel": self.target.channel, "limit": 0}));
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
            self.at = (self.at + 1) % self.target.addrs.len();
            if readiness(self.target.addrs[self.at]).await.is_some_and(|ready| ready.is_ready()) {
                break;
            }
        }
        self.caller = Caller::new(self.target.addrs[self.at], &self.target.key);
    }
}

fn id(number: u64) -> String {
    format!("event-{number}")
}

impl Target {
    /// One try: what it was told, or why it was told nothing.
    async fn post(&self, caller: &mut Caller, number: u64) -> Result<Ack, String> {
        let body = json!({
            "id": id(number),
            "topic": "goal",
            "subjects": [self.channel],
            "params": {"number": number},
            "push": "never",
        });
        let answer = caller.call(Method::POST, "/v1/events", Some(&body)).await?;
        match answer.status {
            200..300 => Ok(self.read(&answer.json())),
            // It may have been carried out, if a standby has passed it on.
            503 => Err(answer.text()),
            status => panic!("event {number}: {status} {}", answer.text()),
        }
    }

    fn read(&self, answer: &Value) -> Ack {
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {answer}"));
        assert_eq!(answer["channels"][0]["channel"].as_str(), Some(&*self.channel), "{answer}");
        Ack { position: number(&answer["position"]), offset: number(&answer["channels"][0]["offset"]) }
    }

    /// What this server has: the positions of these events, and the history of the channel.
    async fn ask(
        &self,
        leader: SocketAddr,
        ids: impl Iterator<Item = &String>,
    ) -> (BTreeMap<String, Option<u64>>, Vec<Got>) {
        let (mut caller, mut positions) = (Caller::new(leader, &self.key), BTreeMap::new());
        for id in ids {
            let answer = caller.call(Method::GET, &format!("/v1/events/{id}"), None).await;
            let answer = answer.unwrap_or_else(|error| panic!("{id} cannot be asked for: {error}"));
            let position = if answer.status == 200 { answer.json()["position"].as_u64() } else { None };
            positions.insert(id.clone(), position);
        }
        let body = json!({"channel": self.channel, "limit": -1});
        let answer = caller.insist(Method::POST, "/api/history", Some(&body)).await.json();
        let list = answer["result"]["publications"].as_array().unwrap_or_else(|| panic!("no history in {answer}"));
        (positions, list.iter().map(Got::read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_asks_all_judges() {
        let ack = |position, offset| Ack { position, offset };
        let acks = BTreeMap::from([(id(0), ack(7, 1)), (id(1), ack(8, 2)), (id(2), ack(9, 3))]);
        let at = |positions: [u64; 3]| (0..).map(id).zip(positions.map(Some)).collect::<BTreeMap<_, _>>();
        let history = |offsets: &[u64]| -> Vec<Got> {
            offsets.iter().map(|offset| Got { offset: *offset, id: id(offset - 1) }).collect()
        };
        assert_eq!(check(&acks, &at([7, 8, 9]), &history(&[1, 2, 3])), [""; 0]);
        for (what, positions, offsets) in [
            ("moved", at([7, 8, 10]), vec![1, 2, 3]),
            ("a gap", at([7, 8, 9]), vec![1, 3]),
            ("twice in the channel", at([7, 8, 9]), vec![1, 2, 2]),
            ("not in the channel", at([7, 8, 9]), vec![1, 2]),
            ("too many in the channel", at([7, 8, 9]), vec![1, 2, 3, 4]),
        ] {
            assert!(!check(&acks, &positions, &history(&offsets)).is_empty(), "{what}");
        }
    }

    #[test]
    fn another_acknowledgement_of_the_same_event_is_a_failure_and_a_gap_is_measured() {
        let mut book = Book::default();
        let (number, ack) = (book.new_event(), Ack { position: 1, offset: 1 });
        book.note(number, ack);
        book.note(number, ack);
        assert_eq!((book.history.len(), book.acks.len()), (1, 1));
        assert!(book.gap > Duration::ZERO);
        let other = std::panic::catch_unwind(move || book.note(number, Ack { position: 2, offset: 1 }));
        assert!(other.is_err());
    }
}
