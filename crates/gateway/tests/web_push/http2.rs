//! Push services that speak HTTP/2: several requests at a time on few connections, and what the ends of these cost.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use h2::server::SendResponse;
use tidings_gateway::{WebPushConfig, WebPushGateway};
use tidings_push::Lakes;
use tidings_types::EventPriority;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

/// How a connection ends, if its service ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Never,
    /// After so many requests it says that it takes no more; those it has taken it answers.
    GoAway(usize),
    /// After so many requests it is cut, with the last of them unanswered.
    Cut(usize),
}

#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    /// Requests of each connection.
    requests: Vec<usize>,
    targets: Vec<String>,
    in_flight: Vec<usize>,
    in_flight_max: Vec<usize>,
}

struct Service {
    address: SocketAddr,
    ca_pem: String,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    streams_max: u32,
    /// Each answer takes a permit.
    gate: Semaphore,
    /// Of the first connection.
    end: End,
    seen: Mutex<Seen>,
    changed: Notify,
}

impl Service {
    async fn start(streams_max: u32, permits: usize, end: End) -> Self {
        let names = [DOMAIN.to_owned(), format!("*.{DOMAIN}")];
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut tls = tls.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gate, seen) = (Semaphore::new(permits), Mutex::default());
        let shared = Arc::new(Shared { streams_max, gate, end, seen, changed: Notify::new() });
        let mut task = JoinSet::new();
        let service = Arc::clone(&shared);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&service));
                connections.spawn(async move { shared.serve(acceptor, tcp).await });
            }
        });
        Self { address, ca_pem: cert.pem(), shared, _task: task }
    }

    fn seen<R>(&self, read: impl FnOnce(&Seen) -> R) -> R {
        read(&self.shared.seen.lock().unwrap())
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut(&Seen) -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if self.seen(&mut is_so) {
                    return;
                }
                changed.await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}: {:?}", self.shared.seen.lock()));
    }
}

impl Shared {
    fn see(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_waiters();
    }

    async fn serve(self: Arc<Self>, acceptor: TlsAcceptor, tcp: TcpStream) {
        let tcp = tcp.into_std().unwrap();
        let rest = tcp.try_clone().unwrap();
        let tcp = TcpStream::from_std(tcp).unwrap();
        let Ok(tls) = acceptor.accept(tcp).await else { return };
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let builder = &mut h2::server::Builder::new();
        let Ok(mut connection) = builder.max_concurrent_streams(self.streams_max).handshake(tls).await else { return };
        let mut index = 0;
        self.see(|seen| {
            (index, seen.connections) = (seen.connections, seen.connections + 1);
            seen.requests.push(0);
            seen.in_flight.push(0);
            seen.in_flight_max.push(0);
        });
        let mut answers = JoinSet::new();
        let mut count = 0;
        while let Some(Ok((request, respond))) = connection.accept().await {
            count += 1;
            self.see(|seen| {
                seen.requests[index] += 1;
                seen.targets.push(request.uri().path().to_owned());
                seen.in_flight[index] += 1;
                seen.in_flight_max[index] = seen.in_flight_max[index].max(seen.in_flight[index]);
            });
            match self.end {
                End::Cut(after) if index == 0 && count == after => return,
                End::GoAway(after) if index == 0 && count == after => connection.graceful_shutdown(),
                _ => {}
            }
            answers.spawn(Arc::clone(&self).answer(index, request.into_body(), respond));
        }
        while answers.join_next().await.is_some() {}
        // Requests that it did not take may still come. If nobody read them, the peer's system would be told to throw away
        // what it has not read yet, which are our goodbye and answers (RFC 9112, 9.6).
        let mut rest = TcpStream::from_std(rest).unwrap();
        let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await; // Until the client ends it.
    }

