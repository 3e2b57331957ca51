//! A WebSocket to a server that speaks the Centrifugo client protocol.
//!
//! In Protobuf the caller writes and reads the frames: [`Socket::send_binary`] and [`Socket::binary_frame`]. The rest of
//! this page is about JSON.
//!
//! A text frame has one command, reply or push in each line. [`Socket::frame`] returns whole frames unchanged.
//! [`Socket::next`], [`Socket::message`] and [`Socket::reply`] return single messages. A program uses either frames or
//! messages: a message that waits for [`Socket::next`] is not in a later frame.
//!
//! The socket does not answer pings of the protocol (`{}`), except in [`Socket::message`]. It has no deadlines and does
//! not reconnect: the caller decides both. It does not check the form or the order of the server's messages.
//!
//! Limits: tungstenite refuses a message over 64 MiB. [`Socket::reply`] keeps all messages that come before the reply.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::StatusCode;
use serde_json::{Value, json};
use tidings_types::Format;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::ServerUrl;
use crate::transport::Transport;

/// The answer to a ping.
pub const PONG: &str = "{}";

/// Bytes read at a time: enough for several events, and little enough for thousands of sockets.
const READ_BYTES: usize = 8 << 10;

/// An open connection.
#[derive(Debug)]
pub struct Socket {
    stream: WebSocketStream<Transport>,
    /// Messages that were received and not taken yet.
    waiting: VecDeque<Value>,
    last_id: u64,
}

/// Why a connection failed or ended.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The server refused the upgrade to WebSocket.
    #[error("HTTP error: {0}")]
    Refused(StatusCode),
    /// The server closed the connection with a reason.
    #[error("the server disconnected: {code} {reason}")]
    Closed {
        /// A close code of WebSocket or of the Centrifugo protocol.
        code: u16,
        /// The reason, in words.
        reason: String,
    },
    /// The connection is gone without a close code.
    #[error("connection closed")]
    Ended,
    /// A message is not JSON.
    #[error("the server does not speak the protocol")]
    Message(#[source] serde_json::Error),
    /// The connection failed. The text of tungstenite's error contains its cause, so this error has no source.
    #[error("{0}")]
    Broken(Error),
}

impl From<Error> for SocketError {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl Socket {
    /// Opens a connection to the server, in this format.
    ///
    /// # Cancel safety
    /// If this is dropped, the connection is closed.
    pub async fn open(server: &ServerUrl, format: Format) -> Result<Self, SocketError> {
        Self::shake_hands(server.connect().await.map_err(Error::Io)?, server, format).await
    }

    /// Performs the handshake over an open connection without TLS.
    ///
    /// # Cancel safety
    /// If this is dropped, the connection is closed.
    pub async fn over(stream: TcpStream, server: &ServerUrl, format: Format) -> Result<Self, SocketError> {
        Self::shake_hands(Transport::Plain(stream), server, format).await
    }

    async fn shake_hands(stream: Transport, server: &ServerUrl, format: Format) -> Result<Self, SocketError> {
        let query = match format {
            Format::Json => "",
            Format::Protobuf => "?format=protobuf",
        };
        let url = format!("ws://{}/connection/websocket{query}", server.authority());
        let config = WebSocketConfig::default().read_buffer_size(READ_BYTES);
        match client_async_with_config(url, stream, Some(config)).await {
            Ok((stream, _)) => Ok(Self { stream, waiting: VecDeque::new(), last_id: 0 }),
            Err(Error::Http(answer)) => Err(SocketError::Refused(answer.status())),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a text frame unchanged.
    ///
    /// # Cancel safety
    /// If this is dropped, the frame may be sent later or never.
    pub async fn send(&mut self, frame: impl Into<Utf8Bytes>) -> Result<(), SocketError> {
        Ok(self.stream.send(Message::text(frame)).await?)
    }

    /// Sends a binary frame unchanged.
    ///
    /// # Cancel safety
    /// As [`Socket::send`].
    pub async fn send_binary(&mut self, frame: impl Into<Bytes>) -> Result<(), SocketError> {
        Ok(self.stream.send(Message::binary(frame)).await?)
    }

    /// Sends commands in one frame. They are numbered from 1 on over the whole connection. Returns the last number.
    ///
    /// # Cancel safety
    /// As [`Socket::send`].
    pub async fn say(&mut self, commands: impl IntoIterator<Item = Value>) -> Result<u64, SocketError> {
        let mut frame = String::new();
        for mut command in commands {
            self.last_id += 1;
            command["id"] = json!(self.last_id);
            frame += &format!("{command}\n");
        }
        self.send(frame).await?;
        Ok(self.last_id)
    }

    /// The next text frame, unchanged.
    ///
    /// # Cancel safety
    /// No received frame is lost.
    pub async fn frame(&mut self) -> Result<Utf8Bytes, SocketError> {
        loop {
            if let Message::Text(text) = self.any_frame().await? {
                return Ok(text);
            }
        }
    }

    /// The next binary frame, unchanged.
    ///
    /// # Cancel safety
    /// No received frame is lost.
    pub async fn binary_frame(&mut self) -> Result<Bytes, SocketError> {
        loop {
            if let Message::Binary(bytes) = self.any_frame().await? {
                return Ok(bytes);
            }
        }
    }

    async fn any_frame(&mut self) -> Result<Message, SocketError> {
        match self.stream.next().await {
            Some(Ok(Message::Close(Some(frame)))) => {
                Err(SocketError::Closed { code: frame.code.into(), reason: frame.reason.to_string() })
            }
            Some(Ok(message)) => Ok(message),
            Some(Err(error)) => Err(error.into()),
            None => Err(SocketError::Ended),
        }
    }

    /// The next message, pings included.
    ///
    /// # Cancel safety
    /// No received frame is lost.
    pub async fn next(&mut self) -> Result<Value, SocketError> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            let frame = self.frame().await?;
            for line in frame.lines() {
                self.waiting.push_back(serde_json::from_str(line).map_err(SocketError::Message)?);
            }
        }
    }

