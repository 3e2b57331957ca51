//! Many clients on one thread. Each client must get every publication once and in order.
//!
//! Shape: a current-thread runtime, a task and a socket per client, one read buffer for all clients. [`Socket`] does the
//! handshake and sends. Reading bypasses it, so that the clients cost as little as possible. At most
//! [`CONNECTING_COUNT_MAX`] clients connect at a time: the server refuses more than 1024 waiting handshakes.

mod client;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{PONG, ServerUrl, Socket, SocketError};
use tidings_server::command_error::{CommandError, failed};
use tidings_telemetry::{Histogram, HistogramSnapshot, LocalHistogram};
use tidings_types::{Format, Transport, Variant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep};

pub(super) use self::client::data;
use self::client::{Inbox, Line, Stamp, now_micros};
use crate::checksum::{Digest, mixed};

/// How long to wait for anything.
const DEADLINE: Duration = Duration::from_secs(60);
/// Clients that are connected and not yet subscribed, at most.
pub(super) const CONNECTING_COUNT_MAX: usize = 512;
/// What a slow client reads, how often, and what its system keeps for it: 5 kB/s, less than a third of what is published.
const SLOW_READ_BYTES: usize = 512;
const SLOW_PAUSE: Duration = Duration::from_millis(100);
const SLOW_BUFFER_BYTES: u32 = 4096;
/// Clients with one address: fewer than the ports that the system gives (28 232).
const CLIENTS_PER_SOURCE: u32 = 20_000;
/// Bytes read at a time.
const READ_BYTES_MAX: usize = 64 << 10;

