//! Receipts over real sockets (design, section 4): who is asked, when, and what the answer proves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_hub::EventReceipts;
use tidings_protocol::token::sign_connection_token;
use tidings_protocol::{Admission, Publication, Tags};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, DeviceNumber, Format, JournalPosition, Json, Offset};
use tokio::time::Instant;

use crate::client::{Client, DEADLINE};
use crate::server::{Asks, Options, Server, channel, gate, token_secret};

const CHANNEL: &str = "durable:1";

/// The connect command of a phone whose app is on the screen.
fn visible(number: u32) -> Value {
    json!({"data": {"tidings": {"device": format!("phone-{number}"), "credential": format!("secret-{number}"), "visible": true}}})
}

fn is_ping(message: &Value) -> bool {
    *message == json!({})
}

async fn publication(client: &mut Client, event: u64) {
    assert_eq!(client.next().await["push"]["pub"]["data"], format!("event {event}"));
}

async fn ping(client: &mut Client) {
    let message = client.next().await;
    assert!(is_ping(&message), "{message}");
}

async fn no_ping(client: &mut Client) {
    let messages = client.flush().await;
    assert!(!messages.iter().any(is_ping), "{messages:?}");
}

/// Events that are published one after the other into [`CHANNEL`].
struct Events<'a> {
    server: &'a Server,
    published: u64,
}

impl<'a> Events<'a> {
    fn new(server: &'a Server) -> Self {
        Self { server, published: 0 }
    }

    fn publish(&mut self, asks: Asks) -> Arc<EventReceipts> {
        self.published += 1;
        self.server.publish_event(self.published, asks, CHANNEL, self.published)
    }

    /// Asks a new client once, so that its first second is over.
    async fn settle(&mut self, client: &mut Client) {
        let event = self.publish(Asks::Everybody);
        publication(client, self.published).await;
        ping(client).await;
        client.pong().await;
        self.received(&event, 1).await;
    }

    async fn received(&self, event: &EventReceipts, count: u64) {
        self.server.until("the receipt has come", || event.summary().received == count).await;
    }
}

fn devices(event: &EventReceipts) -> Vec<u32> {
    event.received().unwrap().iter().collect()
}

fn may_answer(event: &EventReceipts) -> Vec<u32> {
    event.may_answer().iter().collect()
}

in_both!(a_ping_behind_the_publication_is_answered_and_the_device_has_received_it);
async fn a_ping_behind_the_publication_is_answered_and_the_device_has_received_it(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let mut stranger = Client::subscribed(&server, CHANNEL).await;
    let first = events.publish(Asks::Visible);
    let connected = Instant::now();
    publication(&mut client, 1).await;
    assert_eq!((may_answer(&first), devices(&first)), (vec![1], vec![]));
    no_ping(&mut client).await;
    ping(&mut client).await; // The first one waits for the end of the first second.
    assert!(connected.elapsed() > Duration::from_millis(900), "{:?}", connected.elapsed());
    client.pong().await;
    events.received(&first, 1).await;
    assert_eq!((devices(&first), may_answer(&first)), (vec![1], vec![1]));
    assert_eq!((first.summary().written, first.summary().users), (1, vec![]));

    let second = events.publish(Asks::Visible);
    publication(&mut client, 2).await;
    ping(&mut client).await;
    client.pong().await;
    events.received(&second, 1).await;
    assert_eq!(server.metric("tidings_edge_receipts_asked_total"), 2.0);
    assert_eq!(server.metric("tidings_edge_receipts_received_total{by=\"pong\"}"), 2.0);
    client.pong().await;
    assert_eq!(client.drain().await.1, Some(3501), "a pong that nobody asked for");
    let messages = stranger.flush().await;
    assert_eq!(messages.len(), 2, "who is no device is written the same and asked nothing: {messages:?}");
}

