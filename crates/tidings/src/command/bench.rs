//! `tidings bench`: what each part does on this machine.

use tidings_bench::{BenchCommand, BenchError};

use super::CommandError;

pub(crate) async fn run(command: BenchCommand) -> Result<(), CommandError> {
    tidings_bench::run(command).await.map_err(|error| match error {
        BenchError::Config(error) => error.into(),
        BenchError::Serve(error) => error.into(),
        BenchError::Http(error) => error.into(),
        BenchError::Usage(why) => CommandError::Usage(why),
        BenchError::Failed(why) => CommandError::Failed(why),
        BenchError::Terminal(error) => error.into(),
    })
}
