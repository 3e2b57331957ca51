//! A caller of the server's HTTP API that keeps its connection, and does not give up when the server is killed.
//!
//! One request at a time; a connection that broke is made anew for the next one. [`Caller::insist`] repeats a request
//! as it was until it is answered with success: what was cut off or refused for want of room may have been done or not.

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

use crate::API_KEY;

/// A request without an answer for this long is cut off.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// A server that is killed is back long before.
const INSIST_TIMEOUT: Duration = Duration::from_secs(90);
/// Between two tries.
const PULSE: Duration = Duration::from_millis(10);

pub(crate) struct Caller {
    addr: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Drives the connection; at most one task.
    driver: JoinSet<()>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("the answer is not JSON: {error}"))
    }
}

impl Caller {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self { addr, sender: None, driver: JoinSet::new() }
    }

    /// One try.
    pub(crate) async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let answer = timeout(ANSWER_TIMEOUT, self.exchange(method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}")));
        if answer.is_err() {
            self.sender = None;
            self.driver.shutdown().await;
        }
        answer
    }

    /// Tries until it is done; any answer but success and "not now" is a failure of the test.
    pub(crate) async fn insist(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let began = Instant::now();
        let mut pulse = interval(PULSE);
        loop {
            pulse.tick().await;
            let trouble = match self.call(method.clone(), path, body).await {
                Ok(answer) if (200..300).contains(&answer.status) => return answer,
                Ok(answer) if answer.status == 503 => "503".to_owned(),
                Ok(Answer { status, body }) => {
                    panic!("{method} {path}: {status} {}", String::from_utf8_lossy(&body))
                }
                Err(error) => error,
            };
            assert!(
                began.elapsed() < INSIST_TIMEOUT,
                "{method} {path} is not done within {INSIST_TIMEOUT:?}: {trouble}"
            );
        }
    }

    async fn exchange(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "127.0.0.1")
            .header("X-API-Key", API_KEY)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("paths and keys here are plain ASCII");
        let sender = match &mut self.sender {
            Some(sender) => sender,
            none => none.insert(connect(self.addr, &mut self.driver).await?),
        };
        sender.ready().await.map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
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
