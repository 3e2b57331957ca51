//! Some hundred numbers in order, stored as the gaps between them.
//!
//! A number is written as the count of numbers left out before it, in LEB128: 7 bits per byte, the lowest first, the
//! highest bit set in all bytes but the last. 500 of 5 million numbers take 2 bytes each, 50 take 3. A look-up or a
//! change reads all bytes before the number.

/// The most bytes of a number.
const GAP_BYTES_MAX: usize = 5;

/// Bytes to put in the place of others.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    bytes: [u8; 2 * GAP_BYTES_MAX],
    length: usize,
}

impl Edit {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, mut gap: u32) {
        loop {
            let more = gap > 0x7f;
            self.bytes[self.length] = (gap & 0x7f) as u8 | u8::from(more) << 7;
            self.length += 1;
            gap >>= 7;
            if !more {
                return;
            }
        }
    }
}

/// A number in its place.
struct Found {
    number: u32,
    /// The number after the one before: what a gap of 0 would be.
    after: u64,
    start: usize,
    end: usize,
}

/// The numbers one by one. What is not as [`push`] writes it ends it.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    after: u64,
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let (start, after) = (self.at, self.after);
        let (mut gap, mut shift) = (0_u64, 0);
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            gap |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
        let number = u32::try_from(after + gap).ok()?;
        self.after = u64::from(number) + 1;
        Some(Found { number, after, start, end: self.at })
    }
}

fn walk(bytes: &[u8]) -> Walk<'_> {
    Walk { bytes, at: 0, after: 0 }
}

/// The numbers in order.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    walk(bytes).map(|found| found.number)
}

/// How many numbers there are, and the last one. `None` if [`push`] could not have written the bytes.
pub(crate) fn check(bytes: &[u8]) -> Option<(usize, u32)> {
    let (mut count, mut last, mut end) = (0, 0, 0);
    for found in walk(bytes) {
        let is_shortest = found.end - found.start == 1 || bytes[found.end - 1] != 0;
        if !is_shortest {
            return None;
        }
        (count, last, end) = (count + 1, found.number, found.end);
    }
    (count > 0 && end == bytes.len()).then_some((count, last))
}

pub(crate) fn contains(bytes: &[u8], number: u32) -> bool {
    numbers(bytes).find(|&found| found >= number) == Some(number)
}

/// Writes numbers in order, each above the one before, behind `bytes`, which are empty.
pub(crate) fn push(bytes: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    push_after(bytes, 0, numbers);
}

/// The same behind gaps of numbers that are all below `after`; how many numbers it were.
fn push_after(bytes: &mut Vec<u8>, mut after: u64, numbers: impl IntoIterator<Item = u32>) -> usize {
    let mut count = 0;
    for number in numbers {
        push_number(bytes, (u64::from(number) - after) as u32);
        after = u64::from(number) + 1;
        count += 1;
    }
    count
}

/// Writes one as LEB128.
pub(crate) fn push_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Writes the numbers of `bytes` and `added` to `out`, replacing its content. `added` is in order without repeats.
/// Returns how many of `added` are new.
pub(crate) fn merge(bytes: &[u8], added: &[u32], out: &mut Vec<u8>) -> usize {
    out.clear();
    let mut walk = walk(bytes);
    let count = walk.by_ref().count();
    if added.first().is_none_or(|&first| u64::from(first) >= walk.after) {
        out.extend_from_slice(bytes);
        return push_after(out, walk.after, added.iter().copied());
    }
    push_after(out, 0, merged(numbers(bytes), added.iter().copied())) - count
}

/// The numbers of both, which are in order without repeats, likewise.
pub(crate) fn merged(one: impl Iterator<Item = u32>, two: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    let (mut one, mut two) = (one.peekable(), two.peekable());
    std::iter::from_fn(move || match (one.peek(), two.peek()) {
        (Some(first), Some(second)) if first < second => one.next(),
        (Some(first), Some(second)) if first == second => one.next().min(two.next()),
        (Some(_), None) => one.next(),
        (_, _) => two.next(),
    })
}

/// How to add `number`; `None` when it is there.
pub(crate) fn insert(bytes: &[u8], number: u32) -> Option<Edit> {
    let mut walk = walk(bytes);
    let next = walk.find(|found| found.number >= number);
    let Some(next) = next else {
        let mut edit = Edit { start: bytes.len(), end: bytes.len(), ..Edit::default() };
        edit.push((u64::from(number) - walk.after) as u32);
        return Some(edit);
    };
    if next.number == number {
        return None;
    }
    let mut edit = Edit { start: next.start, end: next.end, ..Edit::default() };
    edit.push((u64::from(number) - next.after) as u32);
    edit.push(next.number - number - 1);
    Some(edit)
}

/// How to take `number` out; `None` when it is not there.
pub(crate) fn remove(bytes: &[u8], number: u32) -> Option<Edit> {
    let mut walk = walk(bytes);
    let found = walk.find(|found| found.number >= number).filter(|found| found.number == number)?;
    let mut edit = Edit { start: found.start, end: found.end, ..Edit::default() };
    if let Some(next) = walk.next() {
        edit.end = next.end;
        edit.push((u64::from(next.number) - found.after) as u32);
    }
    Some(edit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![0..20_u32, 100..300_u32, 16_000..17_000_u32, any::<u32>(), (u32::MAX - 3)..=u32::MAX]
    }

    proptest! {
        #[test]
        fn gaps_hold_what_a_set_holds(changes in prop::collection::vec((any::<bool>(), number()), 0..200)) {
            let (mut bytes, mut model) = (Vec::new(), BTreeSet::new());
            for (add, number) in changes {
                let edit = if add { insert(&bytes, number) } else { remove(&bytes, number) };
                prop_assert_eq!(edit.is_some(), if add { model.insert(number) } else { model.remove(&number) });
                if let Some(edit) = edit {
                    bytes.splice(edit.start..edit.end, edit.bytes().iter().copied());
                }
                prop_assert!(numbers(&bytes).eq(model.iter().copied()));
                prop_assert_eq!(check(&bytes), model.last().map(|&last| (model.len(), last)));
                prop_assert_eq!(contains(&bytes, number), model.contains(&number));
                let mut fresh = Vec::new();
                push(&mut fresh, model.iter().copied());
                prop_assert_eq!(&fresh, &bytes, "there is one way to write a set");
            }
        }

        #[test]
        fn numbers_added_at_once_are_those_added_one_by_one(
            mut model in prop::collection::btree_set(number(), 0..20),
            added in prop::collection::btree_set(number(), 0..20),
        ) {
            let (mut bytes, mut merged) = (Vec::new(), vec![1, 2, 3]);
            push(&mut bytes, model.iter().copied());
            let numbers: Vec<u32> = added.iter().copied().collect();
            let count = merge(&bytes, &numbers, &mut merged);
            prop_assert_eq!(count, added.difference(&model).count());
            model.extend(added);
            let mut fresh = Vec::new();
            push(&mut fresh, model.iter().copied());
            prop_assert_eq!(merged, fresh);
        }

        #[test]
        fn any_bytes_are_refused_or_are_numbers(
            bytes in prop::collection::vec(prop_oneof![Just(0x80), any::<u8>()], 0..20),
        ) {
            let found: Vec<u32> = numbers(&bytes).collect();
            prop_assert!(found.is_sorted_by(|a, b| a < b));
            if let Some((count, last)) = check(&bytes) {
                prop_assert_eq!(found.last(), Some(&last));
                let mut again = Vec::new();
                push(&mut again, found.iter().copied());
                prop_assert_eq!((count, again), (found.len(), bytes));
            }
        }
    }
}
