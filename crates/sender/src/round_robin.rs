//! Round-robin over the tasks that wait for one thing: a lake, or the walk on the sender's thread.
//!
//! Pure: it only decides which task is next. [`crate::permits`] makes the tasks wait.
//!
//! - [`Turns`] chooses the class: the first goes before the second, and a class that waits is passed over at most 15 times in
//!   a row.
//! - Within a class, groups take turns. A group goes to the end of the line when its turn ends, not when it begins.
//!   Otherwise a group with one member, which comes back only then, would always be behind a group with several.
//! - Within a group, members go in the order in which they came. So a member with n others of its group before it has its
//!   turn after at most n + 1 turns of each other group of its class.
//!
//! Bound: one entry per waiting task. Cost: joining looks over the groups that wait, a turn costs next to nothing.

use std::collections::VecDeque;

use tidings_buffer::Turns;

/// The waiting members, in the order of their turns, in `CLASSES` classes.
pub(crate) struct RoundRobin<T, const CLASSES: usize> {
    classes: [Class<T>; CLASSES],
    turns: Turns<CLASSES>,
}

struct Class<T> {
    /// Invariant: no group is empty, none is there twice.
    groups: VecDeque<Group<T>>,
    /// The group that had the last turn, with its waiting members. Invariant: not among `groups`.
    serving: Option<Group<T>>,
}

type Group<T> = (usize, VecDeque<T>);

impl<T> Class<T> {
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.serving.as_ref().is_none_or(|(_, members)| members.is_empty())
    }

    fn group(&mut self, group: usize) -> Option<&mut Group<T>> {
        self.groups.iter_mut().chain(&mut self.serving).find(|(known, _)| *known == group)
    }

    fn next(&mut self) -> Option<T> {
        self.groups.extend(self.serving.take().filter(|(_, members)| !members.is_empty()));
        let (group, mut members) = self.groups.pop_front()?;
        let member = members.pop_front();
        self.serving = Some((group, members));
        member
    }
}

impl<T, const CLASSES: usize> RoundRobin<T, CLASSES> {
    pub(crate) fn new() -> Self {
        let class = |_| Class { groups: VecDeque::new(), serving: None };
        Self { classes: std::array::from_fn(class), turns: Turns::new() }
    }

    /// `member` waits from now on.
    pub(crate) fn join(&mut self, class: usize, group: usize, member: T) {
        let class = &mut self.classes[class];
        match class.group(group) {
            Some((_, members)) => members.push_back(member),
            None => class.groups.push_back((group, VecDeque::from([member]))),
        }
    }

    /// Ends the last turn, if there was one, and removes the next member from the line.
    pub(crate) fn next(&mut self) -> Option<T> {
        let class = self.turns.next(|class| !self.classes[class].is_empty())?;
        self.classes[class].next()
    }

    /// Removes the member that `is` matches; false if it did not wait.
    pub(crate) fn leave(&mut self, class: usize, group: usize, is: impl Fn(&T) -> bool) -> bool {
        let class = &mut self.classes[class];
        let Some((_, members)) = class.group(group) else { return false };
        let Some(index) = members.iter().position(is) else { return false };
        members.remove(index);
        class.groups.retain(|(_, members)| !members.is_empty());
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Who waits: class, group, member.
    type Who = (usize, usize, u32);

    /// What has happened since somebody waits.
    #[derive(Default)]
    struct Wait {
        /// Members of its own group that came before it.
        before: usize,
        turns_by_group: BTreeMap<usize, usize>,
    }

    #[derive(Default)]
    struct Model(BTreeMap<Who, Wait>);

    impl Model {
        fn join(&mut self, who: Who) {
            let before = self.0.keys().filter(|other| (other.0, other.1) == (who.0, who.1)).count();
            self.0.insert(who, Wait { before, ..Wait::default() });
        }

        fn turn(&mut self, who: Who) {
            self.0.remove(&who).expect("only who waits has a turn");
            for ((_, group, _), wait) in self.0.iter_mut().filter(|(other, _)| other.0 == who.0) {
                let turns = wait.turns_by_group.entry(who.1).or_default();
                *turns += 1;
                let most = wait.before + 1;
                assert!(*turns <= most, "group {} had {turns} turns while one of {group} waited for {most}", who.1);
            }
        }
    }

    proptest! {
        #[test]
        fn whoever_waits_is_passed_by_each_other_group_once_for_each_of_its_own_before_it(
            steps in prop::collection::vec((0..3_u8, 0..3_usize, 0..4_usize, 0..5_u32), 0..400),
        ) {
            let (mut turns, mut model) = (RoundRobin::<Who, 3>::new(), Model::default());
            for (step, class, group, member) in steps {
                let who = (class, group, member);
                match step {
                    0 if !model.0.contains_key(&who) => {
                        turns.join(class, group, who);
                        model.join(who);
                    }
                    1 if member == 0 => {
                        prop_assert_eq!(turns.leave(class, group, |other| *other == who), model.0.contains_key(&who));
                        // Whoever came after it has one less before it; the bound only gets wider.
                        model.0.remove(&who);
                    }
                    _ => match turns.next() {
                        Some(next) => model.turn(next),
                        None => prop_assert!(model.0.is_empty(), "nobody is forgotten"),
                    },
                }
            }
            while let Some(next) = turns.next() {
                model.turn(next);
            }
            prop_assert!(model.0.is_empty(), "nobody is forgotten");
        }

        /// All come back when their turn is over and the next has begun, as lanes of long jobs do.
        #[test]
        fn groups_have_the_same_number_of_turns_however_many_members_they_have(
            sizes in prop::collection::vec(1..9_u32, 2..6), rounds in 1..40_usize,
        ) {
            let mut turns = RoundRobin::<(usize, u32), 1>::new();
            for (group, &size) in sizes.iter().enumerate() {
                (0..size).for_each(|member| turns.join(0, group, (group, member)));
            }
            let (mut had, mut last) = (BTreeMap::<(usize, u32), usize>::new(), None);
            for _ in 0..rounds * sizes.len() {
                let next = turns.next().expect("all others wait");
                *had.entry(next).or_default() += 1;
                if let Some(last) = last.replace(next) {
                    turns.join(0, last.0, last);
                }
            }
            for (group, &size) in sizes.iter().enumerate() {
                let of_group: Vec<usize> = (0..size).map(|it| had.get(&(group, it)).copied().unwrap_or(0)).collect();
                prop_assert_eq!(of_group.iter().sum::<usize>(), rounds, "{:?}", sizes);
                prop_assert!(of_group.iter().max().unwrap() - of_group.iter().min().unwrap() <= 1, "{:?}", of_group);
            }
        }
    }

    #[test]
    fn a_lower_class_has_one_of_sixteen_turns_while_a_higher_one_waits_all_the_time() {
        let mut turns = RoundRobin::<usize, 3>::new();
        (0..3).for_each(|class| turns.join(class, 0, class));
        let mut had = [0; 3];
        for _ in 0..1600 {
            let class = turns.next().expect("all wait");
            had[class] += 1;
            turns.join(class, 0, class);
        }
        assert!(had[0] >= 1390 && had[1] >= 95 && had[2] >= 95, "{had:?}");
    }
}
