//! A handful of runs as median and spread. With so few, and a machine that others use, a mean or a deviation would
//! say more than is known.

use serde::Serialize;

/// The middle and the ends of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of finite numbers; `None` without any. The median of an even count is the mean of the middle two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) };
        Some(Self { median, min, max })
    }

    /// From the least to the most.
    pub(super) fn show(self) -> String {
        format!("{} – {}", format_number(self.min), format_number(self.max))
    }
}

/// The value that the share `quantile` of all does not exceed; zero without any. Sorts.
pub(super) fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * quantile).ceil() as usize;
    values.get(rank.saturating_sub(1)).or(values.last()).copied().unwrap_or(0.0)
}

/// A number for people: three significant digits, or all before the point, in groups of three.
pub(super) fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        _ if magnitude == 0.0 || magnitude >= 100.0 => 0,
        _ if magnitude >= 10.0 => 1,
        _ if magnitude >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let first = whole.find(|letter: char| letter.is_ascii_digit()).unwrap_or(0);
    let mut grouped = String::from(&whole[..first]);
    for (place, digit) in whole[first..].chars().enumerate() {
        if place > 0 && (whole.len() - first - place).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + fraction
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
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of(&[9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn quantiles_are_members() {
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
