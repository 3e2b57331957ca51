//! The judge of trends: whether a figure grows, by its values at rest, in the order in which they were taken.
//!
//! The rule: the median of the last fifth of the values must not be above the median of the second fifth by more than the
//! figure's allowance, a share of the earlier median and a fixed part. The first fifth does not count, because buffers and pools
//! fill in it. A median, so that one odd value decides nothing. Fewer than [`COUNT_MIN`] values have no trend.

/// With fewer values a fifth would be empty.
pub(crate) const COUNT_MIN: usize = 5;

/// What a figure may grow by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Of what it was.
    pub(crate) share: f64,
    /// On top of that, in the figure's unit.
    pub(crate) more: f64,
}

/// The medians of the second and the last fifth, if the figure grew by more than is allowed.
pub(crate) fn growth(values: &[f64], allowed: Allowance) -> Option<(f64, f64)> {
    if values.len() < COUNT_MIN {
        return None;
    }
    let fifth = values.len() / COUNT_MIN;
    let before = median(&values[fifth..2 * fifth])?;
    let after = median(&values[values.len() - fifth..])?;
    (after > before * (1.0 + allowed.share) + allowed.more).then_some((before, after))
}

/// The middle one, or the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// The value below which this share of the values lies.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((sorted.len() as f64 * share) as usize).min(last)])
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt as _, SeedableRng as _};

    use super::{Allowance, COUNT_MIN, growth, median, quantile};

    const MEMORY: Allowance = Allowance { share: 0.25, more: 64.0 };

    /// What `of` says of each rest, and up to 15 % more or less.
    fn noisy(seed: u64, count: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..count).map(|rest| of(rest as f64) * random.random_range(0.85..1.15)).collect()
    }

    /// 13 rests before the restarts, and 7 after them.
    fn each_run(check: impl Fn(u64, usize)) {
        (0..500).for_each(|seed| [7, 13, 20].into_iter().for_each(|count| check(seed, count)));
    }

    #[test]
    fn a_leak_is_found_through_noise() {
        each_run(|seed, count| {
            let leak = noisy(seed, count, |rest| 200.0 + 600.0 * rest / count as f64);
            assert!(growth(&leak, MEMORY).is_some(), "{leak:?}");
        });
    }

    #[test]
    fn noise_and_a_start_are_no_growth() {
        each_run(|seed, count| {
            let level = noisy(seed, count, |_| 200.0);
            assert_eq!(growth(&level, MEMORY), None, "{level:?}");
            let start = noisy(seed, count, |rest| if rest < 1.0 { 40.0 } else { 200.0 });
            assert_eq!(growth(&start, MEMORY), None, "{start:?}");
            let fall = noisy(seed, count, |rest| 400.0 - 10.0 * rest);
            assert_eq!(growth(&fall, MEMORY), None, "{fall:?}");
        });
    }

    #[test]
    fn one_odd_value_decides_nothing_and_a_count_that_grows_does() {
        let files = Allowance { share: 0.5, more: 16.0 };
        let mut values = vec![30.0; 20];
        values[18] = 9000.0;
        values[5] = 0.0;
        assert_eq!(growth(&values, files), None);
        let growing: Vec<f64> = (0..20).map(|rest| 30.0 + 5.0 * f64::from(rest)).collect();
        assert_eq!(growth(&growing, files), Some((57.5, 117.5)), "the fifths are rests 4 to 7 and 16 to 19");
    }

    #[test]
    fn the_allowance_is_the_bound() {
        let allowed = Allowance { share: 0.5, more: 10.0 };
        assert_eq!(growth(&[0.0, 100.0, 0.0, 0.0, 160.0], allowed), None);
        assert_eq!(growth(&[0.0, 100.0, 0.0, 0.0, 160.1], allowed), Some((100.0, 160.1)));
        assert_eq!(growth(&[1e9; COUNT_MIN - 1], allowed), None, "too few");
    }

    #[test]
    fn medians_and_quantiles_are_those_of_the_sorted_values() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])), (Some(2.0), Some(2.5), None));
        let hundred: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99)), (Some(50.0), Some(99.0)));
        assert_eq!((quantile(&[7.0], 0.99), quantile(&[], 0.5)), (Some(7.0), None));
    }
}
