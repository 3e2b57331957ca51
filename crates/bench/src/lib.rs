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
mod folder;
mod http;
mod peer;
mod process;
mod push;
mod report;
mod statistic;
mod store;

use tidings_server::command_error::CommandError;

pub use self::args::BenchCommand;
use self::args::PeerRole;
use self::report::progress;

/// Runs a benchmark and prints its table.
///
/// # Errors
/// When it cannot run, or anything it checks is wrong.
pub async fn run(command: BenchCommand) -> Result<(), CommandError> {
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
