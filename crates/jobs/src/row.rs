//! A job as it is checkpointed: JSON, so that an operator can read it, with sets in base64.
//!
//! A running job is a cursor, the set of devices before the cursor that have no outcome yet, and counts. That is all
//! resuming needs: what is before the cursor and not in the set is counted. Which pool a device waits for is not kept,
//! since its record is read again anyway.
//!
//! Versions, all of which are read: 4 adds when the answers came by provider, and when receipts did. 3 adds counts by provider, app and language, the number of repeats, and for a
//! finished job its topic, priority and whether it was cancelled. 2 adds for a finished job when it was done and the
//! state of its report (`Telling`).
//!
//! Size: the set takes 2 bytes per device when it is small and at most a bit per device number when it is large.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tidings_types::{
    DeviceNumber, EventId, EventPriority, JobState, JournalPosition, Provider, TimeTo, Timestamp, TopicName,
};

use crate::latency::{Latency, LatencyRow};
use crate::outcome::Counts;
use crate::report::{JobReport, Telling};
use crate::tally::{JobPart, Tally};

/// The version this one writes; it reads all from 1 on.
const VERSION: u32 = 4;

/// About the heap bytes of a histogram of answers, and of a part of the counts.
const LATENCY_BYTES: usize = 20 << 10;
const PART_BYTES: usize = 256;

/// A row that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A version that this one does not know wrote it.
    #[error("job {} has version {found}, this version reads 1 to {known}", .position.0)]
    Version {
        /// The job.
        position: JournalPosition,
        /// What it says.
        found: u32,
        /// The latest we know.
        known: u32,
    },
    /// It is damaged.
    #[error("job {} is damaged: {what}", .position.0)]
    Damaged {
        /// The job.
        position: JournalPosition,
        /// What is wrong.
        what: String,
    },
}

/// What is kept of a job.
#[derive(Debug)]
pub enum JobRow {
    /// It is not finished.
    Running(Progress),
    /// It is finished, with the state of its report.
    Finished(Box<JobReport>, Option<Telling>),
}

/// How far a job has come.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The first device number that was not looked at; `None` when all were.
    pub next: Option<DeviceNumber>,
    /// Devices before it without an outcome.
    pub outstanding: RoaringBitmap,
    /// The counts of the others.
    pub tally: Tally,
}

impl Progress {
    /// A job that has not begun.
    pub fn start() -> Self {
        Self { next: Some(DeviceNumber(0)), outstanding: RoaringBitmap::new(), tally: Tally::default() }
    }

    /// About how many bytes of heap its set and counts take.
    pub fn bytes_len(&self) -> usize {
        let latency = self.tally.latency.as_ref().map_or(0, |_| LATENCY_BYTES * (1 + self.tally.by_provider.len()));
        self.outstanding.serialized_size() + self.tally.parts.len() * PART_BYTES + latency
    }

    /// Whether nothing has happened yet.
    pub fn is_start(&self) -> bool {
        self.next == Some(DeviceNumber(0)) && self.outstanding.is_empty() && self.tally.counts.total() == 0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Body {
    Running(RunningBody),
    Finished(FinishedBody),
}

#[derive(Serialize, Deserialize)]
struct RunningBody {
    next: Option<DeviceNumber>,
    outstanding: String,
    counts: Counts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<JobPart>,
    #[serde(default)]
    retried: u64,
    latency: Option<LatencyRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_provider: Vec<(Provider, LatencyRow)>,
}

#[derive(Serialize, Deserialize)]
struct FinishedBody {
    event: EventId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic: Option<TopicName>,
    #[serde(default)]
    priority: EventPriority,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    accepted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done_at: Option<Timestamp>,
    counts: Counts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<JobPart>,
    #[serde(default)]
    retried: u64,
    time_to: Option<TimeTo>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    time_to_by: Vec<(Provider, TimeTo)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_to_live: Option<TimeTo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    telling: Option<Telling>,
}

#[derive(Serialize, Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Versioned {
    version: u32,
    #[serde(flatten)]
    body: Body,
}

impl JobRow {
    /// The bytes for the store.
    pub fn encode(self) -> Vec<u8> {
        let body = match self {
            Self::Running(progress) => Body::Running(progress.into()),
            Self::Finished(report, telling) => Body::Finished(FinishedBody::new(*report, telling)),
        };
        serde_json::to_vec(&Versioned { version: VERSION, body }).expect("our rows have string keys")
    }

