//! A set of journal positions with cheap snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidings_types::JournalPosition;

/// A page of [`PositionSet`] covers 2^8 positions, a book 2^16.
const PAGE_BITS: u32 = 8;
const BOOK_BITS: u32 = 16;

type Page = BTreeSet<JournalPosition>;

type Book = BTreeMap<u64, Arc<Page>>;

/// A set of journal positions with cheap snapshots: clones share all parts that neither has changed.
///
/// ```text
/// position / 2^16 ─► book: position / 2^8 ─► page: positions
/// ```
///
/// A change copies at most one page (256 positions), one book (256 pointers) and the list of books, which has a pointer for
/// each 65 536 positions of the journal: 184 for 12 million events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PositionSet {
    books: Arc<BTreeMap<u64, Arc<Book>>>,
    count: usize,
}

impl PositionSet {
    /// The number of positions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the position is in the set.
    pub fn contains(&self, position: &JournalPosition) -> bool {
        let book = self.books.get(&(position.0 >> BOOK_BITS));
        let page = book.and_then(|book| book.get(&(position.0 >> PAGE_BITS)));
        page.is_some_and(|page| page.contains(position))
    }

    /// All positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &JournalPosition> {
        self.books.values().flat_map(|book| book.values()).flat_map(|page| page.iter())
    }

    pub(crate) fn insert(&mut self, position: JournalPosition) {
        let book = Arc::make_mut(&mut self.books).entry(position.0 >> BOOK_BITS).or_default();
        let page = Arc::make_mut(book).entry(position.0 >> PAGE_BITS).or_default();
        self.count += usize::from(Arc::make_mut(page).insert(position));
    }

    pub(crate) fn remove(&mut self, position: JournalPosition) {
        if !self.contains(&position) {
            return; // Copies nothing.
        }
        let (book_key, page_key) = (position.0 >> BOOK_BITS, position.0 >> PAGE_BITS);
        let books = Arc::make_mut(&mut self.books);
        let Some(book) = books.get_mut(&book_key).map(Arc::make_mut) else { return };
        let Some(page) = book.get_mut(&page_key).map(Arc::make_mut) else { return };
        self.count -= usize::from(page.remove(&position));
        if page.is_empty() {
            book.remove(&page_key);
        }
        if book.is_empty() {
            books.remove(&book_key);
        }
    }
}

impl FromIterator<JournalPosition> for PositionSet {
    fn from_iter<I: IntoIterator<Item = JournalPosition>>(positions: I) -> Self {
        let mut set = Self::default();
        positions.into_iter().for_each(|position| set.insert(position));
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many pages and how many pointers `after` does not share with `before`.
    fn copied(before: &PositionSet, after: &PositionSet) -> (usize, usize) {
        let is_new = |key: &u64, book: &Arc<Book>| before.books.get(key).is_none_or(|old| !Arc::ptr_eq(old, book));
        let books: Vec<_> = after.books.iter().filter(|(key, book)| is_new(key, book)).collect();
        let is_kept = |key: &u64, number: &u64, page: &Arc<Page>| {
            before.books.get(key).and_then(|old| old.get(number)).is_some_and(|old| Arc::ptr_eq(old, page))
        };
        let pages =
            books.iter().flat_map(|(key, book)| book.iter().filter(|(number, page)| !is_kept(key, number, page)));
        (pages.count(), after.books.len() + books.iter().map(|(_, book)| book.len()).sum::<usize>())
    }

    #[test]
    fn a_change_copies_as_little_of_a_large_set_as_of_a_small_one() {
        let mut large: PositionSet = (0..1_000_000).map(JournalPosition).collect();
        for position in [0, 255, 65_536, 999_999].map(JournalPosition) {
            for change in [PositionSet::remove, PositionSet::insert] {
                let before = large.clone();
                change(&mut large, position);
                let (pages, pointers) = copied(&before, &large);
                assert!(pages <= 1 && pointers <= 256 + 16, "{pages} pages, {pointers} pointers");
                assert_ne!(before, large, "a snapshot does not change");
            }
            let before = large.clone();
            large.remove(JournalPosition(2_000_000 + position.0));
            assert!(Arc::ptr_eq(&before.books, &large.books), "removing an unknown position copies nothing");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(changes in prop::collection::vec((any::<bool>(), 0..8u64, 0..6u64), 0..60)) {
            let (mut set, mut model) = (PositionSet::default(), BTreeSet::new());
            let mut kept = Vec::new();
            for (is_added, high, low) in changes {
                let position = JournalPosition((high << 15) + (low << 7));
                kept.push((set.clone(), model.clone()));
                if is_added {
                    set.insert(position);
                    model.insert(position);
                } else {
                    set.remove(position);
                    model.remove(&position);
                }
                prop_assert_eq!(set.contains(&position), is_added);
            }
            kept.push((set, model));
            for (set, model) in kept {
                prop_assert_eq!(set.iter().copied().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(model.into_iter().collect::<PositionSet>(), set, "its history does not matter");
            }
        }
    }
}
