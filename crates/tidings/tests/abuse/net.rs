//! The attackers' side of the wire: WebSocket clients that may leave unread what comes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket};
use tidings_trial::raw::{HOME, PATIENCE, exchange, last_line, line};
use tidings_types::Format;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::API_KEY;

/// The attackers: what the server limits by address does not meet anybody else.
pub(crate) const ABROAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A request by the backend, with a body of JSON.
pub(crate) fn backend_request(method: &str, path: &str, body: &Value) -> Vec<u8> {
    tidings_trial::raw::backend_request(API_KEY, method, path, body)
}

/// The backend asks for what must succeed.
pub(crate) async fn must(server: SocketAddr, method: &str, path: &str, body: &Value) {
    let (status, answer) = exchange(server, HOME, &backend_request(method, path, body)).await.unwrap();
    assert!((200..300).contains(&status), "{method} {path}: {status} {}", last_line(&answer));
}

/// A client of the Centrifugo protocol.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    /// The number of the last command.
    last_id: u64,
}

impl Client {
    /// Connects without a token.
    pub(crate) async fn connect(server: SocketAddr, from: Ipv4Addr) -> Result<Self, String> {
        Self::over(server, line(server, from).await).await
    }

    pub(crate) async fn over(server: SocketAddr, stream: io::Result<TcpStream>) -> Result<Self, String> {
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        Self::with(server, stream, json!({})).await
    }

    /// With this request to connect.
    pub(crate) async fn with(server: SocketAddr, stream: TcpStream, connect: Value) -> Result<Self, String> {
        let opened = timeout(PATIENCE, Socket::over(stream, &ServerUrl::of_listener(server), Format::Json)).await;
        let socket = opened.map_err(|_| "no answer")?.map_err(|error| format!("no WebSocket: {error}"))?;
        let mut client = Self { socket, last_id: 0 };
        client.ask(json!({ "connect": connect })).await?;
        Ok(client)
    }

    /// Sends commands in one frame, and waits for no answer.
    pub(crate) async fn say(&mut self, commands: impl IntoIterator<Item = Value>) -> Result<(), String> {
        self.last_id = self.socket.say(commands).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Sends commands in one frame. Returns the number of the first.
    pub(crate) async fn say_from(&mut self, commands: Vec<Value>) -> Result<u64, String> {
        let count = commands.len() as u64;
        self.say(commands).await?;
        Ok(self.last_id + 1 - count)
    }

    /// Does nothing for so long, but answers pings.
    pub(crate) async fn answer_pings(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while let Ok(message) = timeout_at(end, self.socket.message()).await {
            message.map_err(|error| format!("cut off: {error}"))?;
        }
        Ok(())
    }

    /// Sends a command and waits for its answer; one that is an error is none.
    pub(crate) async fn ask(&mut self, command: Value) -> Result<Value, String> {
        self.say([command]).await?;
        loop {
            let message = self.message().await?;
            if message["id"] == self.last_id {
                return if message["error"].is_null() { Ok(message) } else { Err(format!("refused: {message}")) };
            }
        }
    }

    /// The next message; pings are answered.
    pub(crate) async fn message(&mut self) -> Result<Value, String> {
        let message = timeout(PATIENCE, self.socket.message()).await.map_err(|_| "no message comes")?;
        message.map_err(|error| error.to_string())
    }

    /// Reads the answers to all commands so far, errors too, or as many as come before the server closes the connection.
    pub(crate) async fn read_answers(&mut self) {
        while self.message().await.is_ok_and(|message| message["id"] != self.last_id) {}
    }
}
