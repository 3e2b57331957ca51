//! A provider that does what the test says, a door that notes what is sent, and the intake between them.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write as _};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use tidings_http1::{Origin, Roots};
use tidings_intake::{
    Address, Door, DoorFuture, FeedConfig, Fetch, Found, How, Intake, Malformed, Pace, Parser, SourceStatus, Verdict,
    WrongEntry,
};
use tidings_store::{CommitSink, DurableChannel, QueueLimit, Store, StoreConfig, StoredPublication, WriteError};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{ChannelName, EventId, FeedName, JournalPosition, Offset, StreamPosition};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Notes the ids of events; takes an id once, and nothing while it is closed.
#[derive(Default)]
pub(crate) struct Ledger {
    taken: Mutex<Vec<String>>,
    is_closed: Mutex<bool>,
}

impl Ledger {
    /// What was taken since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.taken.lock().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    pub(crate) fn close(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
    }
}

/// A door whose journal remembers nothing: only what feeds remember keeps an entry from being sent twice.
impl Door for Ledger {
    fn publish(&self, events: Vec<String>) -> DoorFuture<'_> {
        let mut taken = self.taken.lock().unwrap();
        if *self.is_closed.lock().unwrap() {
            return Box::pin(async { Err(WriteError::Overloaded { what: "the journal", limit: 1 }) });
        }
        let mut verdicts = Vec::new();
        for id in events {
            verdicts.push(match id.as_str() {
                "refused" => Verdict::Refused { field: "topic".to_owned(), detail: "topic: is unknown".to_owned() },
                _ => Verdict::Accepted,
            });
            taken.push(id);
        }
        Box::pin(async { Ok(verdicts) })
    }
}

/// Each line is the id of an entry; `-` begins one to skip, `!` a wrong one, `?` what is malformed.
pub(crate) fn parser() -> Parser {
    let parse = |document: &mut dyn BufRead, _: Option<&str>, tell: &mut dyn FnMut(Found) -> ControlFlow<()>| {
        for (number, line) in document.lines().enumerate() {
            let at = format!("line {}", number + 1);
            let line = line.map_err(|error| Malformed { at: at.clone(), reason: error.to_string() })?;
            let found = match line.split_at_checked(1) {
                Some(("-", reason)) => Found::Skipped { at, reason: reason.to_owned() },
                Some(("!", reason)) => Found::Wrong(WrongEntry { at, reason: reason.to_owned() }),
                Some(("?", reason)) => return Err(Malformed { at, reason: reason.to_owned() }),
                _ => Found::Entry { id: EventId::new(&line).unwrap(), json: line, at },
            };
            if tell(found).is_break() {
                break;
            }
        }
        Ok(())
    };
    Parser(Arc::new(parse))
}

type Answer = Box<dyn Fn(&HeaderMap) -> Response + Send + Sync>;

/// A server with one document.
pub(crate) struct Provider {
    shared: Arc<Shared>,
    pub(crate) port: u16,
    _serving: JoinSet<()>,
}

struct Shared {
    answer: Mutex<Answer>,
    asked: Mutex<Vec<HeaderMap>>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let nothing: Answer = Box::new(|_| Response::new(Body::empty()));
        let shared = Arc::new(Shared { answer: Mutex::new(nothing), asked: Mutex::default() });
        let answer = async |State(shared): State<Arc<Shared>>, request: Request| {
            shared.asked.lock().unwrap().push(request.headers().clone());
            (shared.answer.lock().unwrap())(request.headers())
        };
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = hyper_util::service::TowerToHyperService::new(router.clone());
                let io = hyper_util::rt::TokioIo::new(stream);
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
        Self { shared, port, _serving: serving }
    }

    pub(crate) fn answer(&self, answer: impl Fn(&HeaderMap) -> Response + Send + Sync + 'static) {
        *self.shared.answer.lock().unwrap() = Box::new(answer);
    }

    /// Has this document, with a tag.
    pub(crate) fn document(&self, tag: &'static str, text: &'static str) {
        self.answer(move |headers| {
            let is_known = headers.get("if-none-match").is_some_and(|known| known == tag);
            let response = Response::builder().header("etag", tag).status(if is_known { 304 } else { 200 });
            response.body(Body::from(if is_known { "" } else { text })).unwrap()
        });
    }

    /// The headers of the requests since the last call.
    pub(crate) fn asked(&self) -> Vec<HeaderMap> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }
}

