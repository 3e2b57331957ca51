//! Decides which number a new device gets, and when a number may be used again.
//!
//! Devices of one platform, locale and country get numbers that lie together, in *blocks*. So their sets are dense, their
//! records are neighbours, and the devices of a job come grouped by text. The blocks of a group grow from 64 numbers to 4096.
//! A device that moves to another group keeps its number, so a block says only what its devices were when they registered.
//! There are at most 4096 groups. A further one takes the place of a small group without devices. If none is found, it shares
//! the common group with devices that were numbered before there were blocks.
//!
//! ```text
//!             the block's next number        deleted                trim_to has passed `at`         60 s later
//!   new block ───────────────────────► alive ───────► waiting (at) ───────────────────────► resting ──────────► free
//!                                        ▲                                                                        │
//!                                        └──────────────────────────── given again ───────────────────────────────┘
//! ```
//!
//! A device gets the next number of its group's open block, else a free number of its group, else the first number of a new
//! block. If there is no room for a new block, it gets any free number.
//!
//! **Durable**: the blocks, and how many numbers of each were ever given. They are written in the batch of the device that
//! got the last number. The device rows say which numbers are in use. So at open, every given number without a device waits
//! again, until the sender does not need any event that was in the journal at that time.
//!
//! **A number is never mistaken for its former device**, because it is used again only when nothing refers to it any more:
//!
//! - *Jobs* (audience, held set, cursor, outcomes by number, also those on disk) that refer to a deleted device belong to
//!   events before `at`, the journal's end at the deletion: later audiences do not contain the device. The sender says with
//!   `trim_to` that it needs none of these events. It says so after the rows that end the jobs were given to the engine. The
//!   engine's log is in order, so a power failure that loses these rows also loses the later batch that uses the number
//!   again. In addition, a new device gets no event before its `since`.
//! - *Receipts* are kept per event, so the same holds for them.
//! - *Live connections* that were proven to be the deleted device lose their proof when the store calls its sink
//!   (`CommitSink::on_device_removed`), within one round of each edge loop.
//! - *Reports by number on their way into the store*: accepted tokens (noted every 250 ms) arrive within the 60 seconds that
//!   a number rests after `trim_to` has passed. Gone tokens are reported together with the token.
//! - *Damage*: whoever gives a number again looks whether rows of its former device are left (`devices/numbers.rs`). With a
//!   left-over device row it is not used until a restart; left-over subscriptions and mutes are deleted. It does not look
//!   earlier, because that would read rows of every deleted device, and again after each restart.
//!
//! Changes can be undone until [`Blocks::keep`], the latest first, like those of a draft. This is a core: it has no rows and
//! no clock.
//!
//! Bound: `device_count_max` living devices, and twice as many numbers plus 65 536. Memory: some bits per number and 100
//! bytes per block.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use crate::devices::NewDevice;
use roaring::RoaringBitmap;
use tidings_types::{Country, DeviceNumber, Locale, Platform};
use tokio::time::Instant;

pub(crate) mod rows;
#[cfg(test)]
mod tests;

const BLOCK_COUNT_MIN: u32 = 64;
const BLOCK_COUNT_MAX: u32 = 4096;
/// Groups that have blocks of their own.
const GROUP_COUNT_MAX: usize = if cfg!(test) { 8 } else { 4096 };
/// Groups that a device of a further group looks at, to find one without devices.
const IDLE_LOOK_COUNT: usize = if cfg!(test) { 4 } else { 64 };
/// A group of devices; `None` is the common group.
pub(crate) type Group = Option<Traits>;

/// The traits that the devices of a group had when they registered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Traits {
    pub(crate) platform: Platform,
    pub(crate) locale: Locale,
    pub(crate) country: Option<Country>,
}

impl Traits {
    pub(crate) fn of(device: &NewDevice) -> Self {
        let NewDevice { platform, locale, country, .. } = device;
        Self { platform: *platform, locale: locale.clone(), country: country.clone() }
    }
}

/// The row of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockRow {
    pub(crate) group: Group,
    /// The count of its numbers.
    pub(crate) length: u32,
    /// How many of its numbers were ever given, from the first on.
    pub(crate) given: u32,
}

#[derive(Debug)]
struct Block {
    group: usize,
    length: u32,
    given: u32,
}

