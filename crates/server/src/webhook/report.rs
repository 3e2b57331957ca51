//! The content of a report: an event's job is done, in the format of the Standard Webhooks specification, with the job
//! as in `GET /v1/jobs`. The report of a job is always the same, also after a restart.

use serde::Serialize;
use tidings_api::{JobEntry, JobView, Rfc3339};
use tidings_types::Timestamp;
use uuid::Uuid;

/// The kind of this report. Later versions may send other kinds to the same address.
const EVENT_DONE: &str = "event.done";

/// A report without the headers that each attempt adds.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// The same for all attempts, so that a receiver can recognise a repeat.
    pub(super) id: String,
    /// JSON.
    pub(super) body: Vec<u8>,
}

#[derive(Serialize)]
struct Body {
    r#type: &'static str,
    /// When the job ended, not when the report is sent.
    timestamp: Rfc3339,
    data: JobEntry,
}

impl Report {
    /// That this job is done.
    pub(super) fn new(job: JobView) -> Self {
        let id = id(&job);
        let timestamp = Rfc3339(job.done_at.unwrap_or(job.accepted_at));
        let body = Body { r#type: EVENT_DONE, timestamp, data: job.into() };
        Self { id, body: serde_json::to_vec(&body).expect("a job has string keys") }
    }
}

/// Unique among the jobs of all servers. A forgotten event's id may be used again, and an empty data folder uses
/// journal positions again. The time of acceptance tells such jobs apart.
fn id(job: &JobView) -> String {
    const NAMESPACE: Uuid = Uuid::from_u128(0x5b1d_9e40_27c6_4f0a_8a53_c90b_71d2_6e8f);
    let Timestamp(accepted_at) = job.accepted_at;
    let name = format!("{}/{accepted_at}/{}", job.position.0, job.event);
    format!("msg_{}", Uuid::new_v5(&NAMESPACE, name.as_bytes()).simple())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::{Value, json};
    use tidings_api::{JobPart, Outcomes};
    use tidings_types::{AppId, EventId, EventPriority, JournalPosition, Locale, Provider, TopicName};
    use tidings_types::{JobState, TimeTo};

    use super::*;

    fn job() -> JobView {
        let millis = Duration::from_millis;
        JobView {
            position: JournalPosition(42),
            event: EventId::new("goal-1").unwrap(),
            topic: Some(TopicName::new("goal").unwrap()),
            priority: EventPriority::High,
            accepted_at: Timestamp(1_700_000_000_123),
            done_at: Some(Timestamp(1_700_000_004_567)),
            state: JobState::Finished,
            paused_by: None,
            audience: 9,
            held: 0,
            outcomes: Outcomes {
                accepted: 7,
                received: 1,
                rejected: BTreeMap::from([("Unregistered", 1)]),
                ..Outcomes::default()
            },
            retried: 2,
            by: vec![JobPart {
                provider: Provider::Apns,
                app: AppId::new("com.example.app").unwrap(),
                locale: Some(Locale::new("pl").unwrap()),
                outcomes: Outcomes {
                    accepted: 7,
                    rejected: BTreeMap::from([("Unregistered", 1)]),
                    ..Outcomes::default()
                },
            }],
            time_to: Some(TimeTo { first: millis(3), p50: millis(4), p90: millis(5), p99: millis(6), p100: millis(7) }),
            time_to_by: vec![(
                Provider::Apns,
                TimeTo { first: millis(3), p50: millis(4), p90: millis(5), p99: millis(6), p100: millis(7) },
            )],
            time_to_live: Some(TimeTo {
                first: millis(1),
                p50: millis(1),
                p90: millis(1),
                p99: millis(1),
                p100: millis(1),
            }),
        }
    }

    /// `docs/webhook.md` shows this very report.
    #[test]
    fn a_report_has_the_shape_that_is_documented() {
        let report = Report::new(job());
        let found: Value = serde_json::from_slice(&report.body).unwrap();
        let expected = json!({
            "type": "event.done",
            "timestamp": "2023-11-14T22:13:24.567Z",
            "data": {
                "id": "goal-1",
                "position": 42,
                "topic": "goal",
                "priority": "high",
                "accepted_at": "2023-11-14T22:13:20.123Z",
                "state": "finished",
                "done_at": "2023-11-14T22:13:24.567Z",
                "audience": 9,
                "held": 0,
                "retried": 2,
                "outcomes": {
                    "accepted": 7, "received": 1, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
                    "rejected": {"Unregistered": 1}, "suppressed": {},
                },
                "time_to": {"first_ms": 3, "p50_ms": 4, "p90_ms": 5, "p99_ms": 6, "p100_ms": 7},
                "time_to_by": {
                    "apns": {"first_ms": 3, "p50_ms": 4, "p90_ms": 5, "p99_ms": 6, "p100_ms": 7},
                    "live": {"first_ms": 1, "p50_ms": 1, "p90_ms": 1, "p99_ms": 1, "p100_ms": 1},
                },
                "by": [{
                    "provider": "apns", "app": "com.example.app", "locale": "pl",
                    "outcomes": {
                        "accepted": 7, "received": 0, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
                        "rejected": {"Unregistered": 1}, "suppressed": {},
                    },
                }],
            },
        });
        assert_eq!(found, expected);
        let page = include_str!("../../../../docs/webhook.md");
        let (_, shown) = page.split_once("```json\n").expect("an example");
        let (shown, _) = shown.split_once("```").expect("its end");
        assert_eq!(serde_json::from_str::<Value>(shown).expect("the example is JSON"), expected);
    }

    #[test]
    fn the_id_is_of_the_job_and_of_no_other() {
        assert_eq!(Report::new(job()).id, "msg_6d22877d6a4b59728c608ea877aa9a2b");
        let later = JobView { accepted_at: Timestamp(1_700_000_000_124), ..job() };
        let elsewhere = JobView { position: JournalPosition(43), ..job() };
        let other = JobView { event: EventId::new("goal-2").unwrap(), ..job() };
        let ids = [job(), later, elsewhere, other].map(|job| Report::new(job).id);
        assert!(ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')), "no dots");
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        let counted_on = JobView { audience: 10, ..job() };
        assert_eq!(Report::new(counted_on).id, ids[0], "what was counted does not matter");
    }
}
