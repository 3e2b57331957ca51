//! The entries of a feed that are known: a core.
//!
//! An entry is known by 16 bytes of the hash of its event's id. The set has a bound. At the bound, the entries that were
//! in the feed the longest time ago are forgotten, an eighth of all at once. An entry that is still in the feed was seen
//! in the last document, so it stays, unless one document has more entries than the bound.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use tidings_store::FeedEntry;
use tidings_types::EventId;

/// What an entry is known by.
pub(crate) type Key = [u8; 16];

pub(crate) fn key(id: &EventId) -> Key {
    digest(&SHA256, id.as_str().as_bytes()).as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}

/// The known entries, each with the number of its last sight.
#[derive(Debug)]
pub(crate) struct Seen {
    entries: HashMap<Key, u64>,
    next: u64,
    count_max: usize,
}

impl Seen {
    pub(crate) fn new(entries: Vec<FeedEntry>, count_max: usize) -> Self {
        let next = entries.iter().map(|(_, at)| at + 1).max().unwrap_or_default();
        Self { entries: HashMap::from_iter(entries), next, count_max }
    }

    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the entry is known. If so, it was seen now.
    pub(crate) fn touch(&mut self, key: &Key) -> bool {
        let Some(at) = self.entries.get_mut(key) else { return false };
        *at = self.next;
        self.next += 1;
        true
    }

    /// Adds an entry; returns it as it is to be kept.
    pub(crate) fn add(&mut self, key: Key) -> FeedEntry {
        let at = self.next;
        self.next += 1;
        self.entries.insert(key, at);
        (key, at)
    }

    /// Forgets the entries that are too many, and says which.
    pub(crate) fn trim(&mut self) -> Vec<Key> {
        if self.entries.len() <= self.count_max {
            return Vec::new();
        }
        let mut ages: Vec<u64> = self.entries.values().copied().collect();
        let forgotten = self.entries.len() - (self.count_max - self.count_max / 8).max(1);
        let (_, newest, _) = ages.select_nth_unstable(forgotten - 1); // There is at least one too many.
        let newest = *newest;
        self.entries.extract_if(|_, at| *at <= newest).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key_of(number: u8) -> Key {
        [number; 16]
    }

    #[test]
    fn entries_that_are_still_in_the_feed_stay() {
        let mut seen = Seen::new(Vec::new(), 8);
        for number in 0..8 {
            seen.add(key_of(number));
        }
        assert!(seen.touch(&key_of(0)) && !seen.touch(&key_of(9)));
        assert_eq!(seen.trim(), [[0; 16]; 0]);
        seen.add(key_of(9));
        let forgotten: BTreeSet<Key> = seen.trim().into_iter().collect();
        assert_eq!(forgotten, BTreeSet::from([key_of(1), key_of(2)]));
        assert!(seen.touch(&key_of(0)) && seen.touch(&key_of(9)) && !seen.touch(&key_of(1)));
    }

    proptest! {
        #[test]
        fn what_is_kept_makes_the_same_set_again(numbers in prop::collection::vec(0..40_u8, 0..200), max in 1..20_usize) {
            let (mut seen, mut kept) = (Seen::new(Vec::new(), max), std::collections::BTreeMap::new());
            for number in numbers {
                if !seen.touch(&key_of(number)) {
                    kept.extend([seen.add(key_of(number))]);
                }
                for gone in seen.trim() {
                    kept.remove(&gone);
                }
                prop_assert!(seen.count() <= max);
            }
            let again = Seen::new(kept.into_iter().collect(), max);
            let keys = |seen: &Seen| seen.entries.keys().copied().collect::<BTreeSet<_>>();
            prop_assert_eq!(keys(&again), keys(&seen));
        }
    }
}
