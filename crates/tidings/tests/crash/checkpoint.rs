//! What a killed server left behind: events, jobs, devices, as its last checkpoint and its last synced write tell.
//!
//! Read from a *copy* of the data folder, so that it is the server itself that recovers from the crash. The rows of jobs
//! are the sender's (`crates/sender/src/row.rs`), here read by their documented form: JSON with sets in base64.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roaring::RoaringBitmap;
use serde::Deserialize;
use tidings_store::backup::leave_log;
use tidings_store::{CommitSink, DurableChannel, QueueLimit, Store, StoreConfig, StoredPublication};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, DeviceId, DeviceNumber, JournalPosition, StreamPosition};

use crate::deliveries::{Pair, Wrongs};
use crate::model::{Key, World};
use crate::server::copy_folder;
use crate::{device_id, event_id, event_number, key_of, subject};

/// Everything read.
pub(crate) struct Checkpoint {
    store: Store,
    /// Numbers of our events by place in the journal.
    journal: BTreeMap<u64, u32>,
    /// By number of the event; those without a row are not here.
    jobs: HashMap<u32, JobRow>,
    /// Events before it have their job.
    dispatched: u64,
}

/// A job as it was noted.
#[derive(Debug)]
pub(crate) enum JobRow {
    /// Devices before `next` (all, if `None`) and not in `outstanding` have their outcome.
    Running { next: Option<u32>, outstanding: RoaringBitmap },
    /// By name of the outcome.
    Finished { counts: BTreeMap<String, u64> },
}

impl Checkpoint {
    /// Copies the data folder to `scratch` and reads that.
    pub(crate) fn read_copy(data: &Path, scratch: &Path) -> Self {
        let _ = std::fs::remove_dir_all(scratch); // That of the kill before.
        copy_folder(&data.join("store"), scratch);
        leave_log(scratch).expect("what a crash leaves can be opened"); // Of a node of a cluster.
        Self::read(scratch)
    }

    fn read(folder: &Path) -> Self {
        let store = open_store(folder);
        let mut journal = BTreeMap::new();
        let mut position = JournalPosition(0);
        loop {
            let events = store.events_from(position, 10_000).unwrap();
            let Some((last, _)) = events.last() else { break };
            position = JournalPosition(last.0 + 1);
            journal.extend(
                events.iter().filter_map(|(at, accepted)| Some((at.0, event_number(accepted.event.id.as_str())?))),
            );
        }
        let jobs = store.jobs().unwrap();
        let jobs = jobs.iter().filter_map(|(at, row)| Some((*journal.get(&at.0)?, JobRow::decode(row))));
        Self { jobs: jobs.collect(), dispatched: store.dispatched().unwrap().0, journal, store }
    }

    /// Closes the copy.
    pub(crate) async fn close(self) {
        self.store.close().await;
    }

    /// Whether the outcome of a device, here by its number in the store, is noted.
    pub(crate) fn is_settled(&self, event: u32, number: u32) -> bool {
        self.jobs.get(&event).is_some_and(|job| job.is_settled(number))
    }

    /// Events without a finished job.
    pub(crate) fn open_job_count(&self) -> usize {
        let is_finished = |event: &u32| matches!(self.jobs.get(event), Some(JobRow::Finished { .. }));
        self.journal.values().filter(|event| !is_finished(event)).count()
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = (u32, &JobRow)> {
        self.jobs.iter().map(|(event, job)| (*event, job))
    }

    /// Whether a known device has no token: its provider has said that it is gone.
    pub(crate) fn is_tokenless(&self, device: u32) -> bool {
        let device = self.store.device(&DeviceId::new(&device_id(device)).unwrap()).unwrap();
        device.is_some_and(|device| device.token.is_none())
    }

    /// Of these numbers of devices in the store, those without a token.
    pub(crate) fn tokenless_of(&self, numbers: &[DeviceNumber]) -> HashSet<u32> {
        let mut tokenless = HashSet::new();
        self.store.with_recipients(numbers, |recipient| {
            if recipient.token.is_none() {
                tokenless.insert(recipient.number.0);
            }
        });
        tokenless
    }

    /// Whether everything is there that was acknowledged. `numbers`, by device, are those of earlier kills, and added to.
    pub(crate) fn check(&self, world: &World, numbers: &mut HashMap<u32, u32>) -> Wrongs {
        let mut wrongs = self.check_events(world);
        for (device, state) in world.devices.iter().enumerate() {
            let device = device as u32;
            let id = DeviceId::new(&device_id(device)).unwrap();
            let number = self.store.device_number(&id).unwrap();
            wrongs.require(number.is_some() || !state.is_registered(), || format!("device {device} is lost"));
            let Some(DeviceNumber(number)) = number else { continue };
            let before = *numbers.entry(device).or_insert(number);
            wrongs.require(before == number, || format!("device {device} was number {before} and now is {number}"));
            let Some(certain) = state.certain() else { continue };
            let found = self.store.subscriptions(&id).unwrap().unwrap_or_default();
            let found: std::collections::BTreeSet<Key> = found
                .iter()
                .flat_map(|(subject, topics)| {
                    topics.iter().filter_map(|topic| key_of(subject.as_str(), topic.as_str()))
                })
                .collect();
            wrongs.require(found == *certain, || {
                format!(
                    "device {device} was acknowledged to be subscribed to {certain:?}, after the kill it is {found:?}"
                )
            });
        }
        wrongs
    }

    fn check_events(&self, world: &World) -> Wrongs {
        let mut wrongs = Wrongs::default();
        let (mut published, mut once) = (HashMap::<(String, u64), u32>::new(), HashSet::<(String, u32)>::new());
        for channel in self.store.durable_channels(unix_now()).unwrap() {
            for (offset, publication) in &self.store.history(&channel.name, unix_now()).unwrap() {
                let event = publication.tags.get("event").and_then(|id| event_number(id));
                published.extend(event.map(|event| ((channel.name.to_string(), offset.0), event)));
                let is_first = event.is_none_or(|event| once.insert((channel.name.to_string(), event)));
                wrongs.require(is_first, || format!("{} has {event:?} twice, again at {}", channel.name, offset.0));
            }
        }
        for (event, channel, offset) in world.acknowledged() {
            let channel = subject(channel);
            let found = published.get(&(channel.clone(), offset));
            wrongs.require(found == Some(&event), || {
                format!("{} was acknowledged in {channel} at {offset}, there is {found:?}", event_id(event))
            });
        }
        for (event, state) in world.events.iter().enumerate() {
            let (event, Some(answer)) = (event as u32, state.answer) else { continue };
            let found = self.journal.get(&answer.position);
            wrongs.require(found == Some(&event), || {
                format!("event {event} was acknowledged at {}, after the kill {found:?} is there", answer.position)
            });
        }
        wrongs.require(self.dispatched <= self.store.journal_end().0, || {
            format!("jobs were dispatched up to {}, behind the journal's end", self.dispatched)
        });
        wrongs
    }
}

impl JobRow {
    fn decode(row: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(tag = "state", rename_all = "snake_case")]
        enum Row {
            Running { version: u32, next: Option<u32>, outstanding: String },
            Finished { version: u32, counts: BTreeMap<String, u64> },
        }
        let (version, job) = match serde_json::from_slice(row).expect("a job's row is JSON") {
            Row::Running { version, next, outstanding } => {
                let set = STANDARD.decode(outstanding).expect("a set is in base64");
                let outstanding = RoaringBitmap::deserialize_from(&set[..]).expect("a set is a roaring bitmap");
                (version, Self::Running { next, outstanding })
            }
            Row::Finished { version, counts } => (version, Self::Finished { counts }),
        };
        assert_eq!(version, 4, "the form of the sender's rows has changed: teach this test");
        job
    }

