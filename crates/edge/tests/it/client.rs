//! A client of the protocol that decides nothing: it sends what it is told and shows what it gets.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::server::Server;

const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    waiting: VecDeque<Value>,
    pub(crate) epoch: String,
}

impl Client {
    /// Opens a socket; the error is the HTTP status.
    pub(crate) async fn try_open(server: &Server) -> Result<Self, u16> {
        match connect_async(format!("ws://{}/connection/websocket", server.addr)).await {
            Ok((socket, _)) => Ok(Self { socket, waiting: VecDeque::new(), epoch: String::new() }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn open(server: &Server) -> Self {
        Self::try_open(server).await.unwrap()
    }

    pub(crate) async fn connected(server: &Server) -> Self {
        let mut client = Self::open(server).await;
        client.send(json!({"id": 1, "connect": {}})).await;
        assert!(client.reply(1).await["connect"].is_object());
        client
    }

    /// A client with this connect command, subscribed to the channel; whatever else it gets waits for `next`.
    pub(crate) async fn introduced(server: &Server, connect: Value, channel: &str) -> Self {
        let mut client = Self::open(server).await;
        client.send(json!({"id": 1, "connect": connect})).await;
        assert!(client.reply(1).await["connect"].is_object());
        client.subscribe(json!({"channel": channel})).await;
        client
    }

    pub(crate) async fn subscribe(&mut self, request: Value) -> Value {
        self.send(json!({"id": 2, "subscribe": request})).await;
        let reply = self.reply(2).await["subscribe"].clone();
        assert!(reply.is_object());
        self.epoch = reply["epoch"].as_str().unwrap_or_default().to_owned();
        reply
    }

    /// Answers a ping.
    pub(crate) async fn pong(&mut self) {
        self.send(json!({})).await;
    }

    /// Everything that comes before the answer to a command sent now.
    pub(crate) async fn flush(&mut self) -> Vec<Value> {
        let flush = json!({"id": 99, "presence_stats": {"channel": "kept:1"}});
        self.send(flush).await;
        let mut messages = Vec::new();
        loop {
            match self.next().await {
                message if message["id"] == 99 => return messages,
                message => messages.push(message),
            }
        }
    }

    pub(crate) async fn subscribed(server: &Server, channel: &str) -> Self {
        let mut client = Self::connected(server).await;
        client.send(json!({"id": 2, "subscribe": {"channel": channel}})).await;
        let reply = client.reply(2).await;
        assert!(reply["subscribe"].is_object(), "{reply}");
        client.epoch = reply["subscribe"]["epoch"].as_str().unwrap_or_default().to_owned();
        client
    }

    pub(crate) async fn send(&mut self, command: Value) {
        self.send_text(&command.to_string()).await;
    }

    /// Whether it could be handed to the system.
    pub(crate) async fn try_send(&mut self, command: Value) -> bool {
        self.socket.send(Message::text(command.to_string())).await.is_ok()
    }

    /// Like [`Client::flush`]; `None`: the server has closed the connection.
    pub(crate) async fn try_flush(&mut self) -> Option<Vec<Value>> {
        let mut messages = Vec::new();
        if !self.try_send(json!({"id": 99, "presence_stats": {"channel": "kept:1"}})).await {
            return None;
        }
        loop {
            match self.try_next().await.ok()? {
                message if message["id"] == 99 => return Some(messages),
                message => messages.push(message),
            }
        }
    }

    /// The text of the next frame.
    pub(crate) async fn frame(&mut self) -> String {
        let message = timeout(DEADLINE, self.socket.next()).await.expect("a frame within the deadline");
        message.unwrap().unwrap().into_text().unwrap().to_string()
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next message, whatever it is.
    pub(crate) async fn next(&mut self) -> Value {
        self.try_next().await.unwrap_or_else(|code| panic!("closed with {code:?}"))
    }

    /// The reply to a command; pushes that come first wait for `next`.
    pub(crate) async fn reply(&mut self, id: u64) -> Value {
        let mut earlier = VecDeque::new();
        let reply = loop {
            let message = self.next().await;
            if message["id"] == id {
                break message;
            }
            earlier.push_back(message);
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

    /// Everything until the end, and the close code.
    pub(crate) async fn drain(&mut self) -> (Vec<Value>, Option<u16>) {
        let mut messages = Vec::new();
        loop {
            match self.try_next().await {
                Ok(message) => messages.push(message),
                Err(code) => return (messages, code),
            }
        }
    }

    /// Everything before the answer to a command sent now, or before the end.
    pub(crate) async fn flush_or_end(&mut self) -> Vec<Value> {
        self.try_send(json!({"id": 99, "presence_stats": {"channel": "kept:1"}})).await;
        let mut messages = Vec::new();
        loop {
            match self.try_next().await {
                Ok(message) if message["id"] != 99 => messages.push(message),
                _ => return messages,
            }
        }
    }

    async fn try_next(&mut self) -> Result<Value, Option<u16>> {
        if let Some(message) = self.waiting.pop_front() {
            return Ok(message);
        }
        loop {
            match timeout(DEADLINE, self.socket.next()).await.expect("a message or the end within the deadline") {
                Some(Ok(Message::Text(text))) => {
                    self.waiting.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
                    return Ok(self.waiting.pop_front().unwrap());
                }
                Some(Ok(Message::Close(frame))) => {
                    while let Some(Ok(_)) = self.socket.next().await {} // Sends our close frame and waits for the end.
                    return Err(frame.map(|frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }
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
        socket.write_all(upgrade_request("").as_bytes()).unwrap();
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

fn upgrade_request(subprotocol: &str) -> String {
    format!(
        "GET /connection/websocket HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
}

/// Status and confirmed subprotocol of a handshake.
pub(crate) async fn handshake(server: &Server, subprotocol: &str) -> (u16, Option<String>) {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all(upgrade_request(subprotocol).as_bytes()).await.unwrap();
    let mut head = vec![0; 4096];
    let count = timeout(DEADLINE, socket.read(&mut head)).await.unwrap().unwrap();
    let head = String::from_utf8_lossy(&head[..count]).to_lowercase();
    let confirmed = head.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: ").map(str::to_owned));
    (head["http/1.1 ".len()..][..3].parse().unwrap(), confirmed)
}
