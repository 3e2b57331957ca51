//! A plain HTTP client: HTTP/2 on `h2`, HTTP/1.1 on hyper.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::connect_tls;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// The version of HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Version {
    One,
    Two,
}

/// A connection of either version. Dropping the client closes it.
pub(crate) struct Client {
    sender: Sender,
    _driver: JoinSet<()>,
}

enum Sender {
    Two(h2::client::SendRequest<Bytes>),
    One(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(crate) async fn two(addr: SocketAddr, ca_pem: &str) -> Self {
        Self::open(Version::Two, addr, ca_pem).await.unwrap()
    }

    pub(crate) async fn one(addr: SocketAddr, ca_pem: &str) -> Self {
        Self::open(Version::One, addr, ca_pem).await.unwrap()
    }

    pub(crate) async fn open(version: Version, addr: SocketAddr, ca_pem: &str) -> Option<Self> {
        let mut driver = JoinSet::new();
        let sender = match version {
            Version::Two => {
                let stream = connect_tls(addr, ca_pem, "h2", None).await.ok()?;
                let (sender, connection) = h2::client::handshake(stream).await.ok()?;
                driver.spawn(async move { drop(connection.await) });
                Sender::Two(sender)
            }
            Version::One => {
                let stream = TokioIo::new(connect_tls(addr, ca_pem, "http/1.1", None).await.ok()?);
                let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.ok()?;
                driver.spawn(async move { drop(connection.await) });
                Sender::One(sender)
            }
        };
        Some(Self { sender, _driver: driver })
    }

    /// Sends a request and waits for its answer. `None` if the connection breaks.
    pub(crate) async fn send(&mut self, request: Request<Bytes>) -> Option<Answer> {
        let (status, headers, body) = match &mut self.sender {
            Sender::Two(sender) => {
                let mut sender = sender.clone().ready().await.ok()?;
                let (parts, body) = request.into_parts();
                let is_empty = body.is_empty();
                let (response, mut stream) = sender.send_request(Request::from_parts(parts, ()), is_empty).ok()?;
                if !is_empty {
                    let _ = stream.send_data(body, true);
                }
                let (parts, body) = crate::client::answer(response).await.ok()?;
                (parts.status, parts.headers, body)
            }
            Sender::One(sender) => {
                sender.ready().await.ok()?;
                let response: Response<_> = sender.send_request(request.map(Full::new)).await.ok()?;
                let (parts, body) = response.into_parts();
                (parts.status, parts.headers, body.collect().await.ok()?.to_bytes())
            }
        };
        Some(Answer { status, headers, body })
    }
}
