//! Clients that come, go, answer, lie, hide and resume at random while events with receipts flow: whoever counts as
//! having received an event has been given it, or has said so itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tidings_hub::EventReceipts;
use tidings_types::{DeviceNumber, Format, ReceiptPolicy};

use crate::client::Client;
use crate::server::{Asks, Options, Server, channel};

const CHANNELS: [&str; 2] = ["durable:1", "durable:2"];
const CLIENTS: usize = 5;

#[derive(Debug, Clone)]
enum Action {
    /// Into the first, the second or both channels.
    Publish(u8, u8),
    Subscribe(usize, usize),
    /// With a position so far behind the top.
    Resume(usize, usize, u64),
    Unsubscribe(usize, usize),
    Visible(usize, bool),
    /// Reads what has come, and answers each ping.
    Answer(usize),
    /// Answers once more than it was asked.
    AnswerTwice(usize),
    /// Goes without a word; another comes, which claims to be that device or nobody.
    Replace(usize, u32),
    Revoke(u32, bool),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let (client, place) = (0..CLIENTS, 0..CHANNELS.len());
    let action = prop_oneof![
        8 => (0u8..3, 0u8..3).prop_map(|(channels, asks)| Action::Publish(channels, asks)),
        3 => (client.clone(), place.clone()).prop_map(|(client, place)| Action::Subscribe(client, place)),
        4 => (client.clone(), place.clone(), 0u64..4).prop_map(|(client, place, back)| Action::Resume(client, place, back)),
        4 => (client.clone(), place).prop_map(|(client, place)| Action::Unsubscribe(client, place)),
        2 => (client.clone(), any::<bool>()).prop_map(|(client, visible)| Action::Visible(client, visible)),
        8 => client.clone().prop_map(Action::Answer),
        1 => client.clone().prop_map(Action::AnswerTwice),
        1 => (client, 0u32..4).prop_map(|(client, device)| Action::Replace(client, device)),
        1 => (1u32..4, any::<bool>()).prop_map(|(device, close)| Action::Revoke(device, close)),
    ];
    prop::collection::vec(action, 800)
}

struct Peer {
    client: Client,
    /// 0: none.
    device: u32,
}

struct Storm<'a> {
    server: &'a Server,
    epoch: String,
    peers: Vec<Peer>,
    events: Vec<Arc<EventReceipts>>,
    /// By channel: the events in order.
    published: [Vec<u64>; 2],
    /// Which devices were given which events, or claimed to have them.
    given: BTreeMap<u64, BTreeSet<u32>>,
}

impl<'a> Storm<'a> {
    async fn new(server: &'a Server) -> Self {
        let epoch = Client::subscribed(server, CHANNELS[0]).await.epoch;
        let mut storm = Self {
            server,
            epoch,
            peers: Vec::new(),
            events: Vec::new(),
            published: Default::default(),
            given: BTreeMap::new(),
        };
        for index in 0..CLIENTS {
            let peer = storm.peer(index as u32 % 4).await;
            storm.peers.push(peer);
        }
        storm
    }

    async fn peer(&self, device: u32) -> Peer {
        let said =
            json!({"device": format!("phone-{device}"), "credential": format!("secret-{device}"), "visible": true});
        let mut client = Client::open_as(self.server, Format::ALL[device as usize % 2]).await;
        client.send(json!({"id": 1, "connect": {"data": {"tidings": said}}})).await;
        client.reply(1).await;
        Peer { client, device }
    }

    async fn replace(&mut self, index: usize, device: u32) {
        self.peers[index] = self.peer(device).await;
    }

    fn give(&mut self, device: u32, events: impl IntoIterator<Item = u64>) {
        events.into_iter().for_each(|event| {
            self.given.entry(event).or_default().insert(device);
        });
    }

    /// Reads what has come; how many pings there were.
    async fn read(&mut self, index: usize) -> usize {
        let device = self.peers[index].device;
        let Some(messages) = self.peers[index].client.try_flush().await else {
            self.replace(index, device).await;
            return 0;
        };
        let number = |publication: &Value| publication["data"].as_str()?.strip_prefix("event ")?.parse().ok();
        for message in &messages {
            let in_reply = message["subscribe"]["publications"].as_array().into_iter().flatten();
            self.give(device, in_reply.chain([&message["push"]["pub"]]).filter_map(number));
        }
        messages.iter().filter(|message| **message == json!({})).count()
    }

