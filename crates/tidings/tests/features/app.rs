//! An app on somebody's screen: a client that speaks the Centrifugo protocol over a WebSocket of its own, in JSON or in
//! Protobuf, or by server-sent events.
//!
//! A task per connection reads what comes, keeps it, and answers pings, unless the app hangs: then it reads nothing, as a
//! stopped process would, while what the app says still goes out. An app that comes back subscribes to its channels where
//! it was.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::Message as _;
use serde_json::{Value, json};
use tidings_client::{PONG, ServerUrl, Socket, SocketError, is_ping};
use tidings_types::{Format, Transport, Variant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::schema;
use crate::wait::PATIENCE;

/// Orders that may wait for a connection's task.
const ORDER_CAPACITY: usize = 16;
/// Between two messages of a slow line. Any machine publishes more than that.
const SLOW_PAUSE: Duration = Duration::from_millis(200);
/// No command of the server's: it answers that there is none, behind everything it has written before.
const NO_SUCH_METHOD: &str = "features.nothing";

/// Who an app says it is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// A connection token, or only a name.
    pub(crate) token: Result<String, String>,
    /// The device it says it runs on, with what it says to prove it.
    pub(crate) device: Option<(String, Option<String>)>,
    /// Whether it is on the screen, if it says so.
    pub(crate) visible: Option<bool>,
    /// Its language, if it says so.
    pub(crate) locale: Option<String>,
    /// How its SDK connects, and what it speaks.
    pub(crate) variant: Variant,
}

/// An app, connected or not.
pub(crate) struct App {
    identity: Identity,
    seen: watch::Sender<Seen>,
    orders: mpsc::Sender<Order>,
    /// The one that drives the connection.
    task: JoinSet<()>,
    next_id: u32,
    /// How often it was let in.
    connection_count: usize,
    connected_at: Instant,
}

/// What an app has seen so far, over all of its connections.
#[derive(Debug, Default)]
struct Seen {
    /// The ids of events in the order they came, repeats included.
    events: Vec<String>,
    /// The titles of those events that had one.
    titles: Vec<String>,
    /// Where it is, by channel.
    positions: BTreeMap<String, Position>,
    /// Channels in which it was told that it missed something.
    gaps: Vec<String>,
    /// Who came and who went, in the order in which it was told so.
    company: Vec<(Company, String)>,
    /// Answers that were not taken yet, by the number of their command.
    answers: BTreeMap<u64, Value>,
    /// The channels of the subscribe commands that are not answered yet.
    subscribing: BTreeMap<u64, String>,
    end: Option<End>,
}

#[derive(Debug, Clone, Default)]
struct Position {
    epoch: String,
    offset: u64,
}

/// What somebody does in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Comes,
    Goes,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The server closed it, with this code.
    Closed(u16),
    /// It broke off, or the app gave it up.
    Broken,
}

enum Order {
    Say(String),
    /// Read, or do not.
    Read(bool),
    /// Read one message in so long.
    Slow(Duration),
    /// Cut the line.
    Cut,
}

impl App {
    /// Connects; how it was refused when it was.
    pub(crate) async fn connect(addr: SocketAddr, identity: Identity) -> Result<Self, End> {
        let (orders, _) = mpsc::channel(1);
        let (seen, task) = (watch::Sender::default(), JoinSet::new());
        let mut app =
            Self { identity, seen, orders, task, next_id: 0, connection_count: 0, connected_at: Instant::now() };
        app.connect_again(addr).await?;
        Ok(app)
    }

    /// Follows a channel from now on.
    pub(crate) async fn follow(&mut self, channel: &str) {
        self.subscribe(channel, json!({ "channel": channel })).await;
    }

    /// Follows a channel from now on, but gets only what is about this team.
    pub(crate) async fn follow_team(&mut self, channel: &str, team: &str) {
        let filter = json!({ "cmp": "eq", "key": "team", "val": team });
        self.subscribe(channel, json!({ "channel": channel, "tf": filter })).await;
    }

