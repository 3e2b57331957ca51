//! Server-side subscriptions, and orders about connections, over real sockets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_protocol::token::sign_connection_token;
use tidings_protocol::{
    Admission, ClientId, ClientPosition, Disconnect, ErrorCode, Order, OrderError, SubscriptionTerms, Target,
    Unsubscribe,
};
use tidings_telemetry::unix_now;
use tidings_types::{Format, Json, Offset};

use crate::client::Client;
use crate::server::{Options, Server, channel, gate, publish_tagged, token_secret};

/// A connect command of a user whom the server subscribes to these channels.
pub(crate) fn connect(user: &str, channels: &[&str], subs: Value) -> Value {
    let subscriptions = channels.iter().map(|name| ((*name).to_owned(), SubscriptionTerms::default())).collect();
    let admission = Admission { user: user.to_owned(), subscriptions, ..Admission::default() };
    json!({"id": 1, "connect": {"token": sign_connection_token(&token_secret(), &admission, unix_now()), "subs": subs}})
}

/// A client that has sent this, and the answer.
async fn answered(server: &Server, command: Value) -> (Client, Value) {
    let mut client = Client::open(server).await;
    client.send(command).await;
    let reply = client.reply(1).await;
    (client, reply)
}

in_both!(the_server_subscribes_a_client_that_connects);
async fn the_server_subscribes_a_client_that_connects(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let (mut client, reply) = answered(&server, connect("ann", &["kept:1", "plain"], json!({}))).await;
    let subs = reply["connect"]["subs"].as_object().unwrap();
    assert_eq!(subs.keys().collect::<Vec<_>>(), ["kept:1", "own:#ann", "plain"]);
    assert_eq!((&subs["kept:1"]["recoverable"], &subs["plain"]), (&json!(true), &json!({})));
    for name in ["plain", "kept:1", "own:#ann"] {
        server.publish(name, json!(name));
        let push = client.next_push().await;
        assert_eq!((&push["channel"], &push["pub"]["data"]), (&json!(name), &json!(name)));
    }
    assert_eq!(server.hub.presence_stats(&channel("own:#ann")), (1, 1));
    client.send(json!({"id": 2, "unsubscribe": {"channel": "plain"}})).await;
    client.reply(2).await;
    assert_eq!(server.hub.subscriber_count(&channel("plain")), 0);
    drop(client);
    server.until("the channels are left", || server.hub.subscriber_count(&channel("own:#ann")) == 0).await;
}

in_both!(a_client_that_comes_back_gets_what_it_missed_with_its_connect);
async fn a_client_that_comes_back_gets_what_it_missed_with_its_connect(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let (client, reply) = answered(&server, connect("ann", &["kept:1", "small:1"], json!({}))).await;
    let epoch = reply["connect"]["subs"]["kept:1"]["epoch"].clone();
    drop(client);
    for value in 1..=3 {
        server.publish("kept:1", json!(value));
        server.publish("small:1", json!(value));
    }
    let position = json!({"recover": true, "offset": 1, "epoch": epoch});
    let subs = json!({"kept:1": position, "small:1": position});
    let (mut client, reply) = answered(&server, connect("ann", &["kept:1", "small:1"], subs)).await;
    let subs = &reply["connect"]["subs"];
    let offsets = subs["kept:1"]["publications"].as_array().unwrap().iter().map(|one| &one["offset"]);
    assert_eq!(offsets.collect::<Vec<_>>(), [2, 3]);
    assert_eq!((&subs["kept:1"]["recovered"], &subs["kept:1"]["offset"]), (&json!(true), &json!(1)));
    assert_eq!((&subs["small:1"]["was_recovering"], subs["small:1"].get("recovered")), (&json!(true), None));
    server.publish("kept:1", json!(4));
    assert_eq!(client.next_push().await["pub"]["offset"], 4);
}

