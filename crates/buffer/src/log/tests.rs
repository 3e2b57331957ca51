//! The log compared with a model that keeps all values.

use proptest::prelude::*;

use super::*;

/// A value that is its own index and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heavy {
    index: u64,
    weight: usize,
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    AppendBatch(Vec<usize>),
    Trim(u64),
    SkipTo(u64),
    Clear,
    SetBounds(Bounds),
}

fn bounds() -> impl Strategy<Value = Bounds> {
    (1usize..6, prop::option::of(0usize..60)).prop_map(|(count_max, bytes_max)| Bounds { count_max, bytes_max })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = || 0usize..40;
    let step = prop_oneof![
        8 => weight().prop_map(Step::Append),
        4 => prop::collection::vec(weight(), 0..10).prop_map(Step::AppendBatch),
        3 => (0u64..5).prop_map(Step::Trim),
        1 => (0u64..5).prop_map(Step::SkipTo),
        1 => Just(Step::Clear),
        1 => bounds().prop_map(Step::SetBounds),
    ];
    prop::collection::vec(step, 0..60)
}

/// The model: all values, of which those from `base` on are held.
struct Model {
    all: Vec<Option<Heavy>>,
    base: usize,
    bounds: Bounds,
    counters: Counters,
    /// The evicted values, in order.
    lost: Vec<Heavy>,
}

impl Model {
    fn held(&self) -> Vec<Heavy> {
        self.all[self.base..].iter().map(|value| value.expect("only skipped indices are empty")).collect()
    }

    fn is_within(&self) -> bool {
        let weight = self.held().iter().map(|value| value.weight).sum();
        self.bounds.allow(self.held().len(), weight)
    }

    fn push_out_while(&mut self, condition: impl Fn(&Self) -> bool) {
        while condition(self) {
            self.lost.extend(self.all[self.base]);
            self.base += 1;
            self.counters.dropped += 1;
        }
    }

    fn append(&mut self, weight: usize) -> Heavy {
        let value = Heavy { index: self.all.len() as u64, weight };
        self.all.push(Some(value));
        self.counters.accepted += 1;
        self.push_out_while(|model| !model.is_within() && model.held().len() > 1);
        value
    }

    fn clear(&mut self) {
        self.counters.dropped += self.held().len() as u64;
        self.base = self.all.len();
    }

    /// Does the step to both and hands what the log pushes out to `lost`.
    fn step(&mut self, log: &mut Log<Heavy>, step: Step, lost: &mut Vec<Heavy>) -> Result<(), TestCaseError> {
        match step {
            Step::Append(weight) => {
                let value = self.append(weight);
                prop_assert_eq!(log.append_with(value, |value| lost.push(value)), value.index);
            }
            Step::AppendBatch(weights) => {
                let index = self.all.len() as u64;
                let mut batch: Vec<Heavy> = weights.into_iter().map(|weight| self.append(weight)).collect();
                prop_assert_eq!(log.append_batch_with(&mut batch, |value| lost.push(value)), index);
                prop_assert!(batch.is_empty());
            }
            Step::Trim(by) => {
                let next = self.base as u64 + by;
                let count = (by as usize).min(self.held().len());
                prop_assert_eq!(log.trim(next), count);
                self.base += count;
                self.counters.delivered += count as u64;
            }
            Step::SkipTo(by) => {
                let index = (self.all.len() as u64 + by).saturating_sub(2); // Also back, which goes nowhere.
                log.skip_to(index);
                self.all.resize(self.all.len().max(index as usize), None);
                self.clear_from_skip();
            }
            Step::Clear => {
                prop_assert_eq!(log.clear(), self.held().len());
                self.clear();
            }
            Step::SetBounds(bounds) => {
                self.bounds = bounds;
                let before = self.lost.len();
                self.push_out_while(|model| !model.is_within());
                let count = log.set_bounds_with(bounds, |value| lost.push(value));
                prop_assert_eq!(count, self.lost.len() - before);
            }
        }
        Ok(())
    }

    fn clear_from_skip(&mut self) {
        self.counters.dropped += self.all[self.base..].iter().flatten().count() as u64;
        self.base = self.all.len();
    }

    /// What a read has to bring: the values from `next` on within `limit`, at least one.
    fn read(&self, next: u64, limit: Bounds) -> Result<Vec<Heavy>, Lagged> {
        let base = self.base as u64;
        if next < base {
            return Err(Lagged { missed: base - next });
        }
        let after: Vec<Heavy> = self.held().into_iter().filter(|value| value.index >= next).collect();
        let weight = |count: usize| after[..count].iter().map(|value| value.weight).sum();
        let count = (1..=after.len()).take_while(|&count| count == 1 || limit.allow(count, weight(count))).count();
        Ok(after[..count].to_vec())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, ..Default::default() })]

    /// After every step, the held values and the reads from every position must equal the model.
    #[test]
    fn a_log_equals_the_model(steps in steps(), bounds in bounds(), limit in bounds()) {
        let mut log = Log::weighed(bounds, |value: &Heavy| value.weight);
        let mut model = Model { all: vec![], base: 0, bounds, counters: Counters::default(), lost: vec![] };
        let mut lost = Vec::new();
        for step in steps {
            model.step(&mut log, step, &mut lost)?;
            prop_assert_eq!(&lost, &model.lost, "what is pushed out is handed over, oldest first");
            prop_assert_eq!(log.snapshot(), model.held());
            prop_assert_eq!((log.base(), log.end()), (model.base as u64, model.all.len() as u64));
            prop_assert_eq!(log.bytes(), model.held().iter().map(|value| value.weight).sum::<usize>());
            let counters = Counters { held: log.len() as u64, ..model.counters };
            prop_assert_eq!(log.counters(), counters);
            prop_assert!(counters.is_conserved());
            for next in model.base.saturating_sub(3) as u64..=log.end() + 1 {
                let (mut out, owed) = (Vec::new(), model.read(next, limit));
                let end = log.read(next, limit, &mut out);
                prop_assert_eq!(end, owed.clone().map(|owed| log.end().min(next) + owed.len() as u64));
                prop_assert_eq!(&out, &owed.unwrap_or_default());
                let all = Bounds::count(usize::MAX);
                let by_reference = log.iter_from(next).map(|values| values.copied().collect::<Vec<_>>());
                prop_assert_eq!(by_reference, model.read(next, all));
            }
        }
    }
}

#[test]
fn a_value_heavier_than_the_bounds_is_held_alone() {
    let mut log = Log::weighed(Bounds::count(10).and_bytes(100), |value: &usize| *value);
    for weight in [40, 50, 500] {
        log.append(weight);
    }
    assert_eq!(log.snapshot(), [500]);
    log.append(1);
    assert_eq!(log.snapshot(), [1]);
}

#[test]
fn the_memory_of_a_burst_is_freed_unless_it_was_reserved() {
    let mut log = Log::new(1000);
    log.append_batch(&mut (0..1000).collect());
    assert_eq!(log.trim(999), 999);
    assert!(log.values.memory() >= 1000, "one value is held, nothing is copied");
    log.trim(log.end());
    assert_eq!(log.values.memory(), 0);

    log.reserve();
    log.append(1);
    log.clear();
    assert_eq!(log.values.memory(), 1000);
}

#[test]
fn debug_shows_no_values() {
    let mut log = Log::new(3);
    log.append("a secret");
    assert_eq!(format!("{log:?}"), "Log { base: 0, end: 1, bounds: Bounds { count_max: 3, bytes_max: None } }");
}
