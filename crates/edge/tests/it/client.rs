//! A client of the protocol that decides nothing: it sends what it is told and shows what it gets.
//!
//! A test says and sees JSON. A client that speaks Protobuf translates both by the schema of the protocol's own tests.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};
use tidings_client::{PONG, ServerUrl, Socket, SocketError};
use tidings_types::Format;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::schema;
use crate::server::Server;

const WEBSOCKET: &str = "/connection/websocket";
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The id of the command whose answer marks an end.
const FLUSH_ID: u64 = 99;

pub(crate) struct Client {
    socket: Socket,
    format: Format,
    /// Messages that came and were not taken yet.
    waiting: VecDeque<Value>,
    pub(crate) epoch: String,
}

impl Client {
    /// Opens a socket; the error is the HTTP status.
    pub(crate) async fn try_open(server: &Server) -> Result<Self, u16> {
        Self::try_open_as(server, server.format).await
    }

    async fn try_open_as(server: &Server, format: Format) -> Result<Self, u16> {
        Self::try_open_at(server.addr, format).await.map_err(|error| match error {
            SocketError::Refused(status) => status.as_u16(),
            error => panic!("{error}"),
        })
    }

    /// Opens a socket through whatever listens there.
    pub(crate) async fn try_open_at(addr: SocketAddr, format: Format) -> Result<Self, SocketError> {
        let url = ServerUrl::of_listener(addr);
        let socket = Socket::open(&url, format).await?;
        Ok(Self { socket, format, waiting: VecDeque::new(), epoch: String::new() })
    }

    /// A client at another address, connected.
    pub(crate) async fn connected_from(server: &Server, from: [u8; 4]) -> Self {
        let stream = TcpSocket::new_v4().unwrap();
        stream.bind((from, 0).into()).unwrap();
        let stream = stream.connect(server.addr).await.unwrap();
        let (url, format) = (ServerUrl::of_listener(server.addr), server.format);
        let socket = Socket::over(stream, &url, format).await.unwrap();
        let mut client = Self { socket, format, waiting: VecDeque::new(), epoch: String::new() };
        client.send(json!({"id": 1, "connect": {}})).await;
        assert!(client.reply(1).await["connect"].is_object());
        client
    }

