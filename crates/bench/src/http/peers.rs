//! Other HTTP clients, set up as their users would do it: one client for all tasks, connections are kept.

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidings_server::command_error::{CommandError, failed_by};
use tokio::time::Instant;

use super::nginx::BODY;
use crate::load::{Ask, Load, Notes, Phase, TIMEOUT, Window};

/// Threads of a blocking client. More threads would only wait for each other on one core.
const THREAD_COUNT_MAX: u32 = 256;

#[derive(Clone)]
pub(super) struct Reqwest {
    client: reqwest::Client,
    url: reqwest::Url,
}

impl Reqwest {
    pub(super) fn start(url: &str) -> impl Future<Output = Result<Self, CommandError>> + Send + 'static {
        let url = url.parse();
        async move {
            let url = url.map_err(|error| failed_by("nginx's address", &error))?;
            let client = reqwest::Client::builder().timeout(TIMEOUT).build();
            Ok(Self { client: client.map_err(|error| failed_by("cannot make a reqwest client", &error))?, url })
        }
    }
}

impl Ask for Reqwest {
    async fn ask(&self) -> bool {
        let Ok(response) = self.client.get(self.url.clone()).send().await else { return false };
        response.status().as_u16() == 200 && response.bytes().await.is_ok_and(|body| body == BODY)
    }
}

#[derive(Clone)]
pub(super) struct HyperUtil {
    client: legacy::Client<HttpConnector, Empty<Bytes>>,
    uri: Uri,
}

impl HyperUtil {
    pub(super) fn start(url: &str) -> impl Future<Output = Result<Self, CommandError>> + Send + 'static {
        let uri = url.parse();
        async move {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
            Ok(Self { client, uri: uri.map_err(|error| failed_by("nginx's address", &error))? })
        }
    }
}

impl Ask for HyperUtil {
    async fn ask(&self) -> bool {
        let Ok(response) = self.client.get(self.uri.clone()).await else { return false };
        let is_ok = response.status() == StatusCode::OK;
        is_ok && response.into_body().collect().await.is_ok_and(|body| body.to_bytes() == BODY)
    }
}

/// ureq blocks, so each request in flight needs a thread. There are at most [`THREAD_COUNT_MAX`].
pub(super) async fn ureq(url: &str, concurrency: u32, seconds: u32) -> Result<Load, CommandError> {
    let count = concurrency.min(THREAD_COUNT_MAX);
    let config = ureq::Agent::config_builder()
        .max_idle_connections(count as usize)
        .max_idle_connections_per_host(count as usize)
        .timeout_global(Some(TIMEOUT))
        .build();
    let agent = config.new_agent();
    let phase = Arc::new(Phase::default());
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (agent, phase, url) = (agent.clone(), Arc::clone(&phase), url.to_owned());
            thread::spawn(move || {
                let mut notes = Notes::default();
                while !phase.is_over() {
                    let began = Instant::now();
                    let answer = agent.get(&url).call().and_then(|mut response| response.body_mut().read_to_vec());
                    phase.note(&mut notes, began, answer.is_ok_and(|body| body == BODY.as_bytes()));
                }
                notes
            })
        })
        .collect();
    let window = Window::open(&phase, seconds).await;
    let notes = tokio::task::spawn_blocking(|| {
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    Ok(Load::sum(notes.await.expect("waiting does not panic"), &window?))
}
