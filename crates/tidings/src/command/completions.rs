//! `tidings completions`: the script that lets a shell complete commands and options.

use clap::CommandFactory as _;

use super::CommandError;
use crate::cli::{Cli, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidings", &mut script);
    Ok(tidings_server::output::line(String::from_utf8_lossy(&script).trim_end())?)
}
