//! The servers of a cluster, and callers and clients that they know.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hyper::Method;
use tidings_cluster::lease::{BEAT, SILENCE};
use tidings_trial::caller::Caller;
use tidings_trial::fleet::{Fleet, section};
use tidings_trial::launcher::{Server, program};
use tidings_trial::ledger::Ledger;
use tidings_trial::proxy::Proxy;
use tidings_trial::watcher::Plan;

const API_KEY: &str = "cluster-test-key-0123456789";
/// What clients' tokens are signed with.
const TOKEN_SECRET: &str = "a-secret-of-the-backend-and-the-servers";
/// After this a lease that nobody renews is taken by the next server that may take it.
pub(crate) const LEASE_OVER: Duration = SILENCE.saturating_add(BEAT.saturating_mul(2));
/// How long a server may take to tell its metrics; one that stands still does not.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// What `/ready` says of a server that has no store yet, or has given it up to begin anew.
pub(crate) const JOINING: &str = "joining";
/// The channel of the events of a ledger.
pub(crate) const MATCH: &str = "match:1";

/// A back end.
pub(crate) fn caller(addr: SocketAddr) -> Caller {
    Caller::new(addr, API_KEY)
}

/// Events that are posted to these servers.
pub(crate) fn ledger(addrs: Vec<SocketAddr>) -> Ledger {
    Ledger::new(MATCH, API_KEY, addrs)
}

/// A client that is this user.
pub(crate) fn plan(user: &str, channels: &[&'static str], addr: SocketAddr) -> Plan {
    Plan::new(user, channels, addr).with_token(TOKEN_SECRET)
}

/// Three servers on so many NATS servers, none configured or started.
pub(crate) fn prepare(broker_count: usize) -> Fleet {
    Fleet::prepare(&program(env!("CARGO_BIN_EXE_tidings")), broker_count)
}

/// Three servers on so many NATS servers, of which one leads and the others stand by.
pub(crate) async fn start(broker_count: usize) -> Fleet {
    start_with(broker_count, "").await
}

/// The same, with these sections in the servers' configuration.
pub(crate) async fn start_with(broker_count: usize, more: &str) -> Fleet {
    start_as(broker_count, more, |_| "").await
}

/// The same, with settings of each server's membership, by its name.
pub(crate) async fn start_as(broker_count: usize, more: &str, membership: impl Fn(&str) -> &'static str) -> Fleet {
    let mut fleet = prepare(broker_count);
    for node in &mut fleet.nodes {
        let section = section(node, &fleet.nats.ports) + membership(node.name());
        configure(node, &(more.to_owned() + &section));
        node.launch(&[]);
    }
    fleet.settle().await;
    fleet
}

/// As [`start`], on three NATS servers. Each server reaches them through a proxy of its own.
pub(crate) async fn start_behind_proxies() -> (Fleet, Vec<Proxy>) {
    let (mut fleet, mut proxies) = (prepare(3), Vec::new());
    for node in &mut fleet.nodes {
        let proxy = Proxy::start(&fleet.nats.addrs()).await;
        let ports: Vec<u16> = proxy.addrs.iter().map(SocketAddr::port).collect();
        configure(node, &section(node, &ports));
        node.launch(&[]);
        proxies.push(proxy);
    }
    (fleet, proxies)
}

/// A server alone, or with its section one of a cluster.
pub(crate) fn configure(node: &Server, more: &str) {
    node.configure(&(configuration(node.addr, &node.path("data")) + more));
}

/// The value of a metric without labels; `None`: the server does not tell it in time.
pub(crate) async fn metric(node: &Server, name: &str) -> Option<f64> {
    let mut caller = caller(node.addr);
    let answer = caller.call_within(LOOK_TIMEOUT, Method::GET, "/metrics", None).await.ok()?;
    let text = answer.text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    assert!(value.is_some() || answer.status != 200, "{} tells no {name}", node.name());
    value
}

fn configuration(addr: SocketAddr, data: &Path) -> String {
    let data = data.display();
    format!(
        r#"
data_dir = '{data}'

[http]
listen = "{addr}"

[[api.keys]]
name = "test"
key = "{API_KEY}"
scopes = ["publish", "read", "devices", "operate", "metrics"]

[client]
allow_anonymous = true
reply_bytes_max = "64MiB"
recovery_count_max = 10000
token.hmac_secret = "{TOKEN_SECRET}"

[channel.namespaces.match]
durable = true
allow_publish_for_subscriber = true
history_size = 50000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_history_for_subscriber = true
allow_presence_for_subscriber = true
presence = true
join_leave = true
force_push_join_leave = true

[channel.namespaces.room]
history_size = 50000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_history_for_subscriber = true
allow_presence_for_subscriber = true
presence = true
join_leave = true
force_push_join_leave = true

[channel.namespaces.live]
allow_subscribe_for_client = true
allow_publish_for_subscriber = true

[topics.goal]
title = "goal"
body = "Number %{{number}}"
"#
    )
}
