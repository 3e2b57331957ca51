//! The server, and the tools around it: reads arguments, hands them to the command, turns its result into the exit code.

#[expect(dead_code, reason = "most settings are read by `serve` only")]
mod config;

mod cli;
mod command;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::command::CommandError;
use crate::command::output::{Kind, chain, remark};

fn main() -> ExitCode {
    let cli = Cli::parse(); // Wrong usage ends here, with 2.
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            remark(Kind::Error, chain(&error));
            error.exit_code()
        }
    }
}

/// The commands besides the server are small: one thread does.
fn run(command: Command) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Config(command) => command::config::run(command).await,
            Command::Token(args) => command::token::run(args).await,
            Command::Publish(args) => command::publish::run(args).await,
            Command::Subscribe(args) => command::subscribe::run(args).await,
            Command::Simulate(command) => command::simulate::run(command).await,
            Command::Serve(_) | Command::Demo(_) | Command::Bench(_) => {
                Err(CommandError::Failed("this build has no server in it".to_owned()))
            }
        }
    })
}
