//! Answers the API's questions about sender and edge, which the API does not see.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_api::{DeviceEvents, Estimate, JobPart, JobView, ListFuture, OrderFuture, Outcomes};
use tidings_edge::Edge;
use tidings_protocol::{CONNECTION_LIST_MAX, Order, OrderError, Target};
use tidings_sender::{Counts, DeviceOutcome, DeviceTrail, JobReport, Sender};
use tidings_store::Store;
use tidings_types::{DeviceNumber, Event, JournalPosition};

use crate::link::Link;

/// The jobs. When the server stops, the router outlives the sender; then no job is known.
pub(super) struct Jobs(pub(super) Weak<Sender>);

impl tidings_api::Jobs for Jobs {
    fn job(&self, position: JournalPosition) -> Option<JobView> {
        self.0.upgrade()?.job(position).map(view)
    }

    fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobView> {
        let jobs = self.0.upgrade().map(|sender| sender.jobs(before, limit)).unwrap_or_default();
        jobs.into_iter().map(view).collect()
    }

    fn estimate(&self, event: &Event) -> Vec<Estimate> {
        let estimates = self.0.upgrade().map(|sender| sender.estimate(event)).unwrap_or_default();
        let minutes = |duration: Duration| duration.as_secs_f64() / 60.0;
        let view = |it: tidings_sender::Estimate| Estimate {
            provider: it.provider,
            pool: it.pool,
            devices: it.devices,
            minutes: it.forecast.map(|forecast| minutes(forecast.duration)),
            limited_by: it.forecast.map(|forecast| forecast.limit.as_str()),
        };
        estimates.into_iter().map(view).collect()
    }

    fn trail(&self, position: JournalPosition, device: DeviceNumber) -> Option<DeviceTrail> {
        self.0.upgrade()?.why(position, device)
    }

    fn events_of(&self, device: DeviceNumber, before: Option<JournalPosition>, limit: usize) -> DeviceEvents {
        let found = self.0.upgrade().map(|sender| sender.events_of(device, before, limit));
        found.map_or_else(DeviceEvents::default, |found| DeviceEvents { positions: found.positions, next: found.next })
    }
}

/// Live connections: of this server, and of the others of its cluster.
pub(super) struct Connections {
    pub(super) edge: Weak<Edge>,
    pub(super) store: Store,
    /// To the other servers; `None`: this one is alone.
    pub(super) link: Option<Arc<dyn Link>>,
}

impl tidings_api::Connections for Connections {
    fn revoke(&self, device: DeviceNumber, close: bool) {
        if let Some(edge) = self.edge.upgrade() {
            edge.revoke(device, close);
        }
        if let Some(link) = &self.link {
            link.revoke(device, close, self.store.log_position().sequence);
        }
    }

    fn order(&self, target: Target, order: Order) -> OrderFuture {
        let Some(edge) = self.edge.upgrade() else { return Box::pin(async { Err(OrderError::Stopping) }) };
        let Some(link) = self.link.clone() else { return Box::pin(edge.order(target, order)) };
        Box::pin(async move {
            let here = edge.order(target.clone(), order.clone());
            let (here, there) = tokio::join!(here, link.order(target, order));
            here.and(there)
        })
    }

    fn list(&self, target: Target) -> ListFuture {
        let Some(edge) = self.edge.upgrade() else { return Box::pin(async { Err(OrderError::Stopping) }) };
        let Some(link) = self.link.clone() else { return Box::pin(edge.connections(target)) };
        Box::pin(async move {
            let (here, there) = tokio::join!(edge.connections(target.clone()), link.connections(target));
            let mut all = [here?, there?].concat();
            all.truncate(CONNECTION_LIST_MAX + 1); // One more shows that there are too many.
            Ok(all)
        })
    }
}

pub(super) fn view(report: JobReport) -> JobView {
    let JobReport { position, event, topic, priority, state, paused_by, accepted_at, done_at, .. } = report;
    let JobReport { audience, held, counts, by, retried, time_to, time_to_by, time_to_live, .. } = report;
    let part = |tidings_sender::JobPart { provider, app, locale, counts }| {
        let outcomes = outcomes(&counts);
        JobPart { provider, app, locale, outcomes }
    };
    let by = by.into_iter().map(part).collect();
    let outcomes = outcomes(&counts);
    JobView {
        position,
        event,
        topic,
        priority,
        accepted_at,
        done_at,
        state,
        paused_by,
        audience,
        held,
        outcomes,
        retried,
        by,
        time_to,
        time_to_by,
        time_to_live,
    }
}

fn outcomes(counts: &Counts) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for (outcome, count) in counts.iter() {
        match outcome {
            DeviceOutcome::Accepted => outcomes.accepted = count,
            DeviceOutcome::Received => outcomes.received = count,
            DeviceOutcome::Expired => outcomes.expired = count,
            DeviceOutcome::Unknown => outcomes.unknown = count,
            DeviceOutcome::Cancelled => outcomes.cancelled = count,
            DeviceOutcome::Superseded => outcomes.superseded = count,
            DeviceOutcome::Rejected(_) => _ = outcomes.rejected.insert(outcome.reason(), count),
            DeviceOutcome::Suppressed(_) => _ = outcomes.suppressed.insert(outcome.reason(), count),
        }
    }
    outcomes
}
