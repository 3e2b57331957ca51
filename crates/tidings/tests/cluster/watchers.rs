//! Clients that stay: each follows channels at one server, keeps what it got, and recovers when it comes back.
//!
//! What must hold of every client at any time is checked when a message comes (`Seen::wrongs`): the offsets of a channel have
//! no gap and no repetition, except where the server says that it recovered nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket, SocketError};
use tidings_types::Format;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::TOKEN_SECRET;
use crate::nodes::{PATIENCE, PULSE};

/// Connecting and subscribing may take so long; then the next server is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Orders that wait for a client.
const ORDER_COUNT_MAX: usize = 16;

/// A client.
pub(crate) struct Watcher {
    /// For messages of the test.
    name: String,
    seen: watch::Receiver<Seen>,
    orders: mpsc::Sender<Order>,
    #[expect(dead_code, reason = "ends with the client")]
    task: JoinSet<()>,
}

/// Who it is, and what it does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) user: String,
    /// It runs on this device, and is on its screen.
    pub(crate) device: Option<String>,
    pub(crate) channels: Vec<&'static str>,
    /// Where it connects: one after the other. Without a second one it comes back to the first.
    pub(crate) addrs: Vec<SocketAddr>,
    /// Whether it connects again when its connection ends.
    pub(crate) returns: bool,
}

