//! The backend's doorman: the server asks it who may come in. It knows some people and sends the others away.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What the server's configuration calls it.
pub(crate) const NAME: &str = "doorman";
/// What somebody whom it does not know is told; SDKs do not come back then.
pub(crate) const UNKNOWN: u16 = 4501;

pub(crate) struct Doorman {
    addr: SocketAddr,
    /// Whom it was asked about.
    asked: Arc<Mutex<Vec<String>>>,
    _calls: JoinSet<()>,
}

impl Doorman {
    /// Lets in one person, into one channel.
    pub(crate) async fn open(person: String, channel: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the system has a port");
        let addr = listener.local_addr().expect("it is bound");
        let (mut calls, asked) = (JoinSet::new(), Arc::<Mutex<Vec<String>>>::default());
        let all = asked.clone();
        calls.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, person, channel) = (all.clone(), person.clone(), channel.clone());
                let answer = hyper::service::service_fn(move |call| {
                    let (asked, person, channel) = (asked.clone(), person.clone(), channel.clone());
                    async move { Ok::<_, Infallible>(answer(call, &asked, &person, &channel).await) }
                });
                let call = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                calls.spawn(async { _ = call.await }); // A server that is killed breaks it off.
            }
        });
        Self { addr, asked, _calls: calls }
    }

    /// What the server is configured with.
    pub(crate) fn settings(&self) -> String {
        format!("[hooks.{NAME}]\nurl = \"http://{}/connect\"\nallow_http = true\n", self.addr)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics with it").clone()
    }
}

/// The client's name is what it says who it is.
async fn answer(
    call: Request<Incoming>,
    asked: &Mutex<Vec<String>>,
    person: &str,
    channel: &str,
) -> Response<Full<Bytes>> {
    let body = call.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = question["name"].as_str().unwrap_or_default().to_owned();
    let answer = if name == person {
        json!({ "result": { "user": name, "channels": [channel] } })
    } else {
        json!({ "disconnect": { "code": UNKNOWN, "reason": "not a member" } })
    };
    asked.lock().expect("nobody panics with it").push(name);
    Response::new(Full::new(Bytes::from(answer.to_string())))
}