/// Proving a device may take its time; what counts is the answer that the client gets.
#[tokio::test]
async fn the_first_second_begins_with_the_answer_to_connect() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::open(&server).await;
    client.send(json!({"id": 1, "connect": visible(9)})).await;
    let sent = Instant::now();
    server.until("half a second is over", || sent.elapsed() > Duration::from_millis(500)).await;
    let proven = Instant::now();
    server.permits.add_permits(1);
    client.reply(1).await;
    client.subscribe(json!({"channel": CHANNEL})).await;
    server.publish_event(1, Asks::Any, CHANNEL, 1);
    publication(&mut client, 1).await;
    ping(&mut client).await;
    assert!(proven.elapsed() >= Duration::from_secs(1), "{:?}", proven.elapsed());
}

/// The disk that is read for a proof may be slow: only the connection waits, and not for ever.
#[tokio::test]
async fn a_device_that_is_being_proven_holds_up_nobody_else() {
    let server = Server::start(Options::default()).await;
    let mut waiting = Client::open(&server).await;
    let _on_the_other_loop = Client::connected(&server).await;
    waiting.send(json!({"id": 1, "connect": visible(9)})).await;
    waiting.send(json!({"id": 2, "subscribe": {"channel": CHANNEL}})).await;
    server.until("the proof is begun", || server.metric("tidings_edge_commands_total") >= 2.0).await;
    let mut beside = Client::connected(&server).await;
    beside.flush().await;
    assert_eq!(server.hub.subscriber_count(&channel(CHANNEL)), 0, "its commands wait for the proof");
    server.permits.add_permits(1);
    assert!(waiting.reply(1).await["connect"].is_object());
    assert!(waiting.reply(2).await["subscribe"].is_object());
    assert_eq!(may_answer(&server.publish_event(1, Asks::Any, CHANNEL, 1)), [9]);
    // One that takes too long is no proof, but no reason to be turned away either.
    let mut late = Client::introduced(&server, visible(9), CHANNEL).await;
    late.send(json!({"id": 3, "rpc": {"method": "tidings.visible", "data": {"visible": true}}})).await;
    assert_eq!(late.reply(3).await["rpc"]["data"]["device"], json!(null));
}

/// What is looked at may be the very credential that is being replaced.
#[tokio::test]
async fn a_device_that_is_revoked_while_it_is_being_proven_is_not() {
    let server = Server::start(Options::default()).await;
    for close in [false, true] {
        let mut client = Client::open(&server).await;
        let before = server.metric("tidings_edge_commands_total");
        client.send(json!({"id": 1, "connect": visible(9)})).await;
        server.until("the proof is begun", || server.metric("tidings_edge_commands_total") > before).await;
        server.edge().revoke(DeviceNumber(9), close);
        // A later revocation has been seen on each loop, so the earlier one has.
        for number in [1, 2] {
            let mut other = Client::introduced(&server, visible(number), CHANNEL).await;
            server.edge().revoke(DeviceNumber(number), true);
            assert_eq!(other.drain().await.1, Some(3500));
        }
        server.permits.add_permits(1);
        if close {
            assert_eq!(client.drain().await.1, Some(3500));
            continue;
        }
        client.reply(1).await;
        client.subscribe(json!({"channel": CHANNEL})).await;
        assert_eq!(may_answer(&server.publish_event(1, Asks::Any, CHANNEL, 1)), [0; 0]);
    }
}

