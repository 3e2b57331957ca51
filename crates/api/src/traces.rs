//! The traces of events that are handed in: which trace an event belongs to, and the spans of its acceptance.
//!
//! An event is in the trace that its own field `traceparent` names, else in that of the request's header. A header that cannot
//! be read counts as absent, as W3C Trace Context asks for.

use axum::http::HeaderMap;
use tidings_store::Appended;
use tidings_telemetry::trace::{Kind, Span, Tracer, part};
use tidings_telemetry::unix_nanos;
use tidings_types::{Event, EventId, SpanId, TraceContext};

/// The place in a trace that the request's headers name.
fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let parent: TraceContext = parents.next()?.to_str().ok()?.parse().ok()?;
    if parents.next().is_some() {
        return None; // Nobody can say which one is right.
    }
    let states: Vec<&str> = headers.get_all("tracestate").iter().filter_map(|state| state.to_str().ok()).collect();
    Some(parent.with_state(&states.join(",")))
}

/// A request with events, from its beginning to its answer.
pub(crate) struct Accepting<'t> {
    tracer: Option<&'t Tracer>,
    caller: Option<TraceContext>,
    began: u64,
    /// Of each event of a recorded trace: its index, its own span, and the caller's.
    recorded: Vec<(usize, TraceContext, Option<SpanId>)>,
    /// The last one that is recorded, by whomever.
    trace: Option<TraceContext>,
}

impl<'t> Accepting<'t> {
    pub(crate) fn begin(tracer: Option<&'t Tracer>, headers: &HeaderMap) -> Self {
        Self { tracer, caller: of_headers(headers), began: unix_nanos(), recorded: Vec::new(), trace: None }
    }

    /// Puts the event at this index into its trace.
    pub(crate) fn enter(&mut self, index: usize, event: &mut Event) {
        let caller = event.trace.take().map(|trace| *trace).or_else(|| self.caller.clone());
        let own = match self.tracer {
            Some(tracer) => tracer.begin(caller.as_ref()),
            None => caller.clone(),
        };
        if let Some(own) = own.as_ref().filter(|own| own.is_sampled) {
            self.trace = Some(own.clone());
            if self.tracer.is_some() {
                self.recorded.push((index, own.clone(), caller.map(|caller| caller.span)));
            }
        }
        event.trace = own.map(Box::new);
    }

    /// The events are durable since now; that was begun at `committing`. The last recorded trace that one of them is in, also
    /// if only others record it.
    pub(crate) fn end(self, ids: &[EventId], appended: &[Appended], committing: u64) -> Option<TraceContext> {
        let Some(tracer) = self.tracer else { return self.trace };
        for (index, own, parent) in self.recorded {
            if appended[index].repeated {
                continue; // It is in the trace of the first time.
            }
            tracer.record(Span::within(&own, own.part(part::COMMIT), "commit", committing));
            let accept = Span::within(&own, own.span, "accept", self.began).with("event.id", ids[index].as_str());
            tracer.record(Span { kind: Kind::Server, parent, ..accept });
        }
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn headers_that_cannot_be_read_count_as_absent() {
        let found =
            of_headers(&headers(&[("traceparent", GIVEN), ("tracestate", "a=1"), ("tracestate", "b=2")])).unwrap();
        assert_eq!((found.to_string().as_str(), found.state.as_deref()), (GIVEN, Some("a=1,b=2")));
        assert_eq!(of_headers(&headers(&[("traceparent", "00-xyz")])), None);
        let mut twice = headers(&[("traceparent", GIVEN)]);
        twice.append("traceparent", GIVEN.parse().unwrap());
        assert_eq!(of_headers(&twice), None);
        assert_eq!(of_headers(&headers(&[("tracestate", "a=1")])), None);
    }
}
