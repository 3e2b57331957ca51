//! The soak: clients come and go for minutes, and the server must be afterwards as it was before.
//!
//! [`CLIENTS`] clients connect in five ways, subscribe, recover, and leave in four ways (`soak/churn.rs`), while a back end
//! publishes all the time. Every [`ROUND`] there are fresh channel names. The soak has two parts: the warm-up, a tenth of the
//! time, and the rest. After each part all clients leave, and the server must come to rest within [`REST`]: no connection, no
//! subscription, and no channel but those that [`left_max`] allows. The soak fails when
//! - the server ends or panics, or does not come to rest;
//! - after the whole soak it has more descriptors or threads than after the warm-up, or more memory than then and a quarter,
//!   [`GROWTH_MIB_MAX`] and [`STORE_MIB_MAX`];
//! - a client has a gap of which nobody told it, or is refused;
//! - something was not tried: no recovery, or no reader that was too slow.
//!
//! It takes `TIDINGS_SOAK_SECONDS`, by default 600. It is run on request, by `cargo xtask soak`, which names the release binary
//! in `TIDINGS_BIN` (default: the one built with the tests).

#![expect(clippy::print_stdout, reason = "a report for whoever runs the soak")]

#[path = "soak/churn.rs"]
mod churn;
#[path = "../../protocol/tests/it/schema.rs"]
mod schema;
#[path = "abuse/server.rs"]
mod server;
#[path = "soak/wire.rs"]
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_trial::launcher::Server;
use tidings_trial::raw::{HOME, backend_request, exchange, last_line};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use churn::{Client, Seen};
use server::memory_mib;

const API_KEY: &str = "soak-campaign-key-0123456789";
const TOKEN_SECRET: &str = "the-secret-of-the-soak-campaign-0123456789";
/// Between two looks.
const PULSE: Duration = Duration::from_millis(100);

const CLIENTS: u64 = 100;
const OPEN_FILES_MAX: u32 = 16_384;
/// How long the server may take to come to rest; the times of [`SETTINGS`] are in it.
const REST: Duration = Duration::from_secs(20);
const GROWTH_MIB_MAX: u64 = 16;
/// What the store may take in the meantime, whatever clients do: two write buffers of 32 MiB for publications and two of
/// 8 MiB for channels, one that is filled and one that is written.
const STORE_MIB_MAX: u64 = 2 * (32 + 8);

/// The back end publishes [`BATCH`] publications so often: 250 a second.
const PUBLISH: Duration = Duration::from_millis(40);
const BATCH: u64 = 10;
/// How long the names of fresh channels stay.
const ROUND: Duration = Duration::from_secs(5);
/// Channels of each kind (fresh or steady, in memory or durable).
const CHANNELS: u64 = 6;
/// One publication of each batch is large and goes there, for readers that are to become too slow.
const FLOOD: &str = "live:flood";
const FLOOD_BYTES: usize = 8 << 10;

/// Slow readers are noticed soon; channels that nobody uses are forgotten soon.
const SETTINGS: &str = r#"
[edge]
log_bytes_max = "64KiB"

[store]
channel_ttl = "5s"
cache_bytes = "1MiB"

[channel.namespaces.live]
history_size = 200
history_ttl = "5s"
allow_recovery = true
presence = true
join_leave = true
allow_presence_for_client = true
allow_presence_for_anonymous = true
allowed_delta_types = ["fossil"]
allow_tags_filter = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

[channel.namespaces.kept]
durable = true
history_size = 200
history_ttl = "5s"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
"#;

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A channel that is there all the time.
fn steady_channel(number: u64) -> String {
    format!("{}:steady-{}", namespace(number), number / 2 % CHANNELS)
}

/// A channel of this round.
fn fresh_channel(number: u64) -> String {
    format!("{}:fresh-{}-{}", namespace(number), round(), number / 2 % CHANNELS)
}

fn round() -> u64 {
    BEGAN.elapsed().as_secs() / ROUND.as_secs()
}

