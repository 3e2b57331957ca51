//! Clients that ask for publications which only the store has: they wait for them, and nobody else does.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidings_hub::{Histories, Kept, Load};
use tidings_protocol::{ClientPosition, Order, Publication, SubscriptionTerms, Target};
use tidings_telemetry::unix_now;
use tidings_types::{Epoch, Format, Json, Offset, Tags};

use crate::client::Client;
use crate::server::{Options, Server, channel};
use crate::server_side::connect;

const NAME: &str = "durable:1";

/// The store has the publications 1 to 3 of each channel. A read ends when it is told to.
#[derive(Debug, Default)]
struct Stored {
    reads: Mutex<Vec<Load>>,
}

#[derive(Debug)]
struct Reads(Arc<Stored>);

impl Histories for Reads {
    fn begin(&self, load: Load) {
        self.0.reads.lock().unwrap().push(load);
    }
}

impl Stored {
    /// Waits until a channel is being read.
    async fn asked(&self, server: &Server) {
        server.until("the store is asked", || !self.reads.lock().unwrap().is_empty()).await;
    }

    /// The reads find what there is.
    fn answer(&self) {
        for load in self.reads.lock().unwrap().drain(..) {
            load.finish(Kept { publications: (1..=3).map(publication).collect(), published_at: unix_now() });
        }
    }

    /// The disk fails.
    fn fail(&self) {
        self.reads.lock().unwrap().clear();
    }
}

fn publication(offset: u64) -> Publication {
    let data = Json::of(&offset);
    Publication { offset: Offset(offset), data, info: None, tags: Tags::default(), receipt: None, texts: None }
}

fn publish(server: &Server, offset: u64) {
    server.hub.publish_durable(&channel(NAME), Offset(offset), publication(offset), unix_now()).unwrap();
}

/// A server that has just started, and its store.
async fn started(options: Options) -> (Server, Arc<Stored>) {
    let stored = Arc::<Stored>::default();
    let server = Server::start(Options { histories: Some(Arc::new(Reads(stored.clone()))), ..options }).await;
    server.hub.restore(&channel(NAME), Offset(3), unix_now()).unwrap();
    (server, stored)
}

fn epoch() -> Epoch {
    Epoch::from_random(1)
}

fn resume(offset: u64) -> Value {
    json!({"channel": NAME, "recover": true, "offset": offset, "epoch": epoch().as_str()})
}

fn offsets(publications: &Value) -> Vec<u64> {
    let publications = publications.as_array().map(Vec::as_slice).unwrap_or_default();
    publications.iter().map(|publication| publication["offset"].as_u64().unwrap()).collect()
}

in_both!(who_resumes_waits_for_the_store_and_nobody_else_does);
async fn who_resumes_waits_for_the_store_and_nobody_else_does(format: Format) {
    let (server, stored) = started(Options::of(format)).await;
    let mut back = Client::connected(&server).await;
    back.send(json!({"id": 2, "subscribe": resume(1)})).await;
    stored.asked(&server).await;
    // On the same loop and on the other one.
    for _ in 0..4 {
        let mut new = Client::connected(&server).await;
        assert_eq!(new.subscribe(json!({"channel": NAME})).await["offset"], 3, "it knows the position");
        new.send(json!({"id": 3, "history": {"channel": NAME}})).await;
        assert_eq!(new.reply(3).await["history"]["offset"], 3);
    }
    let mut current = Client::connected(&server).await;
    assert_eq!(current.subscribe(resume(3)).await["recovered"], true);
    publish(&server, 4);
    assert_eq!(current.next().await["push"]["pub"]["offset"], 4);
    stored.answer();
    let reply = back.reply(2).await["subscribe"].clone();
    assert_eq!((&reply["recovered"], offsets(&reply["publications"])), (&json!(true), vec![2, 3, 4]));
    publish(&server, 5);
    assert_eq!(back.next().await["push"]["pub"]["offset"], 5);
    // From now on the server has them.
    assert_eq!(offsets(&Client::connected(&server).await.subscribe(resume(0)).await["publications"]), [1, 2, 3, 4, 5]);
}

in_both!(a_server_side_subscription_waits_for_the_store);
async fn a_server_side_subscription_waits_for_the_store(format: Format) {
    let (server, stored) = started(Options::of(format)).await;
    let mut client = Client::open(&server).await;
    client.send(connect("ann", &[NAME], json!({NAME: resume(2)}))).await;
    stored.asked(&server).await;
    stored.answer();
    let reply = client.reply(1).await["connect"]["subs"][NAME].clone();
    assert_eq!((&reply["recovered"], offsets(&reply["publications"])), (&json!(true), vec![3]));
}

in_both!(a_subscription_by_order_waits_for_the_store);
async fn a_subscription_by_order_waits_for_the_store(format: Format) {
    let (server, stored) = started(Options::of(format)).await;
    let mut client = Client::open(&server).await;
    client.send(connect("ann", &[], json!({}))).await;
    client.reply(1).await;
    let since = Some(ClientPosition { offset: Offset(1), epoch: epoch().as_str().to_owned() });
    let order = Order::Subscribe { channel: channel(NAME), terms: SubscriptionTerms::default(), since };
    let ordered = server.edge().order(Target { user: "ann".to_owned(), ..Target::default() }, order);
    stored.asked(&server).await;
    stored.answer();
    ordered.await.unwrap();
    assert_eq!(client.next_push().await["subscribe"]["recoverable"], true);
    for offset in 2..=3 {
        assert_eq!(client.next_push().await["pub"]["offset"], offset);
    }
}

in_both!(a_page_of_a_history_is_read_or_refused);
async fn a_page_of_a_history_is_read_or_refused(format: Format) {
    let (server, stored) = started(Options::of(format)).await;
    let mut client = Client::connected(&server).await;
    client.subscribe(json!({"channel": NAME})).await;
    client.send(json!({"id": 3, "history": {"channel": NAME, "limit": 2}})).await;
    stored.asked(&server).await;
    stored.fail();
    assert_eq!(client.reply(3).await["error"]["code"], 100, "it cannot be read now");
    client.send(json!({"id": 4, "history": {"channel": NAME, "limit": 2, "reverse": true}})).await;
    stored.asked(&server).await;
    stored.answer();
    assert_eq!(offsets(&client.reply(4).await["history"]["publications"]), [3, 2]);
}

in_both!(who_cannot_be_told_what_it_missed_is_told_so);
async fn who_cannot_be_told_what_it_missed_is_told_so(format: Format) {
    let (server, stored) = started(Options::of(format)).await;
    let mut client = Client::connected(&server).await;
    client.send(json!({"id": 2, "subscribe": resume(1)})).await;
    stored.asked(&server).await;
    stored.fail();
    let reply = client.reply(2).await["subscribe"].clone();
    assert_eq!((reply.get("recovered"), &reply["offset"]), (None, &json!(3)));

    // There is no room for another command that waits.
    let (server, stored) = started(Options { input_budget_bytes: 4000, ..Options::of(format) }).await;
    let mut large = resume(1);
    large["data"] = json!("x".repeat(1200));
    let mut waiting = Client::connected(&server).await;
    waiting.send(json!({"id": 2, "subscribe": large})).await;
    stored.asked(&server).await;
    let _on_the_other_loop = Client::connected(&server).await;
    assert_eq!(Client::connected(&server).await.subscribe(large.clone()).await.get("recovered"), None);
    stored.answer();
    assert_eq!(waiting.reply(2).await["subscribe"]["recovered"], true);
}
