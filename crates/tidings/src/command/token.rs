//! `tidings token`: a connection or subscription token, signed with the configured secret or a private key.

use serde::Serialize;
use tidings_protocol::Admission;
use tidings_protocol::token::{TokenSecret, TokenSigner, sign_connection_token, sign_subscription_token};
use tidings_types::{ChannelName, DeviceId, Json, Timestamp, UserId};

use super::{CommandError, load};
use crate::cli::TokenArgs;
use tidings_config::read_file;
use tidings_server::output::line;

#[derive(Serialize)]
struct Made<'a> {
    token: &'a str,
    /// Seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

pub(crate) async fn run(args: TokenArgs) -> Result<(), CommandError> {
    let signer = match &args.key_file {
        Some(file) => {
            let pem =
                read_file(file).map_err(|source| CommandError::File { action: "read", path: file.clone(), source })?;
            TokenSigner::private_pem(&pem, args.algorithm.as_deref())
        }
        None => TokenSigner::secret(&secret(&args)?, args.algorithm.as_deref()),
    };
    let signer = signer.map_err(|error| CommandError::Usage(format!("cannot sign: {error}")))?;
    let now = tidings_telemetry::unix_now();
    let expires_at = (!args.forever).then(|| now.saturating_add(args.expires_in));
    let token = sign(&args, signer, expires_at, now)?;
    if args.json {
        let made = Made { token: &token, expires_at: expires_at.map(Timestamp::as_secs) };
        line(serde_json::to_string(&made).expect("two plain fields"))?;
    } else {
        line(token)?;
    }
    Ok(())
}

/// The secret of the configuration.
fn secret(args: &TokenArgs) -> Result<TokenSecret, CommandError> {
    let loaded = load(&args.file)?;
    let client = &loaded.config.client;
    let (keys, name) = match &args.channel {
        Some(_) if client.subscription_token.has_keys() => (&client.subscription_token, "subscription_token"),
        _ => (&client.token, "token"),
    };
    let Some(secret) = &keys.hmac_secret else {
        let message = format!(
            "client.{name}.hmac_secret is not set: set it in the configuration file, or TIDINGS_CLIENT__{}__HMAC_SECRET in \
             the environment, or name a private key with --key-file",
            name.to_uppercase()
        );
        return Err(CommandError::Usage(message));
    };
    TokenSecret::new(secret.expose().as_bytes()).map_err(|error| CommandError::Usage(error.to_string()))
}

fn sign(
    args: &TokenArgs,
    signer: TokenSigner,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<String, CommandError> {
    let usage = |error: &dyn std::fmt::Display| CommandError::Usage(error.to_string());
    if !args.user.is_empty() {
        UserId::new(&args.user).map_err(|error| usage(&error))?;
    }
    let info = args.info.as_deref().map(|text| Json::parse(text.as_bytes())).transpose();
    let info = info.map_err(|error| CommandError::Usage(format!("--info is {error}")))?;
    match &args.channel {
        None => {
            let device = args.device.as_deref().map(DeviceId::new).transpose().map_err(|error| usage(&error))?;
            let user = args.user.clone();
            Ok(sign_connection_token(
                signer,
                &Admission { user, device, expires_at, info, ..Admission::default() },
                now,
            ))
        }
        Some(channel) => {
            let channel = ChannelName::new(channel).map_err(|error| usage(&error))?;
            Ok(sign_subscription_token(signer, &args.user, &channel, expires_at, info.as_ref(), now))
        }
    }
}
