//! The program `tidings`: reads the arguments, runs the command, and turns its result into the exit code.

mod cli;
mod command;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use tidings_server::command_error::CommandError;
use tidings_server::output::{Kind, remark};
use tidings_server::{data_folder, log};
use tidings_telemetry::chain;
use tokio::runtime::Builder;

use crate::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc; // docs/decisions/0003

/// How long work that nobody waits for any more may go on after a command.
const BLOCKING_PATIENCE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    data_folder::keep_private(); // Before there is a second thread: the umask belongs to the whole process.
    tidings_telemetry::panics::install(log::last_words);
    let cli = Cli::parse(); // Wrong usage ends here, with 2.
    let code = match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            match error.json() {
                Some(json) => log::line(&format!("{json}\n")),
                None => remark(Kind::Error, chain(&error)),
            }
            error.exit_code()
        }
    };
    log::flush(); // The last lines matter most.
    code
}

/// Commands that run a server use every core. For the others one thread is enough.
fn run(command: Command) -> Result<(), CommandError> {
    let has_server = match &command {
        Command::Serve(_) => true,
        #[cfg(feature = "demo")]
        Command::Demo(_) => true,
        #[cfg(feature = "bench")]
        Command::Bench(_) => true,
        _ => false,
    };
    let mut builder = if has_server { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.enable_all().build()?;
    let done = runtime.block_on(async {
        match command {
            Command::Serve(args) => command::serve::run(args).await,
            #[cfg(feature = "demo")]
            Command::Demo(args) => tidings_demo::run(args).await,
            Command::Publish(args) => command::publish::run(args).await,
            Command::Subscribe(args) => command::subscribe::run(args).await,
            #[cfg(feature = "simulate")]
            Command::Simulate(command) => command::simulate::run(command).await,
            Command::Token(args) => command::token::run(args).await,
            Command::Devices(command) => command::client::devices(command).await,
            Command::Users(command) => command::client::users(command).await,
            Command::Audience(args) => command::client::audience(args).await,
            Command::Feeds(command) => command::client::feeds(command).await,
            Command::Jobs(command) => command::client::jobs(command).await,
            Command::Why(args) => command::client::why(args).await,
            Command::Audit(args) => command::client::audit(args).await,
            Command::Preview(args) => command::preview::run(args).await,
            Command::Translations(command) => command::translations::run(command).await,
            Command::WebPush(command) => command::web_push::run(command).await,
            Command::Store(command) => command::store::run(command).await,
            #[cfg(feature = "cluster")]
            Command::Cluster(command) => command::cluster::run(command).await,
            Command::Config(command) => command::config::run(command).await,
            Command::Completions(args) => command::completions::run(&args),
            #[cfg(feature = "bench")]
            Command::Bench(command) => tidings_bench::run(command).await,
        }
    });
    // What still runs was given up, such as the reading of a document. Waiting for it would keep the process.
    runtime.shutdown_timeout(BLOCKING_PATIENCE);
    done
}
