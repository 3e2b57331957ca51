//! Which rows a scan may visit: both ends are known.
//!
//! fjall keeps a deleted row as a *tombstone* until a compaction drops it, and each scan that meets a tombstone has to skip it. A
//! scan without an end that looks for the rows of one device would skip those of all deleted devices behind it. So each span has
//! an end. A pass over a whole table says [`Span::all`], and [`Span::behind`] to go on: it does skip all tombstones on its way.

use std::ops::Bound;

/// Greater than the rest of any key: names are UTF-8, numbers stay far below their greatest values, and hashes have 16 bytes.
const GREATEST: [u8; 17] = [0xff; 17];

/// A range of keys.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    from: Vec<u8>,
    /// Whether `from` is left out.
    is_behind: bool,
    /// Included.
    to: Vec<u8>,
}

impl Span {
    /// The keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        Self::closed(prefix, &[prefix, &GREATEST].concat())
    }

    /// The keys from `from` to `to`, both included.
    pub(crate) fn closed(from: &[u8], to: &[u8]) -> Self {
        Self { from: from.to_vec(), is_behind: false, to: to.to_vec() }
    }

    /// All keys of a table. For what reads every row of it once: opening a store, checking a backup.
    pub(crate) fn all() -> Self {
        Self::prefix(&[])
    }

    /// This with `key` as its first key.
    pub(crate) fn from(self, key: &[u8]) -> Self {
        Self { from: key.to_vec(), is_behind: false, ..self }
    }

    /// The part of this behind `key`.
    pub(crate) fn behind(self, key: &[u8]) -> Self {
        Self { from: key.to_vec(), is_behind: true, ..self }
    }

    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let from = self.from.as_slice();
        (if self.is_behind { Bound::Excluded(from) } else { Bound::Included(from) }, Bound::Included(&self.to))
    }

    /// The key that an error names before a row was read.
    pub(super) fn first_key(&self) -> &[u8] {
        &self.from
    }

    /// Whether it has no key. The engine is not asked for such a range.
    pub(super) fn is_empty(&self) -> bool {
        self.from > self.to || (self.is_behind && self.from == self.to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has(span: &Span, key: &[u8]) -> bool {
        use std::ops::RangeBounds;
        let bounds = span.bounds();
        !span.is_empty() && RangeBounds::<[u8]>::contains(&bounds, key)
    }

    proptest! {
        #[test]
        fn a_prefix_has_the_keys_that_begin_with_it(
            prefix in prop::collection::vec(prop_oneof![Just(0xff_u8), any::<u8>()], 0..6),
            key in prop::collection::vec(prop_oneof![Just(0xff_u8), any::<u8>()], 0..16),
            rest in prop::collection::vec(any::<u8>(), 0..16),
        ) {
            let span = Span::prefix(&prefix);
            prop_assert_eq!(has(&span, &key), key.starts_with(&prefix));
            prop_assert!(has(&span, &[&prefix[..], &rest].concat()));
            prop_assert_eq!(has(&span.behind(&prefix), &[&prefix[..], &rest].concat()), !rest.is_empty());
            prop_assert!(has(&Span::all(), &key));
        }

        #[test]
        fn a_closed_span_has_both_ends(from in any::<[u8; 2]>(), to in any::<[u8; 2]>(), key in any::<[u8; 2]>()) {
            let span = Span::closed(&from, &to);
            prop_assert_eq!(has(&span, &key), (from..=to).contains(&key));
            prop_assert_eq!(has(&span.behind(&from), &key), from < key && key <= to);
        }
    }
}