#[tokio::test]
async fn only_whose_receipt_is_of_use_is_asked() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let claim =
        |device: &str, credential: &str| json!({"data": {"tidings": {"device": device, "credential": credential}}});
    let device = Some(DeviceId::new("phone-3").unwrap());
    let admission = Admission { user: "ann".to_owned(), device, ..Admission::default() };
    let signed = sign_connection_token(&token_secret(), &admission, unix_now());
    let mut hidden = Client::introduced(&server, claim("phone-2", "secret-2"), CHANNEL).await;
    let mut signed = Client::introduced(&server, json!({"token": signed}), CHANNEL).await;
    let mut foreign = Client::introduced(&server, claim("phone-1", "guessed"), CHANNEL).await;
    let mut unproven =
        Client::introduced(&server, json!({"data": {"tidings": {"device": "phone-1", "visible": true}}}), CHANNEL)
            .await;
    let all = events.publish(Asks::Everybody);
    for client in [&mut hidden, &mut signed, &mut foreign, &mut unproven] {
        publication(client, 1).await;
        ping(client).await;
        client.pong().await;
    }
    events.received(&all, 4).await;
    assert_eq!((all.summary().written, all.summary().users), (4, vec!["ann".to_owned()]));
    assert_eq!(devices(&all), [0; 0], "nobody's app is on the screen");

    let of_visible = events.publish(Asks::Visible);
    let of_any = events.publish(Asks::Any);
    assert_eq!((may_answer(&of_visible), may_answer(&of_any)), (vec![], vec![2, 3]));
    for client in [&mut hidden, &mut signed] {
        publication(client, 2).await;
        publication(client, 3).await;
        ping(client).await;
        client.pong().await;
        no_ping(client).await;
    }
    for client in [&mut foreign, &mut unproven] {
        let messages = client.flush().await;
        assert_eq!(messages.len(), 2, "{messages:?}");
    }
    events.received(&of_any, 2).await;
    assert_eq!(devices(&of_any), [2, 3]);
    assert_eq!((of_visible.summary().written, of_visible.summary().received), (0, 0));
    server.publish("room", json!("no event"));
    for (client, expected) in
        [(&mut hidden, json!("phone-2")), (&mut signed, json!("phone-3")), (&mut foreign, json!(null))]
    {
        client.send(json!({"id": 7, "rpc": {"method": "tidings.visible", "data": {"visible": true, "ttl": 30}}})).await;
        assert_eq!(client.reply(7).await["rpc"]["data"], json!({"device": expected, "ttl": 30}));
    }
    assert_eq!(may_answer(&events.publish(Asks::Visible)), [2, 3]);
}

/// One ping in flight; what comes meanwhile waits for the next.
#[tokio::test]
async fn a_pong_acknowledges_what_was_written_before_its_ping_and_nothing_else() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    events.settle(&mut client).await;
    let first = events.publish(Asks::Visible);
    publication(&mut client, 2).await;
    ping(&mut client).await;
    let (second, third) = (events.publish(Asks::Visible), events.publish(Asks::Any));
    publication(&mut client, 3).await;
    publication(&mut client, 4).await;
    no_ping(&mut client).await;
    client.pong().await;
    ping(&mut client).await;
    assert_eq!((devices(&first), devices(&second)), (vec![1], vec![]));
    no_ping(&mut client).await;
    client.pong().await;
    events.received(&third, 1).await;
    assert_eq!((devices(&second), devices(&third)), (vec![1], vec![1]));
}

#[tokio::test]
async fn an_unsubscribe_before_the_pong_drops_the_receipts_of_the_channel() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    client.send(json!({"id": 3, "subscribe": {"channel": "durable:2"}})).await;
    client.reply(3).await;
    events.settle(&mut client).await;
    let (here, other) = (events.publish(Asks::Any), server.publish_event(20, Asks::Any, "durable:2", 1));
    publication(&mut client, 2).await;
    let mut messages = vec![client.next().await, client.next().await];
    messages.retain(|message| !is_ping(message));
    assert_eq!(messages.len(), 1);
    client.send(json!({"id": 4, "unsubscribe": {"channel": CHANNEL}})).await;
    client.reply(4).await;
    client.pong().await;
    // Written by two loops' steps or one: the other channel's may need a ping of its own.
    if client.flush().await.iter().any(is_ping) {
        client.pong().await;
    }
    events.received(&other, 1).await;
    assert_eq!((here.summary().written, here.summary().received), (1, 0));
    assert_eq!(server.metric("tidings_edge_receipts_dropped_total"), 1.0);
}