/// What all channels recover is one answer, and an answer is bounded.
#[tokio::test]
async fn what_is_recovered_on_connecting_is_bounded() {
    let server = Server::start(Options { reply_bytes_max: 10_000, ..Options::default() }).await;
    let names = ["kept:1", "kept:2", "kept:3"];
    names.iter().for_each(|name| server.publish(name, json!("x".repeat(6000))));
    let subs = names.map(|name| (name.to_owned(), json!({"recover": true, "offset": 0}))).into_iter().collect();
    let (_, reply) = answered(&server, connect("ann", &names, Value::Object(subs))).await;
    let recovered = names.map(|name| reply["connect"]["subs"][name]["recovered"] == true);
    assert_eq!(recovered, [true, true, false], "a single publication may be larger than what is left");
}

/// There is no room for the second channel: the first is left again, and the connection is useless.
#[tokio::test]
async fn one_subscription_that_fails_fails_the_connect() {
    let server = Server::start(Options::default()).await;
    (0..99).for_each(|index| server.publish(&format!("kept:{index:02}"), json!(0)));
    let (mut client, reply) = answered(&server, connect("", &["kept:00", "kept:a", "kept:b"], json!({}))).await;
    assert_eq!(reply["error"]["code"], 111);
    assert_eq!(server.hub.subscriber_count(&channel("kept:00")), 0);
    assert_eq!(server.edge().user_count(), 0);
    client.send(json!({"id": 2, "presence_stats": {"channel": "kept:00"}})).await;
    assert_eq!(client.drain().await.1, Some(3501));
}

in_both!(the_server_chooses_what_a_client_gets);
async fn the_server_chooses_what_a_client_gets(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let (mut client, _) = answered(&server, connect("ann", &[], json!({}))).await;
    let tags_filter = Some(Json::of(&json!({"key": "team", "cmp": "eq", "val": "SWE"})));
    let terms = SubscriptionTerms { tags_filter, ..SubscriptionTerms::default() };
    for (name, expected) in [("lively:1", Ok(())), ("kept:1", Err(OrderError::Refused(ErrorCode::BadRequest)))] {
        let subscribe = Order::Subscribe { channel: channel(name), terms: terms.clone(), since: None };
        assert_eq!(order(&server, "ann", subscribe).await, expected, "{name}");
    }
    assert_eq!(client.next_push().await["subscribe"]["recoverable"], true);
    for (number, team) in ["SWE", "DEN", "SWE"].into_iter().enumerate() {
        publish_tagged(&server.hub, "lively:1", &json!(number), &[("team", team)]);
    }
    let mut told = Vec::new();
    for message in client.flush().await {
        told.extend(message["push"].get("pub").map(|publication| publication["data"].clone()));
    }
    assert_eq!(told, [0, 2]);
}

/// There is no room for the last channel: nobody is told that the client was in the first.
#[tokio::test]
async fn a_connect_that_fails_is_no_join() {
    let server = Server::start(Options::default()).await;
    (0..98).for_each(|index| server.publish(&format!("kept:{index:02}"), json!(0)));
    let mut watcher = answered(&server, connect("", &["told:1"], json!({}))).await.0;
    assert!(watcher.next_push().await.get("join").is_some(), "the joiner is told of itself");
    let (_refused, reply) = answered(&server, connect("", &["told:1", "z1", "z2"], json!({}))).await;
    assert_eq!(reply["error"]["code"], 111);
    let (other, _) = answered(&server, connect("", &["told:1"], json!({}))).await;
    drop(other);
    let kinds = [watcher.next_push().await, watcher.next_push().await];
    assert!(kinds[0].get("join").is_some() && kinds[1].get("leave").is_some(), "{kinds:?}");
    server.publish("told:1", json!(1));
    assert_eq!(watcher.next_push().await["pub"]["data"], 1);
}

/// Gives an order about a user's connections.
async fn order(server: &Server, user: &str, order: Order) -> Result<(), OrderError> {
    server.edge().order(Target { user: user.to_owned(), ..Target::default() }, order).await
}

fn subscribe(name: &str, since: Option<ClientPosition>) -> Order {
    let terms = SubscriptionTerms { data: Some(Json::of(&"welcome")), ..SubscriptionTerms::default() };
    Order::Subscribe { channel: channel(name), terms, since }
}