    async fn send(&mut self, index: usize, command: Value) {
        if !self.peers[index].client.try_send(command).await {
            self.replace(index, self.peers[index].device).await;
        }
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Publish(channels, asks) => {
                let event = 1 + self.events.len() as u64;
                let asks = [Asks::Visible, Asks::Any, Asks::Everybody][usize::from(asks)];
                for place in [0, 1].into_iter().filter(|place| channels == 2 || usize::from(channels) == *place) {
                    self.published[place].push(event);
                    let offset = self.published[place].len() as u64;
                    let receipts = self.server.publish_event(event, asks, CHANNELS[place], offset);
                    self.events.truncate(event as usize - 1);
                    self.events.push(receipts);
                }
            }
            Action::Subscribe(index, place) => {
                self.send(index, json!({"id": 2, "subscribe": {"channel": CHANNELS[place]}})).await;
            }
            Action::Resume(index, place, back) => {
                let offset = (self.published[place].len() as u64).saturating_sub(back);
                let had: Vec<u64> = self.published[place][..offset as usize].to_vec();
                self.give(self.peers[index].device, had);
                let resume =
                    json!({"channel": CHANNELS[place], "recover": true, "offset": offset, "epoch": self.epoch});
                self.send(index, json!({"id": 3, "subscribe": resume})).await;
            }
            Action::Unsubscribe(index, place) => {
                self.send(index, json!({"id": 4, "unsubscribe": {"channel": CHANNELS[place]}})).await;
            }
            Action::Visible(index, visible) => {
                let data = json!({"visible": visible});
                self.send(index, json!({"id": 5, "rpc": {"method": "tidings.visible", "data": data}})).await;
            }
            Action::Answer(index) => {
                for _ in 0..self.read(index).await {
                    self.send(index, json!({})).await;
                }
            }
            Action::AnswerTwice(index) => {
                for _ in 0..=self.read(index).await {
                    self.send(index, json!({})).await;
                }
                self.read(index).await;
                self.give(self.peers[index].device, 1..=self.events.len() as u64); // It has lied about any of them.
                self.replace(index, self.peers[index].device).await;
            }
            Action::Replace(index, device) => self.replace(index, device).await,
            Action::Revoke(device, close) => self.server.edge().revoke(DeviceNumber(device), close),
        }
    }

    fn check(&self) {
        for (event, receipts) in (1..).zip(&self.events) {
            let given = self.given.get(&event).cloned().unwrap_or_default();
            let received: BTreeSet<u32> = receipts.received().unwrap().iter().collect();
            assert!(received.is_subset(&given), "event {event} was received by {received:?} and given to {given:?}");
            let summary = receipts.summary();
            assert!(summary.received <= summary.written, "{summary:?}");
        }
    }
}

async fn storm(actions: Vec<Action>) {
    let server = Server::start(Options::default()).await;
    let mut storm = Storm::new(&server).await;
    for action in actions {
        storm.act(action).await;
    }
    for index in 0..CLIENTS {
        storm.act(Action::Answer(index)).await;
        storm.read(index).await;
    }
    storm.check();
    let received = storm.events.iter().filter(|event| !event.received().unwrap().is_empty()).count();
    assert!(received > storm.events.len() / 10, "the storm is about receipts: {received}");

    // Nothing is left of them, and both loops still serve.
    storm.peers.clear();
    server.until("all have gone", || server.edge().connection_count() == 0).await;
    assert!(CHANNELS.iter().all(|name| server.hub.subscriber_count(&channel(name)) == 0));
    let nobody_is_visible =
        |event: &&Arc<EventReceipts>| event.terms().policy == ReceiptPolicy::Any || event.may_answer().is_empty();
    assert!(storm.events.iter().all(|event| nobody_is_visible(&event)));
    let is_kept_by_hub_at_most = |event: &Arc<EventReceipts>| Arc::strong_count(event) <= 2;
    assert!(storm.events.iter().all(is_kept_by_hub_at_most), "no loop holds on to an event");
    for device in 1..=2 {
        let mut peer = storm.peer(device).await;
        server.until("the one before has gone", || server.edge().connection_count() == 1).await;
        peer.client.subscribe(json!({"channel": CHANNELS[0]})).await;
        storm.act(Action::Publish(0, 1)).await;
        while peer.client.next().await != json!({}) {}
        peer.client.pong().await;
        let event = storm.events.last().unwrap();
        server.until("it has been received", || event.received().unwrap().iter().eq([device])).await;
        assert_eq!(event.may_answer().iter().collect::<Vec<_>>(), [device]);
    }
}

#[tokio::test]
async fn who_counts_as_having_received_an_event_was_given_it() {
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..2 {
        storm(actions().new_tree(&mut runner).unwrap().current()).await;
    }
}
