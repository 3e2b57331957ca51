//! The device that a request is about, by one who may: a backend with a key, or the app on it.
//!
//! Where apps call for themselves, changes of one device take turns: what was found when an app was let in is so until its
//! change is done, also when a backend logs the device out at that moment.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidings_telemetry::unix_now;
use tidings_types::{Device, DeviceId, Subject, UserId};
use tokio::sync::{Mutex, MutexGuard};
use tracing::debug;

use crate::Shared;
use crate::apps::{App, Gate};
use crate::guard::IdPath;
use crate::problem::{Invalid, Problem};

/// Groups of devices that take turns; a device is always in the same one.
const TURN_COUNT: usize = 1024;

/// One change at a time per device: a lock for each of a fixed number of groups of devices.
#[derive(Debug)]
pub(crate) struct Turns {
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { locks: (0..TURN_COUNT).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

impl Turns {
    async fn take(&self, id: &DeviceId) -> MutexGuard<'_, ()> {
        self.locks[self.hasher.hash_one(id) as usize % self.locks.len()].lock().await
    }
}

/// The device that the path names, and the app if it is one that asks. Nothing is found out yet: that comes when the
/// request's body is there, by one of the methods.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: DeviceId,
    app: Option<App>,
}

impl FromRequestParts<Arc<Shared>> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let IdPath(id) = IdPath::from_request_parts(parts, shared).await?;
        Ok(Self { id, app: parts.extensions.get::<App>().cloned() })
    }
}

impl Target {
    /// To look at the device.
    ///
    /// # Errors
    /// As all of these: 404 where an app's device is another, 429 where the app asks too fast.
    pub(crate) async fn read(&self, shared: &Shared) -> Result<(), Problem> {
        self.admit(shared).await
    }

    /// To change the device, once this has its turn.
    pub(crate) async fn change<'s>(&self, shared: &'s Shared) -> Result<Option<MutexGuard<'s, ()>>, Problem> {
        match shared.gate {
            Some(_) => self.change_alone(shared).await.map(Some),
            None => Ok(None),
        }
    }

    /// The same where changes take turns in any case.
    pub(crate) async fn change_alone<'s>(&self, shared: &'s Shared) -> Result<MutexGuard<'s, ()>, Problem> {
        let turn = shared.turns.take(&self.id).await;
        self.admit(shared).await?;
        Ok(turn)
    }

    /// To put the device, which may not be there; whoever has this turn asks [`Target::owner`] next.
    pub(crate) async fn turn<'s>(&self, shared: &'s Shared) -> Option<MutexGuard<'s, ()>> {
        match shared.gate {
            Some(_) => Some(shared.turns.take(&self.id).await),
            None => None,
        }
    }

    /// Whether a backend asks, which is believed in everything.
    pub(crate) fn is_trusted(&self) -> bool {
        self.app.is_none()
    }

    /// Has the device pay for the request, if an app asks.
    pub(crate) fn charge(&self, shared: &Shared) -> Result<(), Problem> {
        self.of_app(shared).map_or(Ok(()), |(gate, app)| gate.charge_device(app, &shared.store, &self.id))
    }

    /// Lets an app in before the device that it finds is put, and tells whose it is then; a backend says that itself.
    pub(crate) fn owner(
        &self,
        shared: &Shared,
        known: Option<&Device>,
        stated: Option<UserId>,
    ) -> Result<Option<UserId>, Problem> {
        let Some((gate, app)) = self.of_app(shared) else { return Ok(stated) };
        gate.admit(app, &shared.store, &self.id, known)?;
        gate.user_of(app, &shared.store, known)
    }

    /// Refuses what is for backends to say.
    pub(crate) fn refuse_to_app<T>(&self, field: &str, stated: Option<&T>, why: &str) -> Result<(), Invalid> {
        if self.is_trusted() || stated.is_none() { Ok(()) } else { Err(Invalid::new(field, why)) }
    }

    /// Whether these may be added to the device's subscriptions.
    pub(crate) fn check_subjects<'p>(
        &self,
        shared: &Shared,
        added: impl Iterator<Item = &'p Subject>,
    ) -> Result<(), Problem> {
        self.of_app(shared).map_or(Ok(()), |(gate, _)| gate.check_subjects(added))
    }

    async fn admit(&self, shared: &Shared) -> Result<(), Problem> {
        let Some((gate, app)) = self.of_app(shared) else { return Ok(()) };
        gate.charge_device(app, &shared.store, &self.id)?;
        let known = shared.store.device(&self.id)?;
        gate.admit(app, &shared.store, &self.id, known.as_ref())?;
        let now = unix_now();
        if known.is_some_and(|device| device.seen_at < now.start_of_day())
            && let Err(error) = shared.store.touch(&self.id, now).await
        {
            debug!(%error, "A device's sign of life is not noted"); // Not worth a refusal.
        }
        Ok(())
    }

    fn of_app<'s>(&'s self, shared: &'s Shared) -> Option<(&'s Gate, &'s App)> {
        shared.gate.as_deref().zip(self.app.as_ref())
    }
}
