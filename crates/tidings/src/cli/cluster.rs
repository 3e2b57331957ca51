//! Arguments of `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::ConfigFile;

/// Commands about the servers of a cluster. They ask NATS, so they also work when no server runs.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// See who leads, how each server is, and how full the log is.
    #[command(after_help = "Example:
  tidings cluster status --config /etc/tidings/tidings.toml

It listens to the servers for two seconds: one that is not shown does not run, or does not reach
NATS.")]
    Status(ClusterArgs),
    /// Let another server lead.
    #[command(after_help = "Examples:
  tidings cluster move             to whichever server is ready first
  tidings cluster move --to b

The leader stops as on SIGTERM: it finishes what it has begun, and tells its clients to connect
again. Nothing that was acknowledged is lost. Then it follows as a standby.")]
    Move(ClusterMoveArgs),
    /// Read the whole log and check that each entry follows on the one before.
    #[command(after_help = "Example:
  tidings cluster check

It changes nothing and may run at any time. A log that is not whole ends with exit code 1:
docs/cluster.md says what to do.")]
    Check(ClusterArgs),
    /// Make the store of a stopped server one that is alone, or that can begin a new log.
    #[command(after_help = "Example:
  tidings cluster leave --data /var/lib/tidings

Channels begin a new epoch: clients that come back are told that they may have missed something.
docs/cluster.md says when this is needed.")]
    Leave(ClusterLeaveArgs),
    /// Delete the log, the lease and the copy of a cluster whose servers are all stopped.
    #[command(after_help = "Example:
  tidings cluster forget

The first server that starts then begins a new log with what its store has. The data folders of
the servers stay as they are.")]
    Forget(ClusterArgs),
}

/// Arguments of `cluster leave`.
#[derive(Debug, Args)]
pub(crate) struct ClusterLeaveArgs {
    /// The data folder of the server.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `cluster status` and `cluster check`.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `cluster move`.
#[derive(Debug, Args)]
pub(crate) struct ClusterMoveArgs {
    /// The server that should lead, by its `cluster.node`.
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) about: ClusterArgs,
}
