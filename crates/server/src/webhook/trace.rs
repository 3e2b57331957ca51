//! The traces of reports: a report is sent with the trace of its event, and each attempt is a span in the event's job.

use tidings_store::Store;
use tidings_telemetry::trace::{Kind, Span, Tracer, part, span_id};
use tidings_types::{JournalPosition, SpanId, TraceContext};

/// Finds the traces of events.
#[derive(Clone)]
pub(crate) struct Traces {
    /// It has the events, and with them their traces.
    pub(crate) store: Store,
    /// `None`: spans go nowhere.
    pub(crate) tracer: Option<Tracer>,
}

/// An attempt in a trace.
pub(super) struct Place {
    /// What the receiver is told.
    pub(super) context: TraceContext,
    job: SpanId,
}

impl Traces {
    /// The place of a new attempt in the trace of the event. If the trace is not recorded, it is the place that the producer
    /// named.
    pub(super) async fn place(&self, position: JournalPosition) -> Option<Place> {
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || store.event(position)); // It may read the disk.
        let context = *read.await.ok()?.ok()??.event.trace?;
        let job = context.part(part::JOB);
        let is_recorded = self.tracer.is_some() && context.is_sampled;
        Some(Place { context: if is_recorded { context.within(span_id()) } else { context }, job })
    }

    /// The attempt that began then has ended, with this status of an answer.
    pub(super) fn tried(&self, place: Option<&Place>, began: u64, status: Option<u16>) {
        let Some((tracer, place)) = self.tracer.as_ref().zip(place.filter(|place| place.context.is_sampled)) else {
            return;
        };
        let status = u64::from(status.unwrap_or_default());
        let span = Span::within(&place.context, place.context.span, "report", began);
        let has_failed = !(200..300).contains(&status);
        let span = Span { kind: Kind::Client, parent: Some(place.job), has_failed, ..span };
        tracer.record(span.with("http.response.status_code", status));
    }
}