    /// Ends the connection with a reset, as a client's system does that has gone away.
    pub(crate) fn reset(mut self) {
        socket2::SockRef::from(&*self.socket.stream_mut()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// A client that speaks this format, whatever the others do.
    pub(crate) async fn open_as(server: &Server, format: Format) -> Self {
        Self::try_open_as(server, format).await.unwrap()
    }

    pub(crate) async fn connected_in(server: &Server, format: Format) -> Self {
        let mut client = Self::open_as(server, format).await;
        client.send(json!({"id": 1, "connect": {}})).await;
        assert!(client.reply(1).await["connect"].is_object());
        client
    }

    pub(crate) async fn open(server: &Server) -> Self {
        Self::try_open(server).await.unwrap()
    }

    pub(crate) async fn connected(server: &Server) -> Self {
        Self::connected_as(server, json!({})).await
    }

    async fn connected_as(server: &Server, connect: Value) -> Self {
        let mut client = Self::open(server).await;
        client.send(json!({"id": 1, "connect": connect})).await;
        assert!(client.reply(1).await["connect"].is_object());
        client
    }

    /// A client with this connect command, subscribed to the channel; whatever else it gets waits for `next`.
    pub(crate) async fn introduced(server: &Server, connect: Value, channel: &str) -> Self {
        let mut client = Self::connected_as(server, connect).await;
        client.subscribe(json!({"channel": channel})).await;
        client
    }

    pub(crate) async fn subscribed(server: &Server, channel: &str) -> Self {
        Self::introduced(server, json!({}), channel).await
    }

    pub(crate) async fn subscribe(&mut self, request: Value) -> Value {
        self.send(json!({"id": 2, "subscribe": request})).await;
        let reply = self.reply(2).await;
        assert!(reply["subscribe"].is_object(), "{reply}");
        self.epoch = reply["subscribe"]["epoch"].as_str().unwrap_or_default().to_owned();
        reply["subscribe"].clone()
    }

    /// Answers a ping.
    pub(crate) async fn pong(&mut self) {
        self.send_text(PONG).await;
    }

    pub(crate) async fn send(&mut self, command: Value) {
        self.send_text(&command.to_string()).await;
    }

    /// Whether it could be handed to the system.
    pub(crate) async fn try_send(&mut self, command: Value) -> bool {
        self.try_send_text(&command.to_string()).await.is_ok()
    }

    /// Sends lines of JSON, translated if need be.
    pub(crate) async fn send_text(&mut self, text: &str) {
        self.try_send_text(text).await.unwrap();
    }

    async fn try_send_text(&mut self, text: &str) -> Result<(), SocketError> {
        match self.format {
            Format::Json => self.socket.send(text).await,
            Format::Protobuf => {
                let read = |line| serde_json::from_str::<schema::Command>(line).unwrap();
                let frame = text.lines().flat_map(|line| read(line).encode_length_delimited_to_vec());
                self.socket.send_binary(frame.collect::<Vec<u8>>()).await
            }
        }
    }

    /// Sends a binary frame as it is.
    pub(crate) async fn send_binary(&mut self, frame: &[u8]) {
        self.socket.send_binary(frame.to_vec()).await.unwrap();
    }

    /// Sends a text frame as it is.
    pub(crate) async fn send_as_text(&mut self, frame: &str) {
        self.socket.send(frame).await.unwrap();
    }

    /// The text of the next frame.
    pub(crate) async fn frame(&mut self) -> String {
        timeout(DEADLINE, self.socket.frame()).await.expect("a frame within the deadline").unwrap().to_string()
    }

    /// The next message, whatever it is.
    pub(crate) async fn next(&mut self) -> Value {
        self.try_next().await.unwrap_or_else(|code| panic!("closed with {code:?}"))
    }

    /// The next push; replies that come first are dropped.
    pub(crate) async fn next_push(&mut self) -> Value {
        loop {
            if let Some(push) = self.next().await.get("push") {
                return push.clone();
            }
        }
    }

    /// The reply to a command; pushes that come first wait for `next`.
    pub(crate) async fn reply(&mut self, id: u64) -> Value {
        let mut earlier = VecDeque::new();
        let reply = loop {
            match self.next().await {
                message if message["id"] == id => break message,
                message => earlier.push_back(message),
            }
        };
        earlier.append(&mut self.waiting);
        self.waiting = earlier;
        reply
    }

    pub(crate) async fn publications(&mut self, count: usize) -> Vec<Value> {
        let mut data = Vec::new();
        while data.len() < count {
            let message = self.next().await;
            data.extend(message["push"].get("pub").map(|publication| publication["data"].clone()));
        }
        data
    }

    /// Everything that comes before the answer to a command sent now.
    pub(crate) async fn flush(&mut self) -> Vec<Value> {
        self.try_flush().await.expect("the connection holds")
    }

    /// Like [`Client::flush`]; `None`: the server has closed the connection.
    pub(crate) async fn try_flush(&mut self) -> Option<Vec<Value>> {
        if !self.ask_flush().await {
            return None;
        }
        let (messages, end) = self.until_flushed().await;
        end.is_ok().then_some(messages)
    }

    /// Everything before the answer to a command sent now, or before the end.
    pub(crate) async fn flush_or_end(&mut self) -> Vec<Value> {
        self.ask_flush().await;
        self.until_flushed().await.0
    }

    /// Everything until the end, and the close code.
    pub(crate) async fn drain(&mut self) -> (Vec<Value>, Option<u16>) {
        let (messages, end) = self.until_flushed().await;
        (messages, end.expect_err("no command was sent whose answer is an end"))
    }

    async fn ask_flush(&mut self) -> bool {
        self.try_send(json!({"id": FLUSH_ID, "presence_stats": {"channel": "kept:1"}})).await
    }

    /// Everything before the answer to the flush, or before the end and its close code.
    async fn until_flushed(&mut self) -> (Vec<Value>, Result<(), Option<u16>>) {
        let mut messages = Vec::new();
        loop {
            match self.try_next().await {
                Ok(message) if message["id"] == FLUSH_ID => return (messages, Ok(())),
                Ok(message) => messages.push(message),
                Err(code) => return (messages, Err(code)),
            }
        }
    }

    /// The next message, or the close code.
    pub(crate) async fn try_next(&mut self) -> Result<Value, Option<u16>> {
        while self.waiting.is_empty() {
            match timeout(DEADLINE, self.messages()).await.expect("a message or the end within the deadline") {
                Ok(messages) => self.waiting.extend(messages),
                Err(SocketError::Closed { code, .. }) => {
                    while self.socket.frame().await.is_ok() {} // Sends our close frame and waits for the end.
                    return Err(Some(code));
                }
                Err(_) => return Err(None),
            }
        }
        Ok(self.waiting.pop_front().expect("something waits"))
    }

    /// The messages of the next frame.
    async fn messages(&mut self) -> Result<Vec<Value>, SocketError> {
        match self.format {
            Format::Json => {
                let frame = self.socket.frame().await?;
                Ok(frame.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
            }
            Format::Protobuf => {
                let mut frame = self.socket.binary_frame().await?;
                let mut messages = Vec::new();
                while !frame.is_empty() {
                    let message = schema::Reply::decode_length_delimited(&mut frame).unwrap();
                    messages.push(as_json(message));
                }
                Ok(messages)
            }
        }
    }
}

/// A message as JSON. A delta is a text, as JSON clients get it.
pub(crate) fn as_json(mut message: schema::Reply) -> Value {
    let publication = message.push.as_mut().and_then(|push| push.r#pub.as_mut());
    if let Some(publication) = publication.filter(|publication| publication.delta) {
        let delta = String::from_utf8(std::mem::take(&mut publication.data)).unwrap();
        publication.data = json!(delta).to_string().into_bytes();
    }
    serde_json::to_value(message).unwrap()
}

/// What a flood consists of.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// As large as they may be, so that the answers are as many bytes.
    Ping,
    /// Empty.
    Pong,
}

/// A peer on a thread of its own that writes frames as fast as they are taken and reads nothing.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

/// More than the sockets' buffers and the server's bounds hold together.
pub(crate) const FLOOD_BYTES: usize = 64 << 20;
/// Attempts of 100 ms each in which a peer takes nothing: it has stopped reading.
const STALL_COUNT: usize = 10;

pub(crate) fn flood(server: &Server, frame: Frame) -> Flood {
    let (addr, stop) = (server.addr, Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut socket = std::net::TcpStream::connect(addr).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.write_all(&upgrade_request(WEBSOCKET, "")).unwrap();
        assert!(socket.read(&mut [0; 1024]).unwrap() > 0, "the handshake is answered");
        let frame = match frame {
            Frame::Ping => [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[0; 125]].concat(),
            Frame::Pong => vec![0x8A, 0x80, 0, 0, 0, 0],
        };
        let frames = frame.repeat(10_000);
        let (mut sent, mut at, mut stalls) = (0, 0, 0);
        while !stopped.load(Ordering::Relaxed) && stalls < STALL_COUNT && sent < FLOOD_BYTES {
            match socket.write(&frames[at..]) {
                Ok(count) => (sent, at, stalls) = (sent + count, (at + count) % frames.len(), 0),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => stalls += 1,
                Err(_) => break,
            }
        }
        sent
    });
    Flood { stop, thread }
}

impl Flood {
    /// Waits until the server takes nothing more, or has taken [`FLOOD_BYTES`]; how many bytes it took.
    pub(crate) async fn ended(self) -> usize {
        tokio::task::spawn_blocking(|| self.thread.join().unwrap()).await.unwrap()
    }

    /// Ends it; how many bytes the server took.
    pub(crate) fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub(crate) fn upgrade_request(target: &str, subprotocol: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
    .into_bytes()
}

/// The status that a request for a connection from this address gets, and its socket.
pub(crate) async fn asked_from(server: &Server, from: [u8; 4], request: &[u8]) -> (u16, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut socket = socket.connect(server.addr).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut head = [0; 12];
    timeout(DEADLINE, socket.read_exact(&mut head)).await.expect("an answer within the deadline").unwrap();
    (String::from_utf8_lossy(&head[9..]).parse().unwrap(), socket)
}

/// Status and confirmed subprotocol of a handshake that offers these.
pub(crate) async fn handshake(server: &Server, subprotocol: &str) -> (u16, Option<String>) {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all(&upgrade_request(WEBSOCKET, subprotocol)).await.unwrap();
    let mut head = vec![0; 4096];
    let count = timeout(DEADLINE, socket.read(&mut head)).await.unwrap().unwrap();
    let head = String::from_utf8_lossy(&head[..count]).to_lowercase();
    let confirmed = head.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: ").map(str::to_owned));
    (head["http/1.1 ".len()..][..3].parse().unwrap(), confirmed)
}

/// A WebSocket of bytes.
pub(crate) async fn upgraded(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all(&upgrade_request(WEBSOCKET, "")).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, socket.read_u8()).await.unwrap().unwrap());
    }
    socket
}

/// The code of the next frame, if it is a close frame.
pub(crate) async fn close_code(socket: &mut (impl AsyncRead + Unpin)) -> Option<u16> {
    let mut start = [0; 4];
    timeout(DEADLINE, socket.read_exact(&mut start)).await.expect("a frame within the deadline").ok()?;
    (start[0] == 0x88).then_some(u16::from_be_bytes([start[2], start[3]]))
}
