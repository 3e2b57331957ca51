//! The attackers' side of the wire: connections from an address of one's own choice, single HTTP requests, and WebSocket
//! clients that may leave unread what comes.
//!
//! What takes longer than [`PATIENCE`] is an error.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_client::{ServerUrl, Socket};
use tidings_types::Format;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::API_KEY;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Those who behave.
pub(crate) const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The attackers: what the server limits by address does not meet anybody else.
pub(crate) const ABROAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// So small that what is not read soon waits in the server.
const RECEIVE_BUFFER_BYTES: u32 = 16 * 1024;

/// A connection that says nothing yet.
pub(crate) async fn line(server: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind((from, 0).into())?;
    let stream = timeout(PATIENCE, socket.connect(server)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request as bytes, with `headers` of one line each.
pub(crate) fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n");
    headers.iter().for_each(|header| head.extend([*header, "\r\n"]));
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A request by the backend, with a body of JSON.
pub(crate) fn backend_request(method: &str, path: &str, body: &Value) -> Vec<u8> {
    let key = format!("X-API-Key: {API_KEY}");
    request(method, path, &[&key, "Content-Type: application/json", "Connection: close"], body.to_string().as_bytes())
}

/// Sends a request that ends its connection, and reads the answer: its status and all of its bytes.
pub(crate) async fn exchange(server: SocketAddr, from: Ipv4Addr, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = line(server, from).await?;
    let mut answer = Vec::new();
    let exchanged = timeout(PATIENCE, async {
        stream.write_all(request).await?;
        stream.read_to_end(&mut answer).await
    });
    exchanged.await??;
    let status = answer.get(9..12).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer))
}

/// A problem in the body of an answer.
pub(crate) fn last_line(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).lines().next_back().unwrap_or_default().to_owned()
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
        let opened = timeout(PATIENCE, Socket::over(stream, &ServerUrl::of_listener(server), Format::Json)).await;
        let socket = opened.map_err(|_| "no answer")?.map_err(|error| format!("no WebSocket: {error}"))?;
        let mut client = Self { socket, last_id: 0 };
        client.ask(json!({ "connect": {} })).await?;
        Ok(client)
    }

    /// Sends commands in one frame, and waits for no answer.
    pub(crate) async fn say(&mut self, commands: impl IntoIterator<Item = Value>) -> Result<(), String> {
        self.last_id = self.socket.say(commands).await.map_err(|error| error.to_string())?;
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
