//! What all jobs share, and how it finds out where a device is sent.
//!
//! Recipients are read under the store's lock and copied; rendering and hashing happen outside of it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_hub::{FanOut, Receipts};
use tidings_jobs::{Finding, LaneLimits, Suppression, Window};
use tidings_push::{Notification, Rendering, RenderingParts, Ticket};
use tidings_store::{Recipient, Store};
use tidings_telemetry::panics::{self, Work, lock};
use tidings_telemetry::trace::Tracer;
use tidings_telemetry::{chain, unix_now};
use tidings_types::{DeviceNumber, DeviceToken, Event, NotificationId, ParamValue, Provider, PushPermission, TokenRef};

use crate::brakes::Braking;
use crate::config::Shadow;
use crate::job::{Job, Renderings};
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::places::{EVERYWHERE, Place};
use crate::routes::Routes;
use crate::topic::{CurrentTopics, TextIndex};
use crate::trails::Trails;

/// What all jobs share.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) topics: Arc<CurrentTopics>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) fan_out: Arc<FanOut>,
    pub(crate) limits: LaneLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) brakes: Braking,
    pub(crate) shadow: Option<Shadow>,
    pub(crate) tracer: Option<Tracer>,
    /// Walks wait here for their turn on the sender's thread. Walks of urgent jobs go first.
    pub(crate) walks: Arc<Permits>,
    pub(crate) trails: Arc<Trails>,
}

/// A window that is ready: the findings about its devices, and the notifications for those that belong to the lane.
#[derive(Default)]
pub(crate) struct Prepared {
    /// In the order of the window's devices.
    pub(crate) findings: Vec<Finding>,
    pub(crate) batch: Vec<Notification>,
    /// The devices of the batch whose token no provider has accepted yet.
    pub(crate) unproven: Vec<DeviceNumber>,
    /// The devices of the batch by the cell of their text.
    pub(crate) texts: BTreeMap<u16, RoaringBitmap>,
}

/// A device that will be handed out, copied from the store's table.
struct Picked {
    /// Its index among the findings.
    index: usize,
    /// The end of its id in the string of all ids of the window.
    id_end: usize,
    token: DeviceToken,
    text: TextIndex,
    /// Only if the event has typed values.
    place: Option<Place>,
    is_proven: bool,
}

impl Context {
    /// The findings about a part of the audience, in its order.
    pub(crate) fn find(&self, job: &Job, numbers: &[DeviceNumber]) -> Vec<Finding> {
        let mut findings = Vec::with_capacity(numbers.len());
        self.each_recipient(numbers, |_, recipient| {
            let finding = match self.route(job, recipient) {
                Ok((_, _, lane)) => Finding::Lane(lane),
                Err(why) => Finding::Suppressed(why),
            };
            findings.push(finding);
        });
        findings
    }

    /// The notifications for the devices that still belong to the window's lane, and the findings about all devices.
    /// The records read here decide, because those that the walk read may be old.
    pub(crate) fn prepare(&self, job: &Job, window: &Window) -> Prepared {
        let event = &job.accepted.event;
        let texts = job.topics(&self.topics).texts(event);
        let is_typed = event.params.values().any(ParamValue::is_typed);
        let (lane, devices) = (window.lane(), window.devices());
        let mut prepared = Prepared { findings: Vec::with_capacity(devices.len()), ..Prepared::default() };
        let mut picked = Vec::with_capacity(devices.len());
        let mut ids = String::new(); // One allocation for all ids.
        self.each_recipient(devices, |_, recipient| {
            let index = prepared.findings.len();
            let finding = match self.route(job, recipient) {
                Ok((recipient, token, found)) => {
                    if found == lane {
                        ids.push_str(recipient.id);
                        let (token, text) = (token.to_token(), texts.index(recipient.locale));
                        let (id_end, is_proven) = (ids.len(), recipient.proven);
                        let place = is_typed
                            .then(|| Place { locale: recipient.locale.clone(), zone: recipient.time_zone.cloned() });
                        picked.push(Picked { index, id_end, token, text, place, is_proven });
                    }
                    Finding::Lane(found)
                }
                Err(why) => Finding::Suppressed(why),
            };
            prepared.findings.push(finding);
        });
        prepared.batch.reserve(picked.len());
        let queued_at = unix_now();
        let mut id_start = 0;
        for Picked { index, id_end, token, text, place, is_proven } in picked {
            let id = &ids[mem::replace(&mut id_start, id_end)..id_end];
            let device = devices[index];
            let (rendering, cell) = match self.rendering(job, lane, text, place.as_ref()) {
                Ok(found) => found,
                Err(why) => {
                    prepared.findings[index] = Finding::Suppressed(why);
                    continue;
                }
            };
            let ticket = Ticket { job: job.position, device, cell };
            prepared.texts.entry(cell).or_default().insert(device.0);
            if !is_proven {
                prepared.unproven.push(device);
            }
            let id = NotificationId::new(&event.id, id);
            prepared.batch.push(Notification { id, token, rendering, ticket, queued_at });
        }
        prepared
    }