#[derive(Debug, Default)]
struct GroupState {
    name: Group,
    /// The first number of the block that still has numbers to give.
    open: Option<u32>,
    /// Numbers in all its blocks.
    number_count: u32,
    free: RoaringBitmap,
}

/// See the module. Invariant: each number below `end` is in exactly one of: `alive`, `waiting`, `resting`, a group's `free`,
/// `burnt`, or the rest of an open block.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// By their first numbers.
    blocks: BTreeMap<u32, Block>,
    /// The common group first.
    groups: Vec<GroupState>,
    by_name: HashMap<Traits, usize>,
    /// The group that was looked at last, to find one without devices.
    looked_at: usize,
    alive: RoaringBitmap,
    /// By the journal's end at their deletion.
    waiting: BTreeMap<u64, RoaringBitmap>,
    /// With the end of their rest, the earliest first.
    resting: VecDeque<(Instant, RoaringBitmap)>,
    /// Numbers that are not used again.
    burnt: RoaringBitmap,
    /// The first number that is in no block.
    end: u32,
    steps: Vec<Step>,
}

/// A number for a new device, and the row to write with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) number: DeviceNumber,
    /// The first number of its block and the block's row, if the row has changed.
    pub(crate) row: Option<(u32, BlockRow)>,
    /// It is that of a deleted device.
    pub(crate) is_again: bool,
}

/// A change that can be undone.
#[derive(Debug)]
enum Step {
    /// The next number of a block was given.
    Given {
        number: u32,
        first: u32,
    },
    /// A free number of a group was given.
    GivenAgain {
        number: u32,
        group: usize,
    },
    /// A new block.
    Opened {
        first: u32,
    },
    Deleted {
        number: u32,
        at: u64,
    },
    Renamed {
        group: usize,
        former: Group,
    },
}

/// The limit of all numbers. It is higher than that of devices, because blocks have gaps and deleted numbers wait.
fn number_count_max(device_count_max: u32) -> u32 {
    device_count_max.saturating_mul(2).saturating_add(1 << 16)
}

impl Blocks {
    /// Makes the blocks from their rows, which come in order of their first numbers. Numbers below `end` that are given and
    /// not `alive` wait until the sender needs no event before `journal_end`. A row that overlaps another or exceeds `end` is
    /// left out; its numbers then belong to the common group.
    pub(crate) fn new(
        rows: impl IntoIterator<Item = (u32, BlockRow)>,
        end: u32,
        alive: RoaringBitmap,
        journal_end: u64,
    ) -> Self {
        let mut blocks = Self { groups: vec![GroupState::default()], alive, end, ..Self::default() };
        let (mut dead, mut next) = (RoaringBitmap::new(), 0);
        for (first, row) in rows {
            let fits = first >= next && row.length > 0 && first.checked_add(row.length).is_some_and(|it| it <= end);
            if fits {
                dead.insert_range(next..first);
                next = first + row.length;
                dead.insert_range(first..blocks.add(first, row));
            }
        }
        dead.insert_range(next..end);
        dead -= &blocks.alive;
        blocks.waiting.insert(journal_end, dead);
        blocks
    }

    /// Adds a block at open. Returns the number from which on none of its numbers was given.
    fn add(&mut self, first: u32, row: BlockRow) -> u32 {
        let group = self.group(row.group);
        let end = first + row.length;
        // Numbers of living devices were given, whatever the row says.
        let alive = self.alive.rank(end - 1) - first.checked_sub(1).map_or(0, |before| self.alive.rank(before));
        let last = if alive == 0 { None } else { self.alive.select((self.alive.rank(end - 1) - 1) as u32) };
        let given = row.given.min(row.length).max(last.map_or(0, |last| last + 1 - first));
        self.blocks.insert(first, Block { group, length: row.length, given });
        let state = &mut self.groups[group];
        state.number_count += row.length;
        if given == row.length || state.open.is_some() {
            return end; // A group has one open block. The rest of a second one is treated like deleted numbers.
        }
        state.open = Some(first);
        first + given
    }

    /// The index of a group. If there are too many groups, it is the common one.
    fn group(&mut self, name: Group) -> usize {
        let Some(traits) = name else { return 0 };
        if let Some(group) = self.by_name.get(&traits) {
            return *group;
        }
        if self.groups.len() > GROUP_COUNT_MAX {
            return 0;
        }
        self.groups.push(GroupState { name: Some(traits.clone()), ..GroupState::default() });
        self.by_name.insert(traits, self.groups.len() - 1);
        self.groups.len() - 1
    }

