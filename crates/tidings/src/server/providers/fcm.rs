//! `[fcm.<name>]`: a service account, and connections to Firebase.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{Credential, GatewayConfig, OAuth, StartError};
use tidings_push::PoolGauge;
use tidings_push::fcm as push;
use tidings_push::fcm::oauth::ServiceAccount;

use super::{CredentialError, ProviderError, authority, ca_pem, read};
use crate::config::Fcm;

/// Google closes connections that ask for signs of life more often ("too many pings").
const PING_INTERVAL_MIN: Duration = Duration::from_secs(30);

fn account(fcm: &Fcm) -> Result<ServiceAccount, CredentialError> {
    let Some(file) = &fcm.service_account_file else {
        unreachable!("the check of the configuration lets no section without a credential pass");
    };
    ServiceAccount::parse(read(file)?.as_bytes())
        .map_err(|source| CredentialError::Account { path: file.display().to_string(), source })
}

/// The credential of a section as its file has it now.
pub(super) fn credential(fcm: &Fcm) -> Result<Credential, CredentialError> {
    let path = || fcm.service_account_file.as_deref().unwrap_or(Path::new("")).display().to_string();
    let oauth = OAuth::new(account(fcm)?).map_err(|source| CredentialError::TokenUri { path: path(), source })?;
    Ok(Credential::OAuth(Arc::new(oauth)))
}

/// For its connections.
pub(super) fn gateway(name: &str, fcm: &Fcm, gauge: Arc<PoolGauge>) -> Result<GatewayConfig, ProviderError> {
    let wrong_name = |_| StartError::ServerName(fcm.host.clone());
    let account = account(fcm)?;
    let dialect = push::Fcm::new(&authority(&fcm.host, fcm.port), account.project()).map_err(wrong_name)?;
    Ok(GatewayConfig {
        name: name.to_owned(),
        dialect: Arc::new(dialect),
        host: fcm.host.clone(),
        port: fcm.port,
        addresses: Vec::new(),
        server_name: fcm.host.clone(),
        ca_pem: ca_pem(fcm.ca_file.as_deref())?,
        credential: credential(fcm)?,
        connection_count_min: fcm.connection_count,
        connection_count_max: fcm.connection_count_max,
        thread_count: fcm.thread_count,
        streams_max: u32::try_from(fcm.stream_count_max).unwrap_or(u32::MAX),
        quota_per_minute: Some(fcm.quota_per_minute),
        rate_floor: None,
        connect_timeout: fcm.connect_timeout,
        stall_timeout: fcm.stall_timeout,
        answer_timeout: fcm.answer_timeout,
        ping_idle: None,
        ping_interval_min: PING_INTERVAL_MIN,
        gauge,
    })
}
