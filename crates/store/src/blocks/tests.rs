//! Compares the blocks with a model that knows the device of each number and when it was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const REST: Duration = Duration::from_secs(60);

fn traits(index: usize) -> Traits {
    let locale = ["en", "sv", "pt-BR", "de"][index % 4];
    Traits { platform: Platform::ALL[index % 3], locale: Locale::new(locale).unwrap(), country: None }
}

#[derive(Debug, Clone)]
enum Act {
    /// Registers devices of a group. Numbers that are given again may turn out to be unusable.
    Give {
        group: usize,
        count: usize,
        burn: bool,
    },
    /// Deletes living devices.
    Delete(Vec<prop::sample::Index>),
    /// The journal grows, the sender is done with a part of it, time passes.
    Pass {
        events: u64,
        done: prop::sample::Index,
        seconds: u64,
    },
    /// Frees the numbers of some blocks.
    Ripen(usize),
    /// Undoes all changes since the last `Keep`.
    TakeBack,
    Keep,
    /// Reads the rows that were written.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0..12_usize, 1..150_usize, prop::bool::weighted(0.05)).prop_map(|(group, count, burn)| Act::Give { group, count, burn }),
        4 => prop::collection::vec(index(), 0..100).prop_map(Act::Delete),
        3 => (0..3_u64, index(), prop::sample::select(vec![0_u64, 1, 30, 59, 60, 61])).prop_map(|(events, done, seconds)| Act::Pass { events, done, seconds }),
        4 => (0..6_usize).prop_map(Act::Ripen),
        1 => Just(Act::TakeBack),
        4 => Just(Act::Keep),
        1 => Just(Act::Restart),
    ]
}

#[derive(Debug, Clone, Default)]
struct Model {
    alive: BTreeSet<u32>,
    /// The end of the journal when the number's last device was deleted, or at the restart after it.
    deleted: BTreeMap<u32, u64>,
    /// When the sender was first known to be done with these events.
    passed: BTreeMap<u32, Instant>,
    burnt: BTreeSet<u32>,
    rows: BTreeMap<u32, BlockRow>,
}

struct World {
    blocks: Blocks,
    model: Model,
    /// The model at the last `Keep`.
    kept: Model,
    journal_end: u64,
    trim_to: u64,
    now: Instant,
    limit: u32,
}

impl World {
    fn new(limit: u32) -> Self {
        let blocks = Blocks::new([], 0, RoaringBitmap::new(), 1);
        let (model, kept) = (Model::default(), Model::default());
        Self { blocks, model, kept, journal_end: 1, trim_to: 0, now: Instant::now(), limit }
    }

    fn apply(&mut self, act: Act) {
        match act {
            Act::Give { group, count, burn } => (0..count).for_each(|_| self.give(group, burn)),
            Act::Delete(indices) => {
                for index in indices {
                    let count = self.model.alive.len();
                    let Some(number) = (count > 0).then(|| self.model.alive.iter().nth(index.index(count))) else {
                        break;
                    };
                    let number = *number.expect("it is below their count");
                    self.blocks.delete(DeviceNumber(number), self.journal_end);
                    self.blocks.delete(DeviceNumber(number), self.journal_end + 5); // Has no effect.
                    self.model.alive.remove(&number);
                    self.model.deleted.insert(number, self.journal_end);
                }
            }
            Act::Pass { events, done, seconds } => {
                self.keep();
                self.journal_end += events;
                self.trim_to = self.trim_to.max(done.index(self.journal_end as usize + 1) as u64);
                self.now += Duration::from_secs(seconds);
                self.blocks.rest(self.trim_to, self.now + REST);
                for (number, at) in &self.model.deleted {
                    if *at <= self.trim_to {
                        self.model.passed.entry(*number).or_insert(self.now);
                    }
                }
                self.keep();
            }
            Act::Ripen(block_count) => {
                let has_more = self.blocks.ripen(self.now, block_count);
                let is_ripe =
                    |(ready_at, numbers): &(Instant, RoaringBitmap)| *ready_at <= self.now && !numbers.is_empty();
                assert!(has_more || !self.blocks.resting.iter().any(is_ripe));
            }
            Act::TakeBack => {
                self.blocks.take_back();
                self.model = self.kept.clone();
            }
            Act::Keep => self.keep(),
            Act::Restart => self.restart(),
        }
    }

    fn keep(&mut self) {
        self.blocks.keep();
        self.kept = self.model.clone();
    }

