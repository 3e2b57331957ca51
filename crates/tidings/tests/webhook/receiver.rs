//! A receiver of reports that behaves as it is told, badly if need be. It speaks HTTP/1.1 by itself, so that it can break
//! the protocol, and checks signatures by itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a request is met with.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// These bytes.
    Answer(Vec<u8>),
    /// Nothing, and the connection stays.
    Silence,
    /// The end of the connection.
    HangUp,
}

/// A whole answer without a body.
pub(crate) fn status(code: u16) -> Behaviour {
    with(code, "")
}

/// The same with header lines.
pub(crate) fn with(code: u16, headers: &str) -> Behaviour {
    let length = if code == 204 { "" } else { "content-length: 0\r\n" };
    Behaviour::Answer(format!("HTTP/1.1 {code} Whatever\r\n{headers}{length}\r\n").into_bytes())
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("reports are JSON")
    }

    /// The event it tells of.
    pub(crate) fn event(&self) -> String {
        self.json()["data"]["id"].as_str().expect("an event's id").to_owned()
    }

    /// How many of its signatures there are, and whether one is by this secret.
    pub(crate) fn signatures(&self, secret: &str) -> (usize, bool) {
        let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut signed = format!("{}.{}.", self.id(), self.headers["webhook-timestamp"]).into_bytes();
        signed.extend_from_slice(&self.body);
        let parts: Vec<&str> = self.headers["webhook-signature"].split(' ').collect();
        let good = parts.iter().any(|part| {
            let mac = BASE64_STANDARD.decode(part.strip_prefix("v1,").expect("version 1")).unwrap();
            hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &mac).is_ok()
        });
        (parts.len(), good)
    }
}

struct Shared {
    requests: Mutex<Vec<Request>>,
    /// What the next requests are met with; after them `otherwise`.
    script: Mutex<VecDeque<Behaviour>>,
    otherwise: Mutex<Behaviour>,
}

pub(crate) struct Receiver {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    pub(crate) async fn start(otherwise: Behaviour) -> Self {
        Self::with_connections(usize::MAX, otherwise).await
    }

    /// One that takes so many connections; others are refused.
    pub(crate) async fn with_connections(count: usize, otherwise: Behaviour) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (requests, script, otherwise) = (Mutex::default(), Mutex::default(), Mutex::new(otherwise));
        let shared = Arc::new(Shared { requests, script, otherwise });
        let (mut tasks, all) = (JoinSet::new(), shared.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for _ in 0..count {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = all.clone();
                connections.spawn(async move {
                    let _ = serve(stream, &shared).await; // Connections may end however they like.
                });
            }
            drop(listener);
            while connections.join_next().await.is_some() {}
        });
        Self { addr, shared, _tasks: tasks }
    }

    /// From now on.
    pub(crate) fn behave(&self, otherwise: Behaviour) {
        *self.shared.otherwise.lock().unwrap() = otherwise;
    }

    pub(crate) fn script(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.shared.script.lock().unwrap().extend(behaviours);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until so many requests have come; all of them.
    pub(crate) async fn has(&self, count: usize) -> Vec<Request> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let requests = self.requests();
            if requests.len() >= count {
                return requests;
            }
            assert!(Instant::now() < deadline, "{} requests, not {count}", requests.len());
            sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut input = Vec::new();
    loop {
        let Some(request) = read(&mut stream, &mut input).await? else { return Ok(()) };
        shared.requests.lock().unwrap().push(request);
        let scripted = shared.script.lock().unwrap().pop_front();
        let behaviour = scripted.unwrap_or_else(|| shared.otherwise.lock().unwrap().clone());
        match behaviour {
            Behaviour::Answer(bytes) => stream.write_all(&bytes).await?,
            Behaviour::HangUp => return Ok(()),
            Behaviour::Silence => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await? > 0 {}
                return Ok(());
            }
        }
    }
}

async fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    loop {
        if let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(input[..end].to_vec()).expect("heads are ASCII");
            let mut lines = head.split("\r\n").map(str::to_owned);
            let line = lines.next().unwrap_or_default();
            let headers: BTreeMap<String, String> = lines
                .map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap())
                .collect();
            let length: usize = headers["content-length"].parse().expect("a length");
            if input.len() >= end + 4 + length {
                let body = input[end + 4..end + 4 + length].to_vec();
                input.drain(..end + 4 + length);
                return Ok(Some(Request { line, headers, body }));
            }
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}
