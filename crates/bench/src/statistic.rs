//! Median and spread of a few runs. For so few runs, on a machine with other load, a mean or a standard deviation would
//! claim too much.

use std::time::Duration;

use serde::Serialize;
use tidings_server::output::grouped;
use tokio::time::Instant;

/// How long [`times_per_second`] measures.
const MEASURED: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 500 });

/// Median, least and greatest value of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of finite numbers; `None` if there are none. The median of an even count is the mean of the middle two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) };
        Some(Self { median, min, max })
    }

    /// `min – max`.
    pub(super) fn show(self) -> String {
        format!("{} – {}", format_number(self.min), format_number(self.max))
    }
}

/// Sorts the values and returns a quantile of them; zero if there are none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile_of_sorted(values, share)
}

/// The smallest value that is at least as large as this share of all values; zero if there are none.
pub(super) fn quantile_of_sorted(values: &[f64], share: f64) -> f64 {
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).or(values.last()).copied().unwrap_or(0.0)
}

/// How often `work` runs in a second, on this thread. A fifth of the measured time warms up.
pub(super) fn times_per_second(mut work: impl FnMut()) -> f64 {
    let mut run = |time: Duration| {
        let (start, mut rounds, mut batch) = (Instant::now(), 0_u64, 1_u64);
        loop {
            (0..batch).for_each(|_| work());
            rounds += batch;
            let elapsed = start.elapsed();
            if elapsed >= time {
                return rounds as f64 / elapsed.as_secs_f64();
            }
            // So that the clock is read at most a few hundred times.
            batch = if elapsed < time / 256 { batch * 2 } else { batch };
        }
    };
    run(MEASURED / 5);
    run(MEASURED)
}

/// A number for people: three significant digits, or all digits before the point; digits in groups of three.
pub(super) fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        _ if magnitude == 0.0 || magnitude >= 100.0 => 0,
        _ if magnitude >= 10.0 => 1,
        _ if magnitude >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{magnitude:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    format!("{}{}{fraction}", if value < 0.0 { "-" } else { "" }, grouped(whole))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let cases = [
            (0.0, "0"),
            (0.1234, "0.123"),
            (1.236, "1.24"),
            (12.34, "12.3"),
            (999.6, "1 000"),
            (1_234_567.0, "1 234 567"),
            (-1234.0, "-1 234"),
        ];
        for (value, text) in cases {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of(&[9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&mut values, share)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    proptest! {
        #[test]
        fn half_of_the_runs_lie_on_either_side(values in prop::collection::vec(-1e9..1e9_f64, 1..40)) {
            let spread = Spread::of(&values).unwrap();
            prop_assert!(values.iter().all(|value| (spread.min..=spread.max).contains(value)));
            let below = values.iter().filter(|&&value| value < spread.median).count();
            let above = values.iter().filter(|&&value| value > spread.median).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
        }
    }
}