    fn give(&mut self, group: usize, burn: bool) {
        let room = self.blocks.room(self.limit);
        let given = self.blocks.give(traits(group), self.limit);
        assert_eq!(given.is_some(), room > 0, "room for {room}");
        let Some(Given { number, row, is_again }) = given else { return };
        let DeviceNumber(index) = number;
        assert_eq!(is_again, self.model.deleted.contains_key(&index) || self.model.burnt.contains(&index));
        if let Some((first, row)) = row {
            assert!((first..first + row.given).contains(&index) && row.given <= row.length);
            self.model.rows.insert(first, row);
        }
        assert!(!self.model.alive.contains(&number.0), "{number:?} has a device");
        assert!(!self.model.burnt.contains(&number.0));
        if burn && is_again {
            self.blocks.burn(number);
            self.model.burnt.insert(number.0);
            return;
        }
        let DeviceNumber(number) = number;
        self.model.alive.insert(number);
        if let Some(at) = self.model.deleted.remove(&number) {
            assert!(at <= self.trim_to, "{number} was deleted at {at}, the sender needs {}", self.trim_to);
            let passed = self.model.passed.remove(&number).expect("it was seen to pass");
            assert!(self.now - passed >= REST);
        }
        assert!(self.model.alive.len() <= self.limit as usize);
        assert!(self.blocks.end() <= number_count_max(self.limit));
    }

    fn restart(&mut self) {
        let end = self.model.rows.last_key_value().map_or(0, |(first, row)| first + row.length);
        let alive = self.model.alive.iter().copied().collect();
        self.blocks = Blocks::new(self.model.rows.clone(), end, alive, self.journal_end);
        // The times of deletions are unknown now, so the current end of the journal counts.
        self.model.passed.clear();
        self.model.burnt.clear();
        let was_given = |number: &u32| {
            self.model.rows.range(..=number).next_back().is_some_and(|(first, row)| number - first < row.given)
        };
        self.model.deleted = (0..end)
            .filter(|number| was_given(number) && !self.model.alive.contains(number))
            .map(|number| (number, self.journal_end))
            .collect();
        self.keep();
    }

    /// Each number is in one place.
    fn check(&self) {
        let blocks = &self.blocks;
        let mut all: Vec<u32> = blocks.alive.iter().chain(blocks.burnt.iter()).collect();
        all.extend(blocks.waiting.values().flatten());
        all.extend(blocks.resting.iter().flat_map(|(_, numbers)| numbers));
        for group in &blocks.groups {
            all.extend(group.free.iter());
            if let Some(first) = group.open {
                let block = &blocks.blocks[&first];
                all.extend(first + block.given..first + block.length);
            }
        }
        all.sort_unstable();
        assert_eq!(all, (0..blocks.end).collect::<Vec<_>>());
        assert!(blocks.alive.iter().eq(self.model.alive.iter().copied()));
        for (first, row) in &self.model.rows {
            assert_eq!(blocks.row(*first), *row);
        }
    }
}

proptest! {
    #[test]
    fn no_number_has_two_devices_and_none_is_used_again_too_early(
        acts in prop::collection::vec(act(), 1..60),
        limit in prop_oneof![Just(20_u32), Just(700), Just(100_000)],
    ) {
        let mut world = World::new(limit);
        for act in acts {
            world.apply(act);
            world.check();
        }
    }

    #[test]
    fn with_any_rows_no_living_number_is_given(
        rows in prop::collection::vec((0..2000_u32, 0..300_u32, 0..400_u32, prop::option::of(0..12_usize)), 0..20),
        alive in prop::collection::btree_set(0..1000_u32, 0..100),
    ) {
        let row = |(first, length, given, group): (u32, u32, u32, Option<usize>)| {
            (first, BlockRow { group: group.map(traits), length, given })
        };
        let mut blocks = Blocks::new(rows.into_iter().map(row), 1000, alive.iter().copied().collect(), 9);
        let mut given: BTreeSet<u32> = alive;
        for turn in 0..2000 {
            let Some(Given { number, .. }) = blocks.give(traits(turn), 3000) else { break };
            prop_assert!(given.insert(number.0));
        }
        let now = Instant::now();
        blocks.keep();
        blocks.rest(8, now + REST);
        let free = |blocks: &Blocks| blocks.groups.iter().map(|group| group.free.len()).sum::<u64>();
        prop_assert!(!blocks.ripen(now + 2 * REST, 1) && free(&blocks) == 0);
        blocks.rest(9, now + REST);
        prop_assert!(!blocks.ripen(now + REST - Duration::from_millis(1), 1) && free(&blocks) == 0);
        while blocks.ripen(now + REST, 3) {}
        prop_assert!(given.iter().all(|number| !blocks.groups.iter().any(|group| group.free.contains(*number))));
        while let Some(Given { number, .. }) = blocks.give(traits(0), 3000) {
            prop_assert!(given.insert(number.0));
        }
        prop_assert!(blocks.room(3000) == 0 && given.len() == 3000);
    }
}

#[test]
fn devices_of_one_group_get_numbers_in_growing_blocks() {
    let mut blocks = Blocks::new([], 0, RoaringBitmap::new(), 1);
    let numbers: Vec<Vec<u32>> = (0..2)
        .map(|group| (0..20_000).map(|_| blocks.give(traits(group), 1 << 20).unwrap().number.0).collect())
        .collect();
    for numbers in &numbers {
        let breaks = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(breaks <= 20_000 / BLOCK_COUNT_MAX as usize + 7, "{breaks}");
    }
    assert!(blocks.end() < 2 * (20_000 + BLOCK_COUNT_MAX));
    let lengths: BTreeSet<u32> = blocks.blocks.values().map(|block| block.length).collect();
    assert_eq!(lengths, BTreeSet::from([64, 128, 256, 512, 1024, 2048, 4096]));
}

