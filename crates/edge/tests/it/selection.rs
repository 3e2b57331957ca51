//! Not every reader gets every frame: who joins and leaves is told to those who asked, and a tags filter chooses
//! publications.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidings_protocol::fossil;
use tidings_types::Format;

use crate::client::Client;
use crate::server::{Asks, Options, Server, publish_tagged};

const CHANNEL: &str = "lively:1";

fn filter(val: &str) -> Value {
    json!({"key": "kind", "cmp": "eq", "val": val})
}

async fn subscribed(server: &Server, request: Value) -> Client {
    let mut client = Client::connected(server).await;
    client.subscribe(request).await;
    client
}

/// What was pushed: a publication's data, or `join` and `leave`.
fn pushed(messages: &[Value]) -> Vec<Value> {
    let told = |push: &Value| match push.get("pub") {
        Some(publication) => publication["data"].clone(),
        None => json!(["join", "leave"].into_iter().find(|kind| push.get(kind).is_some()).unwrap()),
    };
    messages.iter().filter_map(|message| message.get("push")).map(told).collect()
}

in_both!(who_joins_and_leaves_is_told_to_those_who_asked_in_order_with_publications);
async fn who_joins_and_leaves_is_told_to_those_who_asked_in_order_with_publications(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut asked = subscribed(&server, json!({"channel": CHANNEL, "join_leave": true})).await;
    let own = asked.next().await;
    assert_eq!(own["push"]["channel"], CHANNEL);
    assert!(own["push"]["join"]["info"]["client"].is_string(), "the joiner is told of itself: {own}");
    let mut plain = subscribed(&server, json!({"channel": CHANNEL})).await;
    server.publish(CHANNEL, json!(1));
    plain.send(json!({"id": 3, "unsubscribe": {"channel": CHANNEL}})).await;
    plain.reply(3).await;
    server.publish(CHANNEL, json!(2));
    assert_eq!(pushed(&plain.flush().await), [json!(1)], "a leaver is not told of its leave");
    drop(plain);
    let mut other = subscribed(&server, json!({"channel": CHANNEL})).await;
    drop(asked.next_push().await); // The join of `plain`.
    assert_eq!(asked.next_push().await["pub"]["data"], 1);
    assert!(asked.next_push().await["leave"]["info"]["client"].is_string());
    assert_eq!(asked.next_push().await["pub"]["data"], 2);
    assert!(asked.next_push().await.get("join").is_some());
    other.pong().await; // Nobody has asked for it.
    other.drain().await;
    assert!(asked.next_push().await.get("leave").is_some(), "an end of the connection is a leave");
    server.until("only publications count", || server.metric("tidings_edge_deliveries_total") == 3.0).await;
}

#[tokio::test]
async fn a_namespace_may_tell_everybody_who_joins_and_leaves() {
    let server = Server::start(Options::default()).await;
    let mut first = subscribed(&server, json!({"channel": "told:1"})).await;
    let second = subscribed(&server, json!({"channel": "told:1"})).await;
    drop(second);
    let kinds = [first.next_push().await, first.next_push().await, first.next_push().await];
    assert!(kinds[0].get("join").is_some() && kinds[1].get("join").is_some() && kinds[2].get("leave").is_some());
}

