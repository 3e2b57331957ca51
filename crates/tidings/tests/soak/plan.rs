//! How long the soak takes, and how much of everything there is in it.

use std::time::Duration;

/// From here on it is judged whether anything grows: a shorter soak ends before buffers and bounds are full.
const JUDGED_FROM: Duration = Duration::from_secs(20 * 60);
/// A round of the longest soak, and of the shortest.
const ROUNDS: std::ops::RangeInclusive<Duration> = Duration::from_secs(9)..=Duration::from_secs(170);
/// So many rounds, if they are within [`ROUNDS`].
const ROUND_COUNT: u32 = 20;

/// What a soak of this length does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// The time from one rest to the next.
    pub(crate) round: Duration,
    /// Devices that come and go at once.
    pub(crate) wave_count: u64,
    /// From the begin of one wave to the next, at least.
    pub(crate) wave_pace: Duration,
    /// From one thing that the operator does to the next.
    pub(crate) operator_pace: Duration,
    /// Between two lines of the table.
    pub(crate) line: Duration,
    /// For how long the processor is looked at while nothing happens.
    pub(crate) rest: Duration,
    pub(crate) is_judged: bool,
    /// Each wave leaves a device behind, and the soak must fail.
    pub(crate) is_canary: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, time: Duration) -> Self {
        let is_judged = time >= JUDGED_FROM;
        let (wave_count, wave_pace, operator_pace, line, rest) =
            if is_judged { (100_000, 60, 10, 60, 5) } else { (2_000, 4, 1, 10, 1) };
        let [wave_pace, operator_pace, line, rest] = [wave_pace, operator_pace, line, rest].map(Duration::from_secs);
        let round = (time / ROUND_COUNT).clamp(*ROUNDS.start(), *ROUNDS.end());
        let is_canary = std::env::var_os("TIDINGS_SOAK_CANARY").is_some();
        Self { seed, time, round, wave_count, wave_pace, operator_pace, line, rest, is_judged, is_canary }
    }

    /// What the environment says.
    pub(crate) fn read() -> Self {
        let number = |name, default| {
            let text = std::env::var(name).ok();
            text.map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
        };
        Self::new(
            number("TIDINGS_SOAK_SEED", rand::random()),
            Duration::from_secs(number("TIDINGS_SOAK_SECONDS", 3600)),
        )
    }
}
