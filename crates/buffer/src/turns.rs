//! Chooses one of several levels that wait: the highest, but no level starves.
//!
//! **The rule.** Level 0 is the highest. A turn goes to the highest level that waits. But of [`PERIOD`] (16) turns in a row,
//! each lower level has one of its own: if the level waits then, the turn goes to this level.
//!
//! **The bound.** A level that waits is passed over at most 15 times in a row, whatever the other levels do. The highest level
//! that waits is passed over at most once in a row, and gets at least 16 − (`LEVELS` − 1) of 16 turns. There are at most 8
//! levels, so the own turns of two levels are never next to each other.
//!
//! This says nothing about the order within a level, and holds no values. The state is one number: no clock, lock or memory.
//!
//! | Used by | Levels | A turn is |
//! |---|---|---|
//! | gateways | priorities of a pool's lakes | one notification; a connection takes all it can use in one batch |
//! | sender, `round_robin` | priorities of the tasks that wait for a permit | the permit |
//! | jobs, `Slots` | priorities of the waiting jobs | a free slot |
//! | store, `Queue` | its five queues | a drain, which begins with that queue |

/// Of this many turns in a row, each lower level that waits gets one.
const PERIOD: usize = 16;

/// Gives turns to levels, 0 being the highest.
#[derive(Debug, Clone, Default)]
pub struct Turns<const LEVELS: usize> {
    /// Turns that were given, modulo [`PERIOD`].
    turn: usize,
}

impl<const LEVELS: usize> Turns<LEVELS> {
    /// Begins with the first turn of a period.
    pub const fn new() -> Self {
        Self { turn: 0 }
    }

    /// The turn of a period that belongs to a lower level.
    const fn own(level: usize) -> usize {
        const { assert!(LEVELS <= PERIOD / 2, "own turns must not be next to each other") };
        level * PERIOD / LEVELS
    }

    /// Gives a turn to one of the levels for which `waits` is true; `None` if there is none.
    pub fn next(&mut self, mut waits: impl FnMut(usize) -> bool) -> Option<usize> {
        let owner = (1..LEVELS).find(|&level| Self::own(level) == self.turn);
        let chosen = owner.into_iter().chain(0..LEVELS).find(|&level| waits(level))?;
        self.turn = (self.turn + 1) % PERIOD;
        Some(chosen)
    }

    /// Gives `demand` turns at once, or fewer if no level waits any more, and returns how many. `take(level, count)` uses up
    /// to `count` turns of a level and returns how many; fewer means that the level no longer waits. Each level gets as many
    /// turns as with [`Turns::next`], but in another order.
    pub fn take(&mut self, demand: usize, take: &mut impl FnMut(usize, usize) -> usize) -> usize {
        let mut take = |level, wanted| if wanted == 0 { 0 } else { take(level, wanted) };
        let mut left = demand;
        for level in 1..LEVELS {
            let own_before = |turn| (turn + PERIOD - 1 - Self::own(level)) / PERIOD;
            left -= take(level, own_before(self.turn + demand) - own_before(self.turn));
        }
        for level in 0..LEVELS {
            left -= take(level, left);
        }
        self.turn = (self.turn + demand - left) % PERIOD;
        demand - left
    }
}

#[cfg(test)]
mod tests;
