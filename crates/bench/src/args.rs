//! The arguments of `tidings bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Fan-out of publications to many connections: CPU time and latency.
    #[command(after_help = "Examples:
  tidings bench fanout
  tidings bench fanout --runs 5 --json
  tidings bench fanout --transport sse,http_stream,uni_sse,uni_http_stream

If Centrifugo 5 or 6 is there, as conformance/peers.sh builds them, it is measured in turns with our
whole server.")]
    Fanout(BenchFanoutArgs),
    /// Idle connections, and all clients coming back at once: memory, CPU time, how long it takes.
    #[command(after_help = "Examples:
  tidings bench storm
  tidings bench storm --clients 10000 --cuts 20 --runs 1 --json

If Centrifugo 5 or 6 is there, as conformance/peers.sh builds them, it is measured in turns with our
server.")]
    Storm(BenchStormArgs),
    /// Publications over HTTP: what one costs a whole server, one by one, in batches, and with readers.
    #[command(after_help = "Examples:
  tidings bench publish
  tidings bench publish --runs 5 --json

If Centrifugo 5 or 6 is there, as conformance/peers.sh builds them, it is measured in turns with our
server.")]
    Publish(BenchPublishArgs),
    /// Selecting an event's audience, and keeping subscriptions durable.
    #[command(after_help = "Examples:
  tidings bench audience
  tidings bench audience --subscriptions 25M --dir /var/tmp --json
  tidings bench audience --control-subscriptions 25M

Built with --features bench-peers, the result also shows SQLite, and PostgreSQL if it is installed
(Debian: postgresql).")]
    Audience(BenchAudienceArgs),
    /// Notifications, from the event to a simulated provider's answer.
    #[command(after_help = "Examples:
  tidings bench push
  tidings bench push --audience 1.3M --only audience
  tidings bench push --only fcm
  tidings bench push --only web-push
  tidings bench push --server pushy --runs 5 --json
  tidings bench push --full > push.txt

If h2load is installed (Debian: nghttp2-client), the result also shows its rate against the same
provider. The same goes for Pushy, apns2 and gorush, which conformance/peers.sh builds.")]
    Push(BenchPushArgs),
    /// The bounded buffers: the time of every operation, and the throughput between threads.
    #[command(after_help = "Examples:
  tidings bench buffer
  tidings bench buffer --only lake --runs 5 --json

Built with --features bench-peers, the result also shows other libraries.")]
    Buffer(BenchBufferArgs),
    /// The batching writer: small messages of many producers, written to a pipe, a file or a terminal.
    #[command(after_help = "Examples:
  tidings bench batch
  tidings bench batch --only pipe --runs 5
  tidings bench batch --full --json > batch.json

Built with --features bench-peers, the result also shows tracing-appender.")]
    Batch(BenchBatchArgs),
    /// The HTTP/1.1 client against nginx: requests per second, latency, CPU time.
    #[command(after_help = "Examples:
  tidings bench http
  tidings bench http --runs 5 --json

Needs nginx (Debian: nginx-light). If wrk is installed, the result also shows its rate. Built with
--features bench-peers, it also shows other clients.")]
    Http(BenchHttpArgs),
    /// Converting between JSON and MessagePack, as the API does it.
    #[command(after_help = "Examples:
  tidings bench msgpack
  tidings bench msgpack --runs 5 --json")]
    Msgpack(BenchMsgpackArgs),
    /// What it costs that a store shares its log with other servers on NATS.
    #[command(after_help = "Examples:
  tidings bench cluster --nats nats://127.0.0.1:4222
  tidings bench cluster --nats nats://127.0.0.1:4222 --replicas 3 --runs 5

Needs NATS 2.15 or later with JetStream, which it writes to disk at each append if it is configured
with sync_interval: always. It makes a stream of its own and deletes it.")]
    #[cfg(feature = "cluster")]
    Cluster(BenchClusterArgs),
    /// How much later readers of other servers of a cluster get what is published.
    #[command(after_help = "Examples:
  tidings bench live --url http://127.0.0.1:8001 --url http://127.0.0.1:8002 --channel news
  tidings bench live --url http://127.0.0.1:8001 --channel news --readers 1000 --rate 20

The servers must run; the first one is called. The key (TIDINGS_API_KEY) must allow to publish and
to read metrics.")]
    Live(BenchLiveArgs),
    /// A document of a data provider becomes events: speed and memory, beside bare quick-xml.
    #[command(after_help = "Examples:
  tidings bench feed
  tidings bench feed --runs 5 --json

If Python is installed, the result also shows its expat, and lxml (Debian: python3-lxml).")]
    Feed(BenchFeedArgs),
    /// Texts of notifications: one beside a copy of it, and how long the catalogues of 50 languages take to load and to reload.
    #[command(after_help = "Examples:
  tidings bench translate
  tidings bench translate --runs 5 --json")]
    Translate(BenchTranslateArgs),
    /// What devices that were deleted cost those that are left: writes and reads before, meanwhile, after it and after a restart.
    #[command(after_help = "Examples:
  tidings bench age --runs 1
  tidings bench age --runs 1 --devices 1M --dir /var/tmp --json")]
    Age(BenchAgeArgs),
    /// The other process of a benchmark. The benchmark starts it.
    #[command(hide = true)]
    #[command(after_help = "Example:
  tidings bench peer simulator --cpu 0")]
    Peer(BenchPeerArgs),
}

/// Arguments that all benchmarks have.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Print the result as one JSON object with every run.
    #[arg(long)]
    pub json: bool,
    /// How often to repeat each measurement.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
}

