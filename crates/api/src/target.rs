//! The device that a request is about, by one who may: a backend with a key, or the app on it.
//!
//! What an app shows is checked, and its call charged, before anything of its body is read; before a change it is
//! checked again, in turn. Where apps call for themselves, changes of one device take turns: what was found when an app
//! was let in is so until its change is done, also when a backend logs the device out at that moment.

use std::hash::{BuildHasher, Hash, RandomState};
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

/// One change at a time per device, or user: a lock for each of a fixed number of groups of them.
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
    async fn take(&self, whose: &impl Hash) -> MutexGuard<'_, ()> {
        self.locks[self.hasher.hash_one(whose) as usize % self.locks.len()].lock().await
    }
}

/// To put a device, until it is dropped.
pub(crate) struct Turn<'s> {
    _device: MutexGuard<'s, ()>,
    _user: Option<MutexGuard<'s, ()>>,
}

/// The device that the path names, and the app if it is one that asks, which has paid and may touch the device as it was
/// found. Whether it still may, one of the methods finds out when the request's body is there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: DeviceId,
    app: Option<App>,
}

impl FromRequestParts<Arc<Shared>> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let IdPath(id) = IdPath::from_request_parts(parts, shared).await?;
        let target = Self { id, app: parts.extensions.get::<App>().cloned() };
        if let Some((gate, app)) = target.of_app(shared) {
            gate.charge_device(app, &shared.store, &target.id)?;
            gate.admit(app, &shared.store, &target.id, shared.store.device(&target.id)?.as_ref())?;
        }
        Ok(target)
    }
}

impl Target {
    /// To look at the device.
    ///
    /// # Errors
    /// As all of these: 404 where an app's device is another.
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

    /// To put the device, which may not be there; whoever has this turn asks [`Target::owner`] next. An app has its user's
    /// turn with it, so that the devices of a user are counted and become more in one step.
    pub(crate) async fn turn<'s>(&self, shared: &'s Shared) -> Option<Turn<'s>> {
        shared.gate.as_ref()?;
        let device = shared.turns.take(&self.id).await;
        // Always behind the device's, and from a table of their own: nobody waits in a circle.
        let user = match self.app.as_ref().and_then(App::user) {
            Some(user) => Some(shared.user_turns.take(user).await),
            None => None,
        };
        Some(Turn { _device: device, _user: user })
    }

    /// Whether a backend asks, which is believed in everything.
    pub(crate) fn is_trusted(&self) -> bool {
        self.app.is_none()
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
