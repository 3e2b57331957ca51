//! A small ordered protocol in which requests and answers are lines. The test plays the peer.
//!
//! Some lines from the peer have a special meaning: `# …` is skipped, `! …` is malformed, and after the answer `last …` the
//! peer closes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use tidings_pool::{
    CallError, Codec, Connect, Counters, Decoded, Expect, Outgoing, Pool, PoolConfig, Protocol, Reconnect, RequestId,
    SetUp,
};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a line of ours: {0:?}")]
pub(crate) struct BadLine(pub(crate) String);

pub(crate) type Error = CallError<BadLine>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// The set-up exchange sends a hello and expects a welcome.
    pub(crate) greets: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) text: String,
    pub(crate) is_alone: bool,
    pub(crate) is_repeatable: bool,
    /// The peer does not answer it.
    pub(crate) is_one_way: bool,
}

/// A request that may be pipelined, may not be repeated, and is answered.
pub(crate) fn ask(text: impl Into<String>) -> Ask {
    Ask { text: text.into(), is_alone: false, is_repeatable: false, is_one_way: false }
}

impl Ask {
    pub(crate) fn repeatable(self) -> Self {
        Self { is_repeatable: true, ..self }
    }

    pub(crate) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    pub(crate) fn one_way(self) -> Self {
        Self { is_one_way: true, ..self }
    }
}

pub(crate) struct LineCodec {
    greets: bool,
    has_greeted: bool,
}

impl Protocol for Line {
    type Request = Ask;
    type Response = String;
    type Error = BadLine;
    type Codec = LineCodec;

    fn codec(&self) -> LineCodec {
        LineCodec { greets: self.greets, has_greeted: false }
    }

    fn is_pipelinable(&self, request: &Ask) -> bool {
        !request.is_alone
    }

    fn is_repeatable(&self, request: &Ask) -> bool {
        request.is_repeatable
    }
}

fn take_line(input: &mut BytesMut) -> Option<String> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = input.split_to(end + 1);
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}

impl Codec<Line> for LineCodec {
    fn set_up(&mut self, input: &mut BytesMut, out: &mut Outgoing) -> Result<SetUp, BadLine> {
        if !self.greets {
            return Ok(SetUp::Done);
        }
        if !std::mem::replace(&mut self.has_greeted, true) {
            out.put_slice(b"hello\n");
        }
        match take_line(input) {
            None => Ok(SetUp::Continue),
            Some(line) if line == "welcome" => Ok(SetUp::Done),
            Some(line) => Err(BadLine(line)),
        }
    }

    fn encode(&mut self, request: &Ask, _: RequestId, out: &mut Outgoing) -> Result<Expect<String>, BadLine> {
        out.put_slice(request.text.as_bytes());
        out.put_slice(b"\n");
        if request.text.contains('\n') {
            return Err(BadLine(request.text.clone()));
        }
        Ok(if request.is_one_way { Expect::Nothing("gone".into()) } else { Expect::Answer })
    }

    fn decode(&mut self, _: Option<&Ask>, input: &mut BytesMut) -> Result<Decoded<String>, BadLine> {
        let Some(line) = take_line(input) else { return Ok(Decoded::Incomplete) };
        match line.split(' ').next() {
            Some("#") => Ok(Decoded::Skipped),
            Some("!") => Err(BadLine(line)),
            Some("last") => {
                Ok(Decoded::Answer { to: tidings_pool::To::Oldest, response: line[5..].to_owned(), closes: true })
            }
            _ => Ok(Decoded::oldest(line)),
        }
    }

    fn goodbye(&mut self, out: &mut Outgoing) {
        out.put_slice(b"bye\n");
    }
}

/// Small settings, so that tests reach the limits.
pub(crate) fn config(connection_count: usize) -> PoolConfig {
    PoolConfig {
        backlog_max: 100,
        in_flight_max: 10,
        tombstone_max: 5,
        reconnect: Reconnect { min: Duration::from_millis(100), max: Duration::from_secs(10) },
        connect_timeout: Duration::from_secs(1),
        ..PoolConfig::new("test", connection_count)
    }
}

/// A connector. The test has the other ends of its connections.
pub(crate) struct Gate {
    peers: mpsc::Sender<Peer>,
    pub(crate) control: Arc<Control>,
}

/// The test's side of a [`Gate`].
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) refuses: AtomicBool,
    attempts: Mutex<Vec<Instant>>,
}

impl Control {
    pub(crate) fn set_refuses(&self, refuses: bool) {
        self.refuses.store(refuses, Relaxed);
    }

    pub(crate) fn attempts(&self) -> Vec<Instant> {
        self.attempts.lock().unwrap().clone()
    }
}

impl Gate {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Peer>, Arc<Control>) {
        let (peers, rx) = mpsc::channel(1000);
        let control = Arc::new(Control::default());
        (Self { peers, control: Arc::clone(&control) }, rx, control)
    }
}

impl Connect for Gate {
    type Transport = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        self.control.attempts.lock().unwrap().push(Instant::now());
        if self.control.refuses.load(Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = tokio::io::duplex(4096);
        self.peers.try_send(Talk::new(theirs)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(ours)
    }
}

pub(crate) type Peer = Talk<DuplexStream>;

/// The service's end of a connection.
pub(crate) struct Talk<T> {
    pub(crate) io: BufReader<T>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Talk<T> {
    pub(crate) fn new(io: T) -> Self {
        Self { io: BufReader::new(io) }
    }

    /// The next line, or `None` at the end.
    pub(crate) async fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.io.read_line(&mut line).await {
            Ok(count) if count > 0 => Some(line.trim_end().to_owned()),
            _ => None,
        }
    }

    pub(crate) async fn hear_many(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.hear().await.expect("another line"));
        }
        lines
    }

    pub(crate) async fn say(&mut self, line: &str) {
        self.say_bytes(format!("{line}\n").as_bytes()).await;
    }

    /// The other end may have closed.
    pub(crate) async fn say_bytes(&mut self, bytes: &[u8]) {
        let _ = self.io.get_mut().write_all(bytes).await;
    }

    /// Echoes every line until the end.
    pub(crate) async fn echo(mut self) {
        while let Some(line) = self.hear().await {
            self.say(&line).await;
        }
    }
}

/// A pool with one connection that is up, and its peer.
pub(crate) async fn pair(config: PoolConfig) -> (Pool<Line>, Peer, mpsc::Receiver<Peer>, Arc<Control>) {
    let (gate, mut peers, control) = Gate::new();
    let pool = Pool::start(config, Line::default(), gate).unwrap();
    let peer = peers.recv().await.expect("the pool connects");
    until(&pool, |counters| counters.connected > 0).await;
    (pool, peer, peers, control)
}

/// Waits until the counters meet a condition, at most ten seconds of the paused or real clock.
pub(crate) async fn until<P: Protocol>(pool: &Pool<P>, wish: impl Fn(&Counters) -> bool) -> Counters {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let counters = pool.counters();
        if wish(&counters) {
            return counters;
        }
        assert!(Instant::now() < deadline, "the condition is not met: {counters:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// While nothing runs, every accepted request has ended once or is held.
pub(crate) fn check(counters: Counters) {
    assert_eq!(counters.accepted, counters.ended() + counters.held, "{counters:?}");
    assert!(counters.in_flight <= counters.held, "{counters:?}");
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
