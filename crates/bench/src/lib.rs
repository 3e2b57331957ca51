//! `tidings bench`: measures what each part does on this machine, and compares it with its goal.
//!
//! Every benchmark repeats its measurement `--runs` times and prints median and spread. Progress goes to standard
//! error. The real parts are measured: the load on a server comes from another process. Where a part has a physical
//! limit (one `write` per delivery, another HTTP/2 client), that limit is measured in the same run. Every run checks
//! its answers: a publication lost or doubled, a missing device or a wrong language fails the run, however fast it was. What
//! was computed is also in the result as a checksum (`checksum`), which is the same for every run of the same program.
//!
//! The other process is this program again (`bench peer`, hidden). It gets its commands over standard input. So CPU
//! time and memory of the two sides are known separately. Linux only. Where the machine has two cores, each side
//! runs on its own.

mod age;
mod args;
mod audience;
mod batch;
mod buffer;
mod checksum;
#[cfg(feature = "cluster")]
mod cluster;
mod fanout;
mod feed;
mod folder;
mod http;
mod live;
mod load;
mod msgpack;
mod peer;
mod process;
mod publish;
mod push;
mod report;
mod statistic;
mod store;
mod storm;
mod swarm;
mod translate;
mod whole;

use tidings_server::command_error::CommandError;

pub use self::args::BenchCommand;
use self::args::PeerRole;
use self::report::progress;

/// Runs a benchmark and prints its result.
///
/// # Errors
/// When the benchmark cannot run, or a check fails.
pub async fn run(command: BenchCommand) -> Result<(), CommandError> {
    if cfg!(debug_assertions) && !matches!(command, BenchCommand::Peer(_)) {
        progress("this is a debug build, so its numbers mean nothing (use cargo build --release)");
    }
    let (report, json) = match command {
        BenchCommand::Fanout(args) => (fanout::run(&args).await?, args.common.json),
        BenchCommand::Publish(args) => (publish::run(&args).await?, args.common.json),
        BenchCommand::Storm(args) => (storm::run(&args).await?, args.common.json),
        BenchCommand::Audience(args) => (audience::run(&args).await?, args.common.json),
        BenchCommand::Push(args) => (push::run(&args).await?, args.common.json),
        BenchCommand::Buffer(args) => (buffer::run(&args).await?, args.common.json),
        BenchCommand::Batch(args) => (batch::run(&args).await?, args.common.json),
        BenchCommand::Http(args) => (http::run(&args).await?, args.common.json),
        BenchCommand::Msgpack(args) => (msgpack::run(&args).await?, args.common.json),
        BenchCommand::Translate(args) => (translate::run(&args).await?, args.common.json),
        #[cfg(feature = "cluster")]
        BenchCommand::Cluster(args) => (cluster::run(&args).await?, args.common.json),
        BenchCommand::Live(args) => (live::run(&args).await?, args.common.json),
        BenchCommand::Feed(args) => (feed::run(&args).await?, args.common.json),
        BenchCommand::Age(args) => (age::run(&args).await?, args.common.json),
        BenchCommand::Peer(args) => {
            process::pin(&args.cpu)?;
            return match args.role {
                PeerRole::Fanout => fanout::server::serve().await,
                PeerRole::Bare => fanout::bare::serve(),
                PeerRole::BareHttp => publish::bare::serve(),
                PeerRole::Simulator => push::simulator::serve(args.cpu.len()),
                PeerRole::Fcm => push::fcm::serve(),
                PeerRole::WebPush => push::web_push::serve(),
                PeerRole::Feed => feed::serve(),
            };
        }
    };
    report.print(json)
}
