//! Spans: how long the parts of one event's way took, under one trace id.
//!
//! A component asks [`Tracer::begin`] for the place of something new in its trace, and [`Tracer::record`]s each [`Span`] when
//! it has ended. `otlp` writes spans as OpenTelemetry reads them. Who sends them is not here.
//!
//! Whether a trace is recorded is decided once, when it begins: as the caller's `traceparent` says, else by chance. What is
//! not recorded costs nothing further.
//!
//! # Bounds
//! Queue: [`SPAN_COUNT_MAX`] spans, each with at most 8 attributes of [`TEXT_BYTES_MAX`] bytes, so some 4 MiB. Full: the new
//! span is dropped and counted. Nobody waits.

pub mod otlp;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tidings_types::{SpanId, TraceContext, TraceId};

use crate::memory::Term;
use crate::panics::lock;
use crate::{Counter, Registry, metrics, unix_nanos};

/// Spans that wait to be sent.
pub const SPAN_COUNT_MAX: usize = 4096;
/// The most bytes of a text in an attribute.
pub const TEXT_BYTES_MAX: usize = 128;
/// A span that waits: its ids and times, and at most 8 attributes with short texts.
const SPAN_BYTES: usize = 1 << 10;
/// What a ratio of one is: all.
pub const RATIO_ONE: u32 = 1_000_000;

/// What spans that wait may take.
pub fn memory_terms() -> Vec<Term> {
    vec![Term::peak("spans to send", SPAN_COUNT_MAX, SPAN_BYTES, "traces.endpoint")]
}

/// Spans whose ids follow from the event's own span ([`TraceContext::part`]): they belong to others before they have ended,
/// and still after a restart.
pub mod part {
    /// Making the event durable.
    pub const COMMIT: u64 = 1;
    /// The event's way to its devices.
    pub const JOB: u64 = 2;
}

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work inside of the server.
    Internal = 1,
    /// A request that was answered.
    Server = 2,
    /// A request that was sent.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Box<str>),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    /// Cuts the text to [`TEXT_BYTES_MAX`].
    fn from(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Something that took time. Times are nanoseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it was: one of few words.
    pub name: &'static str,
    /// Its role.
    pub kind: Kind,
    /// Its trace and its id.
    pub context: TraceContext,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// When it began.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// What else is known. No payload, token or text of people.
    pub attributes: Vec<(&'static str, Value)>,
    /// It did not do what it should.
    pub has_failed: bool,
}

impl Span {
    /// A span inside of the server, within `parent`, that ends now.
    pub fn within(parent: &TraceContext, id: SpanId, name: &'static str, began: u64) -> Self {
        Self {
            name,
            kind: Kind::Internal,
            context: parent.within(id),
            parent: Some(parent.span),
            began,
            ended: unix_nanos().max(began),
            attributes: Vec::new(),
            has_failed: false,
        }
    }

    /// With one more attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }
}

/// Collects spans; cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracer(Arc<Collected>);

#[derive(Debug)]
struct Collected {
    /// Of [`RATIO_ONE`].
    ratio: u32,
    spans: Mutex<VecDeque<Span>>,
    recorded: Counter,
    dropped: Counter,
}

impl Tracer {
    /// `ratio` of [`RATIO_ONE`] of the traces that begin here are recorded.
    pub fn new(ratio: u32, registry: &Registry) -> Self {
        let recorded = registry.counter(&metrics::traces::SPANS_TOTAL, &[]);
        Self(Arc::new(Collected { ratio, spans: Mutex::default(), recorded, dropped: dropped(registry, "full") }))
    }

    /// The place of something that begins now: in the caller's trace if there is one, else perhaps in a new one. `None`: it is
    /// in no trace. If the caller does not record its trace, its place is handed on as it is.
    pub fn begin(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        match caller {
            Some(caller) if caller.is_sampled => Some(caller.within(span_id())),
            Some(caller) => Some(caller.clone()),
            None if rand::random_range(0..RATIO_ONE) >= self.0.ratio => None,
            None => {
                let trace = TraceId(rand::random::<u128>().max(1).to_be_bytes());
                Some(TraceContext { trace, span: span_id(), is_sampled: true, state: None })
            }
        }
    }

    /// Takes a span that has ended.
    pub fn record(&self, span: Span) {
        let mut spans = lock(&self.0.spans);
        if spans.len() >= SPAN_COUNT_MAX {
            return self.0.dropped.inc();
        }
        spans.push_back(span);
        self.0.recorded.inc();
    }

    /// The oldest spans, at most `count`.
    pub fn take(&self, count: usize) -> Vec<Span> {
        let mut spans = lock(&self.0.spans);
        let count = count.min(spans.len());
        spans.drain(..count).collect()
    }
}

/// A new id.
pub fn span_id() -> SpanId {
    SpanId(rand::random::<u64>().max(1).to_be_bytes())
}

/// Counts spans that nobody will see.
pub fn dropped(registry: &Registry, reason: &str) -> Counter {
    registry.counter(&metrics::traces::DROPPED_TOTAL, &[reason])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_callers_decision_counts_and_else_the_ratio() {
        let registry = Registry::new();
        let (none, all) = (Tracer::new(0, &registry), Tracer::new(RATIO_ONE, &registry));
        let sampled: TraceContext = GIVEN.parse().unwrap();
        let begun = none.begin(Some(&sampled)).unwrap();
        assert!(begun.is_sampled && begun.trace == sampled.trace && begun.span != sampled.span);
        let unsampled: TraceContext = GIVEN.replace("-01", "-00").parse().unwrap();
        assert_eq!(all.begin(Some(&unsampled)), Some(unsampled));
        assert_eq!(none.begin(None), None);
        assert!(all.begin(None).unwrap().is_sampled);
        let half = Tracer::new(RATIO_ONE / 2, &registry);
        let count = (0..10_000).filter(|_| half.begin(None).is_some()).count();
        assert!((4_000..6_000).contains(&count), "{count}");
    }

    #[test]
    fn more_spans_than_the_bound_are_dropped_and_counted() {
        let registry = Registry::new();
        let tracer = Tracer::new(0, &registry);
        let context: TraceContext = GIVEN.parse().unwrap();
        for _ in 0..SPAN_COUNT_MAX + 3 {
            tracer.record(Span::within(&context, context.part(1), "commit", 1));
        }
        assert_eq!((tracer.take(1000).len(), tracer.take(usize::MAX).len()), (1000, SPAN_COUNT_MAX - 1000));
        assert!(registry.exposed(crate::Exposition::Text).contains("tidings_traces_dropped_total{reason=\"full\"} 3"));
    }
}
