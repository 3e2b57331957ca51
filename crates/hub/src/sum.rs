//! Totals that are not counted one by one: whoever holds a [`Share`] says how large it is, and gives it back when it is dropped.
//! So a total is the sum of its shares, and reading it costs nothing for each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum of all its shares.
#[derive(Debug, Default)]
pub(crate) struct Sum(AtomicUsize);

impl Sum {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one holder adds to a sum.
#[derive(Debug)]
pub(crate) struct Share {
    sum: Arc<Sum>,
    amount: usize,
}

impl Share {
    pub(crate) const fn none(sum: Arc<Sum>) -> Self {
        Self { sum, amount: 0 }
    }

    pub(crate) const fn amount(&self) -> usize {
        self.amount
    }

    pub(crate) fn set(&mut self, amount: usize) {
        if amount > self.amount {
            self.sum.0.fetch_add(amount - self.amount, Ordering::Relaxed);
        } else if amount < self.amount {
            self.sum.0.fetch_sub(self.amount - amount, Ordering::Relaxed);
        }
        self.amount = amount;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