fn unsubscribe(name: Option<&str>) -> Order {
    Order::Unsubscribe { channel: name.map(channel), why: Unsubscribe::SERVER }
}

fn disconnect(spared: &[ClientId]) -> Order {
    Order::Disconnect { disconnect: Disconnect::FORCE_DISCONNECT, spared: spared.iter().copied().collect() }
}

in_both!(an_order_subscribes_and_unsubscribes_the_connections_of_a_user);
async fn an_order_subscribes_and_unsubscribes_the_connections_of_a_user(format: Format) {
    let server = Server::start(Options::of(format)).await;
    (1..=3).for_each(|value| server.publish("kept:1", json!(value)));
    // Two on each loop, and a stranger.
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(answered(&server, connect("ann", &[], json!({}))).await.0);
    }
    let mut stranger = answered(&server, connect("bob", &[], json!({}))).await.0;
    let since = ClientPosition { offset: Offset(1), epoch: String::new() };
    order(&server, "ann", subscribe("kept:1", Some(since))).await.unwrap();
    assert_eq!(server.hub.subscriber_count(&channel("kept:1")), 4, "it is carried out when it is answered");
    server.publish("kept:1", json!(4));
    for client in &mut clients {
        let push = client.next_push().await;
        assert_eq!((&push["channel"], &push["subscribe"]["data"]), (&json!("kept:1"), &json!("welcome")));
        assert_eq!((&push["subscribe"]["recoverable"], &push["subscribe"]["offset"]), (&json!(true), &json!(1)));
        assert_eq!(client.publications(3).await, [2, 3, 4].map(Value::from), "what it has missed, then the next");
    }
    order(&server, "ann", unsubscribe(Some("kept:1"))).await.unwrap();
    order(&server, "ann", unsubscribe(None)).await.unwrap();
    assert_eq!(server.hub.subscriber_count(&channel("own:#ann")), 0);
    server.publish("kept:1", json!(5));
    for client in &mut clients {
        for name in ["kept:1", "own:#ann"] {
            let push = client.next_push().await;
            assert_eq!((&push["channel"], &push["unsubscribe"]["code"]), (&json!(name), &json!(2000)));
        }
        assert_eq!(client.flush().await, [] as [Value; 0]);
    }
    assert_eq!(stranger.flush().await, [] as [Value; 0]);
}

/// The user "" is everybody without a user, and an order goes on over more connections than one step takes.
#[tokio::test]
async fn an_order_about_everybody_without_a_user_spares_the_users() {
    let server = Server::start(Options { connection_count_max: 1000, ..Options::default() }).await;
    let mut anonymous = Vec::new();
    for _ in 0..300 {
        anonymous.push(Client::connected(&server).await);
    }
    let mut ann = answered(&server, connect("ann", &[], json!({}))).await.0;
    order(&server, "", subscribe("plain", None)).await.unwrap();
    assert_eq!(server.hub.subscriber_count(&channel("plain")), 300);
    order(&server, "", disconnect(&[])).await.unwrap();
    for client in &mut anonymous {
        assert_eq!(client.drain().await.1, Some(3503));
    }
    assert_eq!(ann.flush().await, [] as [Value; 0]);
}

#[tokio::test]
async fn an_order_may_name_or_spare_one_connection() {
    let server = Server::start(Options::default()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (client, reply) = answered(&server, connect("ann", &[], json!({}))).await;
        clients.push((client, reply["connect"]["client"].as_str().unwrap().to_owned()));
    }
    let id = |index: usize| clients[index].1.clone();
    let (first, second) = (id(0), ClientId::parse(&id(1)).unwrap());
    for (user, client, session) in [("bob", Some(first.clone()), None), ("ann", None, Some("s".to_owned()))] {
        server.edge().order(Target { user: user.to_owned(), client, session }, disconnect(&[])).await.unwrap();
    }
    let only = Target { user: "ann".to_owned(), client: Some(first), session: None };
    server.edge().order(only, disconnect(&[])).await.unwrap();
    assert_eq!(clients[0].0.drain().await, (vec![], Some(3503)));
    order(&server, "ann", disconnect(&[second])).await.unwrap();
    assert_eq!(clients[2].0.drain().await.1, Some(3503));
    assert_eq!(clients[1].0.flush().await, [] as [Value; 0]);
}

