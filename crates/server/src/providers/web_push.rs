//! `[web_push.<name>]`: a key for the push services of browsers, and connections to those that devices use.

use std::sync::Arc;
use std::time::Duration;

use tidings_gateway::{Room, SystemNetwork, WebPushConfig, WebPushService};
use tidings_push::Lakes;
use tidings_push::web_push::guard::EndpointRules;
use tidings_push::web_push::vapid::{VapidKey, VapidTokens};
use tidings_sender::Pool;
use tidings_types::{EventPriority, Provider};
use tracing::warn;

use super::credential::{CredentialError, ProviderError, ca_pem, read};
use super::pool::pool;
use tidings_config::WebPush;

/// How long an unused connection to a push service is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

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
        warn!(section = name, "Private addresses are allowed as endpoints: use this for development only");
    }
    let pool = |(host, rules)| {
        let pool = pool(Provider::WebPush, &format!("{name} {host}"), &web_push.apps, web_push.lake_capacity);
        Pool { services: Some(rules), quarantine: Some(Lakes::new(web_push.lake_capacity)), ..pool }
    };
    services.into_iter().map(pool).collect()
}

/// The most origins of each pool.
pub(super) fn origin_counts(web_push: &WebPush) -> Vec<usize> {
    let services = web_push.rules().map_or(Vec::new(), |rules| rules.by_host());
    services.into_iter().map(|(_, rules)| origin_count(web_push, &rules)).collect()
}

fn origin_count(web_push: &WebPush, rules: &EndpointRules) -> usize {
    rules.origin_count_max().unwrap_or(web_push.origin_count_max)
}

/// What its lakes and connections have room for: each service has a pool and a quarantine, and the gateway itself holds as
/// many notifications as its lakes.
pub(super) fn room(web_push: &WebPush) -> Room {
    let origins = origin_counts(web_push);
    let waiting = 2 * 2 * origins.len() * Lakes::room(web_push.lake_capacity);
    let browser_connections = 2 * origins.iter().sum::<usize>() * web_push.connection_count_max;
    Room { waiting, browser_connections, ..Room::default() }
}

pub(super) fn gateway(name: &str, web_push: &WebPush) -> Result<WebPushConfig, ProviderError> {
    Ok(WebPushConfig {
        name: name.to_owned(),
        vapid: tokens(web_push)?,
        ca_pem: ca_pem(web_push.ca_file.as_deref())?,
        connection_count_max: web_push.connection_count_max,
        held_max: EventPriority::ALL.len() * web_push.lake_capacity,
        thread_count: web_push.thread_count,
        connect_timeout: web_push.connect_timeout,
        answer_timeout: web_push.answer_timeout,
        idle_timeout: IDLE_TIMEOUT,
        network: Arc::new(SystemNetwork),
    })
}

/// The services of these pools: for each pool the proven endpoints and the quarantine.
pub(super) fn services(web_push: &WebPush, pools: Vec<Pool>) -> Vec<WebPushService> {
    let services = |Pool { name, services, lakes, quarantine, gauge, .. }: Pool| {
        let rules = services?;
        let origin_count_max = origin_count(web_push, &rules);
        let gauge = gauge.unwrap_or_default();
        let main = WebPushService { name, rules, origin_count_max, lakes, gauge };
        let name = format!("{} quarantine", main.name);
        let aside = quarantine.map(|lakes| WebPushService { name, lakes, gauge: Arc::default(), ..main.clone() });
        Some([main].into_iter().chain(aside))
    };
    pools.into_iter().filter_map(services).flatten().collect()
}