impl Plan {
    pub(crate) fn new(user: &str, channels: &[&'static str], addr: SocketAddr) -> Self {
        let (user, channels) = (user.to_owned(), channels.to_vec());
        Self { user, device: None, channels, addrs: vec![addr], returns: false }
    }

    /// It comes back: to one of these servers, beginning with the first.
    pub(crate) fn returning(self, addrs: &[SocketAddr]) -> Self {
        Self { addrs: [&self.addrs, addrs].concat(), returns: true, ..self }
    }

    pub(crate) fn on_device(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }
}

/// What a client has seen so far, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How often it was connected and subscribed to all its channels.
    pub(crate) lives: usize,
    /// How each of its connections ended, also those that were refused.
    pub(crate) ends: Vec<End>,
    pub(crate) channels: BTreeMap<String, Read>,
    /// Who came and went: the channel, "join" or "leave", and the user.
    pub(crate) company: Vec<(String, &'static str, String)>,
    /// Channels to which the server has subscribed it, and from which it has taken it.
    pub(crate) told: Vec<(String, &'static str)>,
    pub(crate) wrongs: Vec<String>,
}

/// What it has of a channel.
#[derive(Debug, Default)]
pub(crate) struct Read {
    epoch: String,
    /// The last offset that it has.
    pub(crate) offset: u64,
    pub(crate) got: Vec<Got>,
    /// Whether it missed nothing, each time that it came back.
    pub(crate) recovered: Vec<bool>,
}

/// A publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    /// 0 where there is none.
    pub(crate) offset: u64,
    pub(crate) id: String,
}

impl Got {
    pub(crate) fn read(publication: &Value) -> Self {
        let id = publication["tags"]["event"].as_str().or_else(|| publication["data"]["id"].as_str());
        let id = id.unwrap_or_else(|| panic!("a publication of nobody: {publication}")).to_owned();
        Self { offset: publication["offset"].as_u64().unwrap_or_default(), id }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The server closed it, with this code.
    Closed(u16),
    /// It was refused, by this status of HTTP.
    Refused(u16),
    /// A command was refused with this error.
    Error(u64),
    /// It broke off, or the connection was not made in time.
    Broken,
    /// The client left, because the test wanted it.
    Left,
}

enum Order {
    Move(SocketAddr),
    Ask(Value, oneshot::Sender<Value>),
}

impl Watcher {
    /// Connects, and returns when it follows its channels.
    pub(crate) async fn start(plan: Plan) -> Self {
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
    pub(crate) async fn try_once(plan: Plan) -> End {
        let (seen, told) = watch::channel(Seen::default());
        let (_orders, ordered) = mpsc::channel(ORDER_COUNT_MAX);
        Client { at: plan.addrs[0], next: 1, plan, seen, ordered }.run().await;
        told.borrow().ends[0].clone()
    }

    /// Waits until it has seen this.
    pub(crate) async fn until(&self, what: &str, is_so: impl FnMut(&Seen) -> bool) {
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
    pub(crate) async fn until_it_has(&self, channel: &str, id: &str) {
        let what = format!("has {id} of {channel}");
        self.until(&what, |seen| seen.channels[channel].got.iter().rev().any(|got| got.id == id)).await;
    }

    /// Leaves without a word, connects there at once, and returns when it follows its channels again.
    pub(crate) async fn move_to(&self, addr: SocketAddr) {
        let before = self.look(|seen| seen.lives);
        assert!(self.orders.send(Order::Move(addr)).await.is_ok(), "{} has ended", self.name);
        self.until("moves", |seen| seen.lives > before).await;
    }

    /// What the server answers to this command.
    pub(crate) async fn ask(&self, command: Value) -> Value {
        let (answer, answered) = oneshot::channel();
        assert!(self.orders.send(Order::Ask(command.clone(), answer)).await.is_ok(), "{} has ended", self.name);
        let answered = timeout(PATIENCE, answered).await.ok().and_then(Result::ok);
        answered.unwrap_or_else(|| panic!("{} gets no answer to {command}", self.name))
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    pub(crate) fn ends(&self) -> Vec<End> {
        self.look(|seen| seen.ends.clone())
    }

    pub(crate) fn got(&self, channel: &str) -> Vec<Got> {
        self.look(|seen| seen.channels[channel].got.clone())
    }

    /// Fails if it saw something that may not be.
    pub(crate) fn check(&self) {
        let wrongs = self.look(|seen| seen.wrongs.clone());
        assert!(wrongs.is_empty(), "{}: {}", self.name, wrongs.join("\n"));
    }

    /// Fails unless it got everything of a channel that was published after it had come, once and in order.
    pub(crate) async fn must_have(&self, channel: &str, history: &[Got]) {
        let last = history.last().expect("something was published");
        self.until_it_has(channel, &last.id).await;
        self.check();
        let got = self.got(channel);
        let first = got.first().expect("it has the last one").offset;
        let wanted = history.iter().skip_while(|one| one.offset < first);
        assert!(wanted.eq(&got), "{} has of {channel}\n{got:?}, not\n{history:?}", self.name);
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
        let mut socket = timeout(CONNECT_TIMEOUT, self.connect()).await.map_err(|_| End::Broken)??;
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
        let mut command = json!({ "token": token(&self.plan) });
        if self.plan.device.is_some() {
            command["data"] = json!({ "tidings": { "visible": true } });
        }
        let id = socket.say([json!({ "connect": command })]).await.map_err(|error| end(&error))?;
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

impl Seen {
    /// The life of a channel in which it is.
    pub(crate) fn epoch(&self, channel: &str) -> String {
        self.channels[channel].epoch.clone()
    }

    fn take(&mut self, message: &Value) {
        let push = &message["push"];
        let Some(channel) = push["channel"].as_str() else { return };
        if push["pub"].is_object() {
            self.take_publication(channel, &push["pub"]);
        }
        for kind in ["join", "leave"] {
            if let Some(user) = push[kind]["info"]["user"].as_str() {
                self.company.push((channel.to_owned(), kind, user.to_owned()));
            }
        }
        for kind in ["subscribe", "unsubscribe"] {
            if push[kind].is_object() {
                self.told.push((channel.to_owned(), kind));
            }
        }
    }

    /// The answer to a subscription: from where on it gets what is published. The answer's offset is that before the
    /// publications in it.
    fn subscribe(&mut self, channel: &str, answer: &Value) {
        let is_first = !self.channels.contains_key(channel);
        let read = self.channels.entry(channel.to_owned()).or_default();
        let has_all = is_first || answer["recovered"] == true;
        let epoch = answer["epoch"].as_str().unwrap_or_default();
        if !is_first {
            read.recovered.push(has_all);
        }
        if answer["recoverable"] == true {
            let offset = answer["offset"].as_u64().unwrap_or_default();
            if !is_first && has_all && (&*read.epoch, read.offset) != (epoch, offset) {
                let wrong = format!("{channel} is recovered from {} {} on: {answer}", read.epoch, read.offset);
                self.wrongs.push(wrong);
            }
            read.offset = offset;
        }
        epoch.clone_into(&mut read.epoch);
        for publication in answer["publications"].as_array().into_iter().flatten() {
            self.take_publication(channel, publication);
        }
    }

    fn take_publication(&mut self, channel: &str, publication: &Value) {
        let read = self.channels.entry(channel.to_owned()).or_default();
        let got = Got::read(publication);
        if got.offset != 0 {
            if got.offset != read.offset + 1 {
                self.wrongs.push(format!("{channel} has {got:?} after {}", read.offset));
            }
            read.offset = got.offset;
        }
        read.got.push(got);
    }
}

/// What lets a client in (JSON Web Token, RFC 7519, by HS256).
fn token(plan: &Plan) -> String {
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = json!({ "sub": plan.user });
    if let Some(device) = &plan.device {
        claims["device"] = json!(device);
    }
    let signed = format!("{}.{}", part(json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, TOKEN_SECRET.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

#[test]
fn a_client_of_a_cluster_sees_what_is_wrong() {
    let publication =
        |offset: u64| json!({ "push": { "channel": "c", "pub": { "offset": offset, "data": { "id": "x" } } } });
    let answer = |recovered: bool, offset: u64, missed: &[u64]| {
        let missed: Vec<_> = missed.iter().map(|offset| json!({ "offset": offset, "data": { "id": "x" } })).collect();
        json!({ "recoverable": true, "epoch": "e", "offset": offset, "recovered": recovered, "publications": missed })
    };
    let saw = |answers: &[Value], offsets: &[u64]| {
        let mut seen = Seen::default();
        answers.iter().for_each(|answer| seen.subscribe("c", answer));
        offsets.iter().for_each(|offset| seen.take(&publication(*offset)));
        seen.wrongs
    };
    let first = answer(false, 5, &[]);
    assert_eq!(saw(std::slice::from_ref(&first), &[6, 7]), [""; 0]);
    assert_eq!(saw(&[first.clone(), answer(true, 5, &[6, 7])], &[8]), [""; 0]);
    assert_eq!(saw(&[first.clone(), answer(false, 9, &[])], &[10]), [""; 0], "it was told");
    for (what, answers, offsets) in [
        ("a gap", vec![first.clone()], vec![7]),
        ("a repetition", vec![first.clone()], vec![6, 6]),
        ("a gap in what was recovered", vec![first.clone(), answer(true, 5, &[7])], vec![]),
        ("a gap behind what was recovered", vec![first.clone(), answer(true, 5, &[6, 7])], vec![9]),
        ("nothing of what was recovered", vec![first.clone(), answer(true, 7, &[])], vec![]),
        ("a repetition in what was recovered", vec![first, answer(true, 5, &[5])], vec![]),
    ] {
        assert!(!saw(&answers, &offsets).is_empty(), "{what}");
    }
}