struct Ignored;

impl CommitSink for Ignored {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}
    fn on_events(&self, _: JournalPosition) {}
    fn on_history_removed(&self, _: &ChannelName, _: Offset) {}
}

pub(crate) fn open(folder: &TempDir) -> Store {
    let queue = QueueLimit { count: 64, bytes: 1 << 20 };
    let config = StoreConfig {
        path: folder.path().to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 1 << 20,
        journal_bytes_max: 1 << 30,
        id_window: Duration::from_secs(3600),
        id_window_count: 1 << 20,
        device_count_max: 1000,
        subscription_count_max: 100,
        mute_count_max: 100,
        idle_max: None,
        channel_count_max: 1000,
        channel_ttl: Duration::from_secs(3600),
        namespace_ttls: BTreeMap::new(),
        later_count_max: 1000,
        reopen_backoff_min: Duration::from_millis(1),
        reopen_backoff_max: Duration::from_millis(10),
        cache_bytes: 1 << 20,
        checkpoint_change_count: 1000,
        clock: unix_now,
    };
    Store::open(config, Arc::new(Ignored)).unwrap()
}

/// One feed, `news`, with what it needs.
pub(crate) struct News {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) intake: Intake,
}

pub(crate) fn news() -> FeedName {
    FeedName::new("news").unwrap()
}

pub(crate) fn config(how: How) -> FeedConfig {
    FeedConfig {
        kind: "lines",
        how,
        parser: parser(),
        fingerprint: 1,
        document_bytes_max: 1 << 20,
        known_count_max: 100,
    }
}

/// Polled at this address, by this host's name for itself only.
pub(crate) fn polled(provider: &Provider) -> How {
    let (origin, target) = Origin::split(&format!("http://127.0.0.1:{}/feed?key=secret", provider.port)).unwrap();
    let fetch = Fetch {
        address: Address { origin, target },
        headers: [("x-feed-key".parse().unwrap(), "secret".parse().unwrap())].into_iter().collect(),
        private_hosts: ["127.0.0.1".to_owned()].into(),
        connect_timeout: Duration::from_secs(10),
        answer_timeout: Duration::from_secs(10),
        tls: Roots::Native.client_config().unwrap(),
    };
    let hour = Duration::from_secs(3600);
    let pace = Pace { interval: hour, backoff_max: hour * 4 };
    How::Polled { fetch: Box::new(fetch), pace, timeout: Duration::from_secs(60), skip_backlog: false }
}

impl News {
    pub(crate) fn start(config: FeedConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, ledger) = (open(&folder), Arc::new(Ledger::default()));
        let intake = Self::intake(config, &store, &ledger);
        Self { folder, store, ledger, intake }
    }

    fn intake(config: FeedConfig, store: &Store, ledger: &Arc<Ledger>) -> Intake {
        let door: Arc<dyn Door> = ledger.clone();
        Intake::start(BTreeMap::from([(news(), config)]), store, &door, &Registry::new()).unwrap()
    }

    /// The server is started again.
    pub(crate) async fn again(self, config: FeedConfig) -> Self {
        let Self { folder, store, ledger, intake } = self;
        intake.stop().await;
        drop(intake);
        store.close().await;
        let store = open(&folder);
        let intake = Self::intake(config, &store, &ledger);
        Self { folder, store, ledger, intake }
    }

    /// Reads the feed once, and says what was sent, in order.
    pub(crate) async fn read(&self) -> (Vec<String>, SourceStatus) {
        let status = self.intake.poll(&news()).await.unwrap();
        (self.ledger.take(), status)
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

/// Each id once.
pub(crate) fn distinct(ids: &[String]) -> usize {
    ids.iter().collect::<HashSet<_>>().len()
}
