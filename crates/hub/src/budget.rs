//! Budgets of memory: one for all receipts, to which each event's receipts are charged, and one for the histories of durable
//! channels.
//!
//! A [`Charge`] belongs to what it pays for, and gives its bytes back when that is dropped. So the budget's level is the sum of
//! all charges, whoever still holds what they are for. Charges for receipts are upper bounds that cost no look at a set: see
//! [`Numbers`].
//!
//! A charge is never refused. Whoever has made a charge larger looks whether the budget [is exceeded](Budget::is_exceeded),
//! and makes room then, with no event's and no channel's lock held. So the level is above the limit by no more than what
//! the threads add that are making room at this moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roaring::RoaringBitmap;

use crate::sum::{Share, Sum};

/// Charges change in steps of this, so that most receipts leave the shared level alone.
const STEP_BYTES: usize = 1 << 10;
/// A container of a set: its place in the list of containers, which may be half empty, and what its allocation adds.
const CONTAINER_BYTES: usize = 128;
/// A number in a container that is a list: two bytes, and the list may be half empty.
const NUMBER_BYTES: usize = 4;
/// The most bytes of a container: a list of 4096 numbers that is half empty. One with a bit for each number has half of that.
const CONTAINER_BYTES_MAX: usize = 16 << 10;

/// The bytes of all that is charged to it, and their limit.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    used: Arc<Sum>,
    /// Events whose receipts, or histories that were dropped to make room.
    dropped: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, used: Arc::default(), dropped: AtomicU64::new(0) })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used() > self.bytes_max
    }

    pub(crate) fn on_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// What one thing takes of the budget; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge(Share);

impl Charge {
    pub(crate) fn none(budget: &Budget) -> Self {
        Self(Share::none(budget.used.clone()))
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.0.amount()
    }

    /// Makes it a charge for so many bytes, rounded up.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.0.set(bytes.next_multiple_of(STEP_BYTES));
    }
}

/// A set of numbers that only grows, and knows an upper bound of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    set: RoaringBitmap,
    /// How many there are; the set itself would count them.
    count: usize,
    highest: u32,
}

impl Numbers {
    pub(crate) fn set(&self) -> &RoaringBitmap {
        &self.set
    }

    /// Returns whether it is new.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let is_new = self.set.insert(number);
        self.count += usize::from(is_new);
        self.highest = self.highest.max(number);
        is_new
    }

    pub(crate) fn extend(&mut self, numbers: &RoaringBitmap) {
        self.set |= numbers;
        self.count = self.set.len() as usize;
        self.highest = self.set.max().unwrap_or_default();
    }

    /// At most so many bytes. A container has the numbers with the same upper 16 bits.
    pub(crate) fn bytes_max(&self) -> usize {
        let containers = self.count.min((self.highest >> 16) as usize + 1);
        let of_numbers = (self.count * NUMBER_BYTES).min(containers * CONTAINER_BYTES_MAX);
        of_numbers + containers * CONTAINER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Numbers {
        /// As the set's own statistics say; a container's place and allocation are taken for half of the bound.
        pub(crate) fn measured(&self) -> usize {
            let all = self.set.statistics();
            // The library takes a list's numbers for twice as large as they are, and says how many bits a container has.
            let of_numbers = all.n_bytes_array_containers / 2 + all.n_bytes_bitset_containers / 8;
            (of_numbers + all.n_bytes_run_containers) as usize + all.n_containers as usize * CONTAINER_BYTES / 2
        }
    }

    proptest! {
        #[test]
        fn a_set_takes_no_more_than_it_says(
            steps in prop::collection::vec((0_u32..40, 1_u32..9000, 1_u32..5, any::<bool>()), 1..12),
        ) {
            let mut numbers = Numbers::default();
            for (container, count, stride, is_one_by_one) in steps {
                let from = container << 15;
                let range = (0..count).map(|number| from + number * stride);
                if is_one_by_one {
                    range.for_each(|number| _ = numbers.insert(number));
                } else {
                    numbers.extend(&range.collect());
                }
                prop_assert_eq!(numbers.count as u64, numbers.set.len());
                prop_assert!(numbers.measured() <= numbers.bytes_max(), "{} {:?}", numbers.measured(), numbers.set);
            }
        }
    }

    #[test]
    fn a_charge_is_given_back_when_it_is_dropped() {
        let budget = Budget::new(2 * STEP_BYTES);
        let (mut one, mut other) = (Charge::none(&budget), Charge::none(&budget));
        one.set(1);
        other.set(STEP_BYTES + 1);
        assert_eq!((budget.used(), budget.is_exceeded()), (3 * STEP_BYTES, true));
        other.set(STEP_BYTES);
        assert_eq!((budget.used(), budget.is_exceeded()), (2 * STEP_BYTES, false));
        drop(one);
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}
