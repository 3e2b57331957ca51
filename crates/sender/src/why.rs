//! Why a device did or did not get an event: [`Sender::why`], as far as the trails of jobs know.
//!
//! Only here lanes become names again. Who was selected and why, and who could have been, is the API's to say.

use std::sync::Arc;

use tidings_jobs::{DeviceTrail, Note, TrailStep, Way, Whereabouts};
use tidings_telemetry::panics::lock;
use tidings_types::{DeviceNumber, JournalPosition, Timestamp};

use crate::Sender;
use crate::job::Job;
use crate::trails::JobTrail;

/// Trails that are searched for a device at most in one call: some 10 ms.
const SEARCH_COUNT: usize = 4096;

/// Events of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEvents {
    /// Newest first.
    pub positions: Vec<JournalPosition>,
    /// Where to go on: there may be more before this event.
    pub next: Option<JournalPosition>,
}

impl Sender {
    /// What `device` went through in the job of the event at `position`. `None` before the job begins, and when it is not
    /// known any more: after `why_ttl`, beyond `why_bytes_max` and after a restart.
    pub fn why(&self, position: JournalPosition, device: DeviceNumber) -> Option<DeviceTrail> {
        // The job first. If it ends between the two looks, its trail is still kept.
        let running = self.registry.table().running.get(&position).cloned();
        let waiting = self.is_waiting_for(position, device);
        let trail = self.context.trails.get(position)?;
        let job = lock(&trail);
        let JobTrail { trail, receipts, texts, is_closed } = &*job;
        let step = |noted: tidings_jobs::Noted| TrailStep {
            note: noted.note,
            way: if let Note::HandedOut(lane) = noted.note { self.way(lane) } else { None },
            from: noted.from,
            to: noted.to,
        };
        let steps = trail.of(device).into_iter().map(step).collect();
        let locale = trail.text_of(device);
        let found = locale.and_then(|cell| texts.get(usize::from(cell)).map(|text| text.locale.clone()));
        let (known_since, is_done) = ((!trail.is_whole()).then(|| trail.begun_at()), *is_closed);
        let was_connected = receipts.as_ref().and_then(|receipts| receipts.is_reader(device));
        let arrival = receipts.as_ref().and_then(|receipts| receipts.arrival(device));
        let received = arrival.map(|arrival| (arrival.client.to_string(), arrival.at));
        drop(job); // Before the books: their lock comes first.
        let of_running = || running.as_ref().and_then(|job| job.locale_of(locale?));
        let whereabouts = running.as_ref().map(|job| job.whereabouts(device)).or(waiting);
        let lane = match whereabouts {
            Some(Whereabouts::Pending(lane) | Whereabouts::InFlight(lane)) => Some(lane),
            _ => None,
        };
        let paused_by = running.as_ref().zip(lane).and_then(|(job, lane)| self.paused_by(job, lane));
        Some(DeviceTrail {
            known_since,
            is_done,
            steps,
            whereabouts: whereabouts.map(|whereabouts| (whereabouts, lane.and_then(|lane| self.way(lane)))),
            paused_by,
            held_until: running.as_ref().map_or(Timestamp(0), |job| job.held_until()),
            locale: found.or_else(of_running),
            was_connected,
            received,
        })
    }

    /// At most `limit` events before `before` that have `device` in their job's trail, newest first. Looks at 4096 trails at
    /// most; [`DeviceEvents::next`] says where to go on.
    pub fn events_of(&self, device: DeviceNumber, before: Option<JournalPosition>, limit: usize) -> DeviceEvents {
        let candidates = self.context.trails.newest(before, SEARCH_COUNT);
        let (mut positions, mut last) = (Vec::new(), None);
        for position in &candidates {
            if positions.len() == limit {
                break;
            }
            last = Some(*position);
            let trail = self.context.trails.get(*position);
            if trail.is_some_and(|trail| lock(&trail).trail.has(device)) {
                positions.push(*position);
            }
        }
        let is_all = last == candidates.last().copied() && candidates.len() < SEARCH_COUNT;
        DeviceEvents { positions, next: last.filter(|_| !is_all) }
    }

    fn is_waiting_for(&self, position: JournalPosition, device: DeviceNumber) -> Option<Whereabouts> {
        let table = self.registry.table();
        let waiting = table.waiting.get(position)?;
        let is_left = waiting.progress().outstanding.contains(device.0);
        Some(if is_left { Whereabouts::Unwalked } else { Whereabouts::Nowhere })
    }

    fn way(&self, lane: usize) -> Option<Way> {
        let route = self.context.routes.lanes().get(lane)?;
        let pool = self.pools.get(route.pool)?.name.clone();
        Some(Way { provider: route.provider, pool, is_quarantine: route.main != lane })
    }

    fn paused_by(&self, job: &Arc<Job>, lane: usize) -> Option<tidings_types::BrakeScope> {
        self.registry.brakes.of_lane(&job.accepted.event.topic, lane)
    }
}
