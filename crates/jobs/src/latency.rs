//! How long the devices of one job waited for their provider's answer, counted from the event's acceptance.
//!
//! Two significant digits (1 %), at most 28 KiB and usually under 8 per running job; the first and the last answer are
//! exact. The clock is that of acceptance, in milliseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidings_types::TimeTo;

/// The distribution while the job runs.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    values: Histogram<u32>,
    first_micros: u64,
    last_micros: u64,
}

/// The form in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LatencyRow {
    first: u64,
    last: u64,
    /// Microseconds and how many answers took them.
    values: Vec<(u64, u32)>,
}

impl Default for Latency {
    fn default() -> Self {
        let mut values = Histogram::new(2).expect("two significant digits are supported");
        values.auto(true);
        Self { values, first_micros: u64::MAX, last_micros: 0 }
    }
}

impl Latency {
    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX / 4);
        self.first_micros = self.first_micros.min(micros);
        self.last_micros = self.last_micros.max(micros);
        self.values.record(micros).expect("auto-resize covers every value");
    }

    /// `None` before the first answer.
    pub(crate) fn time_to(&self) -> Option<TimeTo> {
        if self.values.is_empty() {
            return None;
        }
        // A bucket is named by its upper edge. The first and the last value are exact.
        let at = |quantile| {
            let micros = self.values.value_at_quantile(quantile);
            Duration::from_micros(micros.clamp(self.first_micros, self.last_micros))
        };
        Some(TimeTo {
            first: Duration::from_micros(self.first_micros),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p100: Duration::from_micros(self.last_micros),
        })
    }

    pub(crate) fn to_row(&self) -> LatencyRow {
        let values = self.values.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        LatencyRow { first: self.first_micros, last: self.last_micros, values: values.collect() }
    }

    pub(crate) fn from_row(row: &LatencyRow) -> Result<Self, String> {
        let mut latency = Self { first_micros: row.first, last_micros: row.last, ..Self::default() };
        for &(micros, count) in &row.values {
            latency.values.record_n(micros, count).map_err(|error| error.to_string())?;
        }
        if row.first > row.last && !latency.values.is_empty() {
            return Err("the first answer is after the last".to_owned());
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_contradicts_itself_is_refused() {
        let row = LatencyRow { first: 5, last: 4, values: vec![(5, 1)] };
        assert!(Latency::from_row(&row).is_err());
    }

    #[test]
    fn quantiles_lie_between_first_and_last_and_survive_a_row() {
        let mut latency = Latency::default();
        assert_eq!(latency.time_to(), None);
        (1..=1000).for_each(|millis| latency.record(Duration::from_millis(millis)));
        latency.record(Duration::MAX);
        let read = Latency::from_row(&latency.to_row()).unwrap();
        assert_eq!(read.time_to(), latency.time_to());
        let time_to = latency.time_to().unwrap();
        assert_eq!(time_to.first, Duration::from_millis(1));
        assert!(time_to.p50.abs_diff(Duration::from_millis(501)) <= Duration::from_millis(6), "{time_to:?}");
        assert!(time_to.p90 >= time_to.p50 && time_to.p99 >= time_to.p90 && time_to.p100 > time_to.p99);
    }
}
