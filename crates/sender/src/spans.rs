//! The spans of a job: the job, its walk, and one for each provider that answered. Never one per device.
//!
//! The job's span begins when its event was accepted, so it contains the time in which the job waited for a slot, and it is
//! the same after a restart. The span of a provider ends with the provider's last answer in this process. After a crash,
//! or when a job was put aside, the spans of the walk and of providers tell the last part only.
//!
//! Bounds: two words for each provider of a job whose trace is recorded; nothing for other jobs.

use tidings_jobs::{Counts, JobReport};
use tidings_telemetry::trace::{Span, Tracer, part, span_id};
use tidings_telemetry::unix_nanos;
use tidings_types::{JobState, Provider, Timestamp, TraceContext};

/// When a provider answered for the first and for the last time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    provider: Provider,
    first: Timestamp,
    last: Timestamp,
}

impl Answered {
    /// Notes an answer that came `now`.
    pub(crate) fn note(all: &mut Vec<Self>, provider: Provider, now: Timestamp) {
        match all.iter_mut().find(|answered| answered.provider == provider) {
            Some(answered) => answered.last = now,
            None => all.push(Self { provider, first: now, last: now }),
        }
    }
}

/// The walk that has begun then is over.
pub(crate) fn walked(tracer: Option<&Tracer>, trace: Option<&TraceContext>, began: u64, device_count: u64) {
    if let Some((tracer, context)) = recorded(tracer, trace) {
        let context = context.within(context.part(part::JOB));
        tracer.record(Span::within(&context, span_id(), "walk", began).with("devices", device_count));
    }
}

/// The job is over.
pub(crate) fn finished(
    tracer: Option<&Tracer>,
    trace: Option<&TraceContext>,
    report: &JobReport,
    answered: &[Answered],
) {
    let Some((tracer, context)) = recorded(tracer, trace) else { return };
    let began = nanos(report.accepted_at);
    let of_job = Span {
        ended: report.done_at.map_or_else(unix_nanos, nanos).max(began),
        has_failed: report.state == JobState::Cancelled,
        ..Span::within(context, context.part(part::JOB), "job", began)
    };
    let inside = of_job.context.clone();
    let topic = report.topic.as_ref().map_or("", |topic| topic.as_str());
    let of_job = of_job.with("event.id", report.event.as_str()).with("topic", topic).with("audience", report.audience);
    tracer.record(counted(of_job, &report.counts));
    for Answered { provider, first, last } in answered {
        let mut counts = Counts::default();
        for part in report.by.iter().filter(|part| part.provider == *provider) {
            part.counts.iter().for_each(|(outcome, count)| counts.add(outcome, count));
        }
        let span = Span { ended: nanos(*last).max(began), ..Span::within(&inside, span_id(), "lane", began) };
        let span = span.with("provider", provider.as_str());
        let first_ms = first.saturating_since(report.accepted_at).as_millis() as u64;
        tracer.record(counted(span.with("first_answer_ms", first_ms), &counts));
    }
}

fn recorded<'a>(tracer: Option<&'a Tracer>, trace: Option<&'a TraceContext>) -> Option<(&'a Tracer, &'a TraceContext)> {
    tracer.zip(trace.filter(|trace| trace.is_sampled))
}

fn counted(span: Span, counts: &Counts) -> Span {
    let kinds = [
        ("accepted", counts.accepted()),
        ("received", counts.received()),
        ("rejected", counts.rejected()),
        ("suppressed", counts.suppressed()),
        ("expired", counts.expired()),
    ];
    kinds.into_iter().filter(|(_, count)| *count > 0).fold(span, |span, (name, count)| span.with(name, count))
}

fn nanos(at: Timestamp) -> u64 {
    at.as_millis().saturating_mul(1_000_000)
}
