//! `tidings users`: exports or erases everything that is stored about a user.

use hyper::Method;
use serde::Deserialize;

use super::api::{ApiClient, parse, segment};
use super::bulk::Out;
use super::devices::call;
use crate::cli::UsersCommand;
use crate::command::CommandError;

pub(crate) async fn run(command: UsersCommand) -> Result<(), CommandError> {
    match command {
        UsersCommand::Export { user, out, api } => {
            let (client, mut out) = (ApiClient::new(&api)?, Out::new(&out)?);
            let mut written = Ok(());
            let path = format!("/v1/users/{}/export", segment(&user));
            let taken = client.stream(&path, "application/json", |piece| {
                written = out.write(piece);
                written.is_ok()
            });
            let taken = taken.await;
            if let Err(error) = written.and(taken) {
                out.discard();
                return Err(error);
            }
            out.write(b"\n")?;
            out.finish()
        }
        UsersCommand::Erase { user, yes: _, api } => {
            #[derive(Deserialize)]
            struct Erased {
                devices: u64,
            }
            let path = format!("/v1/users/{}", segment(&user));
            call(&api, Method::DELETE, &path, None, |answer| {
                Ok(format!("{} devices forgotten", parse::<Erased>(answer)?.devices))
            })
            .await
        }
    }
}
