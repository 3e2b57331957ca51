//! A publication into a memory channel with the same idempotency key is published once. Keys of durable channels are the
//! store's, which keeps them with its publications ([`Store::append_publication_once`]).
//!
//! For each (channel, key) the result of the first call is kept for [`TTL`] and returned again. Calls that arrive while
//! the first one is in work wait for its result. If the first caller disconnects, the publication goes on, and the next
//! caller with the key waits for it. This is the purpose of keys: a caller that timed out tries again. A refusal is not
//! kept.
//!
//! Bound: [`KEY_COUNT_MAX`] keys, at most about 40 MB (names and keys of full length). Full: the oldest key is
//! forgotten early. Not durable: after a restart all keys are new, and so are memory channels.
//!
//! [`Store::append_publication_once`]: tidings_store::Store::append_publication_once

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tidings_telemetry::panics::{self, Locked, Work};
use tidings_types::{ChannelName, StreamPosition};
use tokio::time::Instant;

use super::error::ApiError;

/// How long a result is kept; the same as in Centrifugo.
const TTL: Duration = Duration::from_secs(300);
/// Results that are kept.
pub(crate) const KEY_COUNT_MAX: usize = 65_536;
/// What a key and its result take, if the names are as long as they may be.
pub(crate) const KEY_BYTES_MAX: usize = 640;

type Delivered = Result<Option<StreamPosition>, ApiError>;
type Delivery = Shared<Pin<Box<dyn Future<Output = Delivered> + Send>>>;
type Key = (ChannelName, Arc<str>);

/// The results of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Idempotency(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    deliveries: HashMap<Key, Entry>,
    /// The time of each first call, oldest first. Invariant: every entry of `deliveries` is here. A refused one may be
    /// here without being there.
    order: VecDeque<(Instant, u64, Key)>,
    next_number: u64,
}

#[derive(Debug)]
struct Entry {
    /// Distinguishes this entry from a later one of the same key.
    number: u64,
    delivery: Delivery,
}

impl Idempotency {
    /// The result of the first `delivery` with this key, which may not be this one.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the delivery goes on with the next call for the key.
    pub(crate) async fn once(
        &self,
        channel: ChannelName,
        key: Arc<str>,
        delivery: impl Future<Output = Delivered> + Send + 'static,
    ) -> Delivered {
        let key = (channel, key);
        // The panic is caught here, so that waiting callers are woken, and the entry is removed as after any other
        // refusal.
        let delivery =
            panics::catch_async(Work::Request, delivery).map(|ended| ended.unwrap_or(Err(ApiError::Internal)));
        let (number, shared) = self.lock().find_or_insert(&key, delivery, Instant::now());
        let delivered = shared.await;
        if delivered.is_err() {
            self.lock().remove(&key, number);
        }
        delivered
    }

    fn lock(&self) -> Locked<'_, Kept> {
        panics::lock(&self.0)
    }
}

impl Kept {
    fn find_or_insert(
        &mut self,
        key: &Key,
        delivery: impl Future<Output = Delivered> + Send + 'static,
        now: Instant,
    ) -> (u64, Delivery) {
        while self.order.front().is_some_and(|(since, ..)| now.duration_since(*since) >= TTL) {
            self.forget_oldest();
        }
        if let Some(entry) = self.deliveries.get(key) {
            return (entry.number, entry.delivery.clone());
        }
        if self.order.len() >= KEY_COUNT_MAX {
            self.forget_oldest();
        }
        let number = self.next_number;
        self.next_number += 1;
        let delivery = delivery.boxed().shared();
        self.deliveries.insert(key.clone(), Entry { number, delivery: delivery.clone() });
        self.order.push_back((now, number, key.clone()));
        (number, delivery)
    }

    fn forget_oldest(&mut self) {
        if let Some((_, number, key)) = self.order.pop_front() {
            self.remove(&key, number);
        }
    }

