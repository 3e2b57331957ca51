//! One connection of a churning client: five ways to connect, one form of message. Nothing is judged here.
//!
//! What comes is JSON, also from Protobuf; the payload of a delta is dropped. A message may take [`PATIENCE`]. What was
//! received and not taken is as large as one frame or event of the server.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use serde_json::{Value, json};
use tidings_trial::raw::{HOME, PATIENCE, exchange, line, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::schema;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    WebSocket,
    Protobuf,
    Sse,
    HttpStream,
    /// Unidirectional, by an HTTP stream.
    Listen,
}

pub(crate) const WAYS: [Way; 5] = [Way::WebSocket, Way::Protobuf, Way::Sse, Way::HttpStream, Way::Listen];

/// The connection has ended, with the code of the protocol if the server said one.
pub(crate) type Ended = Option<u64>;

enum Pipe {
    Frames(Box<WebSocketStream<TcpStream>>),
    Stream(TcpStream, Vec<u8>),
}

pub(crate) struct Wire {
    server: SocketAddr,
    way: Way,
    pipe: Pipe,
    waiting: VecDeque<Value>,
    /// Where commands go that do not go on the connection: `node` and `session`.
    pub(crate) session: Value,
}

impl Wire {
    /// Connects with the first commands, or with one connect request to listen.
    pub(crate) async fn open(server: SocketAddr, way: Way, first: &[Value]) -> Result<Self, String> {
        let stream = line(server, HOME).await.map_err(|error| format!("cannot connect: {error}"))?;
        let opened = timeout(PATIENCE, async {
            match way {
                Way::WebSocket => frames(server, "", stream).await,
                Way::Protobuf => frames(server, "?format=protobuf", stream).await,
                Way::Sse => streamed("/connection/sse", "\r\n\r\n\r\n", stream, first).await,
                Way::HttpStream => streamed("/connection/http_stream", "\r\n\r\n", stream, first).await,
                Way::Listen => streamed("/connection/uni_http_stream", "\r\n\r\n", stream, first).await,
            }
        });
        let pipe = opened.await.map_err(|_| format!("{way:?}: no answer"))??;
        let mut wire = Self { server, way, pipe, waiting: VecDeque::new(), session: Value::Null };
        if matches!(wire.pipe, Pipe::Frames(_)) {
            wire.say(first).await?;
        }
        Ok(wire)
    }

    /// Sends commands in one frame or request. That the connection has ended meanwhile is no error: the next read says so.
    pub(crate) async fn say(&mut self, commands: &[Value]) -> Result<(), String> {
        match &mut self.pipe {
            Pipe::Frames(socket) => {
                let frame = match self.way {
                    Way::Protobuf => Message::binary(protobuf(commands)),
                    _ => Message::text(lines(commands)),
                };
                _ = timeout(PATIENCE, socket.send(frame)).await.map_err(|_| "the server takes no command")?;
            }
            Pipe::Stream(..) => {
                let mut body = self.session.clone();
                body["data"] = json!(lines(commands));
                let headers = ["Content-Type: application/json", "Connection: close"];
                let emulation = request("POST", "/emulation", &headers, body.to_string().as_bytes());
                match exchange(self.server, HOME, &emulation).await {
                    Ok((204, _)) => {}
                    Ok((status, _)) => return Err(format!("/emulation is answered {status}")),
                    Err(error) => return Err(format!("/emulation is not answered: {error}")),
                }
            }
        }
        Ok(())
    }

    /// The next message; pings are answered.
    ///
    /// Cancel safe, except that the answer to a ping may be lost.
    pub(crate) async fn next(&mut self) -> Result<Value, Ended> {
        loop {
            while self.waiting.is_empty() {
                self.read().await?;
            }
            match self.waiting.pop_front().expect("one is there") {
                ping if ping.as_object().is_some_and(serde_json::Map::is_empty) => {
                    if self.way != Way::Listen {
                        _ = self.say(&[ping]).await;
                    }
                }
                message => return Ok(message),
            }
        }
    }

    async fn read(&mut self) -> Result<(), Ended> {
        match &mut self.pipe {
            Pipe::Frames(socket) => match socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    self.waiting.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")));
                }
                Some(Ok(Message::Binary(mut bytes))) => {
                    while !bytes.is_empty() {
                        let reply = schema::Reply::decode_length_delimited(&mut bytes).expect("Protobuf");
                        self.waiting.push_back(as_json(reply));
                    }
                }
                Some(Ok(Message::Close(Some(frame)))) => return Err(Some(u16::from(frame.code).into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            },
            Pipe::Stream(stream, bytes) => {
                let count = stream.read_buf(bytes).await.map_err(|_| None)?;
                if count == 0 {
                    return Err(None);
                }
                let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
                for line in bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let line = line.strip_prefix(b"data: ").unwrap_or(line);
                    self.waiting.push_back(serde_json::from_slice(line).expect("JSON"));
                }
                bytes.drain(..=end);
            }
        }
        Ok(())
    }

    /// Ends the connection in an orderly way, and waits for the server's end where there is one.
    pub(crate) async fn close(mut self) -> Result<(), String> {
        let Pipe::Frames(socket) = &mut self.pipe else { return Ok(()) };
        let closed = timeout(PATIENCE, async {
            _ = socket.close().await;
            while let Some(Ok(_)) = socket.next().await {}
        });
        closed.await.map_err(|_| "the server does not end a connection that was closed".to_owned())
    }

    /// Cuts the connection off with a TCP reset.
    pub(crate) fn reset(self) {
        let stream = match &self.pipe {
            Pipe::Frames(socket) => socket.get_ref(),
            Pipe::Stream(stream, _) => stream,
        };
        stream.set_zero_linger().expect("it is a TCP socket");
    }
}

async fn frames(server: SocketAddr, query: &str, stream: TcpStream) -> Result<Pipe, String> {
    let opened = client_async(format!("ws://{server}/connection/websocket{query}"), stream).await;
    let (socket, _) = opened.map_err(|error| format!("no WebSocket: {error}"))?;
    Ok(Pipe::Frames(Box::new(socket)))
}

/// `head_end` ends what comes before the first message.
async fn streamed(path: &str, head_end: &str, mut stream: TcpStream, first: &[Value]) -> Result<Pipe, String> {
    let body = request("POST", path, &["Content-Type: application/json"], lines(first).as_bytes());
    stream.write_all(&body).await.map_err(|error| error.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(head_end.as_bytes()) {
        head.push(stream.read_u8().await.map_err(|error| format!("{path}: {error}"))?);
    }
    let is_accepted = head.starts_with(b"HTTP/1.1 200");
    is_accepted.then_some(Pipe::Stream(stream, Vec::new())).ok_or_else(|| String::from_utf8_lossy(&head).into_owned())
}

fn lines(commands: &[Value]) -> String {
    commands.iter().map(|command| format!("{command}\n")).collect()
}

fn protobuf(commands: &[Value]) -> Vec<u8> {
    let read = |command: &Value| serde_json::from_value::<schema::Command>(command.clone()).expect("a command");
    commands.iter().flat_map(|command| read(command).encode_length_delimited_to_vec()).collect()
}

fn as_json(mut reply: schema::Reply) -> Value {
    let pushed = reply.push.as_mut().and_then(|push| push.r#pub.as_mut());
    let recovered = reply.subscribe.iter_mut().flat_map(|answer| &mut answer.publications);
    pushed.into_iter().chain(recovered).filter(|publication| publication.delta).for_each(|delta| delta.data.clear());
    serde_json::to_value(reply).expect("it was JSON")
}
