//! `[fcm.<name>]`: a service account, and connections to Firebase.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{Credential, GatewayConfig, OAuth, Room, StartError};
use tidings_push::fcm as push;
use tidings_push::fcm::oauth::ServiceAccount;
use tidings_push::{Lakes, PoolGauge};

use super::credential::{CredentialError, ProviderError, authority, ca_pem, read};
use tidings_config::{Fcm, Ramp};

/// Google closes connections that ping more often ("too many pings").
const PING_INTERVAL_MIN: Duration = Duration::from_secs(30);

fn account(path: &Path) -> Result<ServiceAccount, CredentialError> {
    let error = |source| CredentialError::Account { path: path.display().to_string(), source };
    ServiceAccount::parse(read(path)?.as_bytes()).map_err(error)
}

fn path(fcm: &Fcm) -> &Path {
    let Some(file) = &fcm.service_account_file else {
        unreachable!("the check of the configuration lets no section without a credential pass");
    };
    file
}

fn tokens(account: ServiceAccount, path: &Path) -> Result<Credential, CredentialError> {
    let error = |source| CredentialError::TokenUri { path: path.display().to_string(), source };
    Ok(Credential::OAuth(Arc::new(OAuth::new(account).map_err(error)?)))
}

/// Reads the credential of a section from its file, for a gateway that sends for `project`.
pub(super) fn credential(fcm: &Fcm, project: &str) -> Result<Credential, CredentialError> {
    let path = path(fcm);
    let account = account(path)?;
    if account.project() != project {
        let (found, used) = (account.project().to_owned(), project.to_owned());
        return Err(CredentialError::Project { path: path.display().to_string(), found, used });
    }
    tokens(account, path)
}

/// What its lakes and connections have room for.
pub(super) fn room(fcm: &Fcm) -> Room {
    let in_flight = fcm.connection_count_max * fcm.stream_count_max;
    Room { waiting: Lakes::room(fcm.lake_capacity), in_flight, ..Room::default() }
}

/// The gateway's settings, and the project that it sends for.
pub(super) fn gateway(name: &str, fcm: &Fcm, gauge: Arc<PoolGauge>) -> Result<(GatewayConfig, String), ProviderError> {
    let wrong_name = |_| StartError::ServerName(fcm.host.clone());
    let account = account(path(fcm))?;
    let project = account.project().to_owned();
    let dialect = push::Fcm::new(&authority(&fcm.host, fcm.port), &project).map_err(wrong_name)?;
    let config = GatewayConfig {
        name: name.to_owned(),
        dialect: Arc::new(dialect),
        host: fcm.host.clone(),
        port: fcm.port,
        addresses: Vec::new(),
        server_name: fcm.host.clone(),
        ca_pem: ca_pem(fcm.ca_file.as_deref())?,
        credential: tokens(account, path(fcm))?,
        connection_count_min: fcm.connection_count,
        connection_count_max: fcm.connection_count_max,
        thread_count: fcm.thread_count,
        streams_max: u32::try_from(fcm.stream_count_max).unwrap_or(u32::MAX),
        quota_per_minute: Some(fcm.quota_per_minute),
        quota_ramp: match fcm.ramp {
            Ramp::None => Duration::ZERO,
            Ramp::Minute => Duration::from_secs(60),
        },
        rate_floor: None,
        connect_timeout: fcm.connect_timeout,
        stall_timeout: fcm.stall_timeout,
        answer_timeout: fcm.answer_timeout,
        ping_idle: None,
        ping_interval_min: PING_INTERVAL_MIN,
        gauge,
    };
    Ok((config, project))
}
