//! Connections without anything to do: whether the peer is still there is asked before there is something to send.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use h2::RecvStream;
use h2::server::SendResponse;
use tidings_buffer::Lake;
use tidings_gateway::{Gateway, GatewayConfig};
use tidings_push::{Lakes, Notification, Outcome};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{EventPriority, JournalPosition};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::peer::{Reply, acceptor};
use crate::{PATIENCE, Sink, always, behaviour, config, notification, setup};

const PING_IDLE: Duration = Duration::from_millis(50);
/// A quarter of it lies between two looks at a connection; half of it is a long time for an answer, also on a machine
/// with much to do.
const STALL_TIMEOUT: Duration = Duration::from_secs(4);

async fn until(what: &str, happened: impl Fn() -> bool) {
    let waits = async {
        while !happened() {
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, waits).await.is_ok(), "{what}");
}

#[tokio::test]
async fn an_idle_connection_is_asked_whether_it_lives_again_and_again() {
    let setup = setup(behaviour(always(Reply::Accept)), |config| {
        config.ping_idle = Some(PING_IDLE);
        config.stall_timeout = STALL_TIMEOUT;
    })
    .await;
    setup.push(0..1).await;
    setup.sink.outcomes(1).await;
    // From here on no stream is open.
    let before = setup.peer.log(|log| log.pings);
    until("no PINGs came", || setup.peer.log(|log| log.pings) >= before + 2).await;
    setup.push(1..10).await;
    setup.sink.outcomes(10).await;
    assert_eq!(setup.peer.log(|log| log.connections), 1, "it is kept, since it answers");
    assert_eq!(setup.drain().await, 0);
}

/// A server of another implementation, `h2`: its first connection falls silent when told to, without being closed.
struct Sleeper {
    connections: AtomicUsize,
    sleep: Notify,
}

impl Sleeper {
    async fn listen(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        let mut sessions = JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (sleeper, acceptor) = (Arc::clone(&self), acceptor.clone());
            sessions.spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                match sleeper.connections.fetch_add(1, Ordering::SeqCst) {
                    // Who does not poll a connection of `h2` answers no PING.
                    0 => serve(tls, sleeper.sleep.notified()).await,
                    _ => serve(tls, pending()).await,
                }
            });
        }
    }
}

/// Accepts all requests; from `silence` on nothing is read nor written.
async fn serve(tls: TlsStream<TcpStream>, silence: impl Future<Output = ()>) {
    let Ok(mut session) = h2::server::handshake(tls).await else { return };
    let mut answers = JoinSet::new();
    let serving = async {
        while let Some(Ok((request, respond))) = session.accept().await {
            answers.spawn(accept(request, respond));
        }
    };
    tokio::select! {
        () = serving => {}
        () = silence => pending().await,
    }
}

async fn accept(request: http::Request<RecvStream>, mut respond: SendResponse<bytes::Bytes>) {
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.data().await {}
    _ = respond.send_response(http::Response::new(()), true);
}

/// A gateway to a [`Sleeper`] that pings early.
fn start(mut config: GatewayConfig, sink: &Arc<Sink>, registry: &Registry) -> (Gateway, Arc<Lake<Notification>>) {
    config.ping_idle = Some(PING_IDLE);
    config.stall_timeout = STALL_TIMEOUT;
    let lakes = Lakes::new(64);
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(sink) as _, registry).unwrap();
    (gateway, Arc::clone(lakes.of(EventPriority::Normal)))
}

async fn push(lake: &Lake<Notification>, devices: std::ops::Range<u32>) {
    let expires_at = unix_now().saturating_add(Duration::from_secs(600));
    let mut batch = devices.map(|device| notification(device, JournalPosition(1), expires_at)).collect();
    lake.push_batch(&mut batch).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_that_does_not_answer_is_replaced_before_anything_is_sent_on_it() {
    let (acceptor, ca_pem) = acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(listener.local_addr().unwrap().port(), ca_pem);
    let sleeper = Arc::new(Sleeper { connections: AtomicUsize::new(0), sleep: Notify::new() });
    let mut server = JoinSet::new();
    server.spawn(Arc::clone(&sleeper).listen(listener, acceptor));
    let (sink, registry) = (Arc::<Sink>::default(), Registry::new());
    let (gateway, lake) = start(config, &sink, &registry);

    push(&lake, 0..1).await;
    sink.outcomes(1).await;
    sleeper.sleep.notify_one();
    until("it was not replaced", || sleeper.connections.load(Ordering::SeqCst) >= 2).await;
    let text = registry.prometheus();
    let stalled = |cause, count| {
        format!(r#"tidings_gateway_connections_stalled_total{{cause="{cause}",pool="main",provider="apns"}} {count}"#)
    };
    assert!(text.contains("_stalled_total{cause=\"silence\"") && !text.contains(&stalled("silence", 0)), "{text}");
    assert!(text.contains(&stalled("no_window", 0)), "{text}");

    push(&lake, 1..20).await;
    let outcomes = sink.outcomes(20).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{outcomes:?}");
    let text = registry.prometheus();
    assert!(text.contains(r#"tidings_gateway_repeats_total{cause="unknown",pool="main",provider="apns"} 0"#), "{text}");
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
}
