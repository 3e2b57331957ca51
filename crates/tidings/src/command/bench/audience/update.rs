//! Single durable changes by many writers: each adds one subscription, waits for its acknowledgement, and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidings_store::Store;
use tidings_types::{Subject, TopicName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::data;
use super::select::Audience;
use crate::command::CommandError;
use crate::command::bench::statistic::quantile;
use crate::command::bench::{failed, failed_by};

pub(super) const WRITER_COUNT: u64 = 64;
const WINDOW: Duration = Duration::from_secs(3);

/// What came of one run.
pub(super) struct Updated {
    pub(super) count: u64,
    pub(super) rate: f64,
    pub(super) p99_millis: f64,
    /// How long each selection took meanwhile.
    pub(super) select_millis: Vec<f64>,
}

/// Writes for a while; every subscription is new, numbered from `first` on. With an audience, hands that out over and
/// over on another thread meanwhile.
pub(super) async fn measure(store: &Store, selected: Option<&Audience>, first: u64) -> Result<Updated, CommandError> {
    let next = Arc::new(AtomicU64::new(first));
    let done = Arc::new(AtomicBool::new(false));
    let mut selecting = JoinSet::new();
    if let Some(audience) = selected.cloned() {
        let (store, done) = (store.clone(), done.clone());
        selecting.spawn_blocking(move || select_until(&done, &audience, &store));
    }
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITER_COUNT {
        writers.spawn(write(store.clone(), next.clone(), began + WINDOW));
    }
    let mut millis = Vec::new();
    while let Some(ended) = writers.join_next().await {
        millis.extend(ended.map_err(|error| failed_by("a writer ended", &error))??);
    }
    let elapsed = began.elapsed();
    done.store(true, Ordering::Relaxed);
    let mut select_millis = Vec::new();
    while let Some(ended) = selecting.join_next().await {
        select_millis.extend(ended.map_err(|error| failed_by("the selecting thread ended", &error))??);
    }
    let count = next.load(Ordering::Relaxed) - first;
    if count != millis.len() as u64 {
        return Err(failed(format!("{} of {count} updates were acknowledged", millis.len())));
    }
    let rate = count as f64 / elapsed.as_secs_f64();
    Ok(Updated { count, rate, p99_millis: quantile(&mut millis, 0.99), select_millis })
}

/// One writer; tells how long each of its updates took, in milliseconds.
async fn write(store: Store, next: Arc<AtomicU64>, deadline: Instant) -> Result<Vec<f64>, CommandError> {
    let topic = TopicName::new("goal").expect("a legal topic");
    let device_count = store.counts().devices;
    let mut millis = Vec::new();
    while Instant::now() < deadline {
        let number = next.fetch_add(1, Ordering::Relaxed);
        // A step that is a prime over any number of devices: a hundred in a row are different devices.
        let device = (number * 4_294_967_291 % device_count) as u32;
        // So a subject per hundred makes each subscription new, as after a kick-off.
        let subject = Subject::new(&format!("match:{}", number / 100)).expect("a legal subject");
        let began = Instant::now();
        let added = store.subscribe(&data::device_id(device), vec![(subject, vec![topic.clone()])]).await;
        let added = added.map_err(|error| failed_by("an update was refused", &error))?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
        if added != 1 {
            return Err(failed(format!("an update added {added} subscriptions")));
        }
    }
    Ok(millis)
}

fn select_until(done: &AtomicBool, audience: &Audience, store: &Store) -> Result<Vec<f64>, CommandError> {
    let mut millis = Vec::new();
    while !done.load(Ordering::Relaxed) {
        millis.push(audience.hand_out(store)?.all.as_secs_f64() * 1e3);
    }
    Ok(millis)
}
