//! The push providers. For each section of `[apns]`, `[fcm]` and `[web_push]` this module makes the sender's pools and
//! their gateways. It reads the credential from the section's files, and reads the files again on a reload.
//!
//! A wrong file makes the start fail. On a reload it does no harm: the gateway keeps its credential, and the log says
//! which file is wrong, or that the file is of another Firebase project. Sections with the same signing key share its
//! tokens, because Apple refuses senders that make too many tokens.

mod apns;
mod credential;
mod fcm;
mod pool;
mod web_push;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;

use tidings_api::{ProviderStatus, ReadyProvider, Rfc3339};
use tidings_gateway::{AccessError, Condition, Credential, Gateway, Health, HealthWatch, Room, WebPushGateway};
use tidings_push::apns::ProviderKeys;
use tidings_push::{Lakes, OutcomeSink};
use tidings_sender::Pool;
use tidings_telemetry::{Registry, chain, unix_now};
use tidings_types::Provider;
use tokio::time::Instant;
use tracing::{error, info};

use tidings_config::Config;

use credential::ca_pem;
pub(super) use credential::read;
pub use credential::{CredentialError, ProviderError};
use pool::pool;

/// A gateway cannot use the current content of its files.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("cannot use {trusted} as trusted certificates")]
    Access { trusted: String, source: AccessError },
}

/// A section, before its gateways run.
pub(super) struct Section {
    pub(super) provider: Provider,
    pub(super) name: String,
    /// What sender and gateways share: one pool. Web Push has one pool for each rule about hosts, so that a push
    /// service that takes nothing does not delay the others.
    pub(super) pools: Vec<Pool>,
}

/// All sections, in the order of providers and names.
pub(super) fn sections(config: &Config) -> Vec<Section> {
    let section = |pools: Vec<Pool>, name: &str| Section { provider: pools[0].provider, name: name.to_owned(), pools };
    let apns = config.apns.iter().map(|(name, apns)| {
        let quarantine = (apns.quarantine_connection_count > 0).then(|| Lakes::new(apns.lake_capacity));
        let usual = pool(Provider::Apns, name, &apns.apps, apns.lake_capacity);
        section(vec![Pool { environment: apns.environment, quarantine, ..usual }], name)
    });
    let fcm = config.fcm.iter();
    let fcm = fcm.map(|(name, fcm)| section(vec![pool(Provider::Fcm, name, &fcm.apps, fcm.lake_capacity)], name));
    let web = config.web_push.iter().map(|(name, web)| section(web_push::pools(name, web), name));
    apns.chain(fcm).chain(web).collect()
}

/// The apps of all pools.
pub(super) fn lane_count(config: &Config) -> usize {
    let (apns, fcm) = (config.apns.values().map(|it| it.apps.len()), config.fcm.values().map(|it| it.apps.len()));
    let web = config.web_push.values().map(|it| web_push::origin_counts(it).len() * it.apps.len());
    apns.chain(fcm).chain(web).sum::<usize>().max(1)
}

/// What the lakes and gateways of all sections have room for.
pub(super) fn room(config: &Config) -> Room {
    let (apns, fcm) = (config.apns.values().map(apns::room), config.fcm.values().map(fcm::room));
    let all = apns.chain(fcm).chain(config.web_push.values().map(web_push::room));
    all.fold(Room::default(), |sum, it| Room {
        waiting: sum.waiting + it.waiting,
        in_flight: sum.in_flight + it.in_flight,
        browser_connections: sum.browser_connections + it.browser_connections,
    })
}

/// All gateways.
#[derive(Default)]
pub(super) struct Providers {
    keys: ProviderKeys,
    all: Vec<Running>,
}

struct Running {
    provider: Provider,
    /// The section's.
    name: String,
    gateway: AnyGateway,
}

enum AnyGateway {
    /// The main gateway, and the quarantine's gateway.
    Apns(Vec<Gateway>),
    /// It sends for this project.
    Fcm {
        gateway: Gateway,
        project: String,
    },
    WebPush(WebPushGateway),
}

impl Providers {
    /// Starts the gateways of a section.
    pub(super) fn add(
        &mut self,
        config: &Config,
        section: Section,
        sink: Arc<dyn OutcomeSink>,
        registry: &Registry,
    ) -> Result<(), ProviderError> {
        let Section { provider, name, pools } = section;
        let start = |config, lakes: &Lakes| Gateway::start(config, lakes.clone(), sink.clone(), registry);
        let gateway = match provider {
            Provider::Apns => {
                let Pool { lakes, quarantine, gauge, .. } = &pools[0];
                let apns = &config.apns[&name];
                let main = apns::gateway(&name, apns, &self.keys, gauge.clone().unwrap_or_default())?;
                let aside = quarantine.as_ref().map(|lakes| (apns::quarantine(main.clone(), apns), lakes));
                let started = [(main, lakes)].into_iter().chain(aside).map(|(config, lakes)| start(config, lakes));
                AnyGateway::Apns(started.collect::<Result<_, _>>()?)
            }
            Provider::Fcm => {
                let Pool { lakes, gauge, .. } = &pools[0];
                let (config, project) = fcm::gateway(&name, &config.fcm[&name], gauge.clone().unwrap_or_default())?;
                AnyGateway::Fcm { gateway: start(config, lakes)?, project }
            }
            Provider::WebPush => {
                let web_push = &config.web_push[&name];
                let (config, services) = (web_push::gateway(&name, web_push)?, web_push::services(web_push, pools));
                AnyGateway::WebPush(WebPushGateway::start(config, services, sink, registry)?)
            }
        };
        self.all.push(Running { provider, name, gateway });
        Ok(())
    }

