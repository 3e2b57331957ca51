//! Arguments of `simulate`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidings_config::parse_duration;

/// Providers that can be simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum SimulateCommand {
    /// Apple's push service.
    Apns(SimulateApnsArgs),
    /// Firebase Cloud Messaging, with its token endpoint.
    Fcm(SimulateFcmArgs),
    /// A browser's push service, with the browsers.
    WebPush(SimulateWebPushArgs),
}

/// Arguments of all simulators.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Folder for the certificate and the keys made at the start; simulators of several kinds can share it.
    #[arg(long, default_value = "simulator", value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
    /// Faults to simulate, as JSON: delays, rejections, resets (docs/simulator.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// Simulated round trip: each answer is delayed by this time; answers do not wait for each other.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) round_trip: Option<Duration>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Threads; by default half as many as there are cores, at most 4.
    #[arg(long, default_value_t = default_threads(), hide_default_value = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Print the counters as JSON, one line a second.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Half of the cores are for the server under test on the same machine.
fn default_threads() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(1, 4) as u16
}

/// Arguments of `simulate apns`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings simulate apns
  tidings simulate apns --dir simulator --listen 127.0.0.1:2197 --faults faults.json
  tidings simulate apns --round-trip 100ms
  curl --cacert simulator/ca.pem --http2 https://localhost:2197/simulator/ledger")]
pub(crate) struct SimulateApnsArgs {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:2197", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Bundle id for the printed configuration. When given, other apps are refused.
    #[arg(long, value_name = "BUNDLE_ID")]
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) common: SimulateArgs,
}

/// Arguments of `simulate fcm`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings simulate fcm
  tidings simulate fcm --round-trip 70ms --project my-project --app com.example.app
  curl --cacert simulator/fcm-ca.pem https://localhost:2198/simulator/shown/TOKEN")]
pub(crate) struct SimulateFcmArgs {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:2198", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The Firebase project that messages may be sent to.
    #[arg(long, default_value = "tidings-simulator", value_name = "ID")]
    pub(crate) project: String,
    /// Application id for the printed configuration.
    #[arg(long, value_name = "APPLICATION_ID")]
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) common: SimulateArgs,
}

/// Arguments of `simulate web-push`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings simulate web-push --subscriptions 10
  curl --cacert simulator/web-push-ca.pem -d '{}' https://localhost:2199/simulator/subscriptions")]
pub(crate) struct SimulateWebPushArgs {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:2199", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Name of the web app for the printed configuration.
    #[arg(long, value_name = "APP")]
    pub(crate) app: Option<String>,
    /// Browsers that subscribe at the start. Their subscriptions are written to subscriptions.ndjson, one a line.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) subscriptions: u32,
    #[command(flatten)]
    pub(crate) common: SimulateArgs,
}
