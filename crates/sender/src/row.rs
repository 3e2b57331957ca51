//! A job as it is checkpointed: JSON, so that an operator can read it, with sets in base64.
//!
//! A running job is a cursor, the set of devices before the cursor that have no outcome yet, and counts. That is all
//! resuming needs: what is before the cursor and not in the set is counted. Which pool a device waits for is not kept, since
//! its record is read again anyway.
//!
//! Versions: 2 says of a finished job when it was done and whether that is told (`Telling`); 1, read as well, does not.
//!
//! Size: the set takes 2 bytes per device when it is small and at most a bit per device number when it is large.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tidings_types::{DeviceNumber, EventId, JournalPosition, Timestamp};

use crate::error::StartError;
use crate::latency::{Latency, LatencyRow, TimeTo};
use crate::outcome::Counts;
use crate::report::Telling;

/// The version this one writes; it reads all from 1 on.
const VERSION: u32 = 2;

/// What is kept of a job.
#[derive(Debug)]
pub(crate) enum JobRow {
    Running(Progress),
    Finished {
        event: EventId,
        accepted_at: Timestamp,
        done_at: Option<Timestamp>,
        counts: Counts,
        time_to: Option<TimeTo>,
        telling: Option<Telling>,
    },
}

/// How far a job has come.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The first device number that was not looked at; `None` when all were.
    pub(crate) next: Option<DeviceNumber>,
    /// Devices before it without an outcome.
    pub(crate) outstanding: RoaringBitmap,
    pub(crate) counts: Counts,
    pub(crate) latency: Option<Latency>,
}

