//! A provider made of bare HTTP/2 frames, so that it can do all that RFC 9113 allows and `h2`'s own server would not:
//! lower the limit at work, refuse, leave, cut, fall silent. It answers by a script, and counts open streams against
//! the last limit that was acknowledged.
//!
//! It does not decode headers; a request is known by its body, the device's number.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What the peer does about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// 200.
    Accept,
    /// Another status with this body.
    Refuse(u16, String),
    /// The same with a `retry-after` of so many seconds.
    RefuseFor(u16, String, u32),
    /// The same with a `retry-after` of this date.
    RefuseUntil(u16, String, String),
    /// The same, a byte at a time, with the peer's latency between two.
    Drip(u16, String),
    /// The same, broken off in the middle of the body.
    Torn(u16, String),
    /// 200 with a `content-length` that is not kept.
    WrongLength,
    /// 200, and RST_STREAM with NO_ERROR behind it (RFC 9113, 8.1).
    Hasty,
    /// The rest of a [`Reply::Drip`].
    DripOn(Vec<u8>),
    /// Says nothing more and closes its half of the connection, but reads on.
    HalfClose,
    /// RST_STREAM with this code.
    Reset(u32),
    /// GOAWAY that calls this stream and all later ones not processed; earlier ones are still answered.
    GoAway,
    /// Closes the socket.
    Cut,
    /// No answer at all, to anything, PING included, from now on.
    Stall,
    /// No answer to this one.
    Ignore,
    /// Reads nothing more until [`Peer::listen_again`]; no answer to this one.
    Deaf,
}

impl Reply {
    pub(crate) fn refuse(status: u16, reason: &str) -> Self {
        Self::Refuse(status, format!(r#"{{"reason":"{reason}"}}"#))
    }
}

/// What the script is told: which device, and how many requests for it came before this one.
pub(crate) type Script = Arc<dyn Fn(u32, usize) -> Reply + Send + Sync>;

pub(crate) struct Behaviour {
    pub(crate) script: Script,
    /// The limit stated first, and the ones stated after each further `limit_every` answers, over and over.
    pub(crate) limits: Vec<u32>,
    pub(crate) limit_every: usize,
    /// How long answers are gathered.
    pub(crate) latency: Duration,
    /// It never gives more of a window than a connection begins with.
    pub(crate) stingy: bool,
    /// What its GOAWAYs say.
    pub(crate) goodbye: &'static str,
}

/// What the peer has seen.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Requests per device.
    pub(crate) requests: HashMap<u32, usize>,
    /// Requests per device that were answered with 200.
    pub(crate) accepted: HashMap<u32, usize>,
    pub(crate) connections: usize,
    /// Most streams open at once.
    pub(crate) open_max: usize,
    /// Streams opened over the acknowledged limit.
    pub(crate) violations: usize,
    /// Reads from the socket that brought requests.
    pub(crate) reads: usize,
    /// It reads nothing at present.
    pub(crate) deaf: bool,
    /// Devices in the order of their requests.
    pub(crate) order: Vec<u32>,
    /// PINGs, acknowledgements not counted.
    pub(crate) pings: usize,
    /// Bytes of body that went beyond the window of their connection.
    pub(crate) overrun: usize,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) ca_pem: String,
    pub(crate) log: Arc<Mutex<Log>>,
    listening: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// A certificate for `localhost` and the server side that uses it.
pub(crate) fn acceptor() -> (TlsAcceptor, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), cert.pem())
}

impl Peer {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let (acceptor, ca_pem) = acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Mutex<Log>>::default();
        let behaviour = Arc::new(behaviour);
        let listening = Arc::<Notify>::default();
        let mut tasks = JoinSet::new();
        let (task_log, task_listening) = (Arc::clone(&log), Arc::clone(&listening));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                task_log.lock().unwrap().connections += 1;
                let (acceptor, behaviour, log) = (acceptor.clone(), Arc::clone(&behaviour), Arc::clone(&task_log));
                let listening = Arc::clone(&task_listening);
                connections.spawn(async move {
                    // A client that hangs up is no failure of the peer's.
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        _ = Session::new(behaviour, log, listening).serve(tls).await;
                    }
                });
            }
        });
        Self { address, ca_pem, log, listening, _tasks: tasks }
    }

    pub(crate) fn listen_again(&self) {
        self.listening.notify_one();
    }

    pub(crate) fn log<R>(&self, read: impl FnOnce(&Log) -> R) -> R {
        read(&self.log.lock().unwrap())
    }
}