    /// Reads the row of the job at `position`, which the error names.
    pub fn decode(position: JournalPosition, row: &[u8]) -> Result<Self, RowError> {
        let damaged = |what: String| RowError::Damaged { position, what };
        let Version { version } = serde_json::from_slice(row).map_err(|error| damaged(error.to_string()))?;
        if !(1..=VERSION).contains(&version) {
            return Err(RowError::Version { position, found: version, known: VERSION });
        }
        let Versioned { body, .. } = serde_json::from_slice(row).map_err(|error| damaged(error.to_string()))?;
        Ok(match body {
            Body::Running(body) => Self::Running(body.try_into().map_err(damaged)?),
            Body::Finished(body) => {
                let telling = body.telling;
                Self::Finished(Box::new(body.into_report(position)), telling)
            }
        })
    }
}

impl From<Progress> for RunningBody {
    fn from(Progress { next, mut outstanding, tally }: Progress) -> Self {
        let Tally { counts, parts, retried, latency, by_provider } = tally;
        let by_provider = by_provider.into_iter().map(|(provider, latency)| (provider, latency.to_row())).collect();
        outstanding.optimize(); // A whole audience that waits is a few runs of numbers.
        let mut bytes = Vec::with_capacity(outstanding.serialized_size());
        outstanding.serialize_into(&mut bytes).expect("a vector takes all bytes");
        let (outstanding, latency) = (STANDARD.encode(bytes), latency.map(|latency| latency.to_row()));
        Self { next, outstanding, counts, parts, retried, latency, by_provider }
    }
}

impl TryFrom<RunningBody> for Progress {
    type Error = String;

    fn try_from(
        RunningBody { next, outstanding, counts, parts, retried, latency, by_provider }: RunningBody,
    ) -> Result<Self, String> {
        let bytes = STANDARD.decode(outstanding).map_err(|error| error.to_string())?;
        let outstanding = RoaringBitmap::deserialize_from(&bytes[..]).map_err(|error| error.to_string())?;
        if let (Some(next), Some(last)) = (next, outstanding.max())
            && last >= next.0
        {
            return Err(format!("device {last} is outstanding behind the cursor {}", next.0));
        }
        let latency = latency.map(|row| Latency::from_row(&row).map(Box::new)).transpose()?;
        let by_provider = by_provider.into_iter().map(|(provider, row)| Ok((provider, Latency::from_row(&row)?)));
        let by_provider = by_provider.collect::<Result<_, String>>()?;
        Ok(Self { next, outstanding, tally: Tally { counts, parts, retried, latency, by_provider } })
    }
}

impl FinishedBody {
    fn new(report: JobReport, telling: Option<Telling>) -> Self {
        let cancelled = report.state == JobState::Cancelled;
        let JobReport { event, topic, priority, accepted_at, done_at, counts, by: parts, retried, .. } = report;
        let JobReport { time_to, time_to_by, time_to_live, .. } = report;
        Self {
            event,
            topic,
            priority,
            cancelled,
            accepted_at,
            done_at,
            counts,
            parts,
            retried,
            time_to,
            time_to_by,
            time_to_live,
            telling,
        }
    }

