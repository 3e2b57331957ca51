//! A client of the protocol that decides nothing: it sends what it is told and shows what it gets.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
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