#[tokio::test]
async fn an_event_in_two_channels_of_a_connection_is_one_receipt() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    client.send(json!({"id": 3, "subscribe": {"channel": "durable:2"}})).await;
    client.reply(3).await;
    events.settle(&mut client).await;
    let event = events.publish(Asks::Any);
    publication(&mut client, 2).await;
    ping(&mut client).await;
    server.publish_event(2, Asks::Any, "durable:2", 1);
    publication(&mut client, 2).await;
    client.pong().await;
    events.received(&event, 1).await;
    no_ping(&mut client).await;
    assert_eq!((event.summary().written, event.summary().received), (1, 1));
}

#[tokio::test]
async fn whether_the_app_is_visible_is_judged_when_the_pong_comes() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    events.settle(&mut client).await;
    let hidden = events.publish(Asks::Visible);
    publication(&mut client, 2).await;
    ping(&mut client).await;
    client.send(json!({"id": 3, "rpc": {"method": "tidings.visible", "data": {"visible": false}}})).await;
    client.pong().await;
    events.received(&hidden, 1).await;
    assert_eq!((devices(&hidden), may_answer(&hidden)), (vec![], vec![]));
    client.reply(3).await;

    client.send(json!({"id": 4, "rpc": {"method": "tidings.visible", "data": {"visible": true, "ttl": 1}}})).await;
    let until = unix_now().saturating_add(Duration::from_secs(1));
    client.reply(4).await;
    let expired = events.publish(Asks::Visible);
    assert_eq!(may_answer(&expired), [1]);
    publication(&mut client, 3).await;
    ping(&mut client).await;
    server.until("its time is over", || unix_now() > until.saturating_add(Duration::from_millis(50))).await;
    client.pong().await;
    events.received(&expired, 1).await;
    assert_eq!(devices(&expired), [0; 0]);
    events.publish(Asks::Visible);
    publication(&mut client, 4).await;
    no_ping(&mut client).await;
    server.hub.sweep(unix_now());
    assert_eq!(may_answer(&expired), [0; 0], "the sweep sees it too");
}

/// Connects again and resumes at `offset`; the answer to the subscribe.
async fn resumed(server: &Server, connect: Value, offset: u64, epoch: &str) -> (Client, Value) {
    let mut client = Client::open(server).await;
    client.send(json!({"id": 1, "connect": connect})).await;
    client.reply(1).await;
    let resume = json!({"channel": CHANNEL, "recover": true, "offset": offset, "epoch": epoch});
    let reply = client.subscribe(resume).await;
    (client, reply)
}

#[tokio::test]
async fn a_resume_at_or_after_the_event_is_a_receipt_if_the_connection_counts_then() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let (first, second) = (events.publish(Asks::Visible), events.publish(Asks::Visible));
    publication(&mut client, 1).await;
    publication(&mut client, 2).await;
    let epoch = client.epoch.clone();
    drop(client);
    server.until("it has gone", || server.hub.subscriber_count(&channel(CHANNEL)) == 0).await;
    server.until("it is not visible any more", || may_answer(&first).is_empty()).await;
    assert_eq!(first.summary().written, 1);
    assert_eq!(server.metric("tidings_edge_receipts_dropped_total"), 2.0);

    let hidden = json!({"data": {"tidings": {"device": "phone-1", "credential": "secret-1"}}});
    resumed(&server, hidden, 2, &epoch).await;
    resumed(&server, json!({}), 2, &epoch).await;
    resumed(&server, visible(1), 2, "otherone").await;
    resumed(&server, visible(1), 2, "").await;
    resumed(&server, visible(1), 3, &epoch).await;
    assert_eq!((devices(&first), devices(&second)), (vec![], vec![]));
    let (mut client, _) = resumed(&server, visible(1), 1, &epoch).await;
    assert_eq!((devices(&first), devices(&second)), (vec![1], vec![]));
    assert_eq!((first.summary().written, first.summary().received), (1, 1));
    ping(&mut client).await; // For the second, which was in the answer.
    client.pong().await;
    events.received(&second, 1).await;
    assert_eq!(devices(&second), [1]);
    drop(resumed(&server, visible(2), 2, &epoch).await);
    assert_eq!(devices(&first), [1, 2]);
    server.until("phone 2 is not visible any more", || may_answer(&first) == [1]).await;
}