in_both!(an_order_refreshes_connections);
async fn an_order_refreshes_connections(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = answered(&server, connect("ann", &[], json!({}))).await.0;
    let expires_at = Some(unix_now().saturating_add(Duration::from_secs(60)));
    order(&server, "ann", Order::Refresh { expires_at, info: Some(Json::of(&"new")) }).await.unwrap();
    let refresh = client.next_push().await["refresh"].clone();
    assert!(refresh["expires"] == true && (59..=60).contains(&refresh["ttl"].as_u64().unwrap()), "{refresh}");
    client.subscribe(json!({"channel": "kept:1"})).await;
    assert_eq!(server.hub.presence(&channel("kept:1"))[0].conn_info, Some(Json::of(&"new")));
}

/// A client that waits for the proof of its device can be closed, but is not told anything before it is connected.
#[tokio::test]
async fn an_order_closes_a_client_that_is_still_being_proven() {
    let server = Server::start(Options::default()).await;
    for (mut client, is_closed) in [(Client::open(&server).await, false), (Client::open(&server).await, true)] {
        let before = server.metric("tidings_edge_commands_total");
        let device = json!({"tidings": {"device": "phone-9", "credential": "secret-9"}});
        client.send(json!({"id": 1, "connect": {"data": device}})).await;
        server.until("the proof is begun", || server.metric("tidings_edge_commands_total") > before).await;
        order(&server, "", subscribe("plain", None)).await.unwrap();
        if is_closed {
            order(&server, "", disconnect(&[])).await.unwrap();
            assert_eq!(client.drain().await, (vec![], Some(3503)));
        } else {
            server.permits.add_permits(1);
            assert!(client.reply(1).await["connect"].is_object());
            assert_eq!(client.flush().await, [] as [Value; 0]);
        }
    }
}

in_both!(a_client_that_was_closed_while_its_hook_was_asked_joins_nothing);
/// A user who was banned while a hook was asked.
async fn a_client_that_was_closed_while_its_hook_was_asked_joins_nothing(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut watcher = Client::connected(&server).await;
    watcher.subscribe(json!({"channel": "asked:1", "join_leave": true, "data": {"answer": {}}})).await;
    assert!(watcher.next_push().await["join"].is_object(), "it is told of itself");
    let mut banned = answered(&server, connect("ann", &[], json!({}))).await.0;
    let asked = json!({"channel": "asked:1", "data": {"wait": true, "answer": {}}});
    banned.send(json!({"id": 2, "subscribe": asked})).await;
    server.until("the hook is asked", || server.backend.asked().len() == 2).await;
    order(&server, "ann", disconnect(&[])).await.unwrap();
    server.backend.release();
    assert_eq!(banned.drain().await.1, Some(3503));
    server.until("it is gone", || server.edge().connection_count() == 1).await;
    server.publish("asked:1", json!("the end"));
    let push = watcher.next_push().await;
    assert_eq!(push["pub"]["data"], "the end", "nobody has joined before: {push}");
}

#[tokio::test]
async fn too_many_orders_at_once_are_refused() {
    let server = Server::start(Options::default()).await;
    let mut publisher = Client::connected(&server).await;
    server.gate.store(gate::SHUT, Ordering::Relaxed);
    publisher.send(json!({"id": 2, "publish": {"channel": "durable:1", "data": "hold"}})).await;
    server.until("its loop stands", || server.gate.load(Ordering::Relaxed) == gate::WAITED_AT).await;
    let mut given: Vec<_> = (0..1025).map(|_| server.edge().order(Target::default(), disconnect(&[]))).collect();
    assert_eq!(given.pop().unwrap().await, Err(OrderError::Overloaded));
    server.gate.store(gate::OPEN, Ordering::Relaxed);
    for order in given {
        assert_eq!(order.await, Ok(()));
    }
}