    fn into_report(self, position: JournalPosition) -> JobReport {
        let Self { event, topic, priority, cancelled, accepted_at, done_at, counts, parts, retried, .. } = self;
        let Self { time_to, time_to_by, time_to_live, .. } = self;
        JobReport {
            position,
            event,
            topic,
            priority,
            state: if cancelled { JobState::Cancelled } else { JobState::Finished },
            paused_by: None,
            accepted_at,
            done_at,
            audience: counts.total(),
            held: 0,
            counts,
            by: parts,
            retried,
            time_to,
            time_to_by,
            time_to_live,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidings_types::{AppId, Locale, Provider};

    use super::*;
    use crate::outcome::DeviceOutcome;

    const POSITION: JournalPosition = JournalPosition(7);

    proptest! {
        #[test]
        fn a_running_job_reads_back_as_it_was(
            numbers in prop::collection::btree_set(0..200_000_u32, 0..300),
            run in 0..70_000_u32,
            accepted in 0..1000_u64,
        ) {
            let mut outstanding: RoaringBitmap = numbers.into_iter().collect();
            outstanding.insert_range(300_000..300_000 + run);
            let mut tally = Tally::default();
            tally.counts.add(DeviceOutcome::Accepted, accepted);
            let locale = Locale::new("pl").unwrap();
            let cell = tally.cell(Provider::Fcm, &AppId::new("app").unwrap(), Some(&locale));
            tally.count_part(cell, DeviceOutcome::Accepted);
            tally.retried = accepted / 2;
            tally.answered_after(Duration::from_millis(accepted));
            let next = Some(DeviceNumber(400_000));
            let row = JobRow::Running(Progress { next, outstanding: outstanding.clone(), tally: tally.clone() }).encode();
            let JobRow::Running(read) = JobRow::decode(POSITION, &row).unwrap() else { panic!("state") };
            prop_assert_eq!((read.next, read.outstanding), (next, outstanding));
            prop_assert_eq!((&read.tally.counts, &read.tally.parts), (&tally.counts, &tally.parts));
            prop_assert_eq!((read.tally.retried, read.tally.time_to()), (tally.retried, tally.time_to()));
            prop_assert_eq!(read.tally.time_to_by(), tally.time_to_by());
        }

        #[test]
        fn damaged_rows_are_refused_or_read_but_never_panic(
            place in 0..200_usize, byte in any::<u8>(), cut in 0..400_usize,
        ) {
            let mut progress = Progress::start();
            progress.next = Some(DeviceNumber(1000));
            progress.outstanding.insert_range(5..500);
            let mut row = JobRow::Running(progress).encode();
            let place = place % row.len();
            row[place] = byte;
            row.truncate(cut.max(1));
            match JobRow::decode(POSITION, &row) {
                Ok(read) => prop_assert!(JobRow::decode(POSITION, &read.encode()).is_ok(), "what is read can be written"),
                Err(error) => prop_assert!(error.to_string().starts_with("job 7 "), "{error}"),
            }
        }
    }

    #[test]
    fn a_large_audience_that_waits_takes_few_bytes() {
        let mut progress = Progress::start();
        progress.next = None;
        progress.outstanding.insert_range(0..1_300_000);
        assert!(JobRow::Running(progress).encode().len() < 1024);
    }

    #[test]
    fn a_finished_job_reads_back_as_it_was() {
        for telling in [None, Some(Telling::Owed), Some(Telling::Told), Some(Telling::GivenUp)] {
            for state in [JobState::Finished, JobState::Cancelled] {
                let mut counts = Counts::default();
                counts.add(DeviceOutcome::Superseded, 3);
                let (provider, app) = (Provider::WebPush, AppId::new("app").unwrap());
                let report = JobReport {
                    position: POSITION,
                    event: EventId::new("goal-1").unwrap(),
                    topic: Some(TopicName::new("goal").unwrap()),
                    priority: EventPriority::High,
                    state,
                    paused_by: None,
                    accepted_at: Timestamp(5),
                    done_at: Some(Timestamp(6)),
                    audience: 3,
                    held: 0,
                    by: vec![JobPart { provider, app, locale: None, counts: counts.clone() }],
                    counts,
                    retried: 2,
                    time_to: None,
                    time_to_by: Vec::new(),
                    time_to_live: None,
                };
                let row = JobRow::Finished(Box::new(report.clone()), telling).encode();
                let JobRow::Finished(read, told) = JobRow::decode(POSITION, &row).unwrap() else { panic!("state") };
                assert_eq!((*read, told), (report, telling));
            }
        }
    }

    #[test]
    fn rows_of_former_versions_are_read() {
        for version in [1, 2, 3] {
            let row = format!(
                r#"{{"version":{version},"state":"finished","event":"goal-1","accepted_at":5,
                "counts":{{"accepted":2,"rejected/Unregistered":1}},"time_to":null}}"#
            );
            let JobRow::Finished(report, telling) = JobRow::decode(POSITION, row.as_bytes()).unwrap() else {
                panic!("state")
            };
            assert_eq!((report.event.as_str(), report.accepted_at, report.done_at), ("goal-1", Timestamp(5), None));
            assert_eq!((report.counts.accepted(), report.counts.rejected(), report.audience), (2, 1, 3));
            assert_eq!((report.state, report.topic, report.by.len()), (JobState::Finished, None, 0));
            assert_eq!(telling, None, "it is told to nobody");
            let row = format!(
                r#"{{"version":{version},"state":"running","next":3,"outstanding":"OjAAAAAAAAA=",
                "counts":{{"accepted":2}},"latency":null}}"#
            );
            let row = JobRow::decode(POSITION, row.as_bytes()).unwrap();
            let JobRow::Running(progress) = row else { panic!("state") };
            assert_eq!((progress.next, progress.tally.counts.accepted()), (Some(DeviceNumber(3)), 2));
        }
        let row = br#"{"version":2,"state":"finished","event":"goal-1","accepted_at":5,"done_at":6,"counts":{},
            "time_to":null,"telling":"owed"}"#;
        let JobRow::Finished(report, telling) = JobRow::decode(POSITION, row).unwrap() else { panic!("state") };
        assert_eq!((report.done_at, telling), (Some(Timestamp(6)), Some(Telling::Owed)));
    }

    #[test]
    fn another_version_and_nonsense_are_refused_by_name() {
        let refusal = |row: &[u8]| JobRow::decode(POSITION, row).unwrap_err().to_string();
        assert_eq!(refusal(br#"{"version":5,"jobs":[]}"#), "job 7 has version 5, this version reads 1 to 4");
        assert_eq!(refusal(br#"{"version":0,"jobs":[]}"#), "job 7 has version 0, this version reads 1 to 4");
        assert!(refusal(b"\xff").starts_with("job 7 is damaged: "));
        let row = br#"{"version":1,"state":"running","next":3,"outstanding":"OjAAAAEAAAAAAAAAEAAAAAUA","counts":{},
            "latency":null}"#;
        assert_eq!(refusal(row), "job 7 is damaged: device 5 is outstanding behind the cursor 3");
    }
}
