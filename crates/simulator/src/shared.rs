//! What the threads and connections of a simulator share, and what a connection knows about its client.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};
use tidings_types::Timestamp;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::Fate;
use crate::ledger::Ledger;
use crate::provider::{Answer, Provider, RequestContext};
use crate::quota::Quota;
use crate::{Faults, FaultsError};

/// What all threads and connections use.
pub(crate) struct Shared<P: Provider> {
    pub(crate) provider: P,
    pub(crate) ledger: Arc<Ledger<P::Refusal>>,
    pub(crate) seed: u64,
    pub(crate) connection_count_max: usize,
    pub(crate) tls: TlsAcceptor,
    pub(crate) orders: watch::Sender<Orders<P>>,
    pub(crate) connection_total: AtomicU64,
    pub(crate) quota: Quota,
}

/// What can change while connections run. Each connection watches it.
pub(crate) struct Orders<P: Provider> {
    pub(crate) faults: Arc<Faults<P::Refusal>>,
    pub(crate) credentials: P::Credentials,
    pub(crate) is_stopping: bool,
}

impl<P: Provider> Shared<P> {
    pub(crate) fn faults(&self) -> Arc<Faults<P::Refusal>> {
        self.orders.borrow().faults.clone()
    }

    pub(crate) fn set_faults(&self, faults: Faults<P::Refusal>) -> Result<(), FaultsError> {
        faults.check()?;
        self.orders.send_modify(|orders| orders.faults = Arc::new(faults));
        Ok(())
    }

    pub(crate) fn set_credentials(&self, change: impl FnOnce(&mut P::Credentials)) {
        self.orders.send_modify(|orders| change(&mut orders.credentials));
    }

    /// The random numbers of the next connection.
    pub(crate) fn next_rng(&self) -> Xoshiro256PlusPlus {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let number = self.connection_total.fetch_add(1, Relaxed);
        Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64() ^ number)
    }
}

/// The client of one connection, over HTTP/2 or HTTP/1.1.
pub(crate) struct Client<P: Provider> {
    pub(crate) shared: Arc<Shared<P>>,
    pub(crate) faults: Arc<Faults<P::Refusal>>,
    pub(crate) rng: Xoshiro256PlusPlus,
    /// The address of the simulator that the client has connected to.
    pub(crate) local: Option<IpAddr>,
    pub(crate) session: P::Session,
    /// Push requests so far.
    pub(crate) request_total: u64,
}

impl<P: Provider> Client<P> {
    /// Takes over changed faults and credentials. The answer is how the connection must end now, if it must.
    pub(crate) fn follow(&mut self, orders: &mut watch::Receiver<Orders<P>>) -> Option<End> {
        let now = orders.borrow_and_update().clone();
        if now.is_stopping {
            return Some(End::Close);
        }
        if self.local.is_some_and(|local| now.faults.dead_addresses.contains(&local)) {
            return Some(End::Reset);
        }
        self.shared.provider.set_credentials(&mut self.session, now.credentials);
        self.faults = now.faults;
        None
    }

    /// Counts a push request, and draws what the faults do to it.
    pub(crate) fn draw_fate(&mut self) -> Fate<P::Refusal> {
        self.request_total += 1;
        self.faults.draw_fate(&mut self.rng)
    }

    /// Whether the connection has had as many requests as it may have before a GOAWAY.
    pub(crate) fn is_goaway_due(&self) -> bool {
        let every = self.faults.goaway_every;
        every > 0 && self.request_total >= every
    }

    /// Accepts or refuses a complete push request, and records which.
    pub(crate) fn judge(&mut self, head: P::Head, body: &[u8], fate: &Fate<P::Refusal>, now: Timestamp) -> Answer {
        let shared = &*self.shared;
        let mut context = RequestContext {
            ledger: &shared.ledger,
            quota: &shared.quota,
            seed: shared.seed,
            faults: &self.faults,
            fate,
            rng: &mut self.rng,
            now,
        };
        shared.provider.judge(&mut self.session, head, body, &mut context)
    }
}

/// How the simulator ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Close,
    Reset,
}

// `derive` would require a clonable provider.
impl<P: Provider> Clone for Orders<P> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), credentials: self.credentials.clone(), is_stopping: self.is_stopping }
    }
}
