//! Who comes and goes, as the back end is told: users and channels, not connections and subscriptions.

use serde_json::json;
use tidings_protocol::Admission;
use tidings_protocol::token::sign_connection_token;
use tidings_telemetry::unix_now;

use crate::client::Client;
use crate::server::{Options, Server, token_secret};

async fn connected(server: &Server, user: &str) -> Client {
    let admission = Admission { user: user.to_owned(), ..Admission::default() };
    let token = sign_connection_token(&token_secret(), &admission, unix_now());
    let mut client = Client::open(server).await;
    client.send(json!({"id": 1, "connect": {"token": token}})).await;
    client.reply(1).await;
    client
}

/// What has changed since the last call.
fn changes(server: &Server) -> Vec<(String, bool)> {
    let batch = server.hub.changes().unwrap().take(100, 10_000);
    batch.changes.into_iter().map(|change| (change.key.name().to_owned(), change.is_here)).collect()
}

fn change(name: &str, is_here: bool) -> (String, bool) {
    (name.to_owned(), is_here)
}

#[tokio::test]
async fn a_user_comes_with_the_first_connection_and_goes_with_the_last() {
    let server = Server::start(Options::default()).await;
    let (first, anonymous) = (connected(&server, "ada").await, Client::connected(&server).await);
    assert_eq!(changes(&server), [change("ada", true)]);
    let second = connected(&server, "ada").await;
    drop((first, anonymous));
    server.until("they are gone", || server.edge().connection_count() == 1).await;
    assert_eq!(changes(&server), [], "the second connection is still here, and anonymous clients are nobody");
    drop(second);
    server.until("it is gone", || server.edge().connection_count() == 0).await;
    assert_eq!(changes(&server), [change("ada", false)]);
}

#[tokio::test]
async fn a_channel_is_occupied_from_its_first_subscriber_to_its_last() {
    let server = Server::start(Options::default()).await;
    let mut first = Client::subscribed(&server, "told:1").await;
    assert_eq!(changes(&server), [change("told:1", true)]);
    let second = Client::subscribed(&server, "told:1").await;
    Client::subscribed(&server, "kept:1").await;
    first.send(json!({"id": 5, "unsubscribe": {"channel": "told:1"}})).await;
    first.reply(5).await;
    assert_eq!(changes(&server), [], "another is still here, and the other namespace is not told of");
    drop(second);
    server.until("it is gone", || server.edge().connection_count() == 1).await;
    assert_eq!(changes(&server), [change("told:1", false)]);
}
