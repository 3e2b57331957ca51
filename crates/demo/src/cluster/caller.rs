//! HTTP requests to the servers, and the search for the one that leads.
//!
//! Each server takes requests; one that does not lead passes them on. Only the search asks each server what it does.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use tidings_trial::caller::{Answer, Caller};

/// How long an answer may take. While NATS elects a leader, the server waits for several seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The pause when all servers were asked and none could do it.
const ROUND_PAUSE: Duration = Duration::from_millis(20);

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
                if caller.readiness().await.is_some_and(|ready| ready.leads()) {
                    return index;
                }
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    /// Asks whether this server serves clients as a standby.
    pub(super) async fn stands_by(&mut self, index: usize) -> bool {
        self.callers[index].readiness().await.is_some_and(|ready| ready.stands_by())
    }

    /// Sends a request until it is carried out, or refused for good. After a failure the next server gets the same
    /// request. Returns the index of the server that answered, too.
    pub(super) async fn insist(&mut self, method: Method, path: &str, body: Option<&Value>) -> (usize, Answer) {
        loop {
            for _ in 0..self.callers.len() {
                let index = self.next;
                self.next = (index + 1) % self.callers.len();
                let called = self.callers[index].call_within(ANSWER_TIMEOUT, method.clone(), path, body).await;
                match called {
                    // Only these may be answered otherwise when they are repeated.
                    Ok(answer) if !matches!(answer.status, 429 | 503) => return (index, answer),
                    _ => {}
                }
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }
}