#[tokio::test]
async fn a_user_has_one_connection_if_so_configured() {
    the_last_connection_stays(0).await;
    the_last_connection_stays(1).await; // The one that goes still counts when the next one comes.
}

async fn the_last_connection_stays(user_connection_count_max: usize) {
    let options = Options { single_connection: true, user_connection_count_max, ..Options::default() };
    let server = Server::start(options).await;
    let mut before = answered(&server, connect("ann", &[], json!({}))).await.0;
    let mut anonymous = [Client::connected(&server).await, Client::connected(&server).await];
    let mut bob = answered(&server, connect("bob", &[], json!({}))).await.0;
    for _ in 0..5 {
        let next = answered(&server, connect("ann", &[], json!({}))).await.0;
        assert_eq!(before.drain().await.1, Some(3504));
        before = next;
    }
    for client in [&mut bob, &mut before].into_iter().chain(&mut anonymous) {
        assert_eq!(client.flush().await, [] as [Value; 0]);
    }
}

#[tokio::test]
async fn a_user_has_as_many_connections_as_allowed_and_another_one_when_one_has_ended() {
    let server = Server::start(Options { user_connection_count_max: 2, ..Options::default() }).await;
    let mut first = answered(&server, connect("ann", &[], json!({}))).await.0;
    let mut second = answered(&server, connect("ann", &[], json!({}))).await.0;
    for _ in 0..3 {
        let mut further = Client::open(&server).await;
        further.send(connect("ann", &["kept:1"], json!({}))).await;
        assert_eq!(further.drain().await, (Vec::new(), Some(3504)));
    }
    assert_eq!(server.hub.subscriber_count(&channel("kept:1")), 0);
    let mut others = vec![answered(&server, connect("bob", &[], json!({}))).await.0];
    for _ in 0..5 {
        others.push(Client::connected(&server).await); // They have no user.
    }
    let count = server.edge().connection_count();
    drop(first);
    server.until("it is gone", || server.edge().connection_count() < count).await;
    first = answered(&server, connect("ann", &[], json!({}))).await.0;
    for client in [&mut first, &mut second].into_iter().chain(&mut others) {
        assert_eq!(client.flush().await, [] as [Value; 0]);
    }
}

/// Connections are told of with their channels, on every loop.
#[tokio::test]
async fn the_connections_of_a_user_are_told_of() {
    let server = Server::start(Options::default()).await;
    let mut clients = Vec::new();
    for user in ["ann", "ann", "ann", "bob"] {
        clients.push(answered(&server, connect(user, &["kept:1"], json!({}))).await.0);
    }
    let list = async |user: &str| {
        let target = Target { user: user.to_owned(), ..Target::default() };
        server.edge().connections(target).await.unwrap()
    };
    let found = list("ann").await;
    assert_eq!(found.len(), 3);
    let channels = ["kept:1", "own:#ann"].map(channel); // Each user has a channel of its own here.
    assert!(found.iter().all(|found| found.user == "ann" && found.channels == channels), "{found:?}");
    assert_eq!((list("bob").await.len(), list("").await.len()), (1, 0));
}

/// Of clients that come at once, the last one that is let in stays.
#[tokio::test]
async fn of_several_connections_at_once_one_stays() {
    let server = Server::start(Options { single_connection: true, ..Options::default() }).await;
    for _ in 0..20 {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::open(&server).await);
        }
        let before = server.metric("tidings_edge_commands_total");
        for client in &mut clients {
            client.send(connect("ann", &[], json!({}))).await;
        }
        server.until("all are asked", || server.metric("tidings_edge_commands_total") == before + 4.0).await;
        // After the first order all are let in, after the second each has taken the place of the others.
        for _ in 0..2 {
            order(&server, "", unsubscribe(None)).await.unwrap();
        }
        let mut stayed = 0;
        for client in &mut clients {
            stayed += usize::from(client.try_flush().await.is_some());
        }
        assert_eq!(stayed, 1);
    }
}