struct Session {
    behaviour: Arc<Behaviour>,
    log: Arc<Mutex<Log>>,
    listening: Arc<Notify>,
    deaf: bool,
    /// The limit in force; before the first acknowledgement there is none.
    limit: usize,
    /// Sent and not acknowledged.
    limits_sent: VecDeque<u32>,
    limit_index: usize,
    answers: usize,
    /// Streams that are open, with the body so far.
    open: HashMap<u32, Vec<u8>>,
    /// Complete requests that wait for their answer.
    due: Vec<(u32, u32, Reply)>,
    /// Streams from this one on are not processed.
    gone_from: Option<u32>,
    stalled: bool,
    /// Nothing more is said, but read.
    mute: bool,
    /// What may still be sent to a stingy peer.
    window: usize,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Session {
    fn new(behaviour: Arc<Behaviour>, log: Arc<Mutex<Log>>, listening: Arc<Notify>) -> Self {
        Self {
            behaviour,
            log,
            listening,
            deaf: false,
            limit: usize::MAX,
            limits_sent: VecDeque::new(),
            limit_index: 0,
            answers: 0,
            open: HashMap::new(),
            due: Vec::new(),
            gone_from: None,
            stalled: false,
            mute: false,
            window: 65_535,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    async fn serve(mut self, mut tls: TlsStream<TcpStream>) -> std::io::Result<()> {
        let mut preface = [0; PREFACE.len()];
        tls.read_exact(&mut preface).await?;
        assert_eq!(preface, PREFACE);
        self.state_limit();
        if !self.behaviour.stingy {
            self.frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
        }
        let mut said_all = false;
        loop {
            let output = std::mem::take(&mut self.output);
            if !said_all {
                tls.write_all(&output).await?;
                tls.flush().await?;
            }
            if self.mute && !said_all {
                said_all = true;
                tls.shutdown().await?;
            }
            if std::mem::take(&mut self.deaf) {
                self.log.lock().unwrap().deaf = true;
                self.listening.notified().await;
                self.log.lock().unwrap().deaf = false;
            }
            let latency = self.behaviour.latency;
            self.input.reserve(64 * 1024); // Or a full buffer would cut what came in one piece.
            tokio::select! {
                count = tls.read_buf(&mut self.input) => {
                    if count? == 0 || !self.read_frames() {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep(latency), if !self.due.is_empty() => self.answer(),
                // A limit of 0 is raised again without an answer.
                () = tokio::time::sleep(5 * latency), if self.limit == 0 => self.state_limit(),
            }
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.output.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.output.extend_from_slice(&[kind, flags]);
        self.output.extend_from_slice(&stream.to_be_bytes());
        self.output.extend_from_slice(payload);
    }

    fn state_limit(&mut self) {
        let limit = self.behaviour.limits[self.limit_index % self.behaviour.limits.len()];
        self.limit_index += 1;
        self.limits_sent.push_back(limit);
        let [a, b, c, d] = limit.to_be_bytes();
        self.frame(SETTINGS, 0, 0, &[0, 3, a, b, c, d]);
    }

    /// Takes all complete frames; false when the socket is to be closed.
    fn read_frames(&mut self) -> bool {
        let requests_before = self.due.len();
        while let Some(&[a, b, c]) = self.input.first_chunk() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if self.input.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = self.input.drain(..9 + length).collect();
            let stream = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
            if !self.on_frame(frame[3], frame[4], stream, &frame[9..]) {
                return false;
            }
        }
        if self.due.len() > requests_before {
            self.log.lock().unwrap().reads += 1;
        }
        true
    }

    fn on_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        if self.stalled {
            return true;
        }
        match kind {
            SETTINGS if flags & ACK != 0 => {
                self.limit = self.limits_sent.pop_front().expect("one acknowledgement per SETTINGS") as usize;
            }
            SETTINGS => self.frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => {
                self.log.lock().unwrap().pings += 1;
                self.frame(PING, ACK, 0, payload);
            }
            HEADERS => {
                self.open.insert(stream, Vec::new());
                let mut log = self.log.lock().unwrap();
                log.open_max = log.open_max.max(self.open.len());
                log.violations += usize::from(self.open.len() > self.limit);
            }
            DATA => {
                if self.behaviour.stingy {
                    self.log.lock().unwrap().overrun += payload.len().saturating_sub(self.window);
                    self.window = self.window.saturating_sub(payload.len());
                }
                if let Some(body) = self.open.get_mut(&stream) {
                    body.extend_from_slice(payload);
                }
                if flags & END_STREAM != 0 {
                    return self.on_request(stream);
                }
            }
            RST_STREAM => _ = self.open.remove(&stream),
            _ => {}
        }
        true
    }

    fn on_request(&mut self, stream: u32) -> bool {
        if self.gone_from.is_some_and(|first| stream >= first) {
            return true;
        }
        let Some(body) = self.open.get(&stream) else { return true };
        let text = std::str::from_utf8(body).unwrap();
        // A message for FCM has it in its token.
        let text = text.split_once("\"token\":\"device-").map_or(text, |(_, rest)| rest.split('"').next().unwrap());
        let device: u32 = text.trim().parse().unwrap();
        let before = {
            let mut log = self.log.lock().unwrap();
            log.order.push(device);
            let count = log.requests.entry(device).or_default();
            *count += 1;
            *count - 1
        };
        match (self.behaviour.script)(device, before) {
            Reply::Cut => return false,
            Reply::Stall => self.stalled = true,
            Reply::Ignore => {}
            Reply::Deaf => self.deaf = true,
            Reply::HalfClose => self.mute = true,
            Reply::GoAway => {
                self.gone_from = Some(stream);
                let last = stream.saturating_sub(2).to_be_bytes();
                let goodbye = self.behaviour.goodbye.as_bytes();
                self.frame(GOAWAY, 0, 0, &[&last[..], &0u32.to_be_bytes(), goodbye].concat());
                self.open.retain(|id, _| *id < stream);
            }
            reply => self.due.push((stream, device, reply)),
        }
        true
    }

    /// Answers all requests that wait, the last one first.
    fn answer(&mut self) {
        let (mut due, mut next) = (std::mem::take(&mut self.due), Vec::new());
        if self.stalled || self.mute {
            return;
        }
        while let Some((stream, device, reply)) = due.pop() {
            if self.open.remove(&stream).is_none() {
                continue;
            }
            match reply {
                Reply::Accept => {
                    self.frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]);
                    *self.log.lock().unwrap().accepted.entry(device).or_default() += 1;
                }
                Reply::Refuse(status, body) => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(status, &[]));
                    self.frame(DATA, END_STREAM, stream, body.as_bytes());
                }
                Reply::RefuseFor(status, body, seconds) => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(status, &[("retry-after", &seconds.to_string())]));
                    self.frame(DATA, END_STREAM, stream, body.as_bytes());
                }
                Reply::RefuseUntil(status, body, date) => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(status, &[("retry-after", &date)]));
                    self.frame(DATA, END_STREAM, stream, body.as_bytes());
                }
                Reply::Drip(status, body) => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(status, &[]));
                    self.open.insert(stream, Vec::new());
                    next.push((stream, device, Reply::DripOn(body.into_bytes())));
                    continue;
                }
                Reply::DripOn(mut body) => {
                    let end = if body.len() == 1 { END_STREAM } else { 0 };
                    self.frame(DATA, end, stream, &[body.remove(0)]);
                    if !body.is_empty() {
                        self.open.insert(stream, Vec::new());
                        next.push((stream, device, Reply::DripOn(body)));
                        continue;
                    }
                }
                Reply::Torn(status, body) => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(status, &[]));
                    self.frame(DATA, 0, stream, &body.as_bytes()[..body.len() / 2]);
                    self.frame(RST_STREAM, 0, stream, &2u32.to_be_bytes());
                }
                Reply::WrongLength => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(200, &[("content-length", "5")]));
                    self.frame(DATA, END_STREAM, stream, b"{}");
                    *self.log.lock().unwrap().accepted.entry(device).or_default() += 1;
                }
                Reply::Hasty => {
                    self.frame(HEADERS, END_HEADERS, stream, &head(200, &[]));
                    self.frame(RST_STREAM, 0, stream, &0u32.to_be_bytes());
                    *self.log.lock().unwrap().accepted.entry(device).or_default() += 1;
                }
                Reply::Reset(code) => self.frame(RST_STREAM, 0, stream, &code.to_be_bytes()),
                other => unreachable!("{other:?} is done at once"),
            }
            self.answers += 1;
            if self.answers.is_multiple_of(self.behaviour.limit_every) {
                self.state_limit();
            }
        }
        self.due = next;
    }
}

/// A status and further headers: literals without indexing (RFC 7541, 6.2.2), `:status` from the static table.
fn head(status: u16, more: &[(&str, &str)]) -> Vec<u8> {
    let mut head = [&[0x08, 3][..], status.to_string().as_bytes()].concat();
    for (name, value) in more {
        head.extend([0, name.len() as u8]);
        head.extend(name.as_bytes());
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    }
    head
}