    /// How a device is reached for this job, or why it is not.
    fn route<'a>(
        &self,
        job: &Job,
        recipient: Option<Recipient<'a>>,
    ) -> Result<(Recipient<'a>, TokenRef<'a>, usize), Suppression> {
        let recipient = recipient.ok_or(Suppression::Gone)?;
        if recipient.since > job.position {
            return Err(Suppression::RegisteredLater);
        }
        let (token, lane) = self.reach(&job.accepted.event, &recipient)?;
        Ok((recipient, token, lane))
    }

    /// How a device is reached for an event, whenever that was accepted, or why it is not.
    pub(crate) fn reach<'a>(
        &self,
        event: &Event,
        recipient: &Recipient<'a>,
    ) -> Result<(TokenRef<'a>, usize), Suppression> {
        let Recipient { platform, locale, country, .. } = *recipient;
        if event.filter.as_ref().is_some_and(|filter| !filter.admits(platform, recipient.app, locale, country)) {
            return Err(Suppression::Filtered);
        }
        if recipient.push_permission == PushPermission::Denied {
            return Err(Suppression::NoPermission);
        }
        let token = recipient.token.ok_or(Suppression::NoToken)?;
        let Recipient { app, environment, proven, id, .. } = *recipient;
        let lane = self.routes.find(app, token, environment, proven).ok_or(Suppression::NoPool)?;
        if event.dry_run && token.provider() != Provider::Fcm {
            return Err(Suppression::DryRun);
        }
        if self.shadow.as_ref().is_some_and(|shadow| !shadow.admits(id)) {
            return Err(Suppression::Shadow);
        }
        Ok((token, lane))
    }

    /// The rendering that all devices of one lane, text and place share, and their cell in the counts. Made for the first
    /// device.
    fn rendering(
        &self,
        job: &Job,
        lane: usize,
        text: TextIndex,
        place: Option<&Place>,
    ) -> Result<(Arc<Rendering>, u16), Suppression> {
        if text == TextIndex::Untold {
            return Err(Suppression::Untranslated);
        }
        let route = &self.routes.lanes()[lane];
        let Renderings { places, made } = &mut *lock(&job.renderings);
        let index = place.map_or(EVERYWHERE, |place| places.index(&job.accepted.event, place));
        let make = || {
            let accepted = &job.accepted;
            let stream = accepted.published.first().map(|(channel, position)| (channel, *position));
            let texts = job.topics(&self.topics).texts(&accepted.event);
            let encode = || texts.encode(text, places.get(index), route.provider, stream, &job.collapse_id);
            let encoded = panics::catch(Work::Notification, encode).map_err(|_| Suppression::Panicked)?;
            let encoded = encoded.map_err(|error| {
                tracing::error!(job = job.position.0, error = chain(&error), "an accepted event has no text any more");
                Suppression::NoText
            })?;
            let encoded = match accepted.event.dry_run {
                true => encoded.into_dry_run().ok_or(Suppression::NoText)?,
                false => encoded,
            };
            let (expires_at, collapse_id) = (job.expires_at, job.collapse_id.clone());
            let parts = RenderingParts { app: route.app.clone(), expires_at, collapse_id };
            let cell = job.cell(route.provider, &route.app, texts.locale(text));
            Ok((Arc::new(Rendering::new(parts, encoded)), cell))
        };
        made.entry((route.main, text, index)).or_insert_with(make).clone()
    }

    /// Shows each of `numbers` in order, with its record if there is one.
    pub(crate) fn each_recipient(
        &self,
        numbers: &[DeviceNumber],
        mut visit: impl FnMut(DeviceNumber, Option<Recipient<'_>>),
    ) {
        let mut rest = numbers.iter().copied();
        self.store.with_recipients(numbers, |recipient| {
            for number in rest.by_ref().take_while(|&number| number != recipient.number) {
                visit(number, None);
            }
            visit(recipient.number, Some(recipient));
        });
        rest.for_each(|number| visit(number, None));
    }
}