    fn remove(&mut self, key: &Key, number: u64) {
        if self.deliveries.get(key).is_some_and(|entry| entry.number == number) {
            self.deliveries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tidings_types::{Epoch, Offset};
    use tokio::sync::oneshot;

    use super::*;

    fn key(text: &str) -> (ChannelName, Arc<str>) {
        (ChannelName::new("news").unwrap(), text.into())
    }

    fn position(offset: u64) -> Delivered {
        Ok(Some(StreamPosition { offset: Offset(offset), epoch: Epoch::from_random(0) }))
    }

    /// Counts its deliveries; the offset is the number of the delivery.
    #[derive(Default)]
    struct Channel(Arc<AtomicU64>);

    impl Channel {
        async fn ask(&self, keys: &Idempotency, text: &str) -> Delivered {
            let count = self.0.clone();
            let (channel, key) = key(text);
            keys.once(channel, key, async move { position(count.fetch_add(1, Ordering::Relaxed) + 1) }).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_kept_for_five_minutes() {
        let (keys, channel) = (Idempotency::default(), Channel::default());
        assert_eq!(channel.ask(&keys, "a").await, position(1));
        assert_eq!(channel.ask(&keys, "b").await, position(2));
        tokio::time::advance(TTL - Duration::from_millis(1)).await;
        assert_eq!(channel.ask(&keys, "a").await, position(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(channel.ask(&keys, "a").await, position(3));
        assert_eq!(keys.lock().deliveries.len(), 1, "b is forgotten as well");
    }

    #[tokio::test]
    async fn calls_at_the_same_time_are_one_delivery() {
        let (keys, count) = (Idempotency::default(), Arc::new(AtomicU64::new(0)));
        let (go, gate) = oneshot::channel::<()>();
        let gate = gate.shared();
        let call = || {
            let ((channel, key), count, gate) = (key("a"), count.clone(), gate.clone());
            keys.once(channel, key, async move {
                gate.await.unwrap();
                position(count.fetch_add(1, Ordering::Relaxed) + 1)
            })
        };
        let open = async { go.send(()).unwrap() };
        let (first, second, third, ()) = tokio::join!(call(), call(), call(), open);
        assert_eq!((first, second, third), (position(1), position(1), position(1)));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_does_not_undo_its_delivery() {
        let keys = Idempotency::default();
        let (answer, answered) = oneshot::channel();
        let (channel, name) = key("a");
        let mut first = Box::pin(keys.once(channel, name, async move { answered.await.unwrap() }));
        assert!((&mut first).now_or_never().is_none(), "it waits");
        drop(first);
        answer.send(position(7)).unwrap();
        let (channel, name) = key("a");
        assert_eq!(keys.once(channel, name, async { position(8) }).await, position(7));
    }

    #[tokio::test]
    async fn a_refusal_is_not_kept() {
        let (keys, channel) = (Idempotency::default(), Channel::default());
        let (name, text) = key("a");
        assert_eq!(keys.once(name, text, async { Err(ApiError::Internal) }).await, Err(ApiError::Internal));
        assert_eq!(channel.ask(&keys, "a").await, position(1));
        assert_eq!(channel.ask(&keys, "a").await, position(1));
    }

    #[tokio::test(start_paused = true)]
    async fn with_too_many_keys_the_oldest_is_forgotten() {
        let (keys, channel) = (Idempotency::default(), Channel::default());
        for number in 0..=KEY_COUNT_MAX {
            channel.ask(&keys, &number.to_string()).await.unwrap();
        }
        let lengths = |kept: Locked<'_, Kept>| (kept.order.len(), kept.deliveries.len());
        assert_eq!(lengths(keys.lock()), (KEY_COUNT_MAX, KEY_COUNT_MAX));
        assert_eq!(channel.ask(&keys, "1").await, position(2), "still known");
        assert_eq!(channel.ask(&keys, "0").await, position(KEY_COUNT_MAX as u64 + 2), "new");
    }
}
