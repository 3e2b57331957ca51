//! The bystander: a backend, an app and a client that behave, one request after the other, on a thread of their own.
//!
//! Each of its requests has a new connection, since others have to get in beside an attack. What is refused for want of room
//! it tries again; its wait is the time until it was served. It also looks how much memory the server has.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_trial::raw::{HOME, PATIENCE, exchange, last_line, request};
use tidings_trial::token;
use tokio::time::{Instant, interval};

use crate::net::{Client, backend_request};
use crate::server::memory_mib;
use crate::{PULSE, TOKEN_SECRET};

/// What was seen since [`Bystander::forget`].
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) rounds: u64,
    /// The longest waits: for a device that it reads, an event to arrive, an app that registers, a command of its client.
    pub(crate) waits: [Duration; 4],
    pub(crate) refusals: u64,
    pub(crate) memory_max_mib: u64,
    is_over: bool,
}

pub(crate) struct Bystander {
    seen: Arc<Mutex<Seen>>,
    thread: JoinHandle<Result<(), String>>,
}

impl Bystander {
    pub(crate) fn start(server: SocketAddr, process_id: u32) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = watch_memory(process_id, &shared) => Err("the server has ended".to_owned()),
                    lived = live(server, &shared) => lived,
                }
            })
        });
        Self { seen, thread }
    }

    /// Waits until it has made so many rounds more, or has ended.
    pub(crate) async fn rounds(&self, more: u64) {
        let (enough, mut pulse) = (self.seen().rounds + more, interval(PULSE));
        while self.seen().rounds < enough && !self.thread.is_finished() {
            pulse.tick().await;
        }
    }

    /// Begins to look anew.
    pub(crate) fn forget(&self) {
        *lock(&self.seen) = Seen::default();
    }

    pub(crate) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Lets it finish its round; what went wrong for it.
    pub(crate) fn finish(self) -> (Seen, Result<(), String>) {
        lock(&self.seen).is_over = true;
        let lived = self.thread.join().expect("it reports what goes wrong");
        (lock(&self.seen).clone(), lived)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("nobody panics with it")
}

async fn watch_memory(process_id: u32, seen: &Mutex<Seen>) {
    let mut pulse = interval(PULSE);
    while let Some(memory) = memory_mib(process_id) {
        {
            let mut seen = lock(seen);
            seen.memory_max_mib = seen.memory_max_mib.max(memory);
        }
        pulse.tick().await;
    }
}

/// Rounds until it is over. Every event arrives, once and in the order they were acknowledged in.
async fn live(server: SocketAddr, seen: &Mutex<Seen>) -> Result<(), String> {
    let device = json!({ "platform": "ios", "token": "ab".repeat(32), "app": "com.example.app", "locale": "en",
                         "user": "bystander" });
    let put = backend_request("PUT", "/v1/devices/bystander", &device);
    let get = backend_request("GET", "/v1/devices/bystander", &Value::Null);
    let app = app_request("ada", "ada-phone", "cd");
    until_done(server, seen, &put).await?;
    let mut client = Client::connect(server, HOME).await?;
    client.ask(json!({ "subscribe": { "channel": "match:bystander" } })).await?;
    for number in 0_u64.. {
        let (event, began) = (format!("event-{number}"), Instant::now());
        until_done(server, seen, &get).await?;
        let read = began.elapsed();
        let body = json!({ "id": event, "topic": "goal", "subjects": ["match:bystander"], "push": "never" });
        until_done(server, seen, &backend_request("POST", "/v1/events", &body)).await?;
        let arrived = client.message().await?;
        if arrived["push"]["pub"]["tags"]["event"] != event.as_str() {
            return Err(format!("{event} was acknowledged, what arrived is {arrived}"));
        }
        let told = began.elapsed() - read;
        until_done(server, seen, &app).await?;
        let registered = began.elapsed() - read - told;
        let commanded = Instant::now();
        for command in ["subscribe", "unsubscribe"] {
            client.ask(json!({ command: { "channel": "score:bystander" } })).await?;
        }
        let commanded = commanded.elapsed();

        let mut seen = lock(seen);
        for (longest, took) in seen.waits.iter_mut().zip([read, told, registered, commanded]) {
            *longest = took.max(*longest);
        }
        seen.rounds += 1;
        if seen.is_over {
            break;
        }
    }
    Ok(())
}

/// Tries until it is served.
async fn until_done(server: SocketAddr, seen: &Mutex<Seen>, request: &[u8]) -> Result<(), String> {
    let (deadline, mut pulse) = (Instant::now() + PATIENCE, interval(PULSE));
    loop {
        pulse.tick().await;
        let trouble = match exchange(server, HOME, request).await {
            Ok((200..300, _)) => return Ok(()),
            Ok((429 | 503, answer)) => last_line(&answer),
            Ok((_, answer)) => return Err(format!("refused for good: {}", last_line(&answer))),
            Err(error) => error.to_string(),
        };
        lock(seen).refusals += 1;
        if Instant::now() > deadline {
            return Err(format!("not served within {PATIENCE:?}: {trouble}"));
        }
    }
}

/// An app registers its device, with its user's token.
pub(crate) fn app_request(user: &str, device: &str, push_token: &str) -> Vec<u8> {
    let bearer = format!("Authorization: Bearer {}", token::sign(TOKEN_SECRET, &json!({ "sub": user })));
    let body = json!({ "platform": "ios", "token": push_token.repeat(32), "app": "com.example.app", "locale": "en" })
        .to_string();
    let headers = [&bearer, "Content-Type: application/json", "Connection: close"];
    request("PUT", &format!("/v1/devices/{device}"), &headers, body.as_bytes())
}
