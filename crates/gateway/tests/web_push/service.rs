//! A push service that speaks HTTP/1.1 over TLS by hand, so that it can do what no library would, for any number of
//! hosts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Its certificate is for all names below this one.
pub(crate) const DOMAIN: &str = "push.example";

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// As `Host` has it.
    pub(crate) host: String,
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Requests with this target that came before.
    pub(crate) before: usize,
}

/// What the service does about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers with this status, these further header lines, this body.
    Answer(u16, String, String),
    /// Hangs up.
    Cut,
    /// Hangs up in the middle of a 201.
    CutInAnswer,
    /// No answer, ever.
    Stall,
    /// This status, and a body without an end.
    Flood(u16),
    /// This answer, when there is a permit for it.
    Held(Arc<Semaphore>, u16),
    /// The bytes as they are, one by one, and the connection goes on.
    Drip(String),
    /// The bytes as they are; nothing more is said, but what comes is read.
    HalfClose(String),
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, String::new(), String::new())
    }

    pub(crate) fn with(status: u16, header: &str) -> Self {
        Self::Answer(status, format!("{header}\r\n"), String::new())
    }
}

pub(crate) type Script = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// What the service has seen.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: Vec<Request>,
    /// Connections with a TLS session, over all time.
    pub(crate) connections: usize,
    /// Connections open now, by the name asked for.
    pub(crate) open: HashMap<String, usize>,
    /// Most names with open connections at a time.
    pub(crate) hosts_max: usize,
    /// Most connections of one name at a time.
    pub(crate) per_host_max: usize,
    /// Requests that came before the answer to the one before.
    pub(crate) pipelined: usize,
}

pub(crate) struct PushService {
    pub(crate) address: SocketAddr,
    pub(crate) ca_pem: String,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    script: Script,
    log: Mutex<Log>,
    changed: Notify,
}

impl PushService {
    pub(crate) async fn start(script: Script) -> Self {
        let names = [DOMAIN.to_owned(), format!("*.{DOMAIN}")];
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let mut tls =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key)
                .unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { script, log: Mutex::default(), changed: Notify::new() });
        let mut task = JoinSet::new();
        let task_shared = Arc::clone(&shared);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&task_shared));
                connections.spawn(async move {
                    // A client that hangs up is no failure of the service's.
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        shared.serve(tls).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, ca_pem: cert.pem(), shared, _task: task }
    }

    pub(crate) fn log<R>(&self, read: impl FnOnce(&Log) -> R) -> R {
        read(&self.shared.log.lock().unwrap())
    }

    /// Waits until what it has seen is enough.
    pub(crate) async fn until(&self, mut is_enough: impl FnMut(&Log) -> bool) {
        let seen = async {
            loop {
                let changed = self.shared.changed.notified();
                if self.log(&mut is_enough) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(crate::PATIENCE, seen).await.is_err() {
            panic!("{} requests, {} connections", self.log(|log| log.requests.len()), self.log(|log| log.connections));
        }
    }
}

impl Shared {
    async fn serve(&self, mut tls: TlsStream<TcpStream>) {
        let name = tls.get_ref().1.server_name().unwrap_or_default().to_owned();
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        self.note(|log| {
            log.connections += 1;
            let open = log.open.entry(name.clone()).or_default();
            *open += 1;
            log.per_host_max = log.per_host_max.max(*open);
            log.hosts_max = log.hosts_max.max(log.open.len());
        });
        let mut input = Vec::new();
        while let Some(request) = read_request(&mut tls, &mut input).await {
            assert_eq!(request.host.split(':').next(), Some(&*name), "the name asked for is the host");
            let request = self.note(|log| {
                log.pipelined += usize::from(!input.is_empty());
                let before = log.requests.iter().filter(|it| it.target == request.target).count();
                log.requests.push(Request { before, ..request });
                log.requests.last().unwrap().clone()
            });
            if !reply(&mut tls, (self.script)(&request)).await {
                break;
            }
        }
        self.note(|log| {
            let open = log.open.get_mut(&name).unwrap();
            *open -= 1;
            if *open == 0 {
                log.open.remove(&name);
            }
        });
    }

    fn note<R>(&self, change: impl FnOnce(&mut Log) -> R) -> R {
        let result = change(&mut self.log.lock().unwrap());
        self.changed.notify_waiters();
        result
    }
}

async fn read_request(tls: &mut TlsStream<TcpStream>, input: &mut Vec<u8>) -> Option<Request> {
    let head_bytes = loop {
        if let Some(at) = input.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(tls, input).await?;
    };
    let head = String::from_utf8(input.drain(..head_bytes).collect()).unwrap();
    let mut lines = head.split("\r\n");
    let (method, rest) = lines.next().unwrap().split_once(' ').unwrap();
    let (target, version) = rest.split_once(' ').unwrap();
    assert_eq!((method, version), ("POST", "HTTP/1.1"));
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let body_bytes: usize = headers["content-length"].parse().unwrap();
    while input.len() < body_bytes {
        read_more(tls, input).await?;
    }
    let body = input.drain(..body_bytes).collect();
    Some(Request { host: headers["host"].clone(), target: target.to_owned(), headers, body, before: 0 })
}

async fn read_more(tls: &mut TlsStream<TcpStream>, input: &mut Vec<u8>) -> Option<()> {
    (tls.read_buf(input).await.ok()? > 0).then_some(())
}

/// Returns whether the connection goes on.
async fn reply(tls: &mut TlsStream<TcpStream>, reply: Reply) -> bool {
    match reply {
        Reply::Answer(status, headers, body) => {
            let answer = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
            tls.write_all(answer.as_bytes()).await.is_ok() && tls.flush().await.is_ok()
        }
        Reply::Held(gate, status) => {
            gate.acquire().await.unwrap().forget();
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            tls.write_all(answer.as_bytes()).await.is_ok() && tls.flush().await.is_ok()
        }
        Reply::Drip(answer) => {
            for byte in answer.into_bytes() {
                if tls.write_all(&[byte]).await.is_err() || tls.flush().await.is_err() {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            true
        }
        Reply::HalfClose(answer) => {
            _ = tls.write_all(answer.as_bytes()).await;
            _ = tls.shutdown().await;
            while let Ok(1..) = tls.read(&mut [0; 64]).await {}
            false
        }
        Reply::Cut => false,
        Reply::CutInAnswer => {
            _ = tls.write_all(b"HTTP/1.1 201 Created\r\nContent-Le").await;
            _ = tls.flush().await;
            false
        }
        Reply::Stall => {
            // Until the client gives up.
            while let Ok(1..) = tls.read(&mut [0; 64]).await {}
            false
        }
        Reply::Flood(status) => {
            let mut chunk = format!("HTTP/1.1 {status} X\r\n\r\n").into_bytes();
            while tls.write_all(&chunk).await.is_ok() && tls.flush().await.is_ok() {
                chunk = vec![b'x'; 1024];
            }
            false
        }
    }
}
