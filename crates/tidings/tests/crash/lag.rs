//! How much of a life of the server its last checkpoint may not know of, from what was measured in that life.
//!
//! Promised is: what was accepted within one checkpoint interval, at the rate of that life, and the streams in flight.
//! Demanded is a little less, for the cores are busy: the outcomes before the last checkpoint that the server's own
//! counter showed (and one look earlier: so the time that writing takes is measured, not guessed), but at least those
//! before [`CHECKPOINT_INTERVAL`], [`SLACK`] and the longest time between two looks: a machine that does not come to
//! looking does not come to noting either.
//!
//! In memory: a look, 32 bytes, every [`LOOK_INTERVAL`] of one life.

use std::time::Duration;

use tokio::time::Instant;

/// As configured.
pub(crate) const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(100);
/// What two busy cores may add, beside what is measured.
pub(crate) const SLACK: Duration = Duration::from_millis(400);
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The rate is that of so long before the kill, and how far apart the looks are too.
const RATE_SPAN: Duration = Duration::from_secs(1);

/// What was so at a moment, or a little later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) accepted: u64,
    /// Written in this life.
    pub(crate) checkpoints: u64,
}

/// All of one life, the earliest first.
#[derive(Default)]
pub(crate) struct Looks(Vec<Look>);

/// What a life leaves unnoted, beside the streams in flight and answers that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lag {
    /// The last checkpoint is not older.
    pub(crate) age: Duration,
    pub(crate) promised: u64,
    pub(crate) demanded: u64,
    /// How long the providers were accepting.
    pub(crate) busy: Duration,
}

impl Looks {
    pub(crate) fn note(&mut self, look: Look) {
        self.0.push(look);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.0.last().is_none_or(|look| look.at.elapsed() >= LOOK_INTERVAL)
    }

    /// With so many accepted when the life ended.
    pub(crate) fn lag(&self, accepted: u64, now: Instant) -> Lag {
        let age_of = |look: &Look| now.saturating_duration_since(look.at);
        let since = |look: Option<&Look>| look.map_or(0, |look| accepted - look.accepted);
        let within = |span: Duration| since(self.0.iter().rev().find(|look| age_of(look) >= span).or(self.0.first()));
        let first = self.0.windows(2).find(|pair| pair[1].accepted > pair[0].accepted);
        let written = self.0.windows(2).rposition(|pair| pair[1].checkpoints > pair[0].checkpoints);
        let before = self.0.get(written.unwrap_or(0).saturating_sub(1));
        let promised_share = CHECKPOINT_INTERVAL.div_duration_f64(RATE_SPAN);
        Lag {
            age: before.map_or(Duration::ZERO, age_of),
            promised: (within(RATE_SPAN) as f64 * promised_share) as u64,
            demanded: since(before).min(within(CHECKPOINT_INTERVAL + SLACK + self.gap(now))),
            busy: first.map_or(Duration::ZERO, |pair| age_of(&pair[1])),
        }
    }

    /// The longest time without a look.
    fn gap(&self, now: Instant) -> Duration {
        let ends = self.0.iter().map(|look| look.at).skip(1).chain([now]);
        let gaps = self.0.iter().zip(ends).filter(|(_, end)| now.saturating_duration_since(*end) <= RATE_SPAN);
        gaps.map(|(look, end)| end.saturating_duration_since(look.at)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 7000;

    /// Looks every 100 ms of a life of three seconds that accepts 1000 a second, with a checkpoint seen by each look
    /// for which `writes`.
    fn lag(writes: impl Fn(u64) -> bool) -> Lag {
        let (began, mut looks, mut checkpoints) = (Instant::now(), Looks::default(), 0);
        for look in 0..=30 {
            checkpoints += u64::from(writes(look));
            let at = began + Duration::from_millis(100 * look);
            looks.note(Look { at, accepted: START + 100 * look, checkpoints });
        }
        looks.lag(START + 3050, began + Duration::from_millis(3050))
    }

    #[test]
    fn who_writes_at_each_look_may_not_know_of_what_came_since_the_look_before_the_last_two() {
        let lag = lag(|look| look > 0);
        assert_eq!((lag.demanded, lag.age), (250, Duration::from_millis(250)));
        assert_eq!((lag.promised, lag.busy), (105, Duration::from_millis(2950)));
    }

    #[test]
    fn who_writes_seldom_or_never_is_measured_by_the_promise() {
        // The slack, the interval, a look's distance and what the nearest look is off: 700 ms.
        for writes in [(|_| false) as fn(u64) -> bool, |look| look == 5] {
            assert_eq!(lag(writes).demanded, 650);
        }
        assert_eq!(lag(|_| false).age, Duration::from_millis(3050));
    }

    #[test]
    fn looks_that_come_late_excuse_what_came_meanwhile() {
        let (began, mut looks) = (Instant::now(), Looks::default());
        for (after, accepted) in [(0, 0), (500, 500), (2500, 2500)] {
            looks.note(Look { at: began + Duration::from_millis(after), accepted, checkpoints: 0 });
        }
        assert_eq!(looks.lag(2600, began + Duration::from_millis(2600)).demanded, 2600);
    }

    #[test]
    fn a_life_that_was_never_looked_at_owes_nothing() {
        let lag = Looks::default().lag(5, Instant::now());
        assert_eq!((lag.demanded, lag.promised, lag.busy), (0, 0, Duration::ZERO));
    }
}