    /// How many groups have blocks of their own.
    pub(crate) fn group_count(&self) -> usize {
        self.by_name.len()
    }

    /// How many numbers may be given again.
    #[cfg(test)]
    pub(crate) fn free_count(&self) -> u64 {
        self.groups.iter().map(|group| group.free.len()).sum()
    }

    /// The first number that is in no block.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// How many more devices there may be.
    pub(crate) fn room(&self, device_count_max: u32) -> u64 {
        let living = u64::from(device_count_max).saturating_sub(self.alive.len());
        let held = self.waiting.values().chain(self.resting.iter().map(|(_, numbers)| numbers)).map(RoaringBitmap::len);
        let unusable = self.alive.len() + self.burnt.len() + held.sum::<u64>();
        let numbers = u64::from(number_count_max(device_count_max).max(self.end)).saturating_sub(unusable);
        living.min(numbers)
    }

    /// A number for a device with these traits; `None` when there is no [`Blocks::room`].
    pub(crate) fn give(&mut self, traits: Traits, device_count_max: u32) -> Option<Given> {
        if self.alive.len() >= u64::from(device_count_max) {
            return None;
        }
        let number_end = number_count_max(device_count_max);
        let mut group = self.group(Some(traits.clone()));
        let idle = if group == 0 { self.find_idle() } else { None };
        if let Some(idle) = idle {
            self.rename(idle, traits);
            group = idle;
        }
        let anywhere = |blocks: &mut Self| (0..blocks.groups.len()).find_map(|group| blocks.give_known(group));
        let given = self.give_known(group).or_else(|| self.give_opening(group, number_end)).or_else(|| anywhere(self));
        given.map(|mut given| {
            if idle.is_some() && given.row.is_none() {
                given.row = self.block_of(given.number.0).map(|first| (first, self.row(first))); // It has another group now.
            }
            given
        })
    }

    /// Looks at some groups for one without devices: it has no block, or one, all numbers of which can be given.
    fn find_idle(&mut self) -> Option<usize> {
        for _ in 0..IDLE_LOOK_COUNT {
            self.looked_at = self.looked_at % GROUP_COUNT_MAX + 1; // The common group is not one of them.
            let group = self.groups.get(self.looked_at)?;
            let first = group.open.or_else(|| self.block_of(group.free.min()?));
            let is_idle = first.map_or(group.number_count == 0, |first| {
                let Block { length, given, .. } = self.blocks[&first];
                let ungiven = if group.open.is_some() { length - given } else { 0 };
                group.number_count == length && group.free.len() == u64::from(length - ungiven)
            });
            if is_idle {
                return Some(self.looked_at);
            }
        }
        None
    }

    /// The first number of the block that a number is in.
    fn block_of(&self, number: u32) -> Option<u32> {
        let (first, block) = self.blocks.range(..=number).next_back()?;
        (number - first < block.length).then_some(*first)
    }

    fn rename(&mut self, group: usize, traits: Traits) {
        let former = self.groups[group].name.replace(traits.clone());
        if let Some(former) = &former {
            self.by_name.remove(former);
        }
        self.by_name.insert(traits, group);
        self.steps.push(Step::Renamed { group, former });
    }

    /// A number from the open block or a free one.
    fn give_known(&mut self, group: usize) -> Option<Given> {
        let state = &mut self.groups[group];
        if let Some(first) = state.open {
            let block = self.blocks.get_mut(&first).expect("an open block exists");
            let number = first + block.given;
            block.given += 1;
            if block.given == block.length {
                state.open = None;
            }
            self.alive.insert(number);
            self.steps.push(Step::Given { number, first });
            return Some(Given { number: DeviceNumber(number), row: Some((first, self.row(first))), is_again: false });
        }
        let number = state.free.min()?;
        state.free.remove(number);
        self.alive.insert(number);
        self.steps.push(Step::GivenAgain { number, group });
        Some(Given { number: DeviceNumber(number), row: None, is_again: true })
    }

    /// A number from a new block, if there is room for one before `number_end`.
    fn give_opening(&mut self, group: usize, number_end: u32) -> Option<Given> {
        let state = &mut self.groups[group];
        let length = state.number_count.next_power_of_two().clamp(BLOCK_COUNT_MIN, BLOCK_COUNT_MAX);
        let length = length.min(number_end.saturating_sub(self.end));
        if length == 0 {
            return None;
        }
        let first = self.end;
        self.end += length;
        state.number_count += length;
        state.open = Some(first);
        self.blocks.insert(first, Block { group, length, given: 0 });
        self.steps.push(Step::Opened { first });
        self.give_known(group)
    }