fn namespace(number: u64) -> &'static str {
    if number.is_multiple_of(2) { "live" } else { "kept" }
}

/// What the server has of the system.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    memory_mib: u64,
    descriptors: usize,
    threads: usize,
}

impl Footprint {
    fn of(server: &Server) -> Self {
        let id = server.process_id();
        let entries = |what| std::fs::read_dir(format!("/proc/{id}/{what}")).map_or(0, Iterator::count);
        let (descriptors, threads) = (entries("fd"), entries("task"));
        Self { memory_mib: memory_mib(id).unwrap_or_default(), descriptors, threads }
    }
}

/// The server's metrics, as `name{labels} value`.
struct Metrics(String);

impl Metrics {
    async fn of(server: &Server) -> Self {
        let answer = exchange(server.addr, HOME, &backend_request(API_KEY, "GET", "/metrics", &Value::Null)).await;
        Self(answer.map(|(_, answer)| String::from_utf8_lossy(&answer).into_owned()).unwrap_or_default())
    }

    /// The sum over all labels; none when there is no such metric.
    fn get(&self, name: &str) -> Option<u64> {
        let named = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let values = named.filter(|rest| rest.starts_with(['{', ' ']));
        values
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .map(|value| value as u64)
            .reduce(|a, b| a + b)
    }
}

/// What may be left of the clients. Durable channels are forgotten (`store.channel_ttl`). Channels in memory that had a history
/// keep their positions for a while (`history_meta_ttl`): those of each round so far, the steady ones and [`FLOOD`].
fn left_max() -> [(&'static str, u64); 3] {
    let channels = (round() + 2) * CHANNELS + 1;
    [("tidings_edge_connections", 0), ("tidings_hub_subscriptions", 0), ("tidings_hub_channels", channels)]
}

/// Waits until nothing is left of the clients, and there are no more descriptors and threads than `before`.
async fn rest(server: &Server, before: Option<Footprint>) -> Result<Footprint, String> {
    let (deadline, mut pulse) = (Instant::now() + REST, interval(PULSE));
    loop {
        let metrics = Metrics::of(server).await;
        let left = left_max().map(|(name, max)| (name, metrics.get(name), max));
        let now = Footprint::of(server);
        let is_back = before.is_none_or(|at| now.descriptors <= at.descriptors && now.threads <= at.threads);
        if is_back && left.iter().all(|(_, value, max)| value.is_some_and(|value| value <= *max)) {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(format!("not at rest after {REST:?}: {left:?}, {now:?}, before {before:?}"));
        }
        pulse.tick().await;
    }
}

/// Publishes until it is aborted, or something is refused, which it returns.
async fn publish(server: SocketAddr, seen: Arc<Seen>) -> String {
    let (mut pulse, mut batch) = (interval(PUBLISH), 0);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        let request = backend_request(API_KEY, "POST", "/api/batch", &json!({ "commands": publications(batch) }));
        match exchange(server, HOME, &request).await {
            Ok((200, answer)) if !last_line(&answer).contains("\"error\"") => {}
            Ok((status, answer)) => return format!("publishing is answered {status} {}", last_line(&answer)),
            Err(error) => return format!("publishing is not answered: {error}"),
        }
        seen.published.fetch_add(BATCH, Ordering::Relaxed);
        batch += 1;
    }
}

/// The commands of one batch.
fn publications(batch: u64) -> Vec<Value> {
    let small = (1..BATCH).map(|index| {
        let number = batch * BATCH + index;
        let channel = if batch.is_multiple_of(2) { steady_channel(number) } else { fresh_channel(number) };
        let kind = if number.is_multiple_of(3) { "goal" } else { "corner" };
        let data = json!({ "match": "the same text in all of them, so that a delta is short", "number": number });
        json!({ "publish": { "channel": channel, "data": data, "tags": { "kind": kind } } })
    });
    let large = json!({ "publish": { "channel": FLOOD, "data": "x".repeat(FLOOD_BYTES) } });
    [large].into_iter().chain(small).collect()
}

