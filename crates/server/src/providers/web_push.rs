//! `[web_push.<name>]`: a key for the push services of browsers, and connections to whichever of them there are.

use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{SystemNetwork, WebPushConfig};
use tidings_push::PoolGauge;
use tidings_push::web_push::vapid::{VapidKey, VapidTokens};
use tidings_types::EventPriority;

use super::{CredentialError, ProviderError, ca_pem, read};
use tidings_config::WebPush;

/// How long a connection to a push service is kept without use.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The key of a section as its file has it now.
pub(super) fn tokens(web_push: &WebPush) -> Result<Arc<VapidTokens>, CredentialError> {
    let (Some(file), Some(contact)) = (&web_push.vapid_key_file, &web_push.contact) else {
        unreachable!("the check of the configuration lets no section without a key and a contact pass");
    };
    let key = VapidKey::new(&read(file)?, contact)
        .map_err(|source| CredentialError::Vapid { path: file.display().to_string(), source })?;
    Ok(Arc::new(VapidTokens::new(key)))
}

/// For its connections.
pub(super) fn gateway(name: &str, web_push: &WebPush, gauge: Arc<PoolGauge>) -> Result<WebPushConfig, ProviderError> {
    Ok(WebPushConfig {
        name: name.to_owned(),
        vapid: tokens(web_push)?,
        rules: web_push.rules().expect("the check of the configuration lets no wrong host pass"),
        ca_pem: ca_pem(web_push.ca_file.as_deref())?,
        origin_count_max: web_push.origin_count_max,
        connection_count_max: web_push.connection_count_max,
        held_max: EventPriority::ALL.len() * web_push.lake_capacity,
        thread_count: web_push.thread_count,
        connect_timeout: web_push.connect_timeout,
        answer_timeout: web_push.answer_timeout,
        idle_timeout: IDLE_TIMEOUT,
        network: Arc::new(SystemNetwork),
        gauge,
    })
}