/// A client that was stopped: the system takes what it is written, and nobody answers.
#[tokio::test]
async fn who_sleeps_is_closed_at_the_pong_timeout_and_counts_when_it_has_come_back() {
    let server = Server::start(Options { pong_timeout: Duration::from_secs(1), ..Options::default() }).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let event = events.publish(Asks::Visible);
    let published = Instant::now();
    assert_eq!(client.drain().await.1, Some(3012));
    // A second in which nobody is asked, one to answer in, and until the next sweep.
    assert!(published.elapsed() < Duration::from_secs(4), "{:?}", published.elapsed());
    server.until("it is not waited for", || may_answer(&event).is_empty()).await;
    assert_eq!((event.summary().written, event.summary().received), (1, 0));
    let (mut client, reply) = resumed(&server, visible(1), 0, &client.epoch).await;
    assert_eq!(reply["publications"][0]["data"], "event 1");
    ping(&mut client).await;
    client.pong().await;
    events.received(&event, 1).await;
    assert_eq!((devices(&event), event.summary().written), (vec![1], 2));
}

#[tokio::test]
async fn what_a_resume_is_given_is_asked_for_after_the_first_second() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let epoch = Client::subscribed(&server, CHANNEL).await.epoch;
    let event = events.publish(Asks::Visible);
    let connecting = Instant::now();
    let (mut client, reply) = resumed(&server, visible(1), 0, &epoch).await;
    assert_eq!(reply["publications"][0]["data"], "event 1");
    assert_eq!(may_answer(&event), [1], "it is a reader although it was not there");
    // Leaving and coming back neither loses the ping nor makes it come twice.
    client.send(json!({"id": 3, "unsubscribe": {"channel": CHANNEL}})).await;
    client.reply(3).await;
    let resume = json!({"channel": CHANNEL, "recover": true, "offset": 0, "epoch": epoch});
    client.subscribe(resume).await;
    no_ping(&mut client).await;
    ping(&mut client).await;
    assert!(connecting.elapsed() >= Duration::from_secs(1));
    client.pong().await;
    events.received(&event, 1).await;
    assert_eq!(devices(&event), [1]);
    no_ping(&mut client).await;
}

#[tokio::test]
async fn what_a_resume_is_not_given_is_asked_of_nobody() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let epoch = Client::subscribed(&server, CHANNEL).await.epoch;
    // Two more than the history keeps.
    let published: Vec<_> = (0..12).map(|_| events.publish(Asks::Any)).collect();
    let (_client, reply) = resumed(&server, visible(1), 0, &epoch).await;
    assert_eq!(reply.get("recovered"), None);
    assert!(published.iter().all(|event| event.summary().written == 0 && may_answer(event).is_empty()));
}

