//! `tidings demo`: the server at work, with nothing to set up.

use tidings_demo::{DemoArgs, DemoError};

use super::CommandError;

pub(crate) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    tidings_demo::run(args).await.map_err(|error| match error {
        DemoError::Config(error) => error.into(),
        DemoError::Serve(error) => error.into(),
        DemoError::Http(error) => error.into(),
        DemoError::Usage(why) => CommandError::Usage(why),
        DemoError::Failed(why) => CommandError::Failed(why),
        DemoError::File { action, path, source } => CommandError::File { action, path, source },
        DemoError::Terminal(error) => error.into(),
    })
}