    async fn answer(self: Arc<Self>, index: usize, mut body: h2::RecvStream, mut respond: SendResponse<Bytes>) {
        while let Some(Ok(data)) = body.data().await {
            _ = body.flow_control().release_capacity(data.len());
        }
        self.gate.acquire().await.unwrap().forget();
        self.see(|seen| seen.in_flight[index] -= 1);
        _ = respond.send_response(http::Response::builder().status(201).body(()).unwrap(), true);
    }
}

struct World {
    service: Service,
    sink: Arc<Sink>,
    lakes: Lakes,
    browser: Browser,
    gateway: WebPushGateway,
}

async fn world(streams_max: u32, permits: usize, end: End, adapt: impl FnOnce(&mut WebPushConfig)) -> World {
    let service = Service::start(streams_max, permits, end).await;
    let net = Arc::new(Net::new(service.address));
    let mut config = config(service.ca_pem.clone(), net);
    adapt(&mut config);
    let (sink, lakes) = (Arc::<Sink>::default(), Lakes::new(8192));
    let services = vec![browsers(lakes.clone())];
    let gateway = WebPushGateway::start(config, services, Arc::clone(&sink) as _, &Registry::new()).unwrap();
    World { service, sink, lakes, browser: Browser::new(), gateway }
}

impl World {
    async fn push(&self, devices: std::ops::Range<u32>) {
        let token = |device| self.browser.subscription(&format!("https://{DOMAIN}/push/{device}"));
        let mut batch = devices.map(|device| to(token(device), device, JOB, in_a_while())).collect();
        self.lakes.of(EventPriority::Normal).push_batch(&mut batch).await.unwrap();
    }

    async fn drain(self) {
        assert_eq!(self.gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
    }
}

#[tokio::test]
async fn requests_share_connections_as_far_as_the_service_allows() {
    let world = world(8, 0, End::Never, |config| config.connection_count_max = 3).await;
    world.push(0..100).await;
    world.service.until("three connections are full", |seen| seen.in_flight.iter().sum::<usize>() == 24).await;
    assert_eq!(world.service.seen(|seen| seen.in_flight_max.clone()), [8, 8, 8]);
    world.service.shared.gate.add_permits(1000);
    let outcomes = world.sink.outcomes(100).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted && it.repeats == 0));
    world.service.seen(|seen| {
        assert_eq!((seen.connections, seen.targets.len()), (3, 100));
        assert!(seen.in_flight_max.iter().all(|max| *max <= 8), "never more than it allows: {seen:?}");
    });
    world.drain().await;
}

#[tokio::test]
async fn one_connection_is_enough_while_it_has_room() {
    let world = world(100, 1000, End::Never, |_| {}).await;
    for first in (0..500).step_by(50) {
        world.push(first..first + 50).await;
        world.sink.outcomes(first as usize + 50).await;
    }
    assert_eq!(world.service.seen(|seen| (seen.connections, seen.requests.clone())), (1, vec![500]));
    world.drain().await;
}

/// What a service that says goodbye did not take goes out on another connection, at once and for the first time.
#[tokio::test]
async fn a_goodbye_costs_nothing() {
    let world = world(100, 10_000, End::GoAway(20), |_| {}).await;
    world.push(0..300).await;
    let outcomes = world.sink.outcomes(300).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{outcomes:?}");
    let repeats: u32 = outcomes.values().map(|it| it.repeats).sum();
    assert_eq!((repeats, world.service.seen(|seen| seen.targets.len())), (0, 300), "each was asked for once");
    world.drain().await;
}

/// What was under way when a connection broke may have been shown: it is repeated, since its topic replaces what is.
#[tokio::test]
async fn what_was_under_way_on_a_broken_connection_is_repeated() {
    let world = world(100, 0, End::Cut(20), |_| {}).await;
    world.push(0..20).await;
    world.service.until("the first connection is cut", |seen| seen.requests.first() == Some(&20)).await;
    world.service.shared.gate.add_permits(1000);
    let outcomes = world.sink.outcomes(20).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted && it.repeats == 1), "{outcomes:?}");
    world.drain().await;
}
