//! The arguments of `tidings demo`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings demo
  tidings demo --once --json            one quick match, the result as JSON
  tidings demo --devices 1000000 --speed 60
  tidings demo --nodes 3                a cluster, one process of which is killed every few seconds
  tidings demo --nodes 3 --once         the same, until each kind of process was killed once")]
pub struct DemoArgs {
    /// Stop after one match, and fail if a phone or client got less or more than it should. With `--nodes 3`: stop after a
    /// leader, a standby and a NATS server were killed.
    #[arg(long)]
    pub once: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Number of simulated phones.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub devices: u32,
    /// Number of connected clients.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub clients: u32,
    /// How many times faster than a real match. An event waits until all deliveries of the one before are done.
    #[arg(long, value_name = "X", default_value_t = 420.0, value_parser = speed)]
    pub speed: f64,
    /// Number of servers: 1, or 3 that work as a cluster. With 3 no match is played. Numbered events are posted to all three
    /// servers, and three clients read them, while the demo kills the servers, and the NATS servers that the cluster needs,
    /// one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = nodes, conflicts_with_all = ["devices", "clients", "speed"])]
    pub nodes: u32,
    /// The program nats-server, 2.15 or later, for `--nodes 3` [default: the one in PATH]
    #[arg(long, value_name = "FILE", env = "TIDINGS_NATS_SERVER")]
    pub nats_server: Option<PathBuf>,
}

fn nodes(text: &str) -> Result<u32, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("must be 1 or 3".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if (0.1..=100_000.0).contains(&speed) { Ok(speed) } else { Err("must be from 0.1 to 100000".to_owned()) }
}