    fn is_settled(&self, number: u32) -> bool {
        match self {
            Self::Running { next, outstanding } => {
                next.is_none_or(|next| number < next) && !outstanding.contains(number)
            }
            Self::Finished { .. } => true,
        }
    }
}

/// For [`crate::deliveries::Deliveries::end_life`]: the pair's outcome is in the checkpoint.
pub(crate) fn is_settled(checkpoint: &Checkpoint, numbers: &HashMap<u32, u32>, (device, event): Pair) -> bool {
    numbers.get(&device).is_some_and(|number| checkpoint.is_settled(event, *number))
}

/// Opens a store that no server has open.
pub(crate) fn open_store(folder: &Path) -> Store {
    Store::open(store_config(folder), Arc::new(Nobody)).expect("what a crash leaves can be opened")
}

/// For the canary: a server that is not running forgets how far its jobs have come.
pub(crate) async fn forget_jobs(data: &Path) {
    let store = open_store(&data.join("store"));
    let positions = store.jobs().unwrap().into_iter().map(|(position, _)| position).collect();
    store.remove_jobs(positions).await.unwrap();
    store.put_jobs(Vec::new(), Some(JournalPosition(0))).await.unwrap();
    store.close().await;
}

/// Nobody is told of what is written here.
struct Nobody;

impl CommitSink for Nobody {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {}
}

fn store_config(folder: &Path) -> StoreConfig {
    let queue = QueueLimit { count: 16, bytes: 16 << 20 };
    StoreConfig {
        path: folder.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: u64::MAX,
        journal_bytes_max: u64::MAX,
        id_window: Duration::from_secs(24 * 3600),
        id_window_count: u64::MAX,
        device_count_max: u32::MAX,
        subscription_count_max: u32::MAX,
        channel_count_max: u64::MAX,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        later_count_max: u64::MAX,
        reopen_backoff_min: Duration::from_millis(100),
        reopen_backoff_max: Duration::from_secs(1),
        cache_bytes: 16 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: u32::MAX,
        idle_max: None,
        clock: unix_now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_row_tells_who_is_done() {
        let mut set = Vec::new();
        [3u32, 5].into_iter().collect::<RoaringBitmap>().serialize_into(&mut set).unwrap();
        let set = STANDARD.encode(set);
        let row =
            format!(r#"{{"version":4,"state":"running","next":8,"outstanding":"{set}","counts":{{}},"latency":null}}"#);
        let job = JobRow::decode(row.as_bytes());
        let settled: Vec<u32> = (0..10).filter(|number| job.is_settled(*number)).collect();
        assert_eq!(settled, [0, 1, 2, 4, 6, 7]);
        let walked = row.replace("\"next\":8", "\"next\":null");
        assert!(JobRow::decode(walked.as_bytes()).is_settled(100));
    }

    #[test]
    fn a_finished_row_has_its_counts() {
        let row =
            br#"{"version":4,"state":"finished","event":"e-1","accepted_at":1,"counts":{"accepted":2},"retried":1,"time_to":null}"#;
        let JobRow::Finished { counts } = JobRow::decode(row) else { panic!("state") };
        assert_eq!(counts, BTreeMap::from([("accepted".to_owned(), 2)]));
    }
}