#[tokio::test]
async fn a_revoked_device_answers_for_itself_no_more() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let mut other = Client::introduced(&server, visible(2), CHANNEL).await;
    events.publish(Asks::Everybody);
    for client in [&mut client, &mut other] {
        publication(client, 1).await;
        ping(client).await;
        client.pong().await;
    }
    let event = events.publish(Asks::Any);
    publication(&mut client, 2).await;
    ping(&mut client).await;
    server.edge().revoke(DeviceNumber(1), false);
    let say_so = json!({"id": 3, "rpc": {"method": "tidings.visible", "data": {"visible": true}}});
    loop {
        client.send(say_so.clone()).await;
        if client.reply(3).await["rpc"]["data"]["device"].is_null() {
            break;
        }
    }
    client.pong().await;
    no_ping(&mut client).await;
    assert_eq!(devices(&event), [0; 0]);
    let next = events.publish(Asks::Visible);
    assert_eq!(may_answer(&next), [2]);
    publication(&mut client, 3).await;
    no_ping(&mut client).await;

    server.edge().revoke(DeviceNumber(2), true);
    assert_eq!(other.drain().await.1, Some(3500));
    server.until("it stands for no device", || may_answer(&next).is_empty()).await;
    assert_eq!(may_answer(&events.publish(Asks::Any)), [0; 0]);
    assert!(client.flush().await.len() == 1, "the first one is still there");

    // Who comes into the place of one that has gone has nothing to do with its device.
    drop(client);
    server.until("both have gone", || server.edge().connection_count() == 0).await;
    let mut third = Client::introduced(&server, visible(3), CHANNEL).await;
    let mut fourth = Client::introduced(&server, visible(4), CHANNEL).await;
    server.edge().revoke(DeviceNumber(1), true);
    server.edge().revoke(DeviceNumber(2), true);
    server.edge().revoke(DeviceNumber(9), true);
    third.flush().await;
    fourth.flush().await;
    assert_eq!(may_answer(&events.publish(Asks::Visible)), [3, 4]);
}

/// A ping for a receipt takes the place of the regular one: with a pong timeout longer than the interval there is still
/// only one in flight, and who does not answer it is closed.
#[tokio::test]
async fn only_one_ping_is_in_flight_even_when_a_regular_one_is_due() {
    let (ping_interval, pong_timeout) = (Duration::from_secs(1), Duration::from_millis(1500));
    let server = Server::start(Options { ping_interval, pong_timeout, ..Options::default() }).await;
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    server.publish_event(1, Asks::Any, CHANNEL, 1);
    let (messages, code) = client.drain().await;
    assert_eq!(messages.iter().filter(|message| is_ping(message)).count(), 1, "{messages:?}");
    assert_eq!(code, Some(3012));
}

/// SDKs for Go, Swift and others reset their timer on pings only. That each comes within the interval is shown beside the
/// logic, in virtual time (`src/receipts/tests.rs`).
#[tokio::test]
async fn regular_pings_come_on_a_busy_connection() {
    let ping_interval = Duration::from_secs(1);
    let server = Server::start(Options { ping_interval, ..Options::default() }).await;
    let mut client = Client::introduced(&server, json!({}), CHANNEL).await;
    let (mut offset, mut pings) = (0, 0);
    let began = Instant::now();
    while pings < 3 {
        offset += 1;
        server.publish_event(1000 + offset, Asks::Visible, CHANNEL, offset);
        let message = client.next().await;
        if is_ping(&message) {
            client.pong().await;
            pings += 1;
        }
        assert!(began.elapsed() < DEADLINE, "{pings} pings between {offset} publications");
    }
    assert!(offset > 10 * pings, "the connection was busy: {offset} publications");
}

/// What a full socket did not take was not written: the ping follows when it has been.
#[tokio::test]
async fn a_reader_that_lags_is_asked_when_it_was_written_the_event() {
    let server = Server::start(Options { frame_count_max: 1000, ..Options::default() }).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    client.send(json!({"id": 3, "subscribe": {"channel": "room"}})).await;
    client.reply(3).await;
    events.settle(&mut client).await;
    let block = "x".repeat(60_000);
    let deliveries = || server.metric("tidings_edge_deliveries_total");
    for value in 0..300 {
        server.publish("room", json!([value, block]));
    }
    server.until("the first are written", || deliveries() > 10.0).await;
    let event = events.publish(Asks::Visible);
    let mut seen = Vec::new();
    while seen.len() < 302 {
        let message = client.next().await;
        if message["push"]["channel"] == CHANNEL || is_ping(&message) {
            seen.push(message);
            if seen.len() == 2 {
                break;
            }
        }
    }
    assert_eq!(seen[0]["push"]["pub"]["data"], "event 2");
    assert!(is_ping(&seen[1]));
    client.pong().await;
    events.received(&event, 1).await;
}