#[test]
fn groups_beyond_the_bound_share_their_blocks() {
    let mut blocks = Blocks::new([], 0, RoaringBitmap::new(), 1);
    let letters: Vec<char> = ('a'..='z').collect();
    for index in 0..GROUP_COUNT_MAX + 500 {
        let letter = |part: usize| letters[index / 26_usize.pow(part as u32) % 26];
        let locale = Locale::new(&format!("{}{}{}", letter(0), letter(1), letter(2))).unwrap();
        blocks.give(Traits { platform: Platform::Ios, locale, country: None }, 1 << 20).unwrap();
    }
    assert_eq!(blocks.groups.len(), GROUP_COUNT_MAX + 1);
    assert_eq!(blocks.groups[0].number_count, 512);
}

#[test]
fn a_group_without_devices_makes_room_for_another_one() {
    let mut blocks = Blocks::new([], 0, RoaringBitmap::new(), 1);
    let country = |index: usize| Country::new(["SE", "NO", "FI", "DK"][index]).ok();
    let of_country = |index: usize, part: usize| Traits { country: country(part), ..traits(index) };
    let give = |blocks: &mut Blocks, traits: Traits| {
        let given = blocks.give(traits.clone(), 1000).unwrap();
        (given.number, given.row.is_some_and(|(_, row)| row.group == Some(traits)))
    };
    let numbers: Vec<DeviceNumber> = (0..8).map(|index| give(&mut blocks, of_country(index, 0)).0).collect();
    blocks.delete(numbers[5], 1);
    blocks.keep();
    assert!(!give(&mut blocks, of_country(0, 1)).1, "the number of the deleted device is not free yet");
    blocks.take_back();
    let now = Instant::now();
    blocks.rest(1, now);
    while blocks.ripen(now, 1) {}
    blocks.keep();
    let (end, former) = (blocks.end(), of_country(5, 0));
    let is_known = |blocks: &Blocks, traits: &Traits| blocks.by_name.contains_key(traits);
    for _ in 0..2 {
        let is_own = (0..3).any(|_| give(&mut blocks, of_country(0, 1)).1);
        assert!(is_own && blocks.group_count() == 8, "it is found after some looks");
        assert!(is_known(&blocks, &of_country(0, 1)) && !is_known(&blocks, &former));
        let other = give(&mut blocks, of_country(1, 2));
        assert!(!other.1, "no other group is empty");
        blocks.take_back();
        assert_eq!((blocks.end(), blocks.group_count()), (end, 8));
        assert!(is_known(&blocks, &former) && !is_known(&blocks, &of_country(0, 1)));
    }
}

/// All numbers of its block were given, so the next one is given again, which by itself writes no row.
#[test]
fn the_row_of_a_full_block_is_written_when_its_group_makes_room() {
    let mut blocks = Blocks::new([], 0, RoaringBitmap::new(), 1);
    let country = |index: usize| Country::new(["SE", "NO", "FI", "DK"][index]).ok();
    let of_country = |index: usize, part: usize| Traits { country: country(part), ..traits(index) };
    let numbers: Vec<DeviceNumber> =
        (0..BLOCK_COUNT_MIN).map(|_| blocks.give(of_country(0, 0), 1000).unwrap().number).collect();
    (1..8).for_each(|index| _ = blocks.give(of_country(index, 0), 1000).unwrap());
    numbers.iter().for_each(|number| blocks.delete(*number, 1));
    blocks.keep();
    let now = Instant::now();
    blocks.rest(1, now);
    while blocks.ripen(now, 1) {}
    blocks.keep();
    let given: Vec<_> = (0..3).map(|_| blocks.give(of_country(0, 1), 1000).unwrap()).collect();
    let of_block = given.iter().find(|given| numbers.contains(&given.number)).expect("the empty group makes room");
    let (first, row) = of_block.row.clone().expect("the block has another group now");
    assert!(of_block.is_again && first == numbers[0].0 && row.group == Some(of_country(0, 1)));
}

/// A store of format 1 has no blocks.
#[test]
fn numbers_from_before_there_were_blocks_belong_to_the_common_group() {
    let alive: RoaringBitmap = (0..100).filter(|number| number % 2 == 0).collect();
    let mut blocks = Blocks::new([], 100, alive, 7);
    assert_eq!(blocks.give(traits(0), 1000).unwrap().number, DeviceNumber(100));
    blocks.keep();
    let now = Instant::now();
    blocks.rest(7, now + REST);
    while blocks.ripen(now + REST, 1) {}
    assert!(blocks.groups[0].free.iter().eq((1..100).step_by(2)));
}
