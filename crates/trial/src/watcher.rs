//! Clients that stay: each follows channels at one server, keeps what it got, and recovers when it comes back.
//!
//! What must hold of every client at any time is checked when a message comes ([`Seen::wrongs`]). What it got altogether is
//! for the judges.

mod seen;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, SocketError};
use tidings_types::Format;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::seen::{End, Read, Seen};
use crate::judge::{self, Got};
use crate::token;
use crate::wait::PATIENCE;

/// Where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two tries.
const PULSE: Duration = Duration::from_millis(20);
/// Orders that wait for a client.
const ORDER_COUNT_MAX: usize = 16;

/// A client.
#[derive(Debug)]
pub struct Watcher {
    /// For messages of the test.
    name: String,
    seen: watch::Receiver<Seen>,
    orders: mpsc::Sender<Order>,
    #[expect(dead_code, reason = "ends with the client")]
    task: JoinSet<()>,
}

/// Who it is, and what it does.
#[derive(Debug, Clone)]
pub struct Plan {
    user: String,
    /// What its token is signed with. Without one it is anonymous.
    secret: Option<String>,
    device: Option<String>,
    channels: Vec<&'static str>,
    /// Where it connects: one after the other. Without a second one it comes back to the first.
    addrs: Vec<SocketAddr>,
    returns: bool,
    /// Connecting and subscribing may take so long; then the next server is tried.
    connect_timeout: Duration,
}

