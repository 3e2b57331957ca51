//! Bounds the lines of one second: the first entries of a kind are written as they are, further ones only counted.
//!
//! A *kind* is who, action and result. So the log names each thing that a person or a slow program changes. A program that
//! publishes 10 000 times a second costs 11 lines a second, and cannot push out of the files what others did.
//!
//! Bounds: [`SINGLE_COUNT_MAX`] lines and one with a count for each of [`KIND_COUNT_MAX`] kinds in a second. An entry of a
//! further kind is lost.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use tidings_telemetry::rfc3339::Rfc3339;
use tidings_types::Timestamp;

use crate::entry::{By, Entry};

/// Entries of a kind that are written one by one in a second.
const SINGLE_COUNT_MAX: u64 = 10;
/// Kinds in a second.
const KIND_COUNT_MAX: usize = 1024;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    by: By,
    who: String,
    action: Cow<'static, str>,
    result: u16,
}

/// The current second.
#[derive(Debug, Default)]
pub(crate) struct Window {
    second: u64,
    counts: HashMap<Kind, u64>,
    lost: u64,
}

impl Window {
    /// The entry, with the time, if it is to be written now.
    pub(crate) fn offer(&mut self, entry: Entry, now: Timestamp) -> Option<Entry> {
        let Entry { by, result, .. } = entry;
        let kind = Kind { by, who: entry.who.clone(), action: entry.action.clone(), result };
        let kind_count = self.counts.len();
        let count = match self.counts.entry(kind) {
            Slot::Vacant(_) if kind_count >= KIND_COUNT_MAX => {
                self.lost += 1;
                return None;
            }
            slot => slot.or_insert(0),
        };
        *count += 1;
        (*count <= SINGLE_COUNT_MAX).then_some(Entry { at: Rfc3339(now), ..entry })
    }

    /// If a new second has begun, the lines about the entries of the last one that were only counted.
    pub(crate) fn turn(&mut self, now: Timestamp) -> Vec<Entry> {
        if now.as_secs() == self.second {
            return Vec::new();
        }
        let at = Rfc3339(Timestamp(self.second * 1000 + 999));
        self.second = now.as_secs();
        let counted = self.counts.drain().filter(|(_, count)| *count > SINGLE_COUNT_MAX);
        let sum = |(Kind { by, who, action, result }, count): (Kind, u64)| Entry {
            at,
            action,
            result,
            count: count - SINGLE_COUNT_MAX,
            ..Entry::new(by, &who, "")
        };
        counted.map(sum).collect()
    }

    /// Entries that were lost because there were too many kinds.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(who: &str, action: &'static str) -> Entry {
        Entry { result: 200, ..Entry::new(By::Key, who, action) }
    }

    proptest! {
        /// Every entry is in exactly one line, and a second has few lines of a kind.
        #[test]
        fn all_entries_are_told_in_few_lines(calls in prop::collection::vec((0_usize..3, 0_u64..400), 0..400)) {
            let (mut window, mut now) = (Window::default(), 1_000_000);
            let mut lines = Vec::new();
            for (who, wait) in &calls {
                now += wait / 10;
                lines.extend(window.turn(Timestamp(now)));
                lines.extend(window.offer(entry(["a", "b", "c"][*who], "x"), Timestamp(now)));
            }
            lines.extend(window.turn(Timestamp(now + 1000)));
            for (index, who) in ["a", "b", "c"].into_iter().enumerate() {
                let of_who = |line: &&Entry| line.who == who;
                let told: u64 = lines.iter().filter(of_who).map(|line| line.count).sum();
                prop_assert_eq!(told, calls.iter().filter(|(called, _)| *called == index).count() as u64);
                for second in 1000..=now / 1000 {
                    let in_second = |line: &&Entry| line.at.0.as_secs() == second;
                    prop_assert!(lines.iter().filter(of_who).filter(in_second).count() <= 11);
                }
            }
        }
    }

    #[test]
    fn what_was_only_counted_is_told_when_the_second_is_over() {
        let (mut window, now) = (Window::default(), Timestamp(5_000_100));
        window.turn(now);
        let written = (0..25).filter_map(|_| window.offer(entry("ops", "channel.publish"), now)).count();
        assert_eq!((written, window.turn(Timestamp(5_000_999)).len()), (10, 0));
        let lines = window.turn(Timestamp(5_001_000));
        assert_eq!(lines, [Entry { at: Rfc3339(Timestamp(5_000_999)), count: 15, ..entry("ops", "channel.publish") }]);
        assert!(window.turn(Timestamp(5_002_000)).is_empty());
    }

    #[test]
    fn there_are_not_more_kinds_than_the_bound() {
        let (mut window, now) = (Window::default(), Timestamp(0));
        let written = (0..2000).filter_map(|who| window.offer(entry(&who.to_string(), "x"), now)).count();
        assert_eq!((written, window.lost()), (KIND_COUNT_MAX, 2000 - KIND_COUNT_MAX as u64));
    }
}
