//! Publications of a back end in channels, each asked for once: none is repeated, so none may come twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tidings_trial::judge::{self, Got};
use tidings_trial::wait::until;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::nodes::caller;

/// Between two tries.
const PULSE: Duration = Duration::from_millis(20);
/// After this a publication is in doubt.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Publishes in one channel through several servers, one after the other at each of them.
pub(crate) struct Speaker {
    channel: &'static str,
    said: Arc<Mutex<Said>>,
    workers: JoinSet<()>,
    stop: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The offsets of what was acknowledged; 0 where there are none.
    pub(crate) acks: BTreeMap<String, u64>,
    /// What may have been published.
    pub(crate) doubts: BTreeSet<String>,
    /// The one that was acknowledged last.
    pub(crate) last: Option<String>,
}

impl Speaker {
    /// Begins, at each of these servers.
    pub(crate) fn start(channel: &'static str, addrs: &[SocketAddr], pace: Duration) -> Self {
        let (said, stop) = (Arc::<Mutex<Said>>::default(), watch::channel(false).0);
        let mut workers = JoinSet::new();
        for (server, addr) in addrs.iter().enumerate() {
            let (addr, said, stopped) = (*addr, said.clone(), stop.subscribe());
            let mut connected = caller(addr);
            workers.spawn(async move {
                for number in 0_u64.. {
                    if *stopped.borrow() {
                        return;
                    }
                    let id = format!("{server}-{number:06}");
                    let body = json!({ "channel": channel, "data": { "id": id } });
                    let answer = timeout(TRY_TIMEOUT, connected.call(Method::POST, "/api/publish", Some(&body))).await;
                    let offset = match answer {
                        Ok(Ok(answer)) if answer.status == 200 => {
                            let result = &answer.json()["result"];
                            result.is_object().then(|| result["offset"].as_u64().unwrap_or_default())
                        }
                        Ok(Ok(answer)) if answer.status != 503 => panic!("{}: {}", answer.status, answer.json()),
                        Ok(_) => None,
                        Err(_) => {
                            connected = caller(addr);
                            None
                        }
                    };
                    said.lock().unwrap().note(id, offset);
                    sleep(if offset.is_some() { pace } else { PULSE }).await;
                }
            });
        }
        Self { channel, said, workers, stop }
    }

    /// Waits until so many more are acknowledged.
    pub(crate) async fn grow(&mut self, count: usize) {
        let enough = self.look(|said| said.acks.len()) + count;
        until("publications are acknowledged", async || {
            if let Some(ended) = self.workers.try_join_next() {
                ended.expect("a worker failed");
            }
            (self.look(|said| said.acks.len()) >= enough).then_some(())
        })
        .await;
    }

    pub(crate) async fn finish(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker failed");
        }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Said) -> T) -> T {
        look(&self.said.lock().unwrap())
    }

    /// The one that was acknowledged last.
    pub(crate) fn last(&self) -> String {
        self.look(|said| said.last.clone()).expect("something was acknowledged")
    }

    /// Fails if something was repeated, was never said, or what was said at one server is not in order; with `is_whole`, also if
    /// anything acknowledged since the first one is missing.
    pub(crate) fn judge(&self, who: &str, got: &[Got], is_whole: bool) {
        let wrongs = self.look(|said| said.check(got, is_whole));
        let few: Vec<_> = wrongs.iter().take(10).cloned().collect();
        assert!(wrongs.is_empty(), "{who}, {}: {} wrong\n{}", self.channel, wrongs.len(), few.join("\n"));
    }
}

impl Said {
    fn note(&mut self, id: String, offset: Option<u64>) {
        match offset {
            Some(offset) => {
                self.last = Some(id.clone());
                self.acks.insert(id, offset);
            }
            None => drop(self.doubts.insert(id)),
        }
    }

    fn check(&self, got: &[Got], is_whole: bool) -> Vec<String> {
        let (mut wrongs, mut last) = (judge::reader(&self.acks, &self.doubts, got), BTreeMap::new());
        for one in got {
            let server = one.id.split('-').next().expect("it names the server");
            if let Some(before) = last.insert(server, &one.id).filter(|before| **before > one.id) {
                wrongs.push(format!("{} came after {before}", one.id));
            }
        }
        if is_whole {
            wrongs.extend(judge::complete(&self.acks, 0, got));
        }
        wrongs
    }
}

#[test]
fn a_speaker_of_a_cluster_asks_all_judges() {
    let got = |list: &[(&str, u64)]| -> Vec<Got> {
        list.iter().map(|(id, offset)| Got { offset: *offset, id: (*id).to_owned() }).collect()
    };
    let mut said = Said::default();
    said.note("0-000000".to_owned(), Some(1));
    said.note("1-000000".to_owned(), None);
    said.note("0-000001".to_owned(), Some(3));
    assert_eq!(said.check(&got(&[("0-000000", 1), ("1-000000", 2), ("0-000001", 3)]), true), [""; 0]);
    assert_eq!(said.check(&got(&[("0-000000", 1)]), false), [""; 0]);
    for (what, wrong) in [
        ("missing", got(&[("0-000000", 1)])),
        ("twice", got(&[("0-000000", 1), ("0-000001", 3), ("0-000001", 3)])),
        ("never said", got(&[("0-000000", 1), ("2-000000", 2), ("0-000001", 3)])),
        ("elsewhere", got(&[("0-000000", 1), ("0-000001", 2)])),
        ("in the wrong order", got(&[("0-000001", 3), ("0-000000", 1)])),
    ] {
        assert!(!said.check(&wrong, true).is_empty(), "{what}");
    }
}
