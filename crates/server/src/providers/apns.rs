//! `[apns.<name>]`: a signing key or a certificate, and connections to Apple. Devices for which Apple has not accepted
//! anything yet use a second pool of connections.

use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{ClientCertificate, Credential, GatewayConfig, Room, StartError};
use tidings_push::apns::{self, ProviderKey, ProviderKeys};
use tidings_push::{Lakes, PoolGauge};
use tidings_telemetry::unix_now;

use super::credential::{CredentialError, IDLE_PING, ProviderError, authority, ca_pem, read};
use tidings_config::Apns;

/// Notifications per second that the connections for unproven devices send, even if Apple allows one stream per
/// connection.
const QUARANTINE_RATE_FLOOR: u32 = 100;

pub(super) fn credential(apns: &Apns, keys: &ProviderKeys) -> Result<Credential, CredentialError> {
    if let (Some(chain_file), Some(key_file)) = (&apns.certificate_file, &apns.certificate_key_file) {
        let (chain, key) = (read(chain_file)?, read(key_file)?);
        let certificate = ClientCertificate::new(&chain, &key, unix_now()).map_err(|source| {
            let file = if source.is_about_key() { key_file } else { chain_file };
            CredentialError::Certificate { path: file.display().to_string(), source }
        })?;
        if let Some(app) = apns.apps.iter().find(|app| !certificate.covers(app)) {
            let (path, topics) = (chain_file.display().to_string(), certificate.topics().join(", "));
            return Err(CredentialError::Topic { path, app: app.clone(), topics });
        }
        return Ok(Credential::Certificate(Arc::new(certificate)));
    }
    let (Some(file), Some(key_id), Some(team_id)) = (&apns.key_file, &apns.key_id, &apns.team_id) else {
        unreachable!("the check of the configuration lets no section without a credential pass");
    };
    let key = ProviderKey::new(&key_id.0, &team_id.0, &read(file)?)
        .map_err(|source| CredentialError::Key { path: file.display().to_string(), source })?;
    Ok(Credential::Token(keys.tokens(key)))
}

/// For the connections of proven devices.
pub(super) fn gateway(
    name: &str,
    apns: &Apns,
    keys: &ProviderKeys,
    gauge: Arc<PoolGauge>,
) -> Result<GatewayConfig, ProviderError> {
    let wrong_name = |_| StartError::ServerName(apns.host().to_owned());
    let dialect = apns::Apns::new(&authority(apns.host(), apns.port)).map_err(wrong_name)?;
    Ok(GatewayConfig {
        name: name.to_owned(),
        dialect: Arc::new(dialect),
        host: apns.host().to_owned(),
        port: apns.port,
        addresses: Vec::new(),
        server_name: apns.host().to_owned(),
        ca_pem: ca_pem(apns.ca_file.as_deref())?,
        credential: credential(apns, keys)?,
        connection_count_min: apns.connection_count,
        connection_count_max: apns.connection_count_max,
        thread_count: apns.thread_count,
        streams_max: u32::try_from(apns.stream_count_max).unwrap_or(u32::MAX),
        quota_per_minute: None,
        quota_ramp: Duration::ZERO,
        rate_floor: None,
        connect_timeout: apns.connect_timeout,
        stall_timeout: apns.stall_timeout,
        answer_timeout: apns.answer_timeout,
        ping_idle: Some(IDLE_PING),
        ping_interval_min: std::time::Duration::ZERO,
        gauge,
    })
}

/// What its lakes and connections have room for, with those of the quarantine.
pub(super) fn room(apns: &Apns) -> Room {
    let pools = 1 + usize::from(apns.quarantine_connection_count > 0);
    let connections = apns.connection_count_max + apns.quarantine_connection_count;
    let (waiting, in_flight) = (pools * Lakes::room(apns.lake_capacity), connections * apns.stream_count_max);
    Room { waiting, in_flight, ..Room::default() }
}

/// For the connections of unproven devices.
pub(super) fn quarantine(main: GatewayConfig, apns: &Apns) -> GatewayConfig {
    GatewayConfig {
        name: format!("{} quarantine", main.name),
        connection_count_min: 1,
        connection_count_max: apns.quarantine_connection_count,
        thread_count: 1,
        rate_floor: Some(QUARANTINE_RATE_FLOOR),
        gauge: Arc::default(),
        ..main
    }
}