in_both!(a_filter_chooses_publications_live_and_recovered);
async fn a_filter_chooses_publications_live_and_recovered(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let publish = |data: u64, kind| publish_tagged(&server.hub, CHANNEL, &json!(data), &[("kind", kind)]);
    let mut goals = subscribed(&server, json!({"channel": CHANNEL, "tf": filter("goal")})).await;
    let mut all = subscribed(&server, json!({"channel": CHANNEL})).await;
    publish(1, "goal");
    publish(2, "card");
    server.publish(CHANNEL, json!(3));
    publish(4, "goal");
    assert_eq!(all.publications(4).await, [1, 2, 3, 4].map(|data| json!(data)));
    for offset in [1, 4] {
        let push = goals.next_push().await;
        assert_eq!((&push["pub"]["data"], &push["pub"]["offset"]), (&json!(offset), &json!(offset)), "offsets jump");
    }
    server.until("only what was written counts", || server.metric("tidings_edge_deliveries_total") == 6.0).await;

    let resume = |offset: u64, kind| json!({"channel": CHANNEL, "recover": true, "offset": offset, "epoch": goals.epoch, "tf": filter(kind)});
    for (offset, kind, expected, position) in [(1, "goal", vec![4], 1), (0, "card", vec![2], 0), (2, "card", vec![], 4)]
    {
        let mut client = Client::connected(&server).await;
        let reply = client.subscribe(resume(offset, kind)).await;
        let publications = reply["publications"].as_array().cloned().unwrap_or_default();
        let data: Vec<_> = publications.iter().map(|one| one["data"].as_u64().unwrap()).collect();
        assert_eq!((data, &reply["recovered"]), (expected, &json!(true)));
        assert_eq!(reply.get("offset").map_or(0, |offset| offset.as_u64().unwrap()), position);
    }
}

/// The data of publication `number`: long, and much like its neighbours.
fn long(number: u64) -> Value {
    json!({"match": 77, "home": "Sweden", "away": "Germany", "text": "the same in all of them ".repeat(5), "minute": number})
}

/// What a client with deltas must get: the data as a text, or the delta from `base`.
fn told(number: u64, base: Option<u64>) -> Value {
    let new = long(number).to_string();
    match base {
        Some(base) => json!({"data": fossil::delta(&long(base).to_string(), &new).unwrap(), "delta": true}),
        None => json!({"data": new}),
    }
}

#[tokio::test]
async fn a_delta_is_told_to_those_who_have_the_publication_before() {
    const CHANNEL: &str = "small-frames:1";
    let server = Server::start(Options::default()).await;
    let publish = |number: u64, kind| publish_tagged(&server.hub, CHANNEL, &long(number), &[("kind", kind)]);
    let request = json!({"channel": CHANNEL, "delta": "fossil"});
    let mut all = Client::connected(&server).await;
    assert_eq!(all.subscribe(request.clone()).await["delta"], true);
    let mut plain = subscribed(&server, json!({"channel": CHANNEL})).await;
    let mut goals = subscribed(&server, json!({"channel": CHANNEL, "delta": "fossil", "tf": filter("goal")})).await;
    for (number, kind) in [(1, "goal"), (2, "goal"), (3, "card"), (4, "goal"), (5, "goal")] {
        publish(number, kind);
    }
    let epoch = all.epoch.clone();
    let mut late = subscribed(&server, request.clone()).await;
    let mut resume = request.clone();
    (resume["recover"], resume["offset"], resume["epoch"]) = (json!(true), json!(3), json!(epoch));
    let mut back = Client::connected(&server).await;
    let recovered = back.subscribe(resume.clone()).await["publications"].clone();
    assert_eq!((&recovered[0]["data"], &recovered[1]["data"]), (&told(4, None)["data"], &told(5, None)["data"]));
    resume["offset"] = json!(5);
    let mut at_top = subscribed(&server, resume).await;
    publish(6, "goal");
    publish(7, "goal");
    for (client, expected) in [
        (&mut all, vec![(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3)), (5, Some(4)), (6, Some(5)), (7, Some(6))]),
        (&mut goals, vec![(1, None), (2, Some(1)), (4, None), (5, Some(4)), (6, Some(5)), (7, Some(6))]),
        (&mut late, vec![(6, None), (7, Some(6))]),
        (&mut back, vec![(6, Some(5)), (7, Some(6))]),
        (&mut at_top, vec![(6, None), (7, Some(6))]),
    ] {
        for (number, base) in expected {
            let mut publication = client.next_push().await["pub"].clone();
            assert_eq!(publication["offset"], number);
            publication.as_object_mut().unwrap().retain(|name, _| ["data", "delta"].contains(&name.as_str()));
            assert_eq!(publication, told(number, base), "{number}");
        }
    }
    assert_eq!(plain.publications(7).await, [1, 2, 3, 4, 5, 6, 7].map(long));
}

