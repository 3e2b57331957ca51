//! HTTP requests to the servers, and the search for the one that leads.
//!
//! Each server takes requests; one that does not lead passes them on. Only the search asks each server what it does.

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

/// The pause when all servers were asked and none could do it.
const ROUND_PAUSE: Duration = Duration::from_millis(20);

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
        self.ready().await.is_ok_and(|answer| answer.is_of_leader())
    }

    /// Asks whether the server serves clients as a standby.
    pub(super) async fn is_standing_by(&mut self) -> bool {
        self.ready().await.is_ok_and(|answer| answer.is_of_standby())
    }

    async fn ready(&mut self) -> Result<Answer, String> {
        self.call_within(READY_TIMEOUT, Method::GET, "/ready", None).await
    }
}

impl Answer {
    /// Whether this answer to `GET /ready` is that of the leader. A standby answers 200, too.
    fn is_of_leader(&self) -> bool {
        // Degraded: the leader cannot push at the moment.
        self.status == StatusCode::OK && (self.body["status"] == "ready" || self.body["status"] == "degraded")
    }

    /// Whether this answer to `GET /ready` is that of a standby that serves clients.
    fn is_of_standby(&self) -> bool {
        self.status == StatusCode::OK && self.body["status"] == "standby"
    }

    /// Whether the repeated request may succeed.
    fn is_temporary(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE || self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

/// Sends requests to all servers in turn.
pub(super) struct Callers {
    callers: Vec<Caller>,
    /// The server that gets the next request.
    next: usize,
}

impl Callers {
    pub(super) fn new(addrs: &[SocketAddr], key: &str) -> Self {
        Self { callers: addrs.iter().map(|addr| Caller::new(*addr, key)).collect(), next: 0 }
    }

    /// Asks all servers until one leads. Returns its index.
    pub(super) async fn find_leader(&mut self) -> usize {
        loop {
            for (index, caller) in self.callers.iter_mut().enumerate() {
                if caller.is_leading().await {
                    return index;
                }
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    /// Sends a request until it is carried out, or refused for good. After a failure the next server gets the same
    /// request. Returns the index of the server that answered, too.
    pub(super) async fn insist(&mut self, method: Method, path: &str, body: Option<&Value>) -> (usize, Answer) {
        loop {
            for _ in 0..self.callers.len() {
                let index = self.next;
                self.next = (index + 1) % self.callers.len();
                match self.callers[index].call(method.clone(), path, body).await {
                    Ok(answer) if !answer.is_temporary() => return (index, answer),
                    _ => {}
                }
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    pub(super) fn one(&mut self, index: usize) -> &mut Caller {
        &mut self.callers[index]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready(status: u16, body: Value) -> Answer {
        Answer { status: StatusCode::from_u16(status).unwrap(), body }
    }

    #[test]
    fn the_leader_is_told_from_a_standby_by_the_body() {
        for status in ["ready", "degraded"] {
            let leader = ready(200, json!({ "status": status }));
            assert!(leader.is_of_leader() && !leader.is_of_standby(), "{status}");
        }
        let standby = ready(200, json!({ "status": "standby", "leader": { "node": "a" } }));
        assert!(!standby.is_of_leader() && standby.is_of_standby());
    }

    #[test]
    fn a_server_that_serves_nobody_is_neither() {
        for status in ["ready", "stopping", "unavailable", "joining", "standby", "lost"] {
            let answer = ready(503, json!({ "status": status }));
            assert!(!answer.is_of_leader() && !answer.is_of_standby() && answer.is_temporary(), "{status}");
        }
    }
}
