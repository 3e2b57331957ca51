//! Durable changes by many writers: each adds one subscription, waits for its acknowledgement, and continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_store::Store;
use tidings_types::{DeviceId, Subject, TopicName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::data;
use crate::statistic::quantile;

pub(super) const WRITER_COUNT: usize = 64;
const WINDOW: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 3000 });
/// The kind of the subjects that the writers subscribe to.
const CHANGED_KIND: &str = "match";

/// A new subscription of a device to `goal`.
pub(super) struct Change {
    pub(super) device: DeviceId,
    pub(super) subject: Subject,
}

impl Change {
    fn new(number: u64, device_count: u32) -> Self {
        // A hundred changes in a row are of different devices, so with a subject per hundred each change is new.
        let subject = Subject::new(&format!("{CHANGED_KIND}:{}", number / 100)).expect("a legal subject");
        Self { device: data::device_id(device(number, device_count)), subject }
    }
}

/// The device of a change. Changes are spread over all devices, and a device comes again only after all others: the step
/// is a prime that is larger than any device count.
pub(super) fn device(number: u64, device_count: u32) -> u32 {
    (number % u64::from(device_count) * 4_294_967_291 % u64::from(device_count)) as u32
}

/// Whether a writer made a subscription to this subject.
pub(super) fn is_of_a_change(subject: &Subject) -> bool {
    subject.as_str().strip_prefix(CHANGED_KIND).is_some_and(|rest| rest.starts_with(':'))
}

/// The result of one run.
pub(super) struct Updated {
    pub(super) count: u64,
    pub(super) rate: f64,
    pub(super) p99_millis: f64,
}

/// Runs all writers for [`WINDOW`]; changes are numbered from `first` on. `write` gets the writer's number and a change.
/// It returns how many subscriptions the change added, when they are durable.
pub(super) async fn measure<F>(
    device_count: u32,
    first: u64,
    write: impl Fn(usize, Change) -> F + Clone + Send + 'static,
) -> Result<Updated, CommandError>
where
    F: Future<Output = Result<u64, CommandError>> + Send,
{
    let next = Arc::new(AtomicU64::new(first));
    let began = Instant::now();
    let deadline = began + WINDOW;
    let mut writers = JoinSet::new();
    for writer in 0..WRITER_COUNT {
        let (next, write) = (next.clone(), write.clone());
        writers.spawn(async move {
            let mut millis = Vec::new();
            while Instant::now() < deadline {
                let change = Change::new(next.fetch_add(1, Ordering::Relaxed), device_count);
                let began = Instant::now();
                let added = write(writer, change).await?;
                millis.push(began.elapsed().as_secs_f64() * 1e3);
                if added != 1 {
                    return Err(failed(format!("an update added {added} subscriptions")));
                }
            }
            Ok(millis)
        });
    }
    let mut millis = Vec::new();
    while let Some(ended) = writers.join_next().await {
        millis.extend(ended.map_err(|error| failed_by("a writer ended", &error))??);
    }
    let elapsed = began.elapsed();
    let count = next.load(Ordering::Relaxed) - first;
    if count != millis.len() as u64 {
        return Err(failed(format!("{} of {count} updates were acknowledged", millis.len())));
    }
    let rate = count as f64 / elapsed.as_secs_f64();
    Ok(Updated { count, rate, p99_millis: quantile(&mut millis, 0.99) })
}

/// Measures updates of our store.
pub(super) async fn measure_ours(store: &Store, device_count: u32, first: u64) -> Result<Updated, CommandError> {
    let (store, topic) = (store.clone(), TopicName::new("goal").expect("a legal topic"));
    let write = move |_, Change { device, subject }| {
        let (store, topic) = (store.clone(), topic.clone());
        async move {
            let added = store.subscribe(&device, vec![(subject, vec![topic])]).await;
            added.map(|added| added as u64).map_err(|error| failed_by("an update was refused", &error))
        }
    };
    measure(device_count, first, write).await
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_change_is_different() {
        let changes = || (0..5000).map(|number| Change::new(number, 300));
        let distinct: HashSet<_> = changes().map(|change| (change.device, change.subject)).collect();
        assert_eq!(distinct.len(), 5000);
        assert_eq!((0..300).map(|number| device(number, 300)).collect::<HashSet<_>>().len(), 300);
        assert!(changes().all(|change| is_of_a_change(&change.subject)));
        assert!(!is_of_a_change(&Subject::new("matches:1").unwrap()));
    }

    #[tokio::test]
    async fn a_change_that_adds_nothing_fails_the_run() {
        let done = measure(1000, 0, |_, _| async { Ok(1) }).await.unwrap();
        assert!(done.count > 0 && done.rate > 0.0);
        assert!(measure(1000, 0, |_, _| async { Ok(0) }).await.is_err());
        assert!(
            measure(1000, 0, |writer, _| async move { if writer == 0 { Err(failed("no")) } else { Ok(1) } })
                .await
                .is_err()
        );
    }
}
