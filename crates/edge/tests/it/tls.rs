//! The edge over TLS: the clients are those of the other tests, behind a bridge that speaks TLS for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::client::Client;
use crate::server::{Options, Server, serve};

/// Serves `router` with TLS. Returns the address of a bridge to it.
pub(crate) async fn start(listener: TcpListener, router: Router, tasks: &mut JoinSet<()>) -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();

    let addr = listener.local_addr().unwrap();
    tasks.spawn(serve(listener, router, Some(TlsAcceptor::from(Arc::new(config)))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bridge_addr = listener.local_addr().unwrap();
    tasks.spawn(bridge(listener, addr, TlsConnector::from(Arc::new(client))));
    bridge_addr
}

async fn bridge(listener: TcpListener, addr: SocketAddr, connector: TlsConnector) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let connector = connector.clone();
        connections.spawn(async move {
            let socket = TcpStream::connect(addr).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut server = connector.connect(name, socket).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

fn options() -> Options {
    Options { tls: true, ..Options::default() }
}

#[tokio::test]
async fn publications_large_and_small_come_in_order() {
    let server = Server::start(options()).await;
    let mut client = Client::subscribed(&server, "room").await;
    let large = "x".repeat(60_000);
    for value in 0..100 {
        server.publish("room", json!([value, if value % 10 == 0 { &large } else { "small" }]));
    }
    for (value, data) in client.publications(100).await.into_iter().enumerate() {
        assert_eq!(data[0], value);
    }
    client.send(json!({"id": 3, "publish": {"channel": "room", "data": "mine"}})).await;
    assert_eq!(client.publications(1).await, [json!("mine")]);
}

#[tokio::test]
async fn a_slow_reader_is_closed_with_3008_and_costs_the_others_nothing() {
    crate::check_slow_reader(Options { frame_count_max: 64, ..options() }).await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let server = Server::start(Options { write_timeout: Duration::from_millis(300), ..options() }).await;
    let mut quick = Client::subscribed(&server, "other").await;
    let _silent = Client::subscribed(&server, "room").await;
    let block = "x".repeat(60_000);
    for _ in 0..1000 {
        server.publish("room", json!(block));
    }
    let cut = || server.metric("tidings_edge_disconnects_total{reason=\"stalled\"}") == 1.0;
    server.until("the client is cut off", cut).await;
    server.publish("other", json!("heard"));
    assert_eq!(quick.publications(1).await, [json!("heard")]);
}

#[tokio::test]
async fn a_server_that_stops_says_so_and_an_end_is_noticed() {
    let server = Server::start(options()).await;
    let mut client = Client::connected(&server).await;
    let gone = Client::connected(&server).await;
    let connections = || server.metric("tidings_edge_connections ");
    server.until("both are there", || connections() == 2.0).await;
    drop(gone);
    server.until("one is gone", || connections() == 1.0).await;
    let ((), (_, code)) = tokio::join!(server.edge().shutdown(), client.drain());
    assert_eq!(code, Some(3001));
}