/// The first commands of a client.
#[derive(Debug, Clone)]
pub(super) enum Greeting {
    /// None, because the bare loop reads nothing.
    None,
    /// The client subscribes and expects everything from number 1 on.
    Subscribe { channel: &'static str, variant: Variant },
    /// Each client subscribes to one of so many channels, which have their number behind the name; as above, in JSON.
    Spread { channel: &'static str, channel_count: u32 },
    /// The client subscribes, wants only the newest, and reads less than the channel publishes, whatever that is.
    Lag { channel: &'static str },
    /// The client has everything up to `offset`, which is also the number of a publication, and expects the rest. In
    /// JSON.
    Resume { channel: &'static str, epoch: String, offset: u64 },
}

impl Greeting {
    fn variant(&self) -> Variant {
        if let Self::Subscribe { variant, .. } = self { *variant } else { Variant::websocket(Format::Json) }
    }

    /// The request that opens a stream, and how many replies it gets.
    fn request(&self, transport: Transport) -> (String, usize) {
        let commands = self.commands(0);
        let (path, body, reply_count) = match (transport, self) {
            (Transport::UniSse | Transport::UniHttpStream, Self::Subscribe { channel, .. }) => {
                let path = if transport == Transport::UniSse { "uni_sse" } else { "uni_http_stream" };
                (path, json!({"subs": {*channel: {}}}).to_string(), 1)
            }
            _ => {
                let numbered = (1..).zip(&commands).map(|(id, command)| {
                    let mut command = command.clone();
                    command["id"] = Value::from(id);
                    command.to_string()
                });
                let path = if transport == Transport::Sse { "sse" } else { "http_stream" };
                (path, numbered.collect::<Vec<_>>().join("\n"), commands.len())
            }
        };
        let length = body.len();
        (
            format!("POST /connection/{path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n\r\n{body}"),
            reply_count,
        )
    }

    /// The commands of the client with this number, as JSON. Each gets one reply.
    fn commands(&self, index: u32) -> Vec<Value> {
        let subscribe = match self {
            Self::None => return Vec::new(),
            Self::Subscribe { channel, .. } => json!({"channel": channel}),
            Self::Spread { channel, channel_count } => {
                json!({"channel": format!("{channel}{}", index % channel_count)})
            }
            Self::Lag { channel } => {
                json!({"channel": channel, "data": {"thinning": {"slow_readers": "latest"}}})
            }
            Self::Resume { channel, epoch, offset } => {
                json!({"channel": channel, "recover": true, "epoch": epoch, "offset": offset})
            }
        };
        vec![json!({"connect": {}}), json!({"subscribe": subscribe})]
    }

    /// The commands in Protobuf: connect, and subscribe to the channel. Each has less than 128 bytes.
    fn binary_commands(channel: &str) -> Vec<u8> {
        let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
        let command = |id: u8, request: &[u8]| {
            let command = [&[1 << 3, id], request].concat();
            [&[command.len() as u8], &command[..]].concat()
        };
        let subscribe = field(5, &field(1, channel.as_bytes()));
        [command(1, &field(4, &[])), command(2, &subscribe)].concat()
    }
}

/// The counts of all clients of a swarm.
#[derive(Debug, Default)]
struct Tally {
    ready: AtomicU64,
    delivered: AtomicU64,
    /// The digest has publications up to this number: so many of them, and the sum of their hashes.
    digested_to: AtomicU64,
    digested: AtomicU64,
    digest_sum: AtomicU64,
    /// Latency is recorded for publications from this number on.
    recorded_from: AtomicU64,
    latency: Histogram,
    epoch: Mutex<Option<String>>,
    /// The first thing that went wrong.
    fault: Mutex<Option<String>>,
}

/// What the clients of a swarm got.
pub(super) struct Delivered {
    pub(super) latency: HistogramSnapshot,
    /// The publications that all of them got.
    pub(super) digest: Digest,
}

/// Clients on a thread of their own. Dropping this disconnects them.
pub(super) struct Swarm {
    count: u64,
    tally: Arc<Tally>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Swarm {
    /// Starts to connect.
    pub(super) fn start(addr: SocketAddr, count: u32, greeting: Greeting) -> Result<Self, CommandError> {
        let tally = Arc::new(Tally::default());
        tally.recorded_from.store(u64::MAX, Ordering::Relaxed);
        tally.digested_to.store(u64::MAX, Ordering::Relaxed);
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = tally.clone();
        let thread = std::thread::Builder::new().name("clients".to_owned());
        let thread =
            thread.spawn(move || LocalSet::new().block_on(&runtime, run(addr, count, greeting, shared, stopped)))?;
        Ok(Self { count: count.into(), tally, stop, thread: Some(thread) })
    }

    /// Waits until every client has all replies to its greeting.
    pub(super) async fn ready(&self) -> Result<(), CommandError> {
        let what = format!("{} clients are connected", self.count);
        until(&what, async || self.reached(&self.tally.ready, self.count)).await
    }

    /// Waits until all clients together have `count` publications.
    pub(super) async fn delivered(&self, count: u64) -> Result<(), CommandError> {
        until("every publication has arrived", async || self.reached(&self.tally.delivered, count)).await
    }

    /// How many publications all clients together have; an error if something went wrong.
    pub(super) fn delivered_count(&self) -> Result<u64, CommandError> {
        match &*lock(&self.tally.fault) {
            Some(fault) => Err(failed(fault.as_str())),
            None => Ok(self.tally.delivered.load(Ordering::Relaxed)),
        }
    }

    /// Records the latency of publications from this number on.
    pub(super) fn record_from(&self, number: u64) {
        self.tally.recorded_from.store(number, Ordering::Relaxed);
    }

    /// Leaves publications after this number out of the digest, because how many there are depends on the time. Call it
    /// before they are published.
    pub(super) fn digest_to(&self, number: u64) {
        self.tally.digested_to.store(number, Ordering::Relaxed);
    }

    /// The channel's epoch, if a reply had one.
    pub(super) fn epoch(&self) -> Option<String> {
        lock(&self.tally.epoch).clone()
    }

    /// Disconnects all clients and returns what they got.
    pub(super) fn stop(mut self) -> Result<Delivered, CommandError> {
        self.end();
        if let Some(fault) = lock(&self.tally.fault).take() {
            return Err(failed(fault));
        }
        let Tally { latency, digested, digest_sum, .. } = &*self.tally;
        let digest = Digest::new(digested.load(Ordering::Relaxed), digest_sum.load(Ordering::Relaxed));
        Ok(Delivered { latency: latency.snapshot(), digest })
    }

    fn reached(&self, counter: &AtomicU64, wanted: u64) -> Result<bool, CommandError> {
        let value = counter.load(Ordering::Relaxed);
        match &*lock(&self.tally.fault) {
            Some(fault) => Err(failed(fault.as_str())),
            None if value > wanted => Err(failed(format!("{value} instead of {wanted} arrived"))),
            None => Ok(value == wanted),
        }
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there was reported by its hook.
        }
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all clients on the thread share.
struct Shared {
    addr: SocketAddr,
    /// One for so many clients as have a port each.
    sources: Vec<Ipv4Addr>,
    greeting: Greeting,
    tally: Arc<Tally>,
    connecting: Semaphore,
    latency: RefCell<LocalHistogram>,
    scratch: RefCell<Box<[u8]>>,
}

async fn run(addr: SocketAddr, count: u32, greeting: Greeting, tally: Arc<Tally>, mut stopped: watch::Receiver<bool>) {
    let shared = Rc::new(Shared {
        addr,
        sources: (0..=count / CLIENTS_PER_SOURCE).map(|_| next_source()).collect(),
        greeting,
        connecting: Semaphore::new(CONNECTING_COUNT_MAX),
        latency: RefCell::new(tally.latency.local()),
        tally,
        scratch: RefCell::new(vec![0; READ_BYTES_MAX].into()),
    });
    let mut clients = JoinSet::new();
    for index in 0..count {
        clients.spawn_local(live(shared.clone(), index));
    }
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            Some(ended) = clients.join_next() => {
                let why = ended.unwrap_or_else(|error| error.to_string());
                lock(&shared.tally.fault).get_or_insert(why);
            }
        }
    }
}

/// Runs a client. Returns why it ended.
async fn live(shared: Rc<Shared>, index: u32) -> String {
    match Client::connect(shared, index).await {
        Err(error) => error,
        Ok(mut client) => match client.read().await {
            Ok(never) => match never {},
            Err(error) => error,
        },
    }
}

/// Each swarm has a source address of its own. The ports of closed connections stay reserved for a minute: with one
/// address the ports would run out, and a reused port can be ignored for a second (RFC 7323, 5.2).
fn next_source() -> Ipv4Addr {
    static SWARM_COUNT: AtomicU8 = AtomicU8::new(0);
    let program = std::process::id() % 250 + 1;
    Ipv4Addr::new(127, program as u8, SWARM_COUNT.fetch_add(1, Ordering::Relaxed), 1)
}

async fn connect(addr: SocketAddr, source: Ipv4Addr, is_slow: bool) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if is_slow {
        socket.set_recv_buffer_size(SLOW_BUFFER_BYTES)?;
    }
    socket.bind((source, 0).into())?;
    let stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection to the server.
enum Link {
    WebSocket(Box<Socket>),
    /// The client says nothing more.
    Stream(TcpStream),
}

impl Link {
    fn stream(&mut self) -> &mut TcpStream {
        match self {
            Self::WebSocket(socket) => socket.stream_mut(),
            Self::Stream(stream) => stream,
        }
    }
}

struct Client {
    link: Link,
    inbox: Inbox,
    /// The number of the publication that must come next.
    next: u64,
    replies_owed: usize,
    shared: Rc<Shared>,
}

impl Client {
    async fn connect(shared: Rc<Shared>, index: u32) -> Result<Self, String> {
        let permit = shared.connecting.acquire().await.map_err(|error| error.to_string())?;
        let is_slow = matches!(shared.greeting, Greeting::Lag { .. });
        let source = shared.sources[(index / CLIENTS_PER_SOURCE) as usize];
        let stream = connect(shared.addr, source, is_slow).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        let next = if let Greeting::Resume { offset, .. } = shared.greeting { offset + 1 } else { 1 };
        let variant = shared.greeting.variant();
        let (link, replies_owed) = greet(stream, &shared, index).await?;
        let mut client = Self { link, inbox: Inbox::new(variant), next, replies_owed, shared: shared.clone() };
        while client.replies_owed > 0 {
            client.read_once().await?;
        }
        drop(permit);
        shared.tally.ready.fetch_add(1, Ordering::Relaxed);
        Ok(client)
    }

    async fn read(&mut self) -> Result<std::convert::Infallible, String> {
        while matches!(self.shared.greeting, Greeting::Lag { .. }) {
            sleep(SLOW_PAUSE).await;
            match self.link.stream().try_read(&mut [0; SLOW_READ_BYTES]) {
                Ok(0) => return Err("the server closed a slow connection".to_owned()),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.to_string()),
                Ok(_) | Err(_) => {}
            }
        }
        loop {
            self.read_once().await?;
        }
    }

    async fn read_once(&mut self) -> Result<(), String> {
        let stream = self.link.stream();
        stream.readable().await.map_err(|error| error.to_string())?;
        let pings = {
            let shared = self.shared.clone();
            let mut scratch = shared.scratch.borrow_mut();
            match stream.try_read(&mut scratch) {
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(count) => self.take(&scratch[..count])?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(format!("cannot read: {error}")),
            }
        };
        // A stream stays open if nobody answers its pings.
        let Link::WebSocket(socket) = &mut self.link else { return Ok(()) };
        for _ in 0..pings {
            let sent = match self.inbox.variant().format {
                Format::Json => socket.send(PONG).await,
                Format::Protobuf => socket.send_binary(&[0][..]).await,
            };
            sent.map_err(cannot_write)?;
        }
        Ok(())
    }

    /// Handles received bytes. Returns how many pings to answer.
    fn take(&mut self, bytes: &[u8]) -> Result<u32, String> {
        let now = now_micros();
        let empty = Inbox::new(self.inbox.variant());
        let (mut inbox, mut pings, mut wrong) = (std::mem::replace(&mut self.inbox, empty), 0, Ok(()));
        let taken = inbox.take(bytes, |line| {
            let outcome = match line {
                Line::Ping => {
                    pings += 1;
                    Ok(())
                }
                Line::Publication(stamp) => self.on_publication(stamp, now),
                Line::Other(text) => self.on_reply(text),
            };
            if wrong.is_ok() {
                wrong = outcome;
            }
        });
        self.inbox = inbox;
        wrong?;
        taken.map_err(|opcode| format!("the server sent a frame of opcode {opcode}"))?;
        Ok(pings)
    }

    fn on_publication(&mut self, stamp: Stamp, now: u64) -> Result<(), String> {
        if stamp.number != self.next {
            return Err(format!("a client got publication {} when {} was due", stamp.number, self.next));
        }
        self.next += 1;
        let tally = &self.shared.tally;
        tally.delivered.fetch_add(1, Ordering::Relaxed);
        if stamp.number <= tally.digested_to.load(Ordering::Relaxed) {
            tally.digested.fetch_add(1, Ordering::Relaxed);
            tally.digest_sum.fetch_add(mixed(stamp.number), Ordering::Relaxed);
        }
        if stamp.number >= tally.recorded_from.load(Ordering::Relaxed) {
            self.shared.latency.borrow_mut().record_micros(now.saturating_sub(stamp.micros));
        }
        Ok(())
    }

    fn on_reply(&mut self, text: &[u8]) -> Result<(), String> {
        if self.inbox.variant().format == Format::Protobuf {
            return self.on_binary_reply(text);
        }
        let unexpected = || format!("the server said {}", String::from_utf8_lossy(text));
        let reply: Value = serde_json::from_slice(text).map_err(|_| unexpected())?;
        if self.replies_owed == 0 || reply.get("error").is_some() {
            return Err(unexpected());
        }
        self.replies_owed -= 1;
        let Some(subscribed) = reply.get("subscribe") else { return Ok(()) };
        if let Some(epoch) = subscribed["epoch"].as_str() {
            lock(&self.shared.tally.epoch).get_or_insert_with(|| epoch.to_owned());
        }
        if matches!(self.shared.greeting, Greeting::Resume { .. }) && subscribed["recovered"] != true {
            return Err("a client reconnected and did not recover".to_owned());
        }
        for publication in subscribed["publications"].as_array().into_iter().flatten() {
            let data = publication["data"].as_str().unwrap_or_default();
            let stamp = Stamp::of_data(data.as_bytes()).ok_or_else(unexpected)?;
            self.on_publication(stamp, 0)?;
        }
        Ok(())
    }
}

/// Opens a connection and sends the first commands. Returns how many replies they get.
async fn greet(mut stream: TcpStream, shared: &Shared, index: u32) -> Result<(Link, usize), String> {
    let (greeting, variant, url) = (&shared.greeting, shared.greeting.variant(), ServerUrl::of_listener(shared.addr));
    if variant.transport != Transport::WebSocket {
        let (request, reply_count) = greeting.request(variant.transport);
        stream.write_all(request.as_bytes()).await.map_err(|error| format!("cannot write: {error}"))?;
        return Ok((Link::Stream(stream), reply_count));
    }
    let opened = Socket::over(stream, &url, variant.format).await;
    let mut socket = opened.map_err(|error| format!("a handshake failed: {error}"))?;
    let commands = greeting.commands(index);
    let reply_count = commands.len();
    match greeting {
        Greeting::None => {}
        Greeting::Subscribe { channel, .. } if variant.format == Format::Protobuf => {
            socket.send_binary(Greeting::binary_commands(channel)).await.map_err(cannot_write)?;
        }
        Greeting::Subscribe { .. } | Greeting::Spread { .. } | Greeting::Lag { .. } | Greeting::Resume { .. } => {
            socket.say(commands).await.map_err(cannot_write)?;
        }
    }
    Ok((Link::WebSocket(Box::new(socket)), reply_count))
}

/// The byte behind the id in a Protobuf reply: the result of connect, or of subscribe.
const BINARY_RESULTS: [u8; 2] = [5 << 3 | 2, 6 << 3 | 2];

impl Client {
    fn on_binary_reply(&mut self, reply: &[u8]) -> Result<(), String> {
        match reply {
            [0x08, _, result, ..] if self.replies_owed > 0 && BINARY_RESULTS.contains(result) => {
                self.replies_owed -= 1;
                Ok(())
            }
            _ => Err(format!("the server said {reply:02x?}")),
        }
    }
}

fn cannot_write(error: SocketError) -> String {
    format!("cannot write: {error}")
}

/// Waits for a condition, at most [`DEADLINE`].
pub(super) async fn until(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let began = Instant::now();
    while !condition().await? {
        if began.elapsed() > DEADLINE {
            return Err(failed(format!("waited {} s until {what}", DEADLINE.as_secs())));
        }
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tidings_protocol::{Publication, Tags, encode_publication_push};
    use tidings_types::{ChannelName, Json, Offset};
    use tokio_tungstenite::tungstenite::{Message, accept};

    use super::data;
    use super::*;

    /// A server for one client. It answers connect and subscribe, sends these numbers, and waits until the client is gone.
    fn server(format: Format, numbers: &'static [u64]) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut socket = accept(listener.accept().unwrap().0).unwrap();
            socket.read().unwrap();
            let replies = match format {
                Format::Json => Message::text("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{}}"),
                Format::Protobuf => Message::binary(&[4, 8, 1, 42, 0, 4, 8, 2, 50, 0][..]),
            };
            socket.send(replies).unwrap();
            for &number in numbers {
                let data = Json::of(&data(number));
                let publication = Publication {
                    offset: Offset(number),
                    data,
                    info: None,
                    tags: Tags::default(),
                    receipt: None,
                    texts: None,
                };
                let push = encode_publication_push(
                    Variant::websocket(format),
                    &ChannelName::new("bench").unwrap(),
                    &publication,
                );
                socket
                    .send(match format {
                        Format::Json => Message::text(String::from_utf8(push).unwrap()),
                        Format::Protobuf => Message::binary(push),
                    })
                    .unwrap();
            }
            let _ = socket.read(); // Ends with the client.
        });
        (addr, thread)
    }

    /// The result for a client that must get three publications and gets these numbers: the digest of those up to
    /// `digest_to`.
    async fn outcome(format: Format, numbers: &'static [u64], digest_to: u64) -> Result<Digest, String> {
        let (addr, thread) = server(format, numbers);
        let swarm =
            Swarm::start(addr, 1, Greeting::Subscribe { channel: "bench", variant: Variant::websocket(format) })
                .unwrap();
        swarm.digest_to(digest_to);
        let delivered = swarm.delivered(3).await.map_err(|error| error.to_string());
        let stopped = swarm.stop().map(|delivered| delivered.digest).map_err(|error| error.to_string());
        thread.join().unwrap();
        delivered.and(stopped)
    }

    #[tokio::test]
    async fn a_lost_doubled_or_misplaced_publication_fails_the_run() {
        let cases: [(&[u64], &str); 3] = [
            (&[1, 3], "got publication 3 when 2 was due"),
            (&[1, 1, 2], "got publication 1 when 2 was due"),
            (&[2, 1, 3], "got publication 2 when 1 was due"),
        ];
        for format in Format::ALL {
            assert_eq!(outcome(format, &[1, 2, 3], u64::MAX).await, Ok(Digest::of_numbers([1, 2, 3])));
            assert_eq!(outcome(format, &[1, 2, 3], 2).await, Ok(Digest::of_numbers([1, 2])));
            for (numbers, why) in cases {
                let error = outcome(format, numbers, u64::MAX).await.unwrap_err();
                assert!(error.contains(why), "{error}");
            }
        }
    }
}
