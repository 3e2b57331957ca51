//! Two nodes that report to each other, against one node that has all connections. One seed decides what happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use roaring::RoaringBitmap;
use tidings_hub::{Arrival, RECEIPTS_TTL, Receipts, Report};
use tidings_protocol::ClientId;
use tidings_types::{DeviceNumber, JournalPosition, ReceiptPolicy, ReceiptRequest, ReceiptTerms, Timestamp};

use super::copies::sent;
use crate::NOW;

const SEEDS: std::ops::Range<u64> = 1..101;
const STEPS: usize = 400;
const DEVICES: u32 = 5;
const EVENTS: u64 = 6;
const HOME: usize = 0;

fn request(event: u64) -> ReceiptRequest {
    let policy = if event.is_multiple_of(2) { ReceiptPolicy::Visible } else { ReceiptPolicy::Any };
    let until = NOW.saturating_add(Duration::from_secs(3600));
    ReceiptRequest { event: JournalPosition(event), terms: ReceiptTerms { until, every_client: event > 2, policy } }
}

/// A connection of a proven device.
struct Connection {
    node: usize,
    client: ClientId,
    device: DeviceNumber,
    is_visible: bool,
    /// Events that were written to it and wait for its answer.
    written: Vec<u64>,
}

struct World {
    random: StdRng,
    nodes: [Receipts; 2],
    /// The node that has all connections.
    one: Receipts,
    /// What is on its way from each node to the other one.
    reports: [VecDeque<Report>; 2],
    connections: Vec<Connection>,
    /// Whether each node and the one have opened the event.
    opened: BTreeMap<u64, [bool; 2]>,
    client_count: u128,
    now: Timestamp,
}

impl World {
    fn new(seed: u64) -> Self {
        let new = || Receipts::new(EVENTS as usize, usize::MAX);
        let nodes = [new(), new()];
        nodes.iter().for_each(Receipts::begin_reports);
        Self {
            random: StdRng::seed_from_u64(seed),
            nodes,
            one: new(),
            reports: Default::default(),
            connections: Vec::new(),
            opened: BTreeMap::new(),
            client_count: 0,
            now: NOW,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            let who = self.random.random_range(0..self.connections.len().max(1));
            let event = self.random.random_range(0..EVENTS);
            match self.random.random_range(0..100) {
                0..10 => self.come(),
                10..16 => self.go(who),
                16..30 => self.show(who),
                30..40 => self.open(event),
                40..62 => self.write(who, event),
                62..80 => self.answer(who),
                80..87 => self.report(),
                87..95 => self.deliver(),
                95..98 => self.resume(who, event / 3 * 3), // The others have no resumes.
                _ => self.lose(),
            }
        }
        self.finish();
    }

    fn come(&mut self) {
        self.client_count += 1;
        let (node, device) = (self.random.random_range(0..2), DeviceNumber(self.random.random_range(0..DEVICES)));
        let client = ClientId::from_random(self.client_count);
        self.nodes[node].on_connected(device);
        self.one.on_connected(device);
        self.connections.push(Connection { node, client, device, is_visible: false, written: Vec::new() });
    }

    fn go(&mut self, who: usize) {
        if who < self.connections.len() {
            let Connection { node, client, device, .. } = self.connections.swap_remove(who);
            for receipts in [&self.nodes[node], &self.one] {
                receipts.set_visible(device, client, None);
                receipts.on_gone(device);
            }
        }
    }

    fn show(&mut self, who: usize) {
        let Some(connection) = self.connections.get_mut(who) else { return };
        connection.is_visible = !connection.is_visible;
        let until = connection.is_visible.then(|| self.now.saturating_add(Duration::from_secs(3600)));
        for receipts in [&self.nodes[connection.node], &self.one] {
            receipts.set_visible(connection.device, connection.client, until);
        }
    }

    /// A node gets the event from the log. The devices that read it there are known at once.
    fn open(&mut self, event: u64) {
        let node = self.random.random_range(0..2);
        self.open_at(node, event);
    }

    fn open_at(&mut self, node: usize, event: u64) {
        let opened = self.opened.entry(event).or_default();
        if std::mem::replace(&mut opened[node], true) {
            return;
        }
        let readers = self.connections.iter().filter(|connection| connection.node == node);
        let readers: RoaringBitmap = readers.map(|connection| connection.device.0).collect();
        self.nodes[node].open(&request(event)).add_readers(&readers);
        self.one.open(&request(event)).add_readers(&readers);
    }

    fn write(&mut self, who: usize, event: u64) {
        let Some(connection) = self.connections.get_mut(who) else { return };
        let node = connection.node;
        let is_open = self.opened.get(&event).is_some_and(|opened| opened[node]);
        if is_open && !connection.written.contains(&event) {
            connection.written.push(event);
            for receipts in [&self.nodes[node], &self.one] {
                receipts.get(JournalPosition(event)).unwrap().on_written();
            }
        }
    }

