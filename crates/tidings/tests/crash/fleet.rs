//! What makes a cluster of several servers: three real NATS servers, and one address that leads to the server which leads.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::brokers::Brokers;
use crate::server::Node;

const BROKER_COUNT: usize = 3;

pub(crate) struct Fleet {
    brokers: Brokers,
    /// The broker that is killed with the next server, and the one that is killed now.
    victim: usize,
    killed: Option<usize>,
    addr: SocketAddr,
    leader: watch::Sender<Option<SocketAddr>>,
    #[expect(dead_code, reason = "ends with the fleet")]
    relay: JoinSet<()>,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (leader, leads) = watch::channel(None);
        let mut relay = JoinSet::new();
        relay.spawn(pass_on(listener, leads));
        Self { brokers: Brokers::start(BROKER_COUNT), victim: 0, killed: None, addr, leader, relay }
    }

    /// The section of the configuration of the server with this name, at this address.
    pub(crate) fn section(&self, node: &str, addr: SocketAddr) -> String {
        let servers: Vec<_> = self.brokers.ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        // Small, so that the log is trimmed meanwhile.
        let servers = servers.join(", ");
        format!(
            "\n[cluster]\nservers = [{servers}]\nnode = \"{node}\"\naddress = \"http://{addr}\"\nlog_bytes_max = \"64MiB\"\n"
        )
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on connections lead there.
    pub(crate) fn lead_to(&mut self, leader: SocketAddr) {
        self.leader.send_replace(Some(leader));
        if let Some(killed) = self.killed.take() {
            self.brokers.restart(killed);
        }
    }

    /// The leader is about to be killed, and with every second one a broker. The other servers do nothing until
    /// [`Fleet::go_on`]: what the leader has done is to be looked at first.
    pub(crate) fn stand_still<'n>(&mut self, others: impl Iterator<Item = &'n Node>) {
        self.leader.send_replace(None);
        others.for_each(|other| other.signal("STOP"));
        self.victim += 1;
        if self.victim.is_multiple_of(2) {
            let broker = self.victim / 2 % BROKER_COUNT;
            self.brokers.kill(broker);
            self.killed = Some(broker);
        }
    }

    /// The servers that stood still go on.
    pub(crate) fn go_on(&mut self, nodes: &[Node]) {
        nodes.iter().filter(|node| node.runs()).for_each(|node| node.signal("CONT"));
    }
}

/// Connects each connection with the leader. Without one it is closed.
async fn pass_on(listener: TcpListener, leader: watch::Receiver<Option<SocketAddr>>) {
    let mut passing = JoinSet::new();
    while let Ok((mut outside, _)) = listener.accept().await {
        let leader = *leader.borrow();
        passing.spawn(async move {
            let Some(leader) = leader else { return };
            if let Ok(mut inside) = TcpStream::connect(leader).await {
                let _ = copy_bidirectional(&mut outside, &mut inside).await; // Both ends see the end.
            }
        });
        while passing.try_join_next().is_some() {}
    }
}