#[derive(Debug, Clone, Args)]
pub struct BenchFanoutArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// How long to measure each load, in seconds; one more second warms up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Also measures these transports, separated by commas, beside a WebSocket.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub transport: Vec<BenchTransport>,
    /// Folder of other servers, as conformance/peers.sh builds them.
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub peers: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct BenchStormArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
    pub clients: u32,
    /// How often all of them are cut off in each run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub cuts: u32,
    /// Folder of other servers, as conformance/peers.sh builds them.
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub peers: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct BenchPublishArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// How long to measure each case, in seconds.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Folder of other servers, as conformance/peers.sh builds them.
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub peers: PathBuf,
}

/// What carries messages, other than a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum BenchTransport {
    Sse,
    HttpStream,
    UniSse,
    UniHttpStream,
}

impl std::fmt::Display for BenchTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(clap::ValueEnum::to_possible_value(self).expect("none is hidden").get_name())
    }
}

#[derive(Debug, Clone, Args)]
pub struct BenchAudienceArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Number of subscriptions; a device has 6.35 on average. Goals are stated for 25M, some for 127M.
    #[arg(long, value_name = "N", default_value = "5M", value_parser = count)]
    pub subscriptions: u32,
    /// Number of subscriptions for the comparison of our store with SQLite and PostgreSQL.
    #[arg(long, value_name = "N", default_value = "2.5M", value_parser = count)]
    pub control_subscriptions: u32,
    /// Folder for the store, which is removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct BenchPushArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Audience of each event if the provider answers at once; else as many devices as it can take in five seconds.
    #[arg(long, value_name = "N", default_value = "200k", value_parser = count)]
    pub devices: u32,
    /// Measure every combination of round trip, stream limit and flow window, not one of each kind; takes an hour.
    #[arg(long)]
    pub full: bool,
    /// Measure only parts with this text in their name, such as `0 ms`; an unknown name lists all parts.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Also measure memory and time of an audience of this size; the goals are stated for 1.3M.
    #[arg(long, value_name = "N", value_parser = count)]
    pub audience: Option<u32>,
    /// Audience of the newsletter that runs while urgent events are measured.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    pub newsletter: u32,
    /// The provider to send to: our simulator, or Pushy's benchmark server, which has no round trip and checks nothing.
    #[arg(long, value_name = "WHICH", default_value = "simulator")]
    pub server: BenchPushServer,
    /// Number of cores for the provider, with one thread on each; the sender always has one core.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub provider_cores: u32,
    /// Folder of the other senders, as conformance/peers.sh builds them [default: target/peers]
    #[arg(long, value_name = "FOLDER")]
    pub peers: Option<PathBuf>,
    /// Folder for the store, which is removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

/// The provider of `bench push`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchPushServer {
    /// Our simulator of APNs.
    Simulator,
    /// Pushy's BenchmarkApnsServer.
    Pushy,
}

#[derive(Debug, Clone, Args)]
pub struct BenchBufferArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Measure only buffers with this text in their name, such as `lake`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}

#[derive(Debug, Clone, Args)]
pub struct BenchBatchArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Measure every combination of counts and sizes, not one change at a time; takes an hour.
    #[arg(long)]
    pub full: bool,
    /// Measure only cases with this text in their name, such as `pipe`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Folder for the file, which is removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct BenchHttpArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// How long to measure each client in each case, in seconds; another half second warms up.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
}

#[derive(Debug, Clone, Args)]
pub struct BenchMsgpackArgs {
    #[command(flatten)]
    pub common: BenchArgs,
}

#[cfg(feature = "cluster")]
#[derive(Debug, Clone, Args)]
pub struct BenchClusterArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// A server of NATS.
    #[arg(long, value_name = "URL")]
    pub nats: String,
    /// On how many NATS servers each entry is kept.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub replicas: u32,
}

#[derive(Debug, Clone, Args)]
pub struct BenchLiveArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// A server, once for each of them; the first one is called.
    #[arg(long, value_name = "URL", required = true)]
    pub url: Vec<String>,
    /// The channel, in which clients without a token may subscribe.
    #[arg(long, value_name = "CHANNEL")]
    pub channel: String,
    /// An API key.
    #[arg(long, value_name = "KEY", env = "TIDINGS_API_KEY", hide_env_values = true)]
    pub api_key: String,
    /// Readers at each server.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub readers: u32,
    /// Publications per second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// How long to publish, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
}

#[derive(Debug, Clone, Args)]
pub struct BenchFeedArgs {
    #[command(flatten)]
    pub common: BenchArgs,
}

#[derive(Debug, Clone, Args)]
pub struct BenchTranslateArgs {
    #[command(flatten)]
    pub common: BenchArgs,
}

#[derive(Debug, Clone, Args)]
pub struct BenchAgeArgs {
    #[command(flatten)]
    pub common: BenchArgs,
    /// Number of devices, of which one in twenty is kept.
    #[arg(long, value_name = "N", default_value = "20k", value_parser = count)]
    pub devices: u32,
    /// Folder for the store, which is removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct BenchPeerArgs {
    /// What the process does.
    pub role: PeerRole,
    /// The cores to run on.
    #[arg(long, value_name = "N", value_delimiter = ',', required = true)]
    pub cpu: Vec<usize>,
}

/// What the other process of a benchmark does.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum PeerRole {
    /// Hub and edge behind a listener.
    Fanout,
    /// Writes once per subscriber, nothing else.
    Bare,
    /// Reads and writes once per request, nothing else.
    BareHttp,
    /// A simulated APNs.
    Simulator,
    /// A simulated FCM.
    Fcm,
    /// A simulated push service of browsers.
    WebPush,
    /// Reads a document, and says how much it has grown.
    Feed,
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
