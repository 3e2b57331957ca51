//! What all threads and connections of a simulator use, and what running connections are told.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::ledger::Ledger;
use crate::provider::Provider;
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

/// What running connections are told.
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

    /// Changes who may send.
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

/// What a connection begins with.
pub(crate) struct Seat<P: Provider> {
    pub(crate) shared: Arc<Shared<P>>,
    pub(crate) rng: Xoshiro256PlusPlus,
    /// The address of ours that it has reached.
    pub(crate) local: Option<IpAddr>,
    pub(crate) first: Orders<P>,
}

impl<P: Provider> Orders<P> {
    /// Whether a connection to this address of ours is to end, and how.
    pub(crate) fn end_of(&self, local: Option<IpAddr>) -> Option<End> {
        let is_dead = local.is_some_and(|local| self.faults.dead_addresses.contains(&local));
        if self.is_stopping { Some(End::Close) } else { is_dead.then_some(End::Reset) }
    }
}

/// How a connection is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Close,
    Reset,
}

// Derived, it would ask for a clonable provider.
impl<P: Provider> Clone for Orders<P> {
    fn clone(&self) -> Self {
        Self { faults: self.faults.clone(), credentials: self.credentials.clone(), is_stopping: self.is_stopping }
    }
}