#[tokio::test]
async fn pushes_name_the_channel_by_its_number_if_the_client_asks() {
    const CHANNEL: &str = "small-frames:1";
    let server = Server::start(Options::of(Format::Json)).await;
    let mut asked = Client::connected(&server).await;
    let reply = asked.subscribe(json!({"channel": CHANNEL, "flag": 1, "join_leave": true})).await;
    let number = reply["id"].as_i64().unwrap();
    assert!(number > 0);
    let mut other = Client::connected(&server).await;
    let reply = other.subscribe(json!({"channel": "small-frames:2", "flag": 1})).await;
    assert_ne!(reply["id"], number);
    let mut plain = Client::connected(&server).await;
    assert_eq!(plain.subscribe(json!({"channel": CHANNEL})).await.get("id"), None);
    server.publish(CHANNEL, json!(1));
    for kind in ["join", "join", "pub"] {
        let push = asked.next_push().await;
        assert!(push.get(kind).is_some());
        assert_eq!((&push["id"], push.get("channel").filter(|name| **name != "")), (&json!(number), None));
    }
    assert_eq!(plain.next_push().await["channel"], CHANNEL);
    let mut elsewhere = Client::connected(&server).await;
    let reply = elsewhere.subscribe(json!({"channel": "kept:1", "flag": 1, "delta": "fossil"})).await;
    assert_eq!((reply.get("id"), reply.get("delta")), (None, None), "the namespace allows neither");
}

in_both!(a_channel_of_states_begins_with_the_latest);
async fn a_channel_of_states_begins_with_the_latest(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut first = Client::connected(&server).await;
    let reply = first.subscribe(json!({"channel": "state:1"})).await;
    assert_eq!((reply.get("recovered"), &reply["was_recovering"]), (None, &json!(true)), "there is no state yet");
    for value in 1..=3 {
        server.publish("state:1", json!(value));
    }
    assert_eq!(first.publications(3).await, [json!(1), json!(2), json!(3)], "live, all are given");
    let mut late = Client::connected(&server).await;
    let reply = late.subscribe(json!({"channel": "state:1"})).await;
    assert_eq!((&reply["recovered"], &reply["offset"]), (&json!(true), &json!(3)));
    assert_eq!(reply["publications"], json!([{"data": 3, "offset": 3}]));
    let resume = |offset| json!({"channel": "state:1", "recover": true, "offset": offset, "epoch": first.epoch});
    for (offset, expected) in [(3, None), (1, Some(json!([{"data": 3, "offset": 3}])))] {
        let mut client = Client::connected(&server).await;
        let reply = client.subscribe(resume(offset)).await;
        assert_eq!(
            (&reply["recovered"], reply.get("publications").filter(|list| **list != json!([]))),
            (&json!(true), expected.as_ref())
        );
    }
}

#[tokio::test]
async fn a_filter_needs_permission_and_sense() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::connected(&server).await;
    for (id, request) in [
        (2, json!({"channel": "kept:1", "tf": filter("goal")})),
        (3, json!({"channel": CHANNEL, "tf": {"key": "kind", "cmp": "is", "val": "goal"}})),
    ] {
        client.send(json!({"id": id, "subscribe": request})).await;
        assert_eq!(client.reply(id).await["error"]["code"], 107);
    }
}

