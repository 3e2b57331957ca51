//! The device that a request is about, by one who may: a backend with a key, or the app on it.
//!
//! What an app shows is checked, and its call charged, before anything of its body is read; then it counts as one of its
//! user's. When the body is there it takes one of the places of apps. Before a change it is checked again, in turn. Where apps call for themselves, changes of one device take turns: what was found when an app
//! was let in is so until its change is done, also when a backend logs the device out at that moment.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidings_store::{ReadError, Store};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{Device, DeviceId, Subject, UserId};
use tokio::sync::{MutexGuard, OwnedSemaphorePermit};
use tracing::debug;

use crate::apps::{App, Gate};
use crate::guard::IdPath;
use crate::places::Share;
use crate::problem::{Invalid, Problem};
use crate::shared::{Shared, stopping};

/// An app's place, and the turn to change a device, until it is dropped.
pub(crate) struct Turn<'s> {
    _place: Option<OwnedSemaphorePermit>,
    _device: Option<MutexGuard<'s, ()>>,
    _user: Option<MutexGuard<'s, ()>>,
}

/// The device that the path names, and the app if it is one that asks, which has paid and may touch the device as it was
/// found. Whether it still may, one of the methods finds out when the request's body is there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: DeviceId,
    app: Option<App>,
    _share: Option<Share>,
}

impl FromRequestParts<Arc<Shared>> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let IdPath(id) = IdPath::from_request_parts(parts, shared).await?;
        let app = parts.extensions.get::<App>().cloned();
        let Some((gate, app)) = shared.gate.clone().zip(app) else { return Ok(Self { id, app: None, _share: None }) };
        let (charged, of) = (app.clone(), id.clone());
        let share = shared.blocking(&shared.app_reads, move |Shared { store, .. }| -> Result<_, Problem> {
            gate.charge_device(&charged, store, &of)?;
            gate.admit(&charged, store, &of, store.device(&of)?.as_ref())?;
            gate.share(&charged, &of)
        });
        let share = share.await.ok_or_else(stopping)??;
        Ok(Self { id, app: Some(app), _share: Some(share) })
    }
}

impl Target {
    /// To look at the device.
    ///
    /// # Errors
    /// As all of these: 404 where an app's device is another, 503 where there is no place for one more request of apps.
    pub(crate) async fn read(&self, shared: &Arc<Shared>) -> Result<Turn<'_>, Problem> {
        let place = self.place(shared)?;
        self.admit(shared).await?;
        Ok(Turn { _place: place, _device: None, _user: None })
    }

    /// To change the device, once this has its turn.
    pub(crate) async fn change<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        match shared.gate {
            Some(_) => self.change_alone(shared).await,
            None => Ok(Turn { _place: None, _device: None, _user: None }),
        }
    }

    /// The same where changes take turns in any case.
    pub(crate) async fn change_alone<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        let place = self.place(shared)?;
        let device = shared.turns.take(&self.id).await;
        self.admit(shared).await?;
        Ok(Turn { _place: place, _device: Some(device), _user: None })
    }

    /// To put the device, which may not be there; whoever has this turn asks [`Target::owner`] next. An app has its user's
    /// turn with it, so that the devices of a user are counted and become more in one step.
    pub(crate) async fn turn<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        if shared.gate.is_none() {
            return Ok(Turn { _place: None, _device: None, _user: None });
        }
        let place = self.place(shared)?;
        let device = shared.turns.take(&self.id).await;
        // Always behind the device's, and from a table of their own: nobody waits in a circle.
        let user = match self.app.as_ref().and_then(App::user) {
            Some(user) => Some(shared.user_turns.take(user).await),
            None => None,
        };
        Ok(Turn { _place: place, _device: Some(device), _user: user })
    }

    /// An app's request takes its place only now, when its body is there.
    fn place(&self, shared: &Shared) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        self.of_app(shared).map(|(gate, _)| gate.place()).transpose()
    }

    /// Whether a backend asks, which is believed in everything.
    pub(crate) fn is_trusted(&self) -> bool {
        self.app.is_none()
    }

    /// The device as it is, and whose it is once it is put: an app is let in and shows that, a backend says it itself.
    pub(crate) async fn owner(
        &self,
        shared: &Arc<Shared>,
        stated: Option<UserId>,
    ) -> Result<(Option<Device>, Option<UserId>), Problem> {
        let (id, app) = (self.id.clone(), self.app.clone());
        let found = shared.read(move |Shared { store, gate, .. }| -> Result<_, Problem> {
            let known = store.device(&id)?;
            let Some((gate, app)) = gate.as_ref().zip(app) else { return Ok((known, stated)) };
            gate.admit(&app, store, &id, known.as_ref())?;
            let user = gate.user_of(&app, store, known.as_ref())?;
            Ok((known, user))
        });
        found.await
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

    async fn admit(&self, shared: &Arc<Shared>) -> Result<(), Problem> {
        let Some((gate, app)) = shared.gate.clone().zip(self.app.clone()) else { return Ok(()) };
        let id = self.id.clone();
        let known = shared.read(move |Shared { store, .. }| -> Result<_, Problem> {
            let known = store.device(&id)?;
            gate.admit(&app, store, &id, known.as_ref())?;
            Ok(known)
        });
        let (known, now) = (known.await?, unix_now());
        if known.is_some_and(|device| device.seen_at < now.start_of_day())
            && let Err(error) = shared.store.touch(&self.id, now).await
        {
            debug!(error = chain(&error), "A device's sign of life is not noted"); // Not worth a refusal.
        }
        Ok(())
    }

    fn of_app<'s>(&'s self, shared: &'s Shared) -> Option<(&'s Gate, &'s App)> {
        shared.gate.as_deref().zip(self.app.as_ref())
    }
}

/// What the store has of the device `id`; 404 where there is no such device.
pub(crate) async fn found<T: Send + 'static>(
    shared: &Arc<Shared>,
    id: &DeviceId,
    find: impl FnOnce(&Store, &DeviceId) -> Result<Option<T>, ReadError> + Send + 'static,
) -> Result<T, Problem> {
    let wanted = id.clone();
    shared.read(move |shared| find(&shared.store, &wanted)).await?.ok_or_else(|| Problem::no_device(id))
}
