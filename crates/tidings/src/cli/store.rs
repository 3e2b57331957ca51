//! Arguments of `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::ApiServer;

/// Commands about the whole store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Take a backup of a running server or of a data folder. The key needs the scope backup.
    Backup(Box<StoreBackupArgs>),
    /// Make a store from a backup, in a data folder that has none.
    Restore(StoreRestoreArgs),
    /// Check that a backup, or the store of a stopped server, is complete and its rows are consistent.
    Verify(StoreVerifyArgs),
}

/// Arguments of `store backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings store backup --out tidings-$(date +%F).backup
  tidings store backup --out b.backup --url http://10.0.0.5:8080 --api-key-file backup.key
  tidings store backup --out b.backup --data /var/lib/tidings     of a server that is stopped
  tidings store backup --out - | ssh vault 'cat > tidings.backup'

The server goes on meanwhile; the backup is of one moment. It is checked while it is written and
gets its name when it is complete and on the disk; a file that is there is never overwritten.
It holds every device's address and the hash of every credential: keep it like a password.")]
pub(crate) struct StoreBackupArgs {
    /// Where to write it; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The data folder of a server that is stopped, instead of a running one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["api_key_file", "config"])]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Arguments of `store restore`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings store restore --from tidings.backup --data /var/lib/tidings
  ssh vault 'cat tidings.backup' | tidings store restore --from - --data tidings-data

The store is there as a whole or not at all. Channels begin a new epoch: clients that come back
are told that they may have missed something. If jobs or scheduled events are in the backup, all
pushes are paused until `tidings jobs resume everything`: some may have been sent since.")]
pub(crate) struct StoreRestoreArgs {
    /// The backup; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// The data folder, as in the configuration's data_dir. Created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Continue the jobs and scheduled events of the backup when the server starts, instead of pausing all pushes.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print what was restored as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `store verify`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings store verify tidings.backup
  tidings store verify --data /var/lib/tidings         of a server that is stopped
  tidings store backup --out - | tidings store verify -    of a running one

Exit code 0 if nothing is wrong, else 1. What is found is named by table and key, without secrets.")]
pub(crate) struct StoreVerifyArgs {
    /// The backup; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "data", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// The data folder of a server that is stopped.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print counts and findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