    fn row(&self, first: u32) -> BlockRow {
        let Block { group, length, given } = self.blocks[&first];
        BlockRow { group: self.groups[group].name.clone(), length, given }
    }

    /// The device with this number is deleted while the journal ends at `at`. Has no effect if it was deleted before.
    pub(crate) fn delete(&mut self, DeviceNumber(number): DeviceNumber, at: u64) {
        if self.alive.remove(number) {
            self.waiting.entry(at).or_default().insert(number);
            self.steps.push(Step::Deleted { number, at });
        }
    }

    /// Lets the waiting numbers rest until `ready_at` if the sender needs no event before `trim_to`. Cannot be undone, which is
    /// safe because it only concerns numbers deleted in earlier batches.
    pub(crate) fn rest(&mut self, trim_to: u64, ready_at: Instant) {
        debug_assert!(self.steps.is_empty(), "a number whose deletion is undone must not rest");
        let later = self.waiting.split_off(&trim_to.saturating_add(1));
        let passed = std::mem::replace(&mut self.waiting, later);
        let numbers = passed.into_values().reduce(|all, more| all | more).unwrap_or_default();
        if !numbers.is_empty() {
            self.resting.push_back((ready_at, numbers));
        }
    }

    /// Makes the numbers free that have rested, those of at most `block_count` blocks. True when there may be more. Cannot be
    /// undone, like [`Blocks::rest`].
    pub(crate) fn ripen(&mut self, now: Instant, block_count: usize) -> bool {
        for _ in 0..block_count {
            let Some((ready_at, numbers)) = self.resting.front() else { return false };
            if *ready_at > now {
                return false;
            }
            let Some(number) = numbers.min() else {
                self.resting.pop_front();
                continue;
            };
            let (group, neighbours) = self.neighbours(number);
            let mut ripe = RoaringBitmap::new();
            ripe.insert_range(neighbours);
            let (_, numbers) = self.resting.front_mut().expect("it was there just now");
            ripe &= &*numbers;
            *numbers -= &ripe;
            self.groups[group].free |= ripe;
        }
        true
    }

    /// A number that was given again just now is not used as long as the store is open. Cannot be undone.
    pub(crate) fn burn(&mut self, DeviceNumber(number): DeviceNumber) {
        let given = self.steps.pop();
        debug_assert!(matches!(given, Some(Step::GivenAgain { number: last, .. }) if last == number));
        self.alive.remove(number);
        self.burnt.insert(number);
    }

    /// The group of a number, and the numbers of its block; for one in no block, those up to the next block.
    fn neighbours(&self, number: u32) -> (usize, Range<u32>) {
        match self.blocks.range(..=number).next_back() {
            Some((&first, block)) if number - first < block.length => (block.group, first..first + block.length),
            _ => (0, number..self.blocks.range(number..).next().map_or(self.end, |(&first, _)| first)),
        }
    }

    /// Changes up to now can no longer be undone.
    pub(crate) fn keep(&mut self) {
        self.steps.clear();
    }

    /// Undoes all changes since the last [`Blocks::keep`].
    pub(crate) fn take_back(&mut self) {
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Given { number, first } => {
                    let block = self.blocks.get_mut(&first).expect("a block is removed after its numbers");
                    block.given -= 1;
                    self.groups[block.group].open = Some(first);
                    self.alive.remove(number);
                }
                Step::GivenAgain { number, group } => {
                    self.groups[group].free.insert(number);
                    self.alive.remove(number);
                }
                Step::Opened { first } => {
                    let block = self.blocks.remove(&first).expect("this step added it");
                    let group = &mut self.groups[block.group];
                    group.number_count -= block.length;
                    group.open = None;
                    self.end = first;
                }
                Step::Deleted { number, at } => {
                    self.waiting.entry(at).or_default().remove(number);
                    self.alive.insert(number);
                }
                Step::Renamed { group, former } => {
                    let name = std::mem::replace(&mut self.groups[group].name, former.clone());
                    name.map(|name| self.by_name.remove(&name));
                    former.map(|former| self.by_name.insert(former, group));
                }
            }
        }
    }
}