    fn answer(&mut self, who: usize) {
        let Some(connection) = self.connections.get_mut(who) else { return };
        let Connection { node, client, device, is_visible, .. } = *connection;
        for event in std::mem::take(&mut connection.written) {
            for receipts in [&self.nodes[node], &self.one] {
                let event = receipts.get(JournalPosition(event)).unwrap();
                event.on_received(&format!("user-{}", device.0), Some(device), is_visible, self.arrival(client));
            }
        }
    }

    fn arrival(&self, client: ClientId) -> Arrival {
        Arrival { client, at: self.now }
    }

    /// How often a resume counts depends on what was known before; who has received does not.
    fn resume(&mut self, who: usize, event: u64) {
        let Some(&Connection { node, client, device, is_visible, .. }) = self.connections.get(who) else { return };
        if self.opened.get(&event).is_some_and(|opened| opened[node]) {
            for receipts in [&self.nodes[node], &self.one] {
                let event = receipts.get(JournalPosition(event)).unwrap();
                event.add_readers(&[device.0].into_iter().collect());
                event.on_resumed(&format!("user-{}", device.0), Some(device), is_visible, self.arrival(client));
            }
        }
    }

    fn report(&mut self) {
        let node = self.random.random_range(0..2);
        self.reports[node].extend(self.nodes[node].take_report().map(|report| sent(&report)));
    }

    fn deliver(&mut self) {
        let from = self.random.random_range(0..2);
        if let Some(report) = self.reports[from].pop_front() {
            self.take_in(from, report);
        }
    }

    fn take_in(&self, from: usize, report: Report) {
        if !self.nodes[1 - from].take_in(from as u64, report) {
            self.nodes[from].report_all();
        }
    }

    /// The other node is new to this one: it reports all of its devices.
    fn lose(&mut self) {
        let node = self.random.random_range(0..2);
        self.nodes[1 - node].forget_node(node as u64);
        self.nodes[node].report_all();
    }

    fn finish(mut self) {
        let events: Vec<u64> = self.opened.keys().copied().collect();
        events.iter().for_each(|event| (0..2).for_each(|node| self.open_at(node, *event)));
        for _ in 0..3 {
            for from in 0..2 {
                self.reports[from].extend(self.nodes[from].take_report());
                while let Some(report) = self.reports[from].pop_front() {
                    self.take_in(from, report);
                }
            }
        }
        assert!(self.nodes.iter().all(|node| node.take_report().is_none()), "what is reported is not reported again");
        assert!(self.nodes[HOME].knows(1) && self.nodes[1].knows(HOME as u64));
        for node in &self.nodes {
            for event in self.opened.keys().map(|event| JournalPosition(*event)) {
                let (there, all) = (node.get(event).unwrap(), self.one.get(event).unwrap());
                assert!(there.may_answer().is_superset(&all.may_answer()), "{event:?}");
                let more = there.may_answer() - all.may_answer();
                let is_elsewhere = |device| self.connections.iter().any(|connection| connection.device.0 == device);
                assert!(more.iter().all(is_elsewhere), "only who is connected may answer");
                assert_eq!(there.received(), all.received(), "{event:?}");
                let (there, all) = (there.summary(), all.summary());
                assert_eq!((there.written, there.users), (all.written, all.users));
                assert!(there.received <= there.written);
                if event.0 % 3 > 0 {
                    assert_eq!(there.received, all.received, "{event:?}");
                }
            }
        }
    }
}

#[test]
fn the_home_knows_of_two_nodes_what_one_node_with_all_connections_would() {
    for seed in SEEDS {
        let found = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(found.is_ok(), "seed {seed}");
    }
}

#[test]
fn what_is_reported_of_an_event_that_is_over_is_not_kept() {
    let (node, home) = (Receipts::new(2, usize::MAX), Receipts::new(2, usize::MAX));
    node.begin_reports();
    let event = node.open(&request(1));
    event.on_written();
    let report = node.take_report().unwrap();
    home.open(&request(1));
    home.sweep(NOW.saturating_add(Duration::from_secs(3600)).saturating_add(RECEIPTS_TTL));
    home.take_in(7, report.clone());
    assert_eq!(home.open(&request(1)).summary().written, 0);

    // It is kept for a while if it is not open yet, as often as it was reported.
    event.on_written();
    let second = node.take_report().unwrap();
    let home = Receipts::new(2, usize::MAX);
    home.take_in(7, report);
    home.take_in(7, second);
    home.sweep(NOW);
    assert_eq!(home.open(&request(1)).summary().written, 2);
    assert_eq!(home.open(&request(1)).summary().written, 2, "once");
}
