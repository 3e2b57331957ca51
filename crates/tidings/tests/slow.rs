//! The slow campaign: clients behind a slow network, while the server is killed and stopped under them.
//!
//! Eight clients follow one durable channel, each through a wire of its own that delays everything and carries a few kilobytes
//! per second, and for some time nothing, so the clients fall behind. Events are posted all the time, and each is posted again until
//! it is acknowledged. Meanwhile the server is killed, is stopped in an orderly way, and all wires are cut. Then:
//! - the server has each acknowledged event once, where it said;
//! - each client has everything, once and in order, and resumed where it was each time.
//!
//! `cargo test -p tidings --test slow -- --nocapture` runs it in some 15 s, with the program that `TIDINGS_BIN` names (default: the one
//! built with the test). A plain `cargo test` leaves it out (`test = false` in Cargo.toml). This file is also the example in
//! `crates/trial/README.md`.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the campaign")]

use std::time::Duration;

use tidings_trial::launcher::{Server, program};
use tidings_trial::ledger::Ledger;
use tidings_trial::ports::free_addr;
use tidings_trial::proxy::{Passing, Proxy};
use tidings_trial::wait::PATIENCE;
use tidings_trial::watcher::{Plan, Watcher};

const API_KEY: &str = "slow-campaign-key-0123456789";
const CHANNEL: &str = "match:1";
const CLIENT_COUNT: usize = 8;
/// What each wire carries. The events are some 30 kB per second.
const SLOW: Passing = Passing::slow(Duration::from_millis(50), 24_000);
/// Events that are acknowledged, twice before each blow.
const EVENT_COUNT: usize = 50;

const CONFIGURATION: &str = r#"
data_dir = "data"

[client]
allow_anonymous = true
reply_bytes_max = "16MiB"
recovery_count_max = 10000
shutdown_spread = "100ms"

[channel.namespaces.match]
durable = true
history_size = 10000
history_ttl = "1h"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

[topics.goal]
title = "goal"
body = "Number %{number}"
"#;

#[tokio::test]
async fn clients_behind_a_slow_network_lose_nothing_when_the_server_is_restarted() {
    let mut server = Server::new("the server", program(env!("CARGO_BIN_EXE_tidings"))).at(free_addr());
    let key = format!("[[api.keys]]\nname = \"campaign\"\nkey = \"{API_KEY}\"\nscopes = [\"publish\", \"read\"]\n");
    server.configure(&format!("{CONFIGURATION}\n{key}\n[http]\nlisten = \"{}\"\n", server.addr));
    server.start().await;
    let wires = Proxy::start(&[server.addr; CLIENT_COUNT]).await;
    let mut clients = Vec::new();
    for (index, addr) in wires.addrs.iter().enumerate() {
        let plan = Plan::new(&format!("client {index}"), &[CHANNEL], *addr).returning(&[]).patient(PATIENCE);
        clients.push(Watcher::start(plan).await);
    }
    let mut ledger = Ledger::new(CHANNEL, API_KEY, vec![server.addr]);
    wires.pass(SLOW);
    ledger.start();

    fall_behind(&wires, &mut ledger, &clients, 0).await;
    server.kill();
    server.start().await;
    fall_behind(&wires, &mut ledger, &clients, 1).await;
    server.stop_well().await;
    server.start().await;
    fall_behind(&wires, &mut ledger, &clients, 2).await;
    wires.cut();
    ledger.grow(EVENT_COUNT).await;
    ledger.finish().await;
    println!("longest time without an acknowledgement: {:.1} s", ledger.gap());

    let history = ledger.judge(server.addr).await;
    for client in &clients {
        client.must_have(CHANNEL, &history).await;
        let recovered = client.look(|seen| seen.channels[CHANNEL].recovered.clone());
        assert_eq!(recovered, [true; 3], "each time it resumed where it was");
        assert_eq!(client.got(CHANNEL), history, "it was there from the beginning");
    }
    assert!(!server.has_panicked(), "{}", server.log_end());
}

/// When all clients have resumed so often, the wires carry nothing until something is acknowledged that no client has. From then on
/// they carry slowly again.
async fn fall_behind(wires: &Proxy, ledger: &mut Ledger, clients: &[Watcher], returns: usize) {
    for client in clients {
        client.until("has resumed", |seen| seen.channels[CHANNEL].recovered.len() == returns).await;
    }
    ledger.grow(EVENT_COUNT).await;
    wires.pass(Passing::HELD);
    ledger.grow(EVENT_COUNT).await;
    let behind = clients.iter().map(|client| ledger.count().saturating_sub(client.got(CHANNEL).len()));
    println!("clients are behind by {:?} events", behind.clone().collect::<Vec<_>>());
    assert!(behind.min() > Some(0), "nobody waits for anything, so nothing is tried");
    wires.pass(SLOW);
}