    /// Follows a channel from now on over a slow line, and wants only the newest publication of each key when it lags.
    pub(crate) async fn follow_newest(&mut self, channel: &str) {
        self.order(Order::Slow(SLOW_PAUSE)).await;
        let thinning = json!({ "thinning": { "slow_readers": "latest" } });
        self.subscribe(channel, json!({ "channel": channel, "data": thinning })).await;
    }

    /// The events that it has got when this one has come. Its line is quick from now on.
    pub(crate) async fn events_until(&mut self, last: &str) -> Vec<String> {
        self.order(Order::Slow(Duration::ZERO)).await;
        self.wait(&format!("the app has got {last}"), |seen| {
            seen.events.iter().any(|event| event == last).then(|| seen.events.clone())
        })
        .await
    }

    /// Cuts the line without a word.
    pub(crate) async fn lose_connection(&mut self) {
        let _ = self.orders.send(Order::Cut).await; // It may have ended already.
        self.end().await;
    }

    /// Connects again, and goes on where it was in its channels.
    pub(crate) async fn come_back(&mut self, addr: SocketAddr) {
        let connected = self.connect_again(addr).await;
        connected.unwrap_or_else(|end| panic!("the app is not let in again: {end:?}"));
        let positions = self.seen.borrow().positions.clone();
        for (channel, Position { epoch, offset }) in positions {
            let command = json!({ "channel": channel, "recover": true, "epoch": epoch, "offset": offset });
            self.subscribe(&channel, command).await;
        }
    }

    /// Reads nothing from now on, and so answers no ping.
    pub(crate) async fn hang(&mut self) {
        self.order(Order::Read(false)).await;
    }

    /// Says that it leaves the channel, and then reads what has come meanwhile.
    pub(crate) async fn leave_and_wake_up(&mut self, channel: &str) {
        let left = self.say(json!({ "unsubscribe": { "channel": channel } })).await;
        self.order(Order::Read(true)).await;
        self.answer(left).await.unwrap_or_else(|end| panic!("leaving ends the connection: {end:?}"));
    }

    /// Says that it is no longer on the screen.
    pub(crate) async fn hide(&mut self) {
        self.say_visible(json!({ "visible": false })).await;
        self.identity.visible = Some(false);
    }

    /// Says that it is on the screen, for so long unless it says so again.
    pub(crate) async fn show(&mut self, seconds: u64) {
        self.say_visible(json!({ "visible": true, "ttl": seconds })).await;
    }

    async fn say_visible(&mut self, said: Value) {
        let answer = self.ask(json!({ "rpc": { "method": "tidings.visible", "data": said } })).await;
        answer.unwrap_or_else(|end| panic!("saying whether it is on the screen ends the connection: {end:?}"));
    }

    /// Answers a ping; there was none.
    pub(crate) async fn pong(&mut self) {
        self.order(Order::Say(PONG.to_owned())).await;
    }