    /// The next message that is not a ping. Pings are answered.
    ///
    /// # Cancel safety
    /// No message is lost. The answer to a ping may be sent later or never.
    pub async fn message(&mut self) -> Result<Value, SocketError> {
        loop {
            match self.next().await? {
                message if is_ping(&message) => self.send(PONG).await?,
                message => return Ok(message),
            }
        }
    }

    /// The reply to the command with this number. Messages before it wait for [`Socket::next`].
    ///
    /// # Cancel safety
    /// If this is dropped, messages before the reply are lost.
    pub async fn reply(&mut self, id: u64) -> Result<Value, SocketError> {
        let mut earlier = VecDeque::new();
        let reply = loop {
            match self.next().await {
                Ok(message) if message["id"] == id => break Ok(message),
                Ok(message) => earlier.push_back(message),
                Err(error) => break Err(error),
            }
        };
        earlier.append(&mut self.waiting);
        self.waiting = earlier;
        reply
    }

    /// The TCP connection, for a caller that reads from it directly.
    pub fn stream_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut().tcp()
    }
}

/// Whether a message is a ping of the protocol.
pub fn is_ping(message: &Value) -> bool {
    message.as_object().is_some_and(serde_json::Map::is_empty)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_async;
    use tokio_tungstenite::tungstenite::protocol::CloseFrame;

    use super::*;

    /// A socket, and its server: after the first frame it sends these frames, closes with 3500, and returns the first frame.
    async fn greeted(frames: &[&str]) -> (Socket, impl Future<Output = String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerUrl::of_listener(listener.local_addr().unwrap());
        let accepted = async { accept_async(listener.accept().await.unwrap().0).await.unwrap() };
        let (socket, mut accepted) = tokio::join!(Socket::open(&server, Format::Json), accepted);
        let frames: Vec<_> = frames.iter().map(|frame| Message::text(*frame)).collect();
        let serve = async move {
            let first = accepted.next().await.unwrap().unwrap().into_text().unwrap().to_string();
            for frame in frames {
                accepted.send(frame).await.unwrap();
            }
            accepted.close(Some(CloseFrame { code: 3500.into(), reason: "because".into() })).await.unwrap();
            while let Some(Ok(_)) = accepted.next().await {} // Until the client has disconnected.
            first
        };
        (socket.unwrap(), serve)
    }

    #[tokio::test]
    async fn messages_come_in_order_and_a_reply_can_be_taken_first() {
        let frames = ["{}", "{\"push\":1}\n{\"id\":1}\n{\"id\":2}\n{}\n{\"push\":2}"];
        let (mut socket, server) = greeted(&frames).await;
        let client = async move {
            assert_eq!(socket.say([json!({"connect": {}}), json!({"subscribe": {}})]).await.unwrap(), 2);
            assert_eq!(socket.reply(2).await.unwrap(), json!({"id": 2}));
            assert_eq!(socket.next().await.unwrap(), json!({}));
            assert_eq!(socket.next().await.unwrap(), json!({"push": 1}));
            assert_eq!(socket.message().await.unwrap(), json!({"id": 1}));
            assert_eq!(socket.message().await.unwrap(), json!({"push": 2}), "the ping between is answered");
            let end = socket.message().await.unwrap_err();
            assert_eq!(end.to_string(), "the server disconnected: 3500 because");
        };
        let (first, ()) = tokio::join!(server, client);
        assert_eq!(first, "{\"connect\":{},\"id\":1}\n{\"id\":2,\"subscribe\":{}}\n");
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_once() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = Socket::open(&ServerUrl::of_listener(address), Format::Json).await.unwrap_err();
        assert_eq!(error.to_string().matches("refused").count(), 1, "{error}");
        assert!(std::error::Error::source(&error).is_none());
    }

    #[tokio::test]
    async fn frames_are_unchanged() {
        let (mut socket, server) = greeted(&["{}\n{\"n\": 1.50}", "no json"]).await;
        let client = async move {
            socket.send("as it is").await.unwrap();
            assert_eq!(socket.frame().await.unwrap().as_str(), "{}\n{\"n\": 1.50}");
            assert!(matches!(socket.next().await, Err(SocketError::Message(_))));
        };
        let (first, ()) = tokio::join!(server, client);
        assert_eq!(first, "as it is");
    }
}
