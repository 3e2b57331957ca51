//! HTTP requests to the servers, and the search for the one that leads.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidings_telemetry::chain;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an answer may take. While NATS elects a leader, the server waits for several seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a server may take to say what it does.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two rounds of the search for the leader.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);

/// Sends requests to one server, and keeps the connection.
pub(super) struct Caller {
    addr: SocketAddr,
    key: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Drives the connection: at most one task.
    driver: JoinSet<()>,
}

/// An answer. The body is `null` if it is not JSON.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Caller {
    pub(super) fn new(addr: SocketAddr, key: &str) -> Self {
        Self { addr, key: key.to_owned(), sender: None, driver: JoinSet::new() }
    }

    /// Sends a request once. After an error it may or may not have been carried out.
    pub(super) async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        self.call_within(ANSWER_TIMEOUT, method, path, body).await
    }

    async fn call_within(
        &mut self,
        patience: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, String> {
        let answer = timeout(patience, self.exchange(method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    async fn exchange(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let mut sender = match self.sender.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.addr.to_string())
            .header("X-API-Key", &self.key)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.map(|body| Bytes::from(body.to_string())).unwrap_or_default()))
            .map_err(|error| chain(&error))?;
        sender.ready().await.map_err(|error| chain(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| chain(&error))?.to_bytes();
        self.sender = Some(sender);
        Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(self.addr).await.map_err(|error| chain(&error))?;
        stream.set_nodelay(true).map_err(|error| chain(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| chain(&error))?;
        self.driver.shutdown().await;
        self.driver.spawn(async {
            let _ = connection.await; // The request that it breaks off has the error.
        });
        Ok(sender)
    }

    /// Asks whether the server leads.
    pub(super) async fn is_leading(&mut self) -> bool {
        self.ready().await.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    /// Asks whether the server follows a leader as a standby.
    pub(super) async fn is_standing_by(&mut self) -> bool {
        let answer = self.ready().await;
        answer.is_ok_and(|answer| answer.body["status"] == "standby" && answer.body["leader"].is_object())
    }

    async fn ready(&mut self) -> Result<Answer, String> {
        self.call_within(READY_TIMEOUT, Method::GET, "/ready", None).await
    }
}

/// Sends requests to the server that leads.
pub(super) struct Callers {
    callers: Vec<Caller>,
    /// The server that led when it was last asked.
    leading: Option<usize>,
}

impl Callers {
    pub(super) fn new(addrs: &[SocketAddr], key: &str) -> Self {
        Self { callers: addrs.iter().map(|addr| Caller::new(*addr, key)).collect(), leading: None }
    }

    /// Asks all servers until one leads. Returns its index.
    pub(super) async fn find_leader(&mut self) -> usize {
        self.leading = None;
        loop {
            for (index, caller) in self.callers.iter_mut().enumerate() {
                if caller.is_leading().await {
                    self.leading = Some(index);
                    return index;
                }
            }
            tokio::time::sleep(SEARCH_PAUSE).await;
        }
    }

    /// Sends a request until the leader carries it out or says that it never will.
    pub(super) async fn insist(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        loop {
            let index = match self.leading {
                Some(index) => index,
                None => self.find_leader().await,
            };
            match self.callers[index].call(method.clone(), path, body).await {
                Ok(answer) if !is_temporary(answer.status) => return answer,
                _ => self.leading = None,
            }
            tokio::time::sleep(SEARCH_PAUSE).await;
        }
    }

    pub(super) fn one(&mut self, index: usize) -> &mut Caller {
        &mut self.callers[index]
    }
}

/// Whether a repeated request may succeed.
fn is_temporary(status: StatusCode) -> bool {
    status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS
}