    /// Waits until the app has got so many events, and for everything else that the server has written to it by then.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<String> {
        self.wait(&format!("the app has got {count} events"), |seen| {
            (seen.events.len() >= count || seen.end.is_some()).then_some(())
        })
        .await;
        // Its answer comes behind what was written before: whatever came twice is here.
        if self.seen.borrow().end.is_none() {
            let id = self.say(json!({ "rpc": { "method": NO_SUCH_METHOD } })).await;
            self.wait("the server answers", |seen| seen.answers.remove(&id).map(drop).or(seen.end.clone().map(drop)))
                .await;
        }
        self.seen.borrow().events.clone()
    }

    /// The titles of the events, as soon as there are so many.
    pub(crate) async fn titles(&self, count: usize) -> Vec<String> {
        self.wait(&format!("the app shows {count} titles"), |seen| {
            (seen.titles.len() >= count).then(|| seen.titles.clone())
        })
        .await
    }

    /// Who came and who went, as soon as it was told of so many.
    pub(crate) async fn company(&self, count: usize) -> Vec<(Company, String)> {
        self.wait(&format!("the app has seen {count} come or go"), |seen| {
            (seen.company.len() >= count).then(|| seen.company.clone())
        })
        .await
    }

    /// Whether it was told of a gap in some channel.
    pub(crate) fn was_told_of_gap(&self) -> bool {
        !self.seen.borrow().gaps.is_empty()
    }

    /// How its connection ended, once it did.
    pub(crate) async fn end(&mut self) -> End {
        self.wait("the app's connection ends", |seen| seen.end.clone()).await
    }

    /// How often a server let it in, and how the last of these connections ended if it did.
    pub(crate) fn connections(&self) -> (usize, Option<End>) {
        (self.connection_count, self.seen.borrow().end.clone())
    }

    /// When the server let it in.
    pub(crate) fn connected_at(&self) -> Instant {
        self.connected_at
    }

    async fn connect_again(&mut self, addr: SocketAddr) -> Result<(), End> {
        let Identity { token, device, visible, locale, variant } = &self.identity;
        let mut said = json!({});
        if let Some((device, credential)) = device {
            said["device"] = json!(device);
            said["credential"] = json!(credential);
        }
        if let Some(visible) = visible {
            said["visible"] = json!(visible);
        }
        if let Some(locale) = locale {
            said["locale"] = json!(locale);
        }
        let (field, value) = match token {
            Ok(token) => ("token", token),
            Err(name) => ("name", name),
        };
        let command = json!({ "connect": { (field): value, "data": { "tidings": said } } });
        let line = Line::open(addr, *variant).await.unwrap_or_else(|error| panic!("no WebSocket: {error}"));
        self.task.shutdown().await;
        self.seen.send_modify(|seen| seen.end = None);
        let (orders, ordered) = mpsc::channel(ORDER_CAPACITY);
        self.orders = orders;
        self.task.spawn(drive(line, ordered, self.seen.clone()));
        self.ask(command).await?;
        self.connection_count += 1;
        self.connected_at = Instant::now();
        Ok(())
    }

    async fn subscribe(&mut self, channel: &str, command: Value) {
        let id = u64::from(self.next_id) + 1;
        self.seen.send_modify(|seen| _ = seen.subscribing.insert(id, channel.to_owned()));
        let answer = self.ask(json!({ "subscribe": command })).await;
        let answer = answer.unwrap_or_else(|end| panic!("subscribing to {channel} ends the connection: {end:?}"));
        assert!(answer["subscribe"]["recoverable"] == true, "{channel} promises no recovery: {answer}");
    }

    async fn ask(&mut self, command: Value) -> Result<Value, End> {
        let id = self.say(command).await;
        self.answer(id).await
    }

    /// Sends a command; returns its number.
    async fn say(&mut self, mut command: Value) -> u64 {
        self.next_id += 1;
        command["id"] = json!(self.next_id);
        self.order(Order::Say(command.to_string())).await;
        u64::from(self.next_id)
    }

    /// The answer to a command; an error is none.
    async fn answer(&mut self, id: u64) -> Result<Value, End> {
        let answer = self.wait("the server answers", |seen| match seen.answers.remove(&id) {
            Some(answer) => Some(Ok(answer)),
            None => seen.end.clone().map(Err),
        });
        let answer = answer.await?;
        assert!(answer.get("error").is_none(), "the server refuses: {answer}");
        Ok(answer)
    }

    async fn order(&mut self, order: Order) {
        let taken = self.orders.send(order).await;
        assert!(taken.is_ok(), "the app is not connected: {:?}", self.seen.borrow().end);
    }

    async fn wait<T>(&self, what: &str, mut look: impl FnMut(&mut Seen) -> Option<T>) -> T {
        let mut changes = self.seen.subscribe();
        let found = timeout(PATIENCE, async {
            loop {
                changes.borrow_and_update();
                let mut found = None;
                self.seen.send_if_modified(|seen| {
                    found = look(seen);
                    false
                });
                match found {
                    Some(found) => return found,
                    None => changes.changed().await.expect("the app has the other end"),
                }
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("within {} s it does not come to this: {what}", PATIENCE.as_secs()))
    }
}

impl Seen {
    fn take_message(&mut self, message: Value) {
        if let Some(id) = message["id"].as_u64() {
            if let Some(channel) = self.subscribing.remove(&id) {
                self.take_subscription(&channel, &message["subscribe"]);
            }
            self.answers.insert(id, message);
        } else if let Some(channel) = message["push"]["channel"].as_str() {
            let push = &message["push"];
            if push["pub"].is_object() {
                self.take_publication(channel, &push["pub"]);
            }
            for (name, company) in [("join", Company::Comes), ("leave", Company::Goes)] {
                if let Some(user) = push[name]["info"]["user"].as_str() {
                    self.company.push((company, user.to_owned()));
                }
            }
        }
    }

    /// What was missed is in the answer; what comes next comes behind it.
    fn take_subscription(&mut self, channel: &str, answer: &Value) {
        for publication in answer["publications"].as_array().into_iter().flatten() {
            self.take_publication(channel, publication);
        }
        if answer["was_recovering"] == true && answer["recovered"] != true {
            self.gaps.push(channel.to_owned());
        }
        let epoch = answer["epoch"].as_str().unwrap_or_default().to_owned();
        let offset = answer["offset"].as_u64().unwrap_or_default();
        self.positions.insert(channel.to_owned(), Position { epoch, offset });
    }

    fn take_publication(&mut self, channel: &str, publication: &Value) {
        let event = publication["tags"]["event"].as_str().expect("an event's publication names the event");
        self.events.push(event.to_owned());
        self.titles.extend(publication["tags"]["title"].as_str().map(str::to_owned));
        let offset = publication["offset"].as_u64().expect("a durable channel numbers its publications");
        self.positions.entry(channel.to_owned()).or_default().offset = offset;
    }
}

/// A connection. What an app says and hears is JSON here.
enum Line {
    Socket(SocketLine),
    Stream(StreamLine),
}

impl Line {
    async fn open(addr: SocketAddr, variant: Variant) -> Result<Self, SocketError> {
        match variant.transport {
            Transport::Sse => Ok(Self::Stream(StreamLine::new(addr))),
            _ => SocketLine::open(addr, variant.format).await.map(Self::Socket),
        }
    }

    async fn send(&mut self, command: &str) -> Result<(), End> {
        match self {
            Self::Socket(line) => line.send(command).await.map_err(|_| End::Broken),
            Self::Stream(line) => line.send(command).await.ok_or(End::Broken),
        }
    }

    /// The next message. If this is dropped, nothing that was read is lost.
    async fn next(&mut self) -> Result<Value, End> {
        match self {
            Self::Socket(line) => line.next().await.map_err(|error| match error {
                SocketError::Closed { code, .. } => End::Closed(code),
                SocketError::Message(error) => panic!("the server speaks no JSON: {error}"),
                _ => End::Broken,
            }),
            Self::Stream(line) => line.next().await.ok_or(End::Broken),
        }
    }
}

/// A WebSocket. In Protobuf what is said is translated by the schema of the protocol.
struct SocketLine {
    socket: Socket,
    format: Format,
    /// Messages of the last frame that were not taken yet.
    waiting: VecDeque<Value>,
}

impl SocketLine {
    async fn open(addr: SocketAddr, format: Format) -> Result<Self, SocketError> {
        let url = ServerUrl::of_listener(addr);
        let socket = Socket::open(&url, format).await?;
        Ok(Self { socket, format, waiting: VecDeque::new() })
    }

    async fn send(&mut self, command: &str) -> Result<(), SocketError> {
        if self.format == Format::Json {
            return self.socket.send(command).await;
        }
        let command: schema::Command = serde_json::from_str(command).expect("an app says what is in the schema");
        self.socket.send_binary(command.encode_length_delimited_to_vec()).await
    }

    /// The next message. If this is dropped, nothing that was read is lost.
    async fn next(&mut self) -> Result<Value, SocketError> {
        if self.format == Format::Json {
            return self.socket.next().await;
        }
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            let mut frame = self.socket.binary_frame().await?;
            while !frame.is_empty() {
                let message = schema::Reply::decode_length_delimited(&mut frame);
                let message = message.unwrap_or_else(|error| panic!("the server speaks no Protobuf: {error}"));
                self.waiting.push_back(serde_json::to_value(message).expect("payloads are JSON"));
            }
        }
    }
}

