//! `[web_push.<name>]`: a key for the push services of browsers, and connections to whichever of them there are.

use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{SystemNetwork, WebPushConfig};
use tidings_push::Lakes;
use tidings_push::web_push::vapid::{VapidKey, VapidTokens};
use tidings_sender::Pool;
use tidings_types::{EventPriority, Provider};
use tracing::warn;

use super::credential::{CredentialError, ProviderError, ca_pem, read};
use super::pool::pool;
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

/// A pool for each rule about hosts: its own lakes, connections and quarantine.
pub(super) fn pools(name: &str, web_push: &WebPush) -> Vec<Pool> {
    let services = web_push.rules().expect("the check of the configuration lets no wrong host pass").by_host();
    if web_push.allow_private {
        warn!(section = name, "Endpoints may be private addresses: for development only");
    }
    let pool = |(host, rules)| {
        let pool = pool(Provider::WebPush, &format!("{name} {host}"), &web_push.apps, web_push.lake_capacity);
        Pool { services: Some(rules), quarantine: Some(Lakes::new(web_push.lake_capacity)), ..pool }
    };
    services.into_iter().map(pool).collect()
}

/// The gateways of these pools, with what each draws from.
pub(super) fn gateways(web_push: &WebPush, pools: &[Pool]) -> Result<Vec<(WebPushConfig, Lakes)>, ProviderError> {
    let (vapid, ca_pem) = (tokens(web_push)?, ca_pem(web_push.ca_file.as_deref())?);
    let mut gateways = Vec::new();
    for Pool { name, services, lakes, quarantine, gauge, .. } in pools {
        let Some(rules) = services.clone() else { continue };
        let main = WebPushConfig {
            name: name.clone(),
            vapid: vapid.clone(),
            origin_count_max: rules.origin_count_max().unwrap_or(web_push.origin_count_max),
            rules,
            ca_pem: ca_pem.clone(),
            connection_count_max: web_push.connection_count_max,
            held_max: EventPriority::ALL.len() * web_push.lake_capacity,
            thread_count: web_push.thread_count,
            connect_timeout: web_push.connect_timeout,
            answer_timeout: web_push.answer_timeout,
            idle_timeout: IDLE_TIMEOUT,
            network: Arc::new(SystemNetwork),
            gauge: gauge.clone().unwrap_or_default(),
        };
        let aside = WebPushConfig { name: format!("{name} quarantine"), gauge: Arc::default(), ..main.clone() };
        gateways.push((main, lakes.clone()));
        gateways.extend(quarantine.clone().map(|lakes| (aside, lakes)));
    }
    Ok(gateways)
}
