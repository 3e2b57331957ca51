//! A queue that serves those who wait in turn, at each of several levels: first the groups, then the groups within them.
//!
//! ```text
//!   root ─┬─ network 1 ─┬─ user a ─── connection 1: x x x     pop: network 1, 2, 1, 2 …
//!         │             └─ user b ─── connection 2: x              and of network 1: user a, b, a, b …
//!         └─ network 2 ─── user c ─── connection 3: x
//! ```
//!
//! **The rule.** Each group of a level has its place in a ring. A value is taken from the group that was served longest ago, and a
//! group that has just got its first value is behind all others. So of `n` groups that wait, each gets one of `n` values in a row,
//! however much the others ask for.
//!
//! **Full.** If there is no room, the value goes that was put last into the heaviest group, if that is heavier than the newcomer's
//! own group would be; else the newcomer goes. So who asks for much makes room for who asks for little.
//!
//! No clock, no lock. Memory: an entry for each group that waits. What it costs: a push or pop takes the logarithm of the groups
//! of each level, and a push into a full queue one look at each group of each level.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// A level of a [`FairQueue`], or what is below the last one: the values in order.
#[expect(clippy::len_without_is_empty, reason = "each level has its own, and nobody else needs it")]
pub trait Line: Default {
    /// What is queued.
    type Value;
    /// Which group of each level.
    type Path;

    /// The number of values.
    fn len(&self) -> usize;
    /// Puts a value last in its group.
    fn push(&mut self, path: Self::Path, value: Self::Value);
    /// Takes the value whose turn it is.
    fn pop(&mut self) -> Option<Self::Value>;
    /// Takes the last value of the heaviest group.
    fn shed(&mut self) -> Option<Self::Value>;
    /// Takes the value that must make room for one more at `path`. `None`: that one itself must.
    fn make_room(&mut self, path: &Self::Path) -> Option<Self::Value>;
    /// Takes all values at `path`.
    fn remove(&mut self, path: &Self::Path) -> VecDeque<Self::Value>;
}

impl<T> Line for VecDeque<T> {
    type Value = T;
    type Path = ();

    fn len(&self) -> usize {
        self.len()
    }

    fn push(&mut self, (): (), value: T) {
        self.push_back(value);
    }

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }

    fn shed(&mut self) -> Option<T> {
        self.pop_back()
    }

    fn make_room(&mut self, (): &()) -> Option<T> {
        None
    }

    fn remove(&mut self, (): &()) -> VecDeque<T> {
        std::mem::take(self)
    }
}

/// Groups that are served in turn; see the module header. `L` is the level below.
///
/// ```
/// use tidings_buffer::{FairQueue, Line};
///
/// let mut queue = FairQueue::<&str, std::collections::VecDeque<u32>>::default();
/// for value in 1..4 {
///     queue.push(("greedy", ()), value);
/// }
/// queue.push(("modest", ()), 4);
/// let served: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
/// assert_eq!(served, [1, 4, 2, 3]);
/// ```
///
/// Invariant: no group is empty; `ring` has each group once, under its place.
#[derive(Debug)]
pub struct FairQueue<K, L> {
    groups: HashMap<K, Group<L>>,
    ring: BTreeMap<u64, K>,
    next_place: u64,
    len: usize,
}

#[derive(Debug)]
struct Group<L> {
    place: u64,
    line: L,
}

impl<K, L> Default for FairQueue<K, L> {
    fn default() -> Self {
        Self { groups: HashMap::new(), ring: BTreeMap::new(), next_place: 0, len: 0 }
    }
}

impl<K: Clone + Eq + Hash, L: Line> FairQueue<K, L> {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a group of the first level waits.
    pub fn has_group(&self, key: &K) -> bool {
        self.groups.contains_key(key)
    }

    /// Takes the last value of the heaviest part of this group.
    pub fn shed_from(&mut self, key: &K) -> Option<L::Value> {
        let value = self.groups.get_mut(key)?.line.shed()?;
        self.len -= 1;
        self.drop_if_empty(key);
        Some(value)
    }

    /// As [`Line::push`], with at most `len_max` values. Returns the value that had to make room, if any: perhaps this one.
    pub fn push_within(&mut self, len_max: usize, path: (K, L::Path), value: L::Value) -> Option<L::Value> {
        if self.len < len_max {
            self.push(path, value);
            return None;
        }
        let Some(gone) = self.make_room(&path) else { return Some(value) };
        self.push(path, value);
        Some(gone)
    }

    /// The group moves behind all others.
    fn move_back(&mut self, key: K) {
        let place = self.next_place;
        self.next_place += 1;
        if let Some(group) = self.groups.get_mut(&key) {
            self.ring.remove(&group.place);
            group.place = place;
            self.ring.insert(place, key);
        }
    }

    fn drop_if_empty(&mut self, key: &K) {
        if let Some(group) = self.groups.get(key)
            && group.line.len() == 0
        {
            self.ring.remove(&group.place);
            self.groups.remove(key);
        }
        if self.groups.is_empty() {
            *self = Self::default(); // Frees the memory of earlier groups.
        }
    }

    fn heaviest(&self) -> Option<(&K, usize)> {
        // Of equals the one that is served last, so that the answer is always the same.
        let groups = self.groups.iter().max_by_key(|(_, group)| (group.line.len(), group.place));
        groups.map(|(key, group)| (key, group.line.len()))
    }
}

impl<K: Clone + Eq + Hash, L: Line> Line for FairQueue<K, L> {
    type Value = L::Value;
    type Path = (K, L::Path);

    fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, (key, path): Self::Path, value: L::Value) {
        let is_new = !self.groups.contains_key(&key);
        let group = self.groups.entry(key.clone()).or_insert_with(|| Group { place: u64::MAX, line: L::default() });
        group.line.push(path, value);
        self.len += 1;
        if is_new {
            self.move_back(key);
        }
    }

    fn pop(&mut self) -> Option<L::Value> {
        let key = self.ring.first_key_value()?.1.clone();
        let value = self.groups.get_mut(&key)?.line.pop()?;
        self.len -= 1;
        self.move_back(key.clone());
        self.drop_if_empty(&key);
        Some(value)
    }

    fn shed(&mut self) -> Option<L::Value> {
        let key = self.heaviest()?.0.clone();
        self.shed_from(&key)
    }

    fn make_room(&mut self, (key, path): &Self::Path) -> Option<L::Value> {
        let own = self.groups.get(key).map_or(0, |group| group.line.len());
        let (heaviest, len) = self.heaviest()?;
        let is_other = heaviest != key && len > own + 1;
        let from = if is_other { heaviest.clone() } else { key.clone() };
        let line = &mut self.groups.get_mut(&from)?.line;
        let gone = if is_other { line.shed() } else { line.make_room(path) }?;
        self.len -= 1;
        self.drop_if_empty(&from);
        Some(gone)
    }

    fn remove(&mut self, (key, path): &Self::Path) -> VecDeque<L::Value> {
        let Some(group) = self.groups.get_mut(key) else { return VecDeque::new() };
        let gone = group.line.remove(path);
        self.len -= gone.len();
        self.drop_if_empty(key);
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Queue = FairQueue<u8, FairQueue<u8, VecDeque<u32>>>;

    #[derive(Debug, Clone)]
    enum Action {
        Push(u8, u8),
        Pop,
        Remove(u8, u8),
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let path = || (0u8..4, 0u8..3);
        let action = prop_oneof![
            4 => path().prop_map(|(group, part)| Action::Push(group, part)),
            3 => Just(Action::Pop),
            1 => path().prop_map(|(group, part)| Action::Remove(group, part)),
        ];
        prop::collection::vec(action, 1..200)
    }

    fn held(model: &[(u8, u8, u32)], group: u8) -> usize {
        model.iter().filter(|(other, ..)| *other == group).count()
    }

    proptest! {
        /// Nothing is lost or doubled; the values of one place come in order; a group that waits is passed over by each other
        /// group at most once; and who must make room has asked for most.
        #[test]
        fn who_waits_is_served_in_turn(actions in actions(), len_max in 1usize..12) {
            let mut queue = Queue::default();
            let mut model: Vec<(u8, u8, u32)> = Vec::new();
            // Which groups were served since this one was, or came.
            let mut passed: HashMap<u8, Vec<u8>> = HashMap::new();
            for (value, action) in (0..).zip(actions) {
                match action {
                    Action::Push(group, part) => {
                        let gone = queue.push_within(len_max, (group, (part, ())), value);
                        model.push((group, part, value));
                        prop_assert_eq!(gone.is_some(), model.len() > len_max);
                        if let Some(gone) = gone {
                            let place = model.iter().position(|(.., held)| *held == gone).unwrap();
                            let of = model[place].0;
                            let most = (0..4).map(|group| held(&model, group)).max().unwrap();
                            prop_assert!(held(&model, of) + 1 >= most, "group {of} made room for a heavier one");
                            prop_assert!(!model[place + 1..].iter().any(|(a, b, _)| (*a, *b) == (of, model[place].1)), "the last one");
                            model.remove(place);
                        }
                        passed.entry(group).or_default();
                    }
                    Action::Pop => {
                        let served = queue.pop();
                        prop_assert_eq!(served.is_some(), !model.is_empty());
                        let Some(served) = served else { continue };
                        let place = model.iter().position(|(.., held)| *held == served).unwrap();
                        let (group, part, _) = model.remove(place);
                        prop_assert!(!model[..place].iter().any(|(a, b, _)| (*a, *b) == (group, part)), "in order");
                        for (other, by) in passed.iter_mut().filter(|(other, _)| **other != group) {
                            prop_assert!(!by.contains(&group), "group {other} was passed over twice by {group}");
                            by.push(group);
                        }
                        passed.insert(group, Vec::new());
                    }
                    Action::Remove(group, part) => {
                        let gone: Vec<u32> = queue.remove(&(group, (part, ()))).into();
                        let is_gone = |one: &(u8, u8, u32)| (one.0, one.1) == (group, part);
                        let expected: Vec<u32> = model.iter().filter(|one| is_gone(one)).map(|one| one.2).collect();
                        prop_assert_eq!(gone, expected);
                        model.retain(|one| !is_gone(one));
                    }
                }
                passed.retain(|group, _| held(&model, *group) > 0);
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(queue.ring.len(), queue.groups.len());
                prop_assert!(queue.groups.values().all(|group| !group.line.is_empty()));
            }
        }
    }

    #[test]
    fn a_thousand_greedy_neighbours_pass_over_nobody() {
        let mut queue = FairQueue::<&str, FairQueue<u32, VecDeque<&str>>>::default();
        (0..1000).for_each(|connection| queue.push(("greedy", (connection, ())), "greedy"));
        queue.push(("modest", (0, ())), "modest");
        assert!([queue.pop(), queue.pop()].contains(&Some("modest")));
    }

    #[test]
    fn in_a_full_queue_who_asks_for_most_makes_room() {
        let mut queue = Queue::default();
        (0..8).for_each(|value| assert_eq!(queue.push_within(8, (1, (value as u8 % 2, ())), value), None));
        assert_eq!(queue.push_within(8, (2, (0, ())), 8), Some(7));
        assert_eq!(queue.push_within(8, (1, (2, ())), 9), Some(6), "within a group, too");
        assert_eq!(queue.push_within(8, (1, (0, ())), 10), Some(10), "who has most makes room for nobody but others");
    }
}