/// Server-sent events, and requests with what the app says. The first thing that it says opens the stream.
struct StreamLine {
    url: ServerUrl,
    addr: SocketAddr,
    stream: Option<TcpStream>,
    /// What came and was not taken yet.
    bytes: Vec<u8>,
    /// The node and the session, by which the server knows whose request it is.
    name: (Value, Value),
}

impl StreamLine {
    fn new(addr: SocketAddr) -> Self {
        let url = ServerUrl::of_listener(addr);
        Self { url, addr, stream: None, bytes: Vec::new(), name: (Value::Null, Value::Null) }
    }

    /// `None`: the server is gone.
    async fn send(&mut self, command: &str) -> Option<()> {
        if self.stream.is_none() {
            let query = utf8_percent_encode(command, NON_ALPHANUMERIC);
            let mut stream = TcpStream::connect(self.addr).await.ok()?;
            let request = format!("GET /connection/sse?cf_connect={query} HTTP/1.1\r\nHost: features\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            self.stream = Some(stream);
            return Some(());
        }
        let body = json!({ "node": self.name.0, "session": self.name.1, "data": command }).to_string();
        let (status, _) = self.url.post("/emulation", None, body.into()).await.ok()?;
        (status == 204).then_some(())
    }

    /// The next message; `None`: the end.
    async fn next(&mut self) -> Option<Value> {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        loop {
            // Before the first event is the head of the response.
            while let Some(at) = self.bytes.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..at + 2).collect();
                let Some(data) = event.windows(6).position(|window| window == b"data: ") else { continue };
                let message: Value = serde_json::from_slice(&event[data + 6..]).expect("the server speaks JSON");
                if let Some(connect) = message.get("connect") {
                    self.name = (connect["node"].clone(), connect["session"].clone());
                }
                return Some(message);
            }
            if stream.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// Reads and answers until the connection ends.
async fn drive(mut line: Line, mut orders: mpsc::Receiver<Order>, seen: watch::Sender<Seen>) {
    let (mut reads, mut pause, mut next_at) = (true, Duration::ZERO, Instant::now());
    let end = loop {
        tokio::select! {
            biased; // What the app decides comes before what it reads.
            order = orders.recv() => match order {
                Some(Order::Say(text)) => {
                    if line.send(&text).await.is_err() {
                        break End::Broken;
                    }
                }
                Some(Order::Read(does)) => reads = does,
                Some(Order::Slow(so_long)) => (pause, next_at) = (so_long, Instant::now()),
                Some(Order::Cut) | None => break End::Broken,
            },
            () = sleep_until(next_at), if reads && next_at > Instant::now() => {}
            message = line.next(), if reads && next_at <= Instant::now() => match message {
                // A connection that is gone is seen at the next read.
                Ok(message) if is_ping(&message) => drop(line.send(PONG).await),
                Ok(message) => {
                    seen.send_modify(|seen| seen.take_message(message));
                    next_at = Instant::now() + pause;
                }
                Err(end) => break end,
            },
        }
    };
    drop(line); // Before anybody hears of it.
    seen.send_modify(|seen| seen.end = Some(end));
}
