//! Limits on requests at the same time, so that no caller takes the places of others.
//!
//! [`Places`] are for the holders of API keys, whose number is known. [`Shares`] are for the apps of users and devices,
//! whose number is not.
//!
//! Bounds: two semaphores; a fixed table of [`SHARE_TABLE_COUNT`] counts, 256 KiB. A hash under a random key finds a
//! caller's count. Two callers may have the same count; then they share one limit.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{ApiKeys, Caller};

/// The size of the table of shares.
const SHARE_TABLE_COUNT: usize = 1 << 16;

/// Places of API keys. Half of them are divided among the keys and kept free for each. The other half is given in the
/// order of requests. So a single key has all places; of two keys, each always finds a quarter free.
#[derive(Debug)]
pub(crate) struct Places {
    own: Vec<Arc<Semaphore>>,
    common: Arc<Semaphore>,
    count_max: usize,
    key_count_max: usize,
}

impl Places {
    /// `count_max` places for these keys. If there are fewer than two places for each key, all places are common.
    pub(crate) fn new(count_max: usize, keys: &ApiKeys) -> Self {
        let key_count = keys.count().max(1);
        let own_count = count_max / (2 * key_count);
        let common_count = count_max - own_count * key_count;
        let own = (0..key_count).map(|_| Arc::new(Semaphore::new(own_count))).collect();
        Self { own, common: Arc::new(Semaphore::new(common_count)), count_max, key_count_max: own_count + common_count }
    }

    /// A place, until it is dropped.
    pub(crate) fn take(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        let own = self.own.get(caller.index()).and_then(|own| own.clone().try_acquire_owned().ok());
        own.or_else(|| self.common.clone().try_acquire_owned().ok())
    }

    /// The number of all places.
    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    /// The most places of one key.
    pub(crate) fn key_count_max(&self) -> usize {
        self.key_count_max
    }
}

/// Counts the requests in work of any number of callers.
#[derive(Debug)]
pub(crate) struct Shares {
    counts: Box<[AtomicU32]>,
    hasher: RandomState,
}

impl Default for Shares {
    fn default() -> Self {
        Self { counts: (0..SHARE_TABLE_COUNT).map(|_| AtomicU32::new(0)).collect(), hasher: RandomState::new() }
    }
}

impl Shares {
    /// Counts one more of the at most `max` requests that `who` may have in work.
    pub(crate) fn take(self: &Arc<Self>, who: &impl Hash, max: u32) -> Option<Share> {
        let index = self.hasher.hash_one(who) as usize % self.counts.len();
        let one_more = |count: u32| (count < max).then_some(count + 1);
        let taken = self.counts[index].fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Share { shares: self.clone(), index })
    }
}

/// A request in work, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    index: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.counts[self.index].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;
    use crate::auth::ApiKey;

    fn callers(count: usize) -> (ApiKeys, Vec<Caller>) {
        let names: Vec<String> = (0..count).map(|index| format!("key {index}")).collect();
        let key = |name: &String| {
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
            let sha256 = digest.as_ref().try_into().unwrap();
            ApiKey { name: name.clone(), sha256, scopes: Vec::new(), audience_max: None }
        };
        let keys = ApiKeys::new(names.iter().map(key).collect());
        let caller = |name: &String| {
            let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), name.parse().unwrap())]);
            keys.caller(&headers, None).unwrap()
        };
        (keys.clone(), names.iter().map(caller).collect())
    }

    #[test]
    fn no_key_takes_the_last_place_of_another() {
        for (count_max, key_count, of_one, of_another) in
            [(256, 1, 256, 0), (256, 2, 192, 64), (10, 3, 8, 1), (4, 8, 4, 0), (1, 1, 1, 0)]
        {
            let (keys, callers) = callers(key_count);
            let places = Places::new(count_max, &keys);
            let taken: Vec<_> = std::iter::from_fn(|| places.take(&callers[0])).collect();
            assert_eq!((taken.len(), places.key_count_max()), (of_one, of_one), "{count_max} of {key_count}");
            let others = callers[1..].iter().map(|other| std::iter::from_fn(|| places.take(other)).collect::<Vec<_>>());
            let others: Vec<Vec<_>> = others.collect();
            assert!(others.iter().all(|other| other.len() == of_another), "{count_max} of {key_count}");
            drop(taken);
            assert!(places.take(&callers[0]).is_some());
        }
    }

    #[test]
    fn each_caller_has_its_share() {
        let shares = Arc::new(Shares::default());
        let held: Vec<_> = std::iter::from_fn(|| shares.take(&"loud", 8)).collect();
        assert_eq!(held.len(), 8);
        // Two of these have the same count once in 10^8 runs.
        let refused = (0..10_u32).filter(|who| shares.take(who, 8).is_none()).count();
        assert!(refused <= 1, "{refused}");
        drop(held);
        assert!(shares.take(&"loud", 8).is_some());
    }
}