/// A device whose filter passes over an event has not received it, and nobody waits for its answer.
#[tokio::test]
async fn what_a_filter_passes_over_is_no_receipt() {
    let server = Server::start(Options::default()).await;
    let connect = |number: u32| {
        let credential = format!("secret-{number}");
        json!({"data": {"tidings": {"device": format!("phone-{number}"), "credential": credential, "visible": true}}})
    };
    let tagged = |cmp| json!({"channel": "picky:1", "tf": {"key": "kind", "cmp": cmp}});
    let mut clients = Vec::new();
    for (number, cmp) in [(1, "ex"), (2, "nex")] {
        let mut client = Client::open(&server).await;
        client.send(json!({"id": 1, "connect": connect(number)})).await;
        client.reply(1).await;
        let reply = client.subscribe(tagged(cmp)).await;
        assert_eq!(reply["recoverable"], true);
        clients.push(client);
    }
    let event = server.publish_event(1, Asks::Visible, "picky:1", 1);
    assert_eq!(event.may_answer().iter().collect::<Vec<_>>(), [2]);
    let [passed_over, reader] = &mut clients[..] else { unreachable!() };
    assert_eq!(reader.next().await["push"]["pub"]["offset"], 1);
    assert_eq!(reader.next().await, json!({}), "a ping");
    reader.pong().await;
    server.until("the receipt has come", || event.summary().received == 1).await;
    assert_eq!(event.received().unwrap().iter().collect::<Vec<_>>(), [2]);
    assert_eq!((event.summary().written, passed_over.flush().await), (1, vec![]));

    // It goes on behind the event, without the filter: that does not mean that it has the event.
    let epoch = passed_over.epoch.clone();
    passed_over.send(json!({"id": 5, "unsubscribe": {"channel": "picky:1"}})).await;
    passed_over.reply(5).await;
    let reply =
        passed_over.subscribe(json!({"channel": "picky:1", "recover": true, "offset": 1, "epoch": epoch})).await;
    assert_eq!(reply["recovered"], true);
    assert_eq!(event.received().unwrap().iter().collect::<Vec<_>>(), [2]);
}

#[derive(Debug, Clone)]
enum Action {
    /// A client comes, with a filter (`None`: all), perhaps told of joins.
    Come(Option<usize>, bool),
    Go(usize),
    Publish(usize),
}

const KINDS: [&str; 3] = ["goal", "card", "end"];

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => (prop::option::of(0..KINDS.len()), any::<bool>()).prop_map(|(kind, joins)| Action::Come(kind, joins)),
        2 => any::<usize>().prop_map(Action::Go),
        6 => (0..KINDS.len()).prop_map(Action::Publish),
    ];
    prop::collection::vec(action, 1..40)
}

struct Reader {
    client: Client,
    kind: Option<usize>,
    joins: bool,
    expected: Vec<Value>,
}

/// Readers of every kind that read nothing before the end, so that some lag: each has got what is for it, in order.
async fn run(actions: Vec<Action>) {
    let server = Server::start(Options::default()).await;
    let block = "x".repeat(100_000);
    let mut readers: Vec<Reader> = Vec::new();
    let tell = |readers: &mut [Reader], what: &str| {
        readers.iter_mut().filter(|reader| reader.joins).for_each(|reader| reader.expected.push(json!(what)));
    };
    for (number, action) in actions.into_iter().enumerate() {
        match action {
            Action::Come(kind, joins) => {
                let mut request = json!({"channel": CHANNEL, "join_leave": joins});
                kind.into_iter().for_each(|kind| request["tf"] = filter(KINDS[kind]));
                readers.push(Reader { client: subscribed(&server, request).await, kind, joins, expected: Vec::new() });
                tell(&mut readers, "join");
            }
            Action::Go(who) if !readers.is_empty() => {
                let mut gone = readers.swap_remove(who % readers.len());
                gone.client.send(json!({"id": 3, "unsubscribe": {"channel": CHANNEL}})).await;
                gone.client.reply(3).await;
                tell(&mut readers, "leave");
            }
            Action::Publish(kind) => {
                publish_tagged(&server.hub, CHANNEL, &json!([number, block]), &[("kind", KINDS[kind])]);
                for reader in readers.iter_mut().filter(|reader| reader.kind.is_none_or(|wanted| wanted == kind)) {
                    reader.expected.push(json!([number, block]));
                }
            }
            Action::Go(_) => {}
        }
    }
    for Reader { client, expected, .. } in &mut readers {
        let mut got = Vec::new();
        while got.len() < expected.len() {
            got.extend(pushed(&[client.next().await]));
        }
        got.extend(pushed(&client.flush().await));
        let short = |what: &[Value]| what.iter().map(|one| one.get(0).unwrap_or(one).clone()).collect::<Vec<_>>();
        assert_eq!(short(&got), short(expected));
    }
    server.shutdown().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn each_reader_gets_what_is_for_it_in_order(actions in actions()) {
        tokio::runtime::Runtime::new().unwrap().block_on(run(actions));
    }
}
