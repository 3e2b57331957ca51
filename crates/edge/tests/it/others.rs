//! What the edge asks of and tells other servers of a cluster.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidings_edge::{Emulation, EmulationFuture, Others, PresenceFuture, StatsFuture};
use tidings_protocol::{ClientId, ClientInfo, EmulationRequest};
use tidings_types::{ChannelName, Format};

use crate::client::Client;
use crate::server::{Options, Server};

/// The other servers: what they answer, and what they were told.
#[derive(Default)]
pub(crate) struct Peers {
    present: Mutex<VecDeque<Option<Vec<ClientInfo>>>>,
    asked: Mutex<Vec<usize>>,
    replaced: Mutex<Vec<(String, u64)>>,
}

impl Others for Peers {
    fn presence(&self, _: &ChannelName, bytes_max: usize) -> Option<PresenceFuture> {
        self.asked.lock().unwrap().push(bytes_max);
        let present = self.present.lock().unwrap().pop_front()?;
        Some(Box::pin(std::future::ready(present)))
    }

    fn presence_stats(&self, _: &ChannelName) -> Option<StatsFuture> {
        None
    }

    fn emulate(&self, _: EmulationRequest) -> Option<EmulationFuture> {
        Some(Box::pin(std::future::ready(Emulation::Unknown)))
    }

    fn replace(&self, user: &str, number: u64) {
        self.replaced.lock().unwrap().push((user.to_owned(), number));
    }
}

fn info(number: u128) -> ClientInfo {
    ClientInfo { user: "bob".into(), client: ClientId::from_random(number), conn_info: None, chan_info: None }
}

fn micros() -> u64 {
    tidings_telemetry::unix_nanos() / 1000
}

in_both!(presence_is_what_all_servers_say_within_the_bound_of_a_reply);
async fn presence_is_what_all_servers_say_within_the_bound_of_a_reply(format: Format) {
    let peers = Arc::new(Peers::default());
    let bytes_max = 10_000;
    let options = Options { reply_bytes_max: bytes_max, others: peers.clone(), ..Options::of(format) };
    let server = Server::start(options).await;
    let mut client = Client::subscribed(&server, "kept:1").await;
    let many = bytes_max / info(0).weight() + 1;
    let answers = [Some(vec![info(1), info(2)]), None, Some((0..many as u128).map(info).collect())];
    peers.present.lock().unwrap().extend(answers);
    client.send(json!({"id": 3, "presence": {"channel": "kept:1"}})).await;
    assert_eq!(client.reply(3).await["presence"]["presence"].as_object().unwrap().len(), 3);
    for id in [4, 5] {
        client.send(json!({"id": id, "presence": {"channel": "kept:1"}})).await;
        assert_eq!(client.reply(id).await["error"]["code"], 106, "too many for one reply");
    }
    assert_eq!(*peers.asked.lock().unwrap(), [bytes_max; 3]);
}

/// The numbers of connections are comparable over servers, and later ones are greater.
#[tokio::test]
async fn the_only_connection_of_a_user_is_the_one_with_the_greatest_number_of_all_servers() {
    let peers = Arc::new(Peers::default());
    let options = Options { single_connection: true, others: peers.clone(), ..Options::default() };
    let server = Server::start(options).await;
    let told = || peers.replaced.lock().unwrap().last().cloned().unwrap();
    let connect = async || {
        let mut client = Client::open(&server).await;
        client.send(crate::server_side::connect("ann", &[], json!({}))).await;
        assert!(client.reply(1).await["connect"].is_object());
        client
    };
    let before = micros();
    let mut first = connect().await;
    let (user, number) = told();
    assert!(user == "ann" && (before..=micros()).contains(&number), "{number}");

    server.edge().replace("ann".to_owned(), number).await.unwrap();
    server.edge().replace("bob".to_owned(), number + 1).await.unwrap();
    assert_eq!(first.flush().await.len(), 0, "it is not older");
    server.edge().replace("ann".to_owned(), number + 1).await.unwrap();
    assert_eq!(first.drain().await.1, Some(3504));

    // Another server's clock is ahead: what comes here later is later nevertheless.
    let ahead = micros() + Duration::from_secs(3600).as_micros() as u64;
    let mut second = connect().await;
    server.edge().replace("ann".to_owned(), ahead).await.unwrap();
    assert_eq!(second.drain().await.1, Some(3504));
    let mut third = connect().await;
    assert_eq!(told(), ("ann".to_owned(), ahead + 1));
    server.edge().replace("ann".to_owned(), ahead).await.unwrap();
    assert_eq!(third.flush().await.len(), 0);
}
