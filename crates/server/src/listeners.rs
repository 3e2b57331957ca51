//! The open listeners, and what they answer with. Other routes may take the place of those while they serve: a server of a
//! cluster answers otherwise when it leads.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tidings_api::ReadyListener;
use tidings_config::{Config, Tls as TlsSection};
use tidings_telemetry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::info;

use crate::error::ServeError;
use crate::listener::{self, Admission, StopBy};
use crate::settings::{bind, listener_limits};
use crate::tls::Tls;

/// What the listeners answer with.
#[derive(Clone)]
pub(super) struct Routes {
    /// For clients, and for everybody if there is no internal listener.
    pub(super) public: Router,
    /// For back ends and operators, if there is an internal listener.
    pub(super) internal: Router,
}

/// The open listeners.
pub(super) struct Listeners {
    addr: SocketAddr,
    tls_addr: Option<SocketAddr>,
    internal_addr: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    public: watch::Sender<Router>,
    internal: watch::Sender<Router>,
    stop: watch::Sender<StopBy>,
    /// Those that do not serve yet: connections wait in the system's queue.
    bound: Vec<Bound>,
    /// They end when they are told to.
    tasks: JoinSet<()>,
}

/// A listener that does not serve yet.
struct Bound {
    listener: TcpListener,
    routes: watch::Receiver<Router>,
    admission: Arc<Admission>,
    tls: Option<Arc<Tls>>,
}

impl Listeners {
    /// Opens them. They serve when there are [routes](Self::answer_with).
    pub(super) fn open(config: &Config, registry: &Registry) -> Result<Self, ServeError> {
        let (public, public_routes) = watch::channel(Router::new());
        let (internal, internal_routes) = watch::channel(Router::new());
        let mut bound = Vec::new();
        let mut add = |(listener, _), routes, admission, tls| bound.push(Bound { listener, routes, admission, tls });
        let http = &config.http;
        let (plain, inside) = (bind(http.listen)?, http.internal_listen.map(bind).transpose()?);
        let tls = Tls::start(&http.tls)?;
        tls.iter().for_each(|tls| tls.register(registry));
        let secure = http.tls.listen.map(bind).transpose()?;
        let (addr, internal_addr) = (plain.1, inside.as_ref().map(|(_, addr)| *addr));
        let tls_addr = secure.as_ref().map(|(_, addr)| *addr).or(tls.as_ref().map(|_| addr));
        let limits = listener_limits(config);
        if let Some(inside) = inside {
            add(inside, internal_routes, Admission::internal(limits, registry), None);
        }
        let admission = Admission::public(limits, registry);
        match secure {
            None => add(plain, public_routes, admission, tls.clone()),
            Some(secure) => {
                add(plain, public_routes.clone(), admission.clone(), None);
                add(secure, public_routes, admission, tls.clone());
            }
        }
        let (stop, tasks) = (watch::channel(None).0, JoinSet::new());
        Ok(Self { addr, tls_addr, internal_addr, tls, public, internal, stop, bound, tasks })
    }

    /// From the next request on, these routes answer, also on connections that are open.
    pub(super) fn answer_with(&mut self, routes: Routes) {
        drop(self.public.send_replace(routes.public));
        drop(self.internal.send_replace(routes.internal));
        if self.bound.is_empty() {
            return;
        }
        for Bound { listener, routes, admission, tls } in self.bound.drain(..) {
            self.tasks.spawn(listener::serve(listener, routes, admission, tls, self.stop.subscribe()));
        }
        let [tls_addr, internal_addr] =
            [self.tls_addr, self.internal_addr].map(|addr| addr.map(tracing::field::display));
        info!(addr = %self.addr, tls_addr, internal_addr, "Listening");
    }

    /// Where clients connect.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where clients connect with TLS; may be [`Listeners::addr`].
    pub(super) fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_addr
    }

    /// Where the API is.
    pub(super) fn api_addr(&self) -> SocketAddr {
        self.internal_addr.unwrap_or(self.addr)
    }

    /// What `/ready` calls them.
    pub(super) fn named(&self) -> Vec<ReadyListener> {
        let own = self.tls_addr.filter(|tls| *tls != self.addr);
        let all = [("public", Some(self.addr)), ("tls", own), ("internal", self.internal_addr)];
        all.into_iter().filter_map(|(name, address)| Some(ReadyListener { name, address: address? })).collect()
    }

    /// Whether they were told to stop.
    pub(super) fn stopping(&self) -> watch::Receiver<StopBy> {
        self.stop.subscribe()
    }

    /// Takes over the certificate of this section.
    pub(super) fn reload(&self, section: &TlsSection) {
        if let Some(tls) = &self.tls {
            tls.reload(section);
        }
    }

    /// From now on, nothing more is accepted, and requests in work are finished. At `stop_by` they are cut off.
    pub(super) fn begin_to_stop(&self, stop_by: Instant) {
        self.stop.send_replace(Some(stop_by));
    }

    /// Waits until all requests have ended or were cut off.
    pub(super) async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
