//! What makes a cluster of several servers: three real NATS servers, and one address that leads to the server which leads.

use std::net::SocketAddr;

use tidings_trial::brokers::Brokers;
use tidings_trial::fleet::section;
use tidings_trial::launcher::Server;
use tidings_trial::process::Signal;
use tidings_trial::proxy::Proxy;

const BROKER_COUNT: usize = 3;

pub(crate) struct Fleet {
    brokers: Brokers,
    /// The broker that is killed with the next server, and the one that is killed now.
    victim: usize,
    killed: Option<usize>,
    relay: Proxy,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let relay = Proxy::start_closed().await;
        Self { brokers: Brokers::start(BROKER_COUNT), victim: 0, killed: None, relay }
    }

    /// The section of this server's configuration.
    pub(crate) fn section(&self, node: &Server) -> String {
        section(node, &self.brokers.ports)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.relay.addrs[0]
    }

    /// From now on connections lead there.
    pub(crate) fn lead_to(&mut self, leader: SocketAddr) {
        self.relay.lead_to(Some(leader));
        if let Some(killed) = self.killed.take() {
            self.brokers.restart(killed);
        }
    }

    /// The leader is about to be killed, and with every second one a broker. The other servers do nothing until
    /// [`Fleet::go_on`]: what the leader has done is to be looked at first.
    pub(crate) fn stand_still<'n>(&mut self, others: impl Iterator<Item = &'n Server>) {
        self.relay.lead_to(None);
        others.for_each(|other| other.signal(Signal::STOP));
        self.victim += 1;
        if self.victim.is_multiple_of(2) {
            let broker = self.victim / 2 % BROKER_COUNT;
            self.brokers.kill(broker);
            self.killed = Some(broker);
        }
    }

    /// The servers that stood still go on.
    pub(crate) fn go_on(&mut self, nodes: &mut [Server]) {
        for node in nodes {
            if node.is_running() {
                node.signal(Signal::CONT);
            }
        }
    }
}
