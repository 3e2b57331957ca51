//! The backend's ear: where it hears that events are done. It takes what is signed with its secret, or is down.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What reports are signed with.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// That an event is done, as the backend heard it.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// What the backend knows a repeat by.
    pub(crate) name: String,
    pub(crate) event: String,
    /// Phones that were pushed.
    pub(crate) pushed: u64,
    body: Bytes,
}

#[derive(Default)]
struct Heard {
    is_down: bool,
    /// How often it was down when it was called.
    missed: usize,
    reports: Vec<Report>,
}

pub(crate) struct Ear {
    addr: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    _calls: JoinSet<()>,
}

impl Ear {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the system has a port");
        let (addr, heard) = (listener.local_addr().expect("it is bound"), Arc::<Mutex<Heard>>::default());
        let (mut calls, all) = (JoinSet::new(), heard.clone());
        calls.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let heard = all.clone();
                let listen = hyper::service::service_fn(move |call| hear(call, heard.clone()));
                let call = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), listen);
                calls.spawn(async { _ = call.await }); // A server that is killed breaks it off.
            }
        });
        Self { addr, heard, _calls: calls }
    }

    /// What the server is configured with.
    pub(crate) fn settings(&self) -> String {
        let addr = self.addr;
        format!(
            "[webhook]\nurl = \"http://{addr}/done\"\nallow_http = true\nsecret = \"{SECRET}\"\nbackoff_max = \"1s\"\n"
        )
    }

    pub(crate) fn go_down(&self) {
        self.lock().is_down = true;
    }

    pub(crate) fn recover(&self) {
        self.lock().is_down = false;
    }

    pub(crate) fn missed(&self) -> usize {
        self.lock().missed
    }

    /// What it has heard of an event. What has the same name is the same, to the last byte.
    pub(crate) fn reports(&self, event: &str) -> Vec<Report> {
        let reports: Vec<Report> = self.lock().reports.iter().filter(|report| report.event == event).cloned().collect();
        for pair in reports.windows(2) {
            assert_eq!((&pair[0].name, &pair[0].body), (&pair[1].name, &pair[1].body), "a repeat that is none");
        }
        reports
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().expect("nobody panics with it")
    }
}

async fn hear(call: Request<Incoming>, heard: Arc<Mutex<Heard>>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let headers = call.headers().clone();
    let body = call.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut heard = heard.lock().expect("nobody panics with it");
    let status = match report(&headers, body) {
        _ if heard.is_down => {
            heard.missed += 1;
            StatusCode::BAD_GATEWAY
        }
        Some(report) => {
            heard.reports.push(report);
            StatusCode::NO_CONTENT
        }
        None => StatusCode::UNAUTHORIZED,
    };
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = status;
    Ok(answer)
}

/// Standard Webhooks, by the specification: not the server's code, so that a mistake in one is not repeated by the other.
fn report(headers: &HeaderMap, body: Bytes) -> Option<Report> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let (name, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_")?).ok()?;
    let signed = [name.as_bytes(), b".", timestamp.as_bytes(), b".", &body].concat();
    let mac = BASE64_STANDARD.decode(header("webhook-signature")?.strip_prefix("v1,")?).ok()?;
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &mac).ok()?;
    let json: Value = serde_json::from_slice(&body).ok()?;
    let (event, pushed) = (json["data"]["id"].as_str()?, json["data"]["outcomes"]["accepted"].as_u64()?);
    Some(Report { name: name.to_owned(), event: event.to_owned(), pushed, body })
}
