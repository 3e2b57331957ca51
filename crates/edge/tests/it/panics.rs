//! A bug that shows while one connection is served costs that connection.

use serde_json::json;
use tidings_telemetry::{Registry, panics};

use crate::client::Client;
use crate::server::{Options, PANIC, Server, channel};

fn panic_count() -> f64 {
    let registry = Registry::new();
    panics::register(&registry);
    let page = registry.prometheus();
    let line = page.lines().find_map(|line| line.strip_prefix("tidings_panics_total{work=\"connection\"}"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_panic_closes_the_connection_and_nothing_of_it_is_left() {
    let server = Server::start(Options::default()).await;
    let mut bystander = Client::subscribed(&server, "kept:1").await;
    // More than there are loops, so that at least one shares its loop with the bystander.
    for round in 1..=4 {
        let mut client = Client::subscribed(&server, "kept:1").await;
        assert_eq!(server.hub.subscriber_count(&channel("kept:1")), 2);
        client.send(json!({"id": 3, "publish": {"channel": "durable:1", "data": PANIC}})).await;
        let (messages, _) = client.drain().await;
        assert!(messages.iter().all(|message| message["id"] != 3), "{messages:?}");
        server.until("it is gone", || server.hub.subscriber_count(&channel("kept:1")) == 1).await;
        server.until("it is not counted", || server.metric("tidings_edge_connections ") == 1.0).await;
        assert_eq!((server.edge().connection_count(), server.hub.presence_stats(&channel("kept:1")).0), (1, 1));
        assert!(panic_count() >= f64::from(round));
        server.publish("kept:1", json!(round));
        assert_eq!(bystander.publications(1).await, [json!(round)]);
    }
    server.shutdown().await;
}
