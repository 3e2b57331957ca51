//! The device of a request, and the check that the caller may reach it: a backend with a key, or the app on the device.
//!
//! Before any part of an app's body is read, its proof is checked and its call is charged; then it counts as one of its
//! user's requests. When the body has arrived, the request takes one of the places of apps. Before a change the proof
//! is checked again, in the device's turn. If apps may call, the changes of one device take turns. So what was found
//! when an app was admitted stays true until its change is done, even if a backend logs the device out at that moment.

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

/// The place of an app's request, and the turn to change a device, until it is dropped.
pub(crate) struct Turn<'s> {
    _place: Option<OwnedSemaphorePermit>,
    _device: Option<MutexGuard<'s, ()>>,
    _user: Option<MutexGuard<'s, ()>>,
}

/// The device that the path names, and the app if an app asks. The app has paid and was allowed to reach the device as
/// it was found. When the request's body has arrived, one of the methods checks this again.
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
    /// Before the device is read.
    ///
    /// # Errors
    /// For all of these methods: 404 if the device is not the app's, 503 if there is no place for a further request of
    /// apps.
    pub(crate) async fn read(&self, shared: &Arc<Shared>) -> Result<Turn<'_>, Problem> {
        let place = self.place(shared)?;
        self.admit(shared).await?;
        Ok(Turn { _place: place, _device: None, _user: None })
    }

    /// Before the device is changed; waits for its turn.
    pub(crate) async fn change<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        match shared.gate {
            Some(_) => self.change_alone(shared).await,
            None => Ok(Turn { _place: None, _device: None, _user: None }),
        }
    }

    /// Like [`Target::change`], but changes take turns in any case.
    pub(crate) async fn change_alone<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        let place = self.place(shared)?;
        let device = shared.turns.take(&self.id).await;
        self.admit(shared).await?;
        Ok(Turn { _place: place, _device: Some(device), _user: None })
    }

    /// Before the device is registered; it may not exist. The caller then calls [`Target::owner`]. An app also gets its
    /// user's turn, so that the devices of a user are counted and added in one step.
    pub(crate) async fn turn<'s>(&self, shared: &'s Arc<Shared>) -> Result<Turn<'s>, Problem> {
        if shared.gate.is_none() {
            return Ok(Turn { _place: None, _device: None, _user: None });
        }
        let place = self.place(shared)?;
        let device = shared.turns.take(&self.id).await;
        // Always after the device's turn, and from a table of its own, so that no deadlock is possible.
        let user = match self.app.as_ref().and_then(App::user) {
            Some(user) => Some(shared.user_turns.take(user).await),
            None => None,
        };
        Ok(Turn { _place: place, _device: Some(device), _user: user })
    }

    /// The place of an app's request. It is taken only now, when the body has arrived.
    fn place(&self, shared: &Shared) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        self.of_app(shared).map(|(gate, _)| gate.place()).transpose()
    }

    /// Whether a backend asks; a backend is trusted.
    pub(crate) fn is_trusted(&self) -> bool {
        self.app.is_none()
    }

    /// The device as it is, and its user after it was registered. An app's proof is checked and gives the user; a
    /// backend names the user itself.
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

    /// Refuses a field that only a backend may set.
    pub(crate) fn refuse_to_app<T>(&self, field: &str, stated: Option<&T>, why: &str) -> Result<(), Invalid> {
        if self.is_trusted() || stated.is_none() { Ok(()) } else { Err(Invalid::new(field, why)) }
    }

    /// Whether these subscriptions may be added to the device.
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
            debug!(error = chain(&error), "The day of a device's call is not recorded"); // Not worth a refusal.
        }
        Ok(())
    }

    fn of_app<'s>(&'s self, shared: &'s Shared) -> Option<(&'s Gate, &'s App)> {
        shared.gate.as_deref().zip(self.app.as_ref())
    }
}

/// The store's data of the device `id`; 404 if there is no such device.
pub(crate) async fn found<T: Send + 'static>(
    shared: &Arc<Shared>,
    id: &DeviceId,
    find: impl FnOnce(&Store, &DeviceId) -> Result<Option<T>, ReadError> + Send + 'static,
) -> Result<T, Problem> {
    let wanted = id.clone();
    shared.read(move |shared| find(&shared.store, &wanted)).await?.ok_or_else(|| Problem::no_device(id))
}