impl Plan {
    /// It is anonymous, follows these channels, and does not come back when its connection ends.
    pub fn new(user: &str, channels: &[&'static str], addr: SocketAddr) -> Self {
        Self {
            user: user.to_owned(),
            secret: None,
            device: None,
            channels: channels.to_vec(),
            addrs: vec![addr],
            returns: false,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// A token that is signed with `secret` says which user it is.
    #[must_use]
    pub fn with_token(self, secret: &str) -> Self {
        Self { secret: Some(secret.to_owned()), ..self }
    }

    /// It comes back: to one of these servers, beginning with the first.
    #[must_use]
    pub fn returning(self, addrs: &[SocketAddr]) -> Self {
        Self { addrs: [&self.addrs, addrs].concat(), returns: true, ..self }
    }

    /// It runs on this device, and is on its screen. Only a token proves that.
    #[must_use]
    pub fn on_device(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    /// Connecting and subscribing, with what was missed, may take so long.
    #[must_use]
    pub fn patient(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The command that connects.
    fn introduction(&self) -> Value {
        let mut introduction = json!({});
        if let Some(secret) = &self.secret {
            let mut claims = json!({ "sub": self.user });
            if let Some(device) = &self.device {
                claims["device"] = json!(device);
            }
            introduction["token"] = json!(token::sign(secret, &claims));
        }
        if self.device.is_some() {
            introduction["data"] = json!({ "tidings": { "visible": true } });
        }
        introduction
    }
}

#[derive(Debug)]
enum Order {
    Move(SocketAddr),
    Ask(Value, oneshot::Sender<Value>),
}

impl Watcher {
    /// Connects, and returns when it follows its channels.
    pub async fn start(plan: Plan) -> Self {
        let (seen, told) = watch::channel(Seen::default());
        let (orders, ordered) = mpsc::channel(ORDER_COUNT_MAX);
        let name = format!("{} at {}", plan.user, plan.addrs[0]);
        let mut task = JoinSet::new();
        task.spawn(Client { at: plan.addrs[0], next: 1, plan, seen, ordered }.run());
        let watcher = Self { name, seen: told, orders, task };
        watcher.until("connects", |seen| seen.lives > 0).await;
        watcher
    }

    /// Connects once, and returns how that was refused, or how it ended.
    pub async fn try_once(plan: Plan) -> End {
        let (seen, told) = watch::channel(Seen::default());
        let (_orders, ordered) = mpsc::channel(ORDER_COUNT_MAX);
        Client { at: plan.addrs[0], next: 1, plan, seen, ordered }.run().await;
        told.borrow().ends[0].clone()
    }

    /// Waits until it has seen this.
    pub async fn until(&self, what: &str, is_so: impl FnMut(&Seen) -> bool) {
        let mut seen = self.seen.clone();
        let waited = timeout(PATIENCE, seen.wait_for(is_so)).await;
        if !matches!(waited, Ok(Ok(_))) {
            let seen = self.seen.borrow();
            let reads = seen.channels.iter().map(|(name, read)| (name, read.offset, read.got.len(), &read.recovered));
            let reads: Vec<_> = reads.collect();
            panic!(
                "{} does not come to this: {what}; {} lives, {:?}, {reads:?}, {:?}",
                self.name, seen.lives, seen.ends, seen.wrongs
            );
        }
    }

    /// Waits until it has this publication.
    pub async fn until_it_has(&self, channel: &str, id: &str) {
        let what = format!("has {id} of {channel}");
        self.until(&what, |seen| seen.channels[channel].got.iter().rev().any(|got| got.id == id)).await;
    }

    /// Leaves without a word, connects there at once, and returns when it follows its channels again.
    pub async fn move_to(&self, addr: SocketAddr) {
        let before = self.look(|seen| seen.lives);
        assert!(self.orders.send(Order::Move(addr)).await.is_ok(), "{} has ended", self.name);
        self.until("moves", |seen| seen.lives > before).await;
    }

    /// What the server answers to this command.
    pub async fn ask(&self, command: Value) -> Value {
        let (answer, answered) = oneshot::channel();
        assert!(self.orders.send(Order::Ask(command.clone(), answer)).await.is_ok(), "{} has ended", self.name);
        let answered = timeout(PATIENCE, answered).await.ok().and_then(Result::ok);
        answered.unwrap_or_else(|| panic!("{} gets no answer to {command}", self.name))
    }

    /// Looks at what it has seen so far.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    /// How its connections ended.
    pub fn ends(&self) -> Vec<End> {
        self.look(|seen| seen.ends.clone())
    }

    /// What it got of a channel.
    pub fn got(&self, channel: &str) -> Vec<Got> {
        self.look(|seen| seen.channels[channel].got.clone())
    }

    /// Fails if it saw something that may not be.
    pub fn check(&self) {
        let wrongs = self.look(|seen| seen.wrongs.clone());
        assert!(wrongs.is_empty(), "{}: {}", self.name, wrongs.join("\n"));
    }

    /// Fails unless it got everything of a channel that was published after it had come, once and in order.
    pub async fn must_have(&self, channel: &str, history: &[Got]) {
        let last = history.last().expect("something was published");
        self.until_it_has(channel, &last.id).await;
        self.check();
        let wrongs = judge::copy(history, &self.got(channel));
        assert!(wrongs.is_empty(), "{} of {channel}: {}", self.name, wrongs.join("\n"));
    }
}

struct Client {
    plan: Plan,
    at: SocketAddr,
    /// Which address of the plan is next.
    next: usize,
    seen: watch::Sender<Seen>,
    ordered: mpsc::Receiver<Order>,
}

impl Client {
    async fn run(mut self) {
        loop {
            let end = self.live().await.unwrap_or_else(|end| end);
            let has_left = end == End::Left;
            let was_there = matches!(end, End::Closed(_) | End::Broken | End::Left);
            self.seen.send_modify(|seen| seen.ends.push(end));
            if has_left {
                continue;
            }
            if !self.plan.returns {
                return;
            }
            if self.plan.addrs.len() > 1 {
                self.at = self.plan.addrs[self.next % self.plan.addrs.len()];
                self.next += 1;
            }
            if !was_there {
                sleep(PULSE).await;
            }
        }
    }

    /// One connection, to its end.
    async fn live(&mut self) -> Result<End, End> {
        let connected = timeout(self.plan.connect_timeout, self.connect()).await;
        let mut socket = connected.map_err(|_| End::Broken)??;
        self.seen.send_modify(|seen| seen.lives += 1);
        let mut asked: BTreeMap<u64, oneshot::Sender<Value>> = BTreeMap::new();
        loop {
            let order = tokio::select! {
                message = socket.message() => {
                    let message = message.map_err(|error| end(&error))?;
                    match message["id"].as_u64().and_then(|id| asked.remove(&id)) {
                        Some(answer) => drop(answer.send(message)),
                        None => self.seen.send_modify(|seen| seen.take(&message)),
                    }
                    continue;
                }
                order = self.ordered.recv() => order,
            };
            match order {
                None => return Ok(End::Left),
                Some(Order::Move(addr)) => {
                    self.at = addr;
                    return Ok(End::Left);
                }
                Some(Order::Ask(command, answer)) => {
                    let id = socket.say([command]).await.map_err(|error| end(&error))?;
                    asked.insert(id, answer);
                }
            }
        }
    }

    /// Connects, and subscribes to its channels where it was.
    async fn connect(&mut self) -> Result<Socket, End> {
        let socket = Socket::open(&ServerUrl::of_listener(self.at), Format::Json).await;
        let mut socket = socket.map_err(|error| end(&error))?;
        let id = socket.say([json!({ "connect": self.plan.introduction() })]).await.map_err(|error| end(&error))?;
        let answer = socket.reply(id).await.map_err(|error| end(&error))?;
        refused(&answer)?;
        for channel in &self.plan.channels {
            let mut command = json!({ "channel": channel });
            if let Some(read) = self.seen.borrow().channels.get(*channel) {
                command["recover"] = json!(true);
                command["epoch"] = json!(read.epoch);
                command["offset"] = json!(read.offset);
            }
            let id = socket.say([json!({ "subscribe": command })]).await.map_err(|error| end(&error))?;
            // What comes before the answer is of another channel.
            loop {
                let message = socket.message().await.map_err(|error| end(&error))?;
                if message["id"] == id {
                    refused(&message)?;
                    self.seen.send_modify(|seen| seen.subscribe(channel, &message["subscribe"]));
                    break;
                }
                self.seen.send_modify(|seen| seen.take(&message));
            }
        }
        Ok(socket)
    }
}

fn refused(answer: &Value) -> Result<(), End> {
    answer["error"]["code"].as_u64().map_or(Ok(()), |code| Err(End::Error(code)))
}

fn end(error: &SocketError) -> End {
    match error {
        SocketError::Closed { code, .. } => End::Closed(*code),
        SocketError::Refused(status) => End::Refused(status.as_u16()),
        _ => End::Broken,
    }
}