impl Progress {
    /// A job that has not begun.
    pub(crate) fn start() -> Self {
        Self {
            next: Some(DeviceNumber(0)),
            outstanding: RoaringBitmap::new(),
            counts: Counts::default(),
            latency: None,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Body {
    Running {
        next: Option<DeviceNumber>,
        outstanding: String,
        counts: BTreeMap<String, u64>,
        latency: Option<LatencyRow>,
    },
    Finished {
        event: EventId,
        accepted_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done_at: Option<Timestamp>,
        counts: BTreeMap<String, u64>,
        time_to: Option<TimeTo>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        telling: Option<Telling>,
    },
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
    pub(crate) fn encode(self) -> Vec<u8> {
        let body = match self {
            Self::Running(Progress { next, mut outstanding, counts, latency }) => {
                outstanding.optimize(); // An audience that waits as a whole is a few runs of numbers.
                let mut bytes = Vec::with_capacity(outstanding.serialized_size());
                outstanding.serialize_into(&mut bytes).expect("a vector takes all bytes");
                Body::Running {
                    next,
                    outstanding: STANDARD.encode(bytes),
                    counts: counts.to_named(),
                    latency: latency.map(|latency| latency.to_row()),
                }
            }
            Self::Finished { event, accepted_at, done_at, counts, time_to, telling } => {
                Body::Finished { event, accepted_at, done_at, counts: counts.to_named(), time_to, telling }
            }
        };
        serde_json::to_vec(&Versioned { version: VERSION, body }).expect("our rows have string keys")
    }

    /// Reads the row of the job at `position`, which the error names.
    pub(crate) fn decode(position: JournalPosition, row: &[u8]) -> Result<Self, StartError> {
        let damaged = |what: String| StartError::RowDamaged { position, what };
        let Version { version } = serde_json::from_slice(row).map_err(|error| damaged(error.to_string()))?;
        if !(1..=VERSION).contains(&version) {
            return Err(StartError::RowVersion { position, found: version, known: VERSION });
        }
        let Versioned { body, .. } = serde_json::from_slice(row).map_err(|error| damaged(error.to_string()))?;
        Ok(match body {
            Body::Running { next, outstanding, counts, latency } => {
                let bytes = STANDARD.decode(outstanding).map_err(|error| damaged(error.to_string()))?;
                let outstanding =
                    RoaringBitmap::deserialize_from(&bytes[..]).map_err(|error| damaged(error.to_string()))?;
                if let (Some(next), Some(last)) = (next, outstanding.max())
                    && last >= next.0
                {
                    return Err(damaged(format!("device {last} is outstanding behind the cursor {}", next.0)));
                }
                let latency = latency.map(|row| Latency::from_row(&row)).transpose().map_err(damaged)?;
                let counts = Counts::from_named(&counts).map_err(damaged)?;
                Self::Running(Progress { next, outstanding, counts, latency })
            }
            Body::Finished { event, accepted_at, done_at, counts, time_to, telling } => {
                let counts = Counts::from_named(&counts).map_err(damaged)?;
                Self::Finished { event, accepted_at, done_at, counts, time_to, telling }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

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
            let mut counts = Counts::default();
            counts.add(DeviceOutcome::Accepted, accepted);
            let mut latency = Latency::default();
            latency.record(Duration::from_millis(accepted));
            let next = Some(DeviceNumber(400_000));
            let progress = Progress {
                next, outstanding: outstanding.clone(), counts: counts.clone(), latency: Some(latency.clone())
            };
            let row = JobRow::Running(progress).encode();
            let JobRow::Running(read) = JobRow::decode(POSITION, &row).unwrap() else { panic!("state") };
            prop_assert_eq!((read.next, read.outstanding, read.counts), (next, outstanding, counts));
            prop_assert_eq!(read.latency.unwrap().time_to(), latency.time_to());
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
            let _ = JobRow::decode(POSITION, &row);
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
            let (event, counts) = (EventId::new("goal-1").unwrap(), Counts::default());
            let (accepted_at, done_at) = (Timestamp(5), Some(Timestamp(6)));
            let row = JobRow::Finished { event, accepted_at, done_at, counts, time_to: None, telling }.encode();
            let JobRow::Finished { done_at, telling: read, .. } = JobRow::decode(POSITION, &row).unwrap() else {
                panic!("state")
            };
            assert_eq!((done_at, read), (Some(Timestamp(6)), telling));
        }
    }

    #[test]
    fn rows_of_version_1_are_read() {
        let row = br#"{"version":1,"state":"finished","event":"goal-1","accepted_at":5,
            "counts":{"accepted":2},"time_to":null}"#;
        let JobRow::Finished { event, accepted_at, done_at, counts, telling, .. } =
            JobRow::decode(POSITION, row).unwrap()
        else {
            panic!("state")
        };
        assert_eq!((event.as_str(), accepted_at, counts.accepted()), ("goal-1", Timestamp(5), 2));
        assert_eq!((done_at, telling), (None, None), "it is told to nobody");
        let row = br#"{"version":1,"state":"running","next":3,"outstanding":"OjAAAAAAAAA=","counts":{"accepted":2},
            "latency":null}"#;
        let JobRow::Running(progress) = JobRow::decode(POSITION, row).unwrap() else { panic!("state") };
        assert_eq!((progress.next, progress.counts.accepted()), (Some(DeviceNumber(3)), 2));
    }

    #[test]
    fn another_version_and_nonsense_are_refused_by_name() {
        let refusal = |row: &[u8]| JobRow::decode(POSITION, row).unwrap_err().to_string();
        assert_eq!(refusal(br#"{"version":3,"jobs":[]}"#), "job 7 has version 3, this version reads 1 to 2");
        assert_eq!(refusal(br#"{"version":0,"jobs":[]}"#), "job 7 has version 0, this version reads 1 to 2");
        assert!(refusal(b"\xff").starts_with("job 7 is damaged: "));
        let row = br#"{"version":1,"state":"running","next":3,"outstanding":"OjAAAAEAAAAAAAAAEAAAAAUA","counts":{}}"#;
        assert_eq!(refusal(row), "job 7 is damaged: device 5 is outstanding behind the cursor 3");
    }
}
