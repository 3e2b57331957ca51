//! What can be measured, and how the command line says it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Publications to many connections: processor time, latency, memory, coming back.
    #[command(after_help = "Examples:
  tidings bench fanout
  tidings bench fanout --runs 5 --clients 8000 --json")]
    Fanout(BenchFanoutArgs),
    /// Finding who is to be told, and keeping that durable.
    #[command(after_help = "Examples:
  tidings bench audience
  tidings bench audience --subscriptions 25M --dir /var/tmp --json
  tidings bench audience --control-subscriptions 25M

SQLite is shown beside when built with --features bench-peers, and PostgreSQL when it is on the
machine as well (Debian: postgresql).")]
    Audience(BenchAudienceArgs),
    /// Notifications, from the event to a simulated provider's answer.
    #[command(after_help = "Examples:
  tidings bench push
  tidings bench push --audience 1.3M --only audience
  tidings bench push --only fcm
  tidings bench push --only web-push
  tidings bench push --server pushy --runs 5 --json
  tidings bench push --full > push.txt

With h2load (Debian: nghttp2-client) on the machine, its rate against the same provider is
shown beside, and that of Pushy, apns2 and gorush when conformance/peers.sh has built them.")]
    Push(BenchPushArgs),
    /// The bounded buffers: every operation's time, and what goes through between threads.
    #[command(after_help = "Examples:
  tidings bench buffer
  tidings bench buffer --only lake --runs 5 --json

Other libraries are shown beside when built with --features bench-peers.")]
    Buffer(BenchBufferArgs),
    /// The batching writer: small messages of many producers into a pipe, a file, a terminal.
    #[command(after_help = "Examples:
  tidings bench batch
  tidings bench batch --only pipe --runs 5
  tidings bench batch --full --json > batch.json

tracing-appender is shown beside when built with --features bench-peers.")]
    Batch(BenchBatchArgs),
    /// The HTTP/1.1 client against nginx: requests per second, latency, processor time.
    #[command(after_help = "Examples:
  tidings bench http
  tidings bench http --runs 5 --json

nginx must be there (Debian: nginx-light). With wrk on the machine its rate is shown beside, and
other clients when built with --features bench-peers.")]
    Http(BenchHttpArgs),
    /// The other process of a benchmark, started by it.
    #[command(hide = true)]
    #[command(after_help = "Example:
  tidings bench peer simulator --cpu 0")]
    Peer(BenchPeerArgs),
}

/// Arguments of every benchmark.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Print the result as one JSON object, every run in it.
    #[arg(long)]
    pub json: bool,
    /// How often each thing is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
}

/// Arguments of `bench fanout`.
#[derive(Debug, Clone, Args)]
pub struct BenchFanoutArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// How long each load is measured, in seconds; one more warms up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Idle connections for the memory figure, and clients that come back at once.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    pub clients: u32,
}

/// Arguments of `bench audience`.
#[derive(Debug, Clone, Args)]
pub struct BenchAudienceArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Subscriptions, 6.35 of each device. Goals are stated for 25M, some for 127M.
    #[arg(long, value_name = "N", default_value = "5M", value_parser = count)]
    pub subscriptions: u32,
    /// Subscriptions that SQLite, PostgreSQL and our store are compared with.
    #[arg(long, value_name = "N", default_value = "2.5M", value_parser = count)]
    pub control_subscriptions: u32,
    /// Where the store is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `bench push`.
#[derive(Debug, Clone, Args)]
pub struct BenchPushArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Devices that are told of each event where the provider answers at once; else five seconds' worth of them.
    #[arg(long, value_name = "N", default_value = "200k", value_parser = count)]
    pub devices: u32,
    /// Measure every round trip with every stream limit and flow window, not one of each kind; an hour.
    #[arg(long)]
    pub full: bool,
    /// Measure only the parts whose name contains this, such as `0 ms`; a name that is not there lists all parts.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Measure memory and time of an audience so large as well; 1.3M is what the goals are stated for.
    #[arg(long, value_name = "N", value_parser = count)]
    pub audience: Option<u32>,
    /// Devices of the newsletter that goals are told beside.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    pub newsletter: u32,
    /// What is sent to: our simulator, or Pushy's benchmark server, which has no round trip and checks nothing.
    #[arg(long, value_name = "WHICH", default_value = "simulator")]
    pub server: BenchPushServer,
    /// Cores that the provider has to itself, with a thread on each; the sender always has one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub provider_cores: u32,
    /// Where other senders are, as conformance/peers.sh builds them [default: target/peers]
    #[arg(long, value_name = "FOLDER")]
    pub peers: Option<PathBuf>,
    /// Where the store is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

/// What `bench push` sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchPushServer {
    /// Our simulator of APNs.
    Simulator,
    /// Pushy's BenchmarkApnsServer.
    Pushy,
}

/// Arguments of `bench buffer`.
#[derive(Debug, Clone, Args)]
pub struct BenchBufferArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Measure only the buffers whose name contains this, such as `lake`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}

/// Arguments of `bench batch`.
#[derive(Debug, Clone, Args)]
pub struct BenchBatchArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Measure every size of messages, pages and buffers with every number of messages, not one at a time; an hour.
    #[arg(long)]
    pub full: bool,
    /// Measure only the cases whose name contains this, such as `pipe`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Where the file is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `bench http`.
#[derive(Debug, Clone, Args)]
pub struct BenchHttpArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// How long each client is measured in each case, in seconds; half of one more warms up.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
}

/// Arguments of `bench peer`.
#[derive(Debug, Clone, Args)]
pub struct BenchPeerArgs {
    /// What it is.
    pub role: PeerRole,
    /// The core it is held to.
    #[arg(long, value_name = "N")]
    pub cpu: usize,
}

/// What the other process of a benchmark is.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum PeerRole {
    /// Hub and edge behind a listener.
    Fanout,
    /// One write per subscriber, nothing else.
    Bare,
    /// A simulated APNs.
    Simulator,
    /// A simulated FCM.
    Fcm,
    /// A simulated push service of browsers.
    WebPush,
}

/// Reads a count such as `200000`, `200k` or `1.3M`: from 1000 to 200 million.
fn count(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((end, 'k')) => (&text[..end], 1e3),
        Some((end, 'M')) => (&text[..end], 1e6),
        _ => (text, 1.0),
    };
    let number = digits.parse::<f64>().map_or(f64::NAN, |number| (number * factor).round());
    if (1e3..=2e8).contains(&number) { Ok(number as u32) } else { Err("must be from 1000 to 200M".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_short() {
        let counts = ["1000", "1.3M", "200k", "200M"].map(|text| count(text).ok());
        assert_eq!(counts, [Some(1000), Some(1_300_000), Some(200_000), Some(200_000_000)]);
        assert!(["", "k", "M", "NaN", "-5M", "999", "1e12", "1.3m"].iter().all(|text| count(text).is_err()));
    }
}