/// Many publications in one turn, of which the socket takes a part: what it did not take was not written.
#[tokio::test]
async fn only_what_the_socket_took_waits_for_a_pong() {
    let server = Server::start(Options { turn_bytes_max: 1 << 30, ..Options::default() }).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let _on_the_other_loop = Client::connected(&server).await;
    events.settle(&mut client).await;
    // Holds up the client's loop while much is published.
    server.gate.store(gate::SHUT, Ordering::Relaxed);
    let mut beside = Client::open(&server).await;
    beside.send(json!({"id": 1, "connect": {}})).await;
    beside.send(json!({"id": 2, "publish": {"channel": "durable:beside", "data": "hold"}})).await;
    server.until("the loop is held up", || server.gate.load(Ordering::Relaxed) == gate::WAITED_AT).await;
    let taken = events.publish(Asks::Any);
    let data = Json::of(&"x".repeat(300_000));
    for offset in 3..103 {
        let (data, tags) = (data.clone(), Tags::default());
        let publication = Publication { offset: Offset(offset), data, info: None, tags, receipt: None, texts: None };
        server.hub.publish_durable(&channel(CHANNEL), Offset(offset), publication, unix_now()).unwrap();
    }
    events.published = 102;
    let left = events.publish(Asks::Any);
    let deliveries = server.metric("tidings_edge_deliveries_total");
    server.gate.store(gate::OPEN, Ordering::Relaxed);
    server.until("a part is written", || server.metric("tidings_edge_deliveries_total") > deliveries).await;
    beside.reply(2).await;
    beside.flush().await;
    assert_eq!((taken.summary().written, left.summary().written), (1, 0));
    publication(&mut client, 2).await;
    let (mut pings, began) = (0, Instant::now());
    while left.summary().received == 0 {
        assert!(began.elapsed() < DEADLINE, "{pings} pings, and nothing counts as received");
        let messages = client.flush().await;
        for _ in messages.iter().filter(|message| is_ping(message)) {
            client.pong().await;
            pings += 1;
        }
    }
    assert!((1..=2).contains(&pings), "{pings}");
    assert_eq!((taken.summary().received, left.summary().written), (1, 1));
}

#[tokio::test]
async fn without_pings_nobody_can_answer_and_nobody_is_waited_for() {
    let server = Server::start(Options { ping_interval: Duration::ZERO, ..Options::default() }).await;
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    let event = server.publish_event(1, Asks::Everybody, CHANNEL, 1);
    publication(&mut client, 1).await;
    assert_eq!((may_answer(&event), event.summary().written), (vec![], 0));
    client.send(json!({"id": 7, "rpc": {"method": "tidings.visible", "data": {"visible": true}}})).await;
    assert_eq!(client.reply(7).await["rpc"]["data"]["device"], json!(null));
}

/// More unanswered than a connection may have: the oldest are dropped.
#[tokio::test]
async fn what_waits_for_a_pong_is_bounded() {
    let server = Server::start(Options::default()).await;
    let mut events = Events::new(&server);
    let mut client = Client::introduced(&server, visible(1), CHANNEL).await;
    for _ in 0..1030 {
        events.publish(Asks::Any);
    }
    for event in 1..=1030 {
        publication(&mut client, event).await;
    }
    ping(&mut client).await;
    client.pong().await;
    let event = |position| server.hub.receipts().get(JournalPosition(position)).unwrap();
    events.received(&event(1030), 1).await;
    assert_eq!((devices(&event(6)), devices(&event(7))), (vec![], vec![1]));
    assert_eq!(server.metric("tidings_edge_receipts_dropped_total"), 6.0);
    assert_eq!(server.metric("tidings_edge_receipts_received_total{by=\"pong\"}"), 1024.0);
}
