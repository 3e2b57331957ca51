//! A caller of the HTTP API that keeps its connection, and does not give up when the server is killed.
//!
//! One request at a time; a connection that broke is made anew for the next one. [`Caller::insist`] repeats a request as it
//! was until it is answered with success: what was cut off or refused for want of room may have been done or not.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

/// A request without an answer for this long is cut off.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may take to say how it is; one that stands still does not.
const READY_TIMEOUT: Duration = Duration::from_millis(500);
/// A server that is killed is back long before.
const INSIST_TIMEOUT: Duration = Duration::from_secs(90);
/// Between two tries.
const PULSE: Duration = Duration::from_millis(10);
/// What `/ready` says of a server of a cluster that follows. It is ready, too, when it serves clients.
pub const STANDBY: &str = "standby";

/// Sends requests to one server.
#[derive(Debug)]
pub struct Caller {
    addr: SocketAddr,
    key: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Drives the connection; at most one task.
    driver: JoinSet<()>,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// As it came.
    pub body: Bytes,
}

impl Answer {
    /// The body.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON: {error}: {}", self.text()))
    }

    /// The body; null if it is not JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body, whatever it is.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the request was carried out.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Caller {
    /// With this API key.
    pub fn new(addr: SocketAddr, key: &str) -> Self {
        Self { addr, key: key.to_owned(), sender: None, driver: JoinSet::new() }
    }

    /// One try. After an error, or if it is given up, it may have been carried out.
    ///
    /// # Errors
    /// If there is no answer, in words.
    pub async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        self.call_within(ANSWER_TIMEOUT, method, path, body).await
    }

    /// The same within this time.
    ///
    /// # Errors
    /// If there is no answer, in words.
    pub async fn call_within(
        &mut self,
        patience: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, String> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.send_within(patience, method, path, body).await
    }

    /// One try within this time, with a body as it is, such as the lines of an import.
    ///
    /// # Errors
    /// If there is no answer, in words.
    pub async fn send_within(
        &mut self,
        patience: Duration,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, String> {
        let answer = timeout(patience, self.exchange(method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
        if answer.is_err() {
            self.driver.shutdown().await;
        }
        answer
    }

    /// Tries until it is done.
    ///
    /// # Panics
    /// On any answer but success and "not now" (503), and after 90 seconds.
    pub async fn insist(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let began = Instant::now();
        let mut pulse = interval(PULSE);
        loop {
            pulse.tick().await;
            let trouble = match self.call(method.clone(), path, body).await {
                Ok(answer) if answer.is_success() => return answer,
                Ok(answer) if answer.status == 503 => "503".to_owned(),
                Ok(answer) => panic!("{method} {path}: {} {}", answer.status, answer.text()),
                Err(error) => error,
            };
            let waited = began.elapsed();
            assert!(waited < INSIST_TIMEOUT, "{method} {path} is not done within {INSIST_TIMEOUT:?}: {trouble}");
        }
    }

    /// What the server says of itself at `/ready`; none if it does not answer soon.
    pub async fn readiness(&mut self) -> Option<Readiness> {
        let answer = self.call_within(READY_TIMEOUT, Method::GET, "/ready", None).await.ok()?;
        let told = answer.value();
        Some(Readiness {
            http_status: answer.status,
            said: told["status"].as_str()?.to_owned(),
            leader: told["leader"]["node"].as_str().map(str::to_owned),
        })
    }

    async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.addr.to_string())
            .header("X-API-Key", &self.key)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        // It is put back when all went well: a call that is given up breaks its connection.
        let kept = match self.sender.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            // There is none, or the server has closed it because nothing was asked for a while.
            None => connect(self.addr, &mut self.driver).await?,
        };
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        self.sender = Some(sender);
        Ok(Answer { status, body })
    }
}

async fn connect(addr: SocketAddr, driver: &mut JoinSet<()>) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    driver.shutdown().await;
    driver.spawn(async {
        let _ = connection.await; // The request that it breaks off tells why.
    });
    Ok(sender)
}

/// What a server says of itself at `/ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// The status of HTTP: 200 or 503.
    pub http_status: u16,
    /// The word for it.
    pub said: String,
    /// Of a standby: who leads.
    pub leader: Option<String>,
}

impl Readiness {
    /// Whether clients are served.
    pub fn is_ready(&self) -> bool {
        self.http_status == 200
    }

    /// Whether the server leads, or is alone. It may be degraded: it cannot push at the moment.
    pub fn leads(&self) -> bool {
        self.is_ready() && matches!(&*self.said, "ready" | "degraded")
    }

    /// Whether it serves clients and does not lead.
    pub fn stands_by(&self) -> bool {
        self.is_ready() && self.said == STANDBY
    }
}

/// What this server says of itself at `/ready`; none if it does not answer soon.
pub async fn readiness(addr: SocketAddr) -> Option<Readiness> {
    Caller::new(addr, "").readiness().await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each connection with the next of these, byte for byte, and closes it.
    async fn serve(answers: Vec<&'static str>) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, mut server) = (listener.local_addr().unwrap(), JoinSet::new());
        server.spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (addr, server)
    }

    #[tokio::test]
    async fn it_insists_through_breaks_and_refusals_for_want_of_room() {
        let busy = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let done = "HTTP/1.1 202 Accepted\r\ncontent-length: 4\r\n\r\n[42]";
        let (addr, _server) = serve(vec!["", busy, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[", done]).await;
        let answer = Caller::new(addr, "key").insist(Method::GET, "/", None).await;
        assert_eq!((answer.status, answer.json()), (202, serde_json::json!([42])));
    }

    #[tokio::test]
    #[should_panic(expected = "GET /x: 404 gone")]
    async fn a_refusal_for_good_is_a_failure() {
        let (addr, _server) = serve(vec!["HTTP/1.1 404 No\r\ncontent-length: 4\r\n\r\ngone"]).await;
        Caller::new(addr, "key").insist(Method::GET, "/x", None).await;
    }

    fn ready(http_status: u16, said: &str) -> Readiness {
        Readiness { http_status, said: said.to_owned(), leader: None }
    }

    #[test]
    fn the_leader_is_told_from_a_standby() {
        for said in ["ready", "degraded"] {
            assert!(ready(200, said).leads() && !ready(200, said).stands_by(), "{said}");
        }
        assert!(!ready(200, STANDBY).leads() && ready(200, STANDBY).stands_by());
        for said in ["ready", "stopping", "unavailable", "joining", STANDBY, "lost"] {
            assert!(!ready(503, said).leads() && !ready(503, said).stands_by(), "{said}");
        }
    }
}