/// Lets clients churn for so long, then waits until all have left. What went wrong for them.
async fn churn(server: &Server, time: Duration, seed: u64, seen: &Arc<Seen>, line_every: Duration) -> Vec<String> {
    let deadline = Instant::now() + time;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(Client::new(server.addr, seed + number, Arc::clone(seen)).live_until(deadline));
    }
    let mut publisher = JoinSet::new();
    publisher.spawn(publish(server.addr, Arc::clone(seen)));
    let (mut wrongs, mut lines) = (Vec::new(), interval(line_every));
    lines.tick().await;
    loop {
        tokio::select! {
            left = clients.join_next() => match left {
                Some(left) => {
                    let wrong = left.expect("it reports what goes wrong").err();
                    wrongs.extend(wrong.inspect(|wrong| println!("{wrong}")));
                }
                None => break,
            },
            _ = lines.tick() => print_line(server, seen).await,
        }
    }
    wrongs.extend(publisher.try_join_next().map(|refused| refused.expect("it reports what goes wrong")));
    wrongs
}

async fn print_line(server: &Server, seen: &Seen) {
    let (metrics, now) = (Metrics::of(server).await, Footprint::of(server));
    println!(
        "{:>5} s {:>8} connected {:>8} published {:>9} delivered {:>5} MiB {:>4} descriptors {:>3} threads {:>4} channels",
        BEGAN.elapsed().as_secs(),
        metrics.get("tidings_edge_connected_total").unwrap_or_default(),
        seen.published.load(Ordering::Relaxed),
        metrics.get("tidings_edge_deliveries_total").unwrap_or_default(),
        now.memory_mib,
        now.descriptors,
        now.threads,
        metrics.get("tidings_hub_channels").unwrap_or_default(),
    );
}

/// The length of the soak.
fn soak_time() -> Duration {
    let seconds = std::env::var("TIDINGS_SOAK_SECONDS").map_or(600, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

#[test]
fn nothing_is_left_of_clients_that_come_and_go() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrongs = runtime.block_on(soak(soak_time()));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

async fn soak(time: Duration) -> Vec<String> {
    let mut server = server::start(SETTINGS, OPEN_FILES_MAX).await;
    let (warm_up, seen) = (time / 10, Arc::<Seen>::default());
    let mut wrongs = churn(&server, warm_up, 0, &seen, warm_up).await;
    let before = rest(&server, None).await;
    println!("after the warm-up, at rest: {before:?}");
    wrongs.extend(churn(&server, time - warm_up, CLIENTS, &seen, warm_up).await);
    let after = rest(&server, before.as_ref().ok().copied()).await;
    println!("after the soak, at rest: {after:?}\n{seen:?}");

    let metrics = Metrics::of(&server).await;
    let mut require = |is_so: bool, wrong: &str| wrongs.extend((!is_so).then(|| wrong.to_owned()));
    require(server.is_alive() && !server.has_panicked(), "the server ended or panicked");
    require(metrics.get("tidings_panics_total") == Some(0), "the server has caught panics");
    for (count, wrong) in [(&seen.recovered, "no client recovered"), (&seen.slow, "no reader was too slow")] {
        require(count.load(Ordering::Relaxed) > 0, wrong);
    }
    match (before, after) {
        (Ok(before), Ok(after)) => {
            let memory_max = before.memory_mib + before.memory_mib / 4 + GROWTH_MIB_MAX + STORE_MIB_MAX;
            require(
                after.memory_mib <= memory_max,
                &format!("{} MiB at the end, at most {memory_max} are allowed", after.memory_mib),
            );
        }
        (before, after) => wrongs.extend([before.err(), after.err()].into_iter().flatten()),
    }
    if !wrongs.is_empty() {
        wrongs.push(server.log_end());
    }
    wrongs
}
