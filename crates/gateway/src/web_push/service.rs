//! Starting and stopping, and giving another key.

use std::sync::Arc;

use rustls::ClientConfig as TlsConfig;
use tidings_http1::{Roots, TlsError};
use tidings_push::web_push::vapid::VapidTokens;
use tidings_push::{Lakes, OutcomeSink};
use tidings_telemetry::Registry;
use tidings_types::Provider;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::info;

use super::config::{WebPushConfig, WebPushService};
use super::driver::Driver;
use super::exchange::Access;
use crate::drain::{Drained, Phase, Worker};
use crate::error::{AccessError, StartError};
use crate::metrics::Metrics;

/// A running gateway to browsers. Dropping it aborts it; prefer [`WebPushGateway::drain`].
pub struct WebPushGateway {
    name: String,
    lakes: Vec<Lakes>,
    phase: watch::Sender<Phase>,
    access: watch::Sender<Arc<Access>>,
    worker: Worker,
}

impl WebPushGateway {
    /// Starts to send what the lakes of `services` hold. Each service has a driver of its own, a task; all of them and their
    /// attempts share the threads.
    ///
    /// # Errors
    /// A setting out of its range, no certificates to trust, no thread. An unreachable push service is not an error:
    /// its notifications wait, and are tried again until they expire.
    pub fn start(
        config: WebPushConfig,
        services: Vec<WebPushService>,
        sink: Arc<dyn OutcomeSink>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        let origins = services.iter().map(|service| ("origin_count_max", service.origin_count_max as u128));
        if let Some((field, _)) = config.minima().into_iter().chain(origins).find(|(_, number)| *number == 0) {
            return Err(StartError::Zero { field });
        }
        let access = Access::new(Arc::clone(&config.vapid), config.ca_pem.clone())?;
        let (phase, phase_rx) = watch::channel(Phase::Work);
        let (access, access_rx) = watch::channel(Arc::new(access));
        let (name, count, config) = (config.name.clone(), services.len(), Arc::new(config));
        let lakes = services.iter().map(|service| service.lakes.clone()).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.thread_count)
            .thread_name("web-push-work")
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let driver = |service: WebPushService| {
            let metrics = Metrics::new(registry, Provider::WebPush, &service.name);
            let (access, phase) = (access_rx.clone(), phase_rx.clone());
            Driver::new(Arc::clone(&config), service, Arc::clone(&sink), metrics, access, phase)
        };
        let drivers = services.into_iter().map(driver).collect();
        let drive = move |runtime: &Runtime| runtime.block_on(run(drivers));
        let worker = Worker::start("web-push".to_owned(), runtime, drive).map_err(StartError::Thread)?;
        info!(provider = "web_push", section = %name, count, "Gateway started");
        Ok(Self { name, lakes, phase, access, worker })
    }

    /// Signs new requests with this key, and makes new connections with these trusted certificates (or, without any,
    /// the system's). With other certificates, open connections end: at once if they are unused, else when their
    /// requests in flight are answered. Returns whether anything is different; if not, nothing happens. While the key
    /// and its contact are the same, current tokens stay in use, because services want few new tokens.
    ///
    /// # Errors
    /// If no connection could be made with them. Then nothing changes.
    pub fn reload(&self, vapid: Arc<VapidTokens>, ca_pem: Option<&str>) -> Result<bool, AccessError> {
        let used = Arc::clone(&self.access.borrow());
        let is_same_key = used.vapid.key().is_same(vapid.key());
        if is_same_key && used.ca_pem.as_deref() == ca_pem {
            return Ok(false);
        }
        let vapid = if is_same_key { Arc::clone(&used.vapid) } else { vapid };
        let access = if used.ca_pem.as_deref() == ca_pem {
            Access { vapid, ca_pem: used.ca_pem.clone(), tls: Arc::clone(&used.tls) }
        } else {
            Access::new(vapid, ca_pem.map(ToOwned::to_owned))?
        };
        self.access.send_replace(Arc::new(access));
        Ok(true)
    }

    /// Closes the lakes, sends what they hold, waits for all outcomes, and ends; at `deadline` it aborts.
    ///
    /// Until then repeats are made as usual, so a service in trouble can take all the time there is.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the gateway.
    pub async fn drain(self, deadline: Instant) -> Drained {
        let Self { name, lakes, phase, access: _access, worker } = self;
        lakes.iter().for_each(Lakes::close);
        phase.send_replace(Phase::Drain);
        let unsettled = worker.end(deadline, &phase).await + lakes.iter().map(Lakes::held).sum::<usize>();
        info!(provider = "web_push", section = %name, count = unsettled, "Gateway drained");
        Drained { unsettled }
    }
}

/// Runs all drivers to their end and resumes a driver's panic. Returns how many notifications they leave unsettled.
async fn run(drivers: Vec<Driver>) -> usize {
    let (mut running, mut unsettled) = (JoinSet::new(), 0);
    drivers.into_iter().for_each(|driver| _ = running.spawn(driver.run()));
    while let Some(ended) = running.join_next().await {
        // Nobody aborts one while this runs.
        unsettled += ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    unsettled
}

impl Access {
    fn new(vapid: Arc<VapidTokens>, ca_pem: Option<String>) -> Result<Self, AccessError> {
        let tls = tls(ca_pem.clone())?;
        Ok(Self { vapid, ca_pem, tls })
    }
}

fn tls(ca_pem: Option<String>) -> Result<Arc<TlsConfig>, AccessError> {
    let config = ca_pem.map_or(Roots::Native, Roots::Pem).client_config().map_err(|error| match error {
        TlsError::NoRoots => AccessError::NoRoots,
        TlsError::Setup(error) => AccessError::Tls(error),
        _ => AccessError::Certificates,
    })?;
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
