//! A client of APNs on `h2::client`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Method, Request, StatusCode};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tidings_simulator::{ApnsSimulator, Faults, PushCertificate, SimulatorConfig};
use tidings_telemetry::unix_now;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

pub(crate) const TOPIC: &str = "com.example.app";

pub(crate) fn start(faults: Faults) -> ApnsSimulator {
    ApnsSimulator::start(SimulatorConfig { seed: 7, topics: vec![TOPIC.into()], faults, ..Default::default() }).unwrap()
}

/// What a client learns about a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Accepted,
    Rejected(StatusCode, String),
    /// Certainly not processed.
    Refused,
    Unknown,
}

impl Seen {
    pub(crate) fn rejected(status: u16, reason: &str) -> Self {
        Self::Rejected(StatusCode::from_u16(status).unwrap(), reason.into())
    }
}

/// A request that a test can change before it is sent.
#[derive(Clone)]
pub(crate) struct Push {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Push {
    /// A valid request for the device and the notification with these numbers.
    pub(crate) fn new(simulator: &ApnsSimulator, device: u32, id: u128) -> Self {
        let mut push = Self {
            method: Method::POST,
            path: format!("/3/device/{}", token(device)),
            headers: HeaderMap::new(),
            body: Bytes::from_static(br#"{"aps":{"alert":"Goal"}}"#),
        };
        push.set("apns-id", Uuid::from_u128(id).to_string());
        push.set("apns-topic", TOPIC);
        push.set("apns-push-type", "alert");
        push.set("apns-priority", "10");
        push.set("apns-expiration", "0");
        push.set("apns-collapse-id", "goal");
        push.set("authorization", bearer(simulator, 0));
        push
    }

    pub(crate) fn set(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.headers.insert(name, value.as_ref().parse().unwrap());
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set(name, value);
        self
    }
}

pub(crate) fn token(device: u32) -> String {
    format!("{device:064x}")
}

thread_local! {
    /// The tokens of this test. A new token for each request would break APNs' rule of twenty minutes.
    static SIGNED: RefCell<HashMap<(String, u64), String>> = RefCell::default();
}

/// A provider token that was issued `age_secs` ago. Each call gives the same token.
pub(crate) fn bearer(simulator: &ApnsSimulator, age_secs: u64) -> String {
    let sign = || {
        let header = Header { kid: Some(simulator.key_id().into()), ..Header::new(Algorithm::ES256) };
        let claims = json!({"iss": simulator.team_id(), "iat": unix_now().as_secs() - age_secs});
        let key = EncodingKey::from_ec_pem(simulator.key_pem().as_bytes()).unwrap();
        format!("bearer {}", jsonwebtoken::encode(&header, &claims, &key).unwrap())
    };
    let id = (simulator.key_pem().to_owned(), age_secs);
    SIGNED.with_borrow_mut(|signed| signed.entry(id).or_insert_with(sign).clone())
}

pub(crate) async fn connect_tls(
    addr: SocketAddr,
    ca_pem: &str,
    alpn: &str,
    certificate: Option<&PushCertificate>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

pub(crate) struct Client {
    sender: SendRequest<Bytes>,
    driver: JoinSet<Option<h2::Error>>,
}

impl Client {
    pub(crate) async fn connect(simulator: &ApnsSimulator) -> Self {
        Self::try_connect(simulator).await.expect("the simulator accepts connections")
    }

    pub(crate) async fn try_connect(simulator: &ApnsSimulator) -> Option<Self> {
        Self::open(simulator, simulator.addr(), None).await
    }

    pub(crate) async fn connect_to(simulator: &ApnsSimulator, addr: SocketAddr) -> Option<Self> {
        Self::open(simulator, addr, None).await
    }

    pub(crate) async fn connect_with(simulator: &ApnsSimulator, certificate: &PushCertificate) -> Option<Self> {
        Self::open(simulator, simulator.addr(), Some(certificate)).await
    }

    async fn open(simulator: &ApnsSimulator, addr: SocketAddr, certificate: Option<&PushCertificate>) -> Option<Self> {
        let stream = connect_tls(addr, simulator.ca_pem(), "h2", certificate).await.ok()?;
        let (sender, connection) =
            h2::client::Builder::new().initial_max_send_streams(1).handshake(stream).await.ok()?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { connection.await.err() });
        Some(Self { sender, driver })
    }

    /// The last stream limit that this client has read.
    pub(crate) fn stream_limit(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    /// Waits until the client has read this stream limit. Yields, so that the driver can read.
    pub(crate) async fn until_stream_limit(&self, limit: usize) {
        let reached = async {
            while self.stream_limit() != limit {
                tokio::task::yield_now().await;
            }
        };
        let deadline = std::time::Duration::from_secs(5);
        let outcome = tokio::time::timeout(deadline, reached).await;
        assert!(outcome.is_ok(), "the limit stays {}, expected {limit}", self.stream_limit());
    }

    /// Sends a request. `None` if the connection accepts no more.
    pub(crate) async fn send(&mut self, push: Push) -> Option<ResponseFuture> {
        let mut sender = self.sender.clone().ready().await.ok()?;
        let mut request = Request::builder().method(push.method).uri(format!("https://localhost{}", push.path));
        *request.headers_mut().unwrap() = push.headers;
        let is_empty = push.body.is_empty();
        let (response, mut stream) = sender.send_request(request.body(()).unwrap(), is_empty).ok()?;
        if !is_empty {
            let _ = stream.send_data(push.body, true); // Fails if the stream was reset, which the answer shows too.
        }
        Some(response)
    }

    /// Sends a request and waits for its result.
    pub(crate) async fn push(&mut self, push: Push) -> Seen {
        match self.send(push).await {
            Some(response) => see(response).await,
            None => Seen::Refused,
        }
    }

    pub(crate) async fn control(&mut self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        let push = Push { method, path: path.into(), headers: HeaderMap::new(), body: body.to_owned().into() };
        let (head, body) = answer(self.send(push).await.unwrap()).await.unwrap();
        (head.status, serde_json::from_slice(&body).unwrap())
    }

    /// How the connection ended.
    pub(crate) async fn end(mut self) -> Option<h2::Error> {
        drop(self.sender);
        self.driver.join_next().await.unwrap().unwrap()
    }
}

pub(crate) async fn answer(response: ResponseFuture) -> Result<(http::response::Parts, Bytes), h2::Error> {
    let (head, mut stream) = response.await?.into_parts();
    let mut body = BytesMut::new();
    while let Some(piece) = stream.data().await {
        body.extend_from_slice(&piece?);
    }
    Ok((head, body.freeze()))
}

pub(crate) async fn see(response: ResponseFuture) -> Seen {
    match answer(response).await {
        Ok((head, body)) if head.status == StatusCode::OK => {
            assert!(body.is_empty());
            Seen::Accepted
        }
        Ok((head, body)) => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            Seen::Rejected(head.status, body["reason"].as_str().unwrap().into())
        }
        Err(error) if error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM) => Seen::Refused,
        Err(_) => Seen::Unknown,
    }
}
