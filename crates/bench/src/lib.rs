//! `tidings bench`: what each part does on this machine, beside the goal.
//!
//! Every benchmark repeats its measurement `--runs` times and prints median and spread; progress goes to standard
//! error. What is measured is the real thing: a server's load comes from another process, and where a part has a physical
//! limit (one `write` per delivery, another HTTP/2 client) that is measured in the same run. Every run checks its
//! answers: a publication lost or doubled, a device missing, a wrong language make it fail, however fast it was.
//!
//! The other process is this program again (`bench peer`, hidden), told what to do over its standard input, so that
//! processor time and memory of the two sides can be told apart. On Linux only. Where there are two cores, each side
//! is held to one of them.

mod args;
mod audience;
mod batch;
mod buffer;
mod fanout;
mod http;
mod peer;
mod process;
mod push;
mod report;
mod statistic;
mod store;

use tidings_client::HttpError;
use tidings_config::ConfigError;
use tidings_server::ServeError;

pub use self::args::BenchCommand;
use self::args::PeerRole;

/// Why a benchmark did not run, or its answers are wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Its own configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The server cannot be reached, or breaks off.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// Standard input or output failed, or a file.
    #[error("cannot use standard input or output")]
    Terminal(#[from] std::io::Error),
}

/// Runs a benchmark and prints its table.
///
/// # Errors
/// When it cannot run, or anything it checks is wrong.
pub async fn run(command: BenchCommand) -> Result<(), BenchError> {
    if cfg!(debug_assertions) && !matches!(command, BenchCommand::Peer(_)) {
        progress("this is an unoptimised build: its numbers say nothing (cargo build --release)");
    }
    let (report, json) = match command {
        BenchCommand::Fanout(args) => (fanout::run(&args).await?, args.common.json),
        BenchCommand::Audience(args) => (audience::run(&args).await?, args.common.json),
        BenchCommand::Push(args) => (push::run(&args).await?, args.common.json),
        BenchCommand::Buffer(args) => (buffer::run(&args).await?, args.common.json),
        BenchCommand::Batch(args) => (batch::run(&args).await?, args.common.json),
        BenchCommand::Http(args) => (http::run(&args).await?, args.common.json),
        BenchCommand::Peer(args) => {
            process::pin(args.cpu)?;
            return match args.role {
                PeerRole::Fanout => fanout::server::serve().await,
                PeerRole::Bare => fanout::bare::serve(),
                PeerRole::Simulator => push::simulator::serve(),
                PeerRole::Fcm => push::fcm::serve(),
                PeerRole::WebPush => push::web_push::serve(),
            };
        }
    };
    report.print(json)
}

/// The error of a run that did not do, or whose answers are wrong.
fn failed(why: impl Into<String>) -> BenchError {
    BenchError::Failed(why.into())
}

/// The same, for errors with causes.
fn failed_by(what: &str, error: &dyn std::error::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {}", tidings_telemetry::chain(error)))
}

/// Tells whoever waits what is being done.
fn progress(text: impl std::fmt::Display) {
    tidings_server::output::remark(tidings_server::output::Kind::Note, text);
}