    /// The state of each provider, kept up to date.
    pub(super) fn watch(&self) -> impl Fn() -> Vec<ReadyProvider> + Clone + Send + Sync + use<> {
        let since = unix_now();
        let watched = |Running { provider, name, gateway }: &Running| {
            let watch = match gateway {
                AnyGateway::Apns(gateways) => gateways.first().map(Gateway::health),
                AnyGateway::Fcm { gateway, .. } => Some(gateway.health()),
                AnyGateway::WebPush(_) => None, // There is no single service to be connected to.
            };
            (*provider, name.clone(), watch)
        };
        let all: Vec<_> = self.all.iter().map(watched).collect();
        move || {
            let ready = |(provider, name, watch): &(Provider, String, Option<HealthWatch>)| {
                let (status, since) = watch.as_ref().map_or((ProviderStatus::OnDemand, since), |watch| {
                    let Health { condition, since } = watch.health();
                    (status(condition), since)
                });
                ReadyProvider { provider: *provider, name: name.clone(), status, since: Rfc3339(since) }
            };
            all.iter().map(ready).collect()
        }
    }

    /// Reads the sections' credentials and trusted certificates from their files again, and logs the result. Nothing
    /// else of a section changes, and no section is added or removed.
    pub(super) fn reload(&self, config: &Config) {
        for running in &self.all {
            let (provider, section) = (running.provider.as_str(), &running.name);
            match self.reload_one(config, running) {
                None => error!(provider, section, "Section is gone, its credential is used until a restart"),
                Some(Ok(true)) => info!(provider, section, "Credential replaced"),
                Some(Ok(false)) => info!(provider, section, "Credential has not changed"),
                Some(Err(error)) => {
                    let error = chain(&error);
                    error!(provider, section, error, "Credential not replaced, the old one is used")
                }
            }
        }
    }

    /// Whether anything was replaced; `None` without such a section.
    fn reload_one(&self, config: &Config, running: &Running) -> Option<Result<bool, ReloadError>> {
        let Running { name, gateway, .. } = running;
        Some(match gateway {
            AnyGateway::Apns(gateways) => {
                let apns = config.apns.get(name)?;
                let credential = apns::credential(apns, &self.keys);
                reload_http2(gateways, credential, apns.ca_file.as_deref())
            }
            AnyGateway::Fcm { gateway, project } => {
                let fcm = config.fcm.get(name)?;
                reload_http2(from_ref(gateway), fcm::credential(fcm, project), fcm.ca_file.as_deref())
            }
            AnyGateway::WebPush(gateway) => {
                let web_push = config.web_push.get(name)?;
                reload(web_push::tokens(web_push), web_push.ca_file.as_deref(), |tokens, ca_pem| {
                    gateway.reload(tokens.clone(), ca_pem)
                })
            }
        })
    }

    /// Waits until each gateway has ended.
    pub(super) async fn drain(self, deadline: Instant) {
        for running in self.all {
            match running.gateway {
                AnyGateway::Apns(gateways) => {
                    for gateway in gateways {
                        gateway.drain(deadline).await;
                    }
                }
                AnyGateway::Fcm { gateway, .. } => _ = gateway.drain(deadline).await,
                AnyGateway::WebPush(gateway) => _ = gateway.drain(deadline).await,
            }
        }
    }
}

fn status(condition: Condition) -> ProviderStatus {
    match condition {
        Condition::Connecting => ProviderStatus::Connecting,
        Condition::Connected => ProviderStatus::Connected,
        Condition::BreakerOpen => ProviderStatus::BreakerOpen,
        Condition::CredentialRefused => ProviderStatus::CredentialRefused,
    }
}

fn reload_http2(
    gateways: &[Gateway],
    credential: Result<Credential, CredentialError>,
    ca_file: Option<&Path>,
) -> Result<bool, ReloadError> {
    let each = |credential: &Credential, ca_pem: Option<&str>| {
        gateways.iter().try_fold(false, |replaced, gateway| Ok(replaced | gateway.reload(credential.clone(), ca_pem)?))
    };
    reload(credential, ca_file, each)
}

fn reload<T>(
    credential: Result<T, CredentialError>,
    ca_file: Option<&Path>,
    gateway: impl FnOnce(&T, Option<&str>) -> Result<bool, AccessError>,
) -> Result<bool, ReloadError> {
    let (credential, ca_pem) = (credential?, ca_pem(ca_file)?);
    gateway(&credential, ca_pem.as_deref()).map_err(|source| {
        let system = || "the system's certificates".to_owned();
        let trusted = ca_file.map_or_else(system, |file| file.display().to_string());
        ReloadError::Access { trusted, source }
    })
}
