//! An index that is built at once equals one that is built row by row.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::index::tests::{Being, being, contents, subject, topic, words};
use crate::set::Part;
use crate::sets::Members;
use crate::shard::SHARD_DEVICE_COUNT;

/// Subscriptions of many neighbours, each so many numbers from the one before.
#[derive(Debug, Clone)]
struct Run {
    start: u32,
    count: u32,
    step: u32,
    subject: usize,
    topic: usize,
}

fn run() -> impl Strategy<Value = Run> {
    let start = prop_oneof![0..40_u32, Just(65_000), Just(SHARD_DEVICE_COUNT - 300), Just(u32::MAX - 200_000)];
    // About the limits: 500 numbers or so as gaps, 8192 as halves.
    let count = prop_oneof![4 => 1..700_u32, 1 => 8100..8300_u32, 1 => 1..10_000_u32];
    (start, count, 1..20_u32, 0..5_usize, 0..3_usize).prop_map(|(start, count, step, subject, topic)| Run {
        start,
        count,
        step,
        subject,
        topic,
    })
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..40_u32, (SHARD_DEVICE_COUNT - 20)..(SHARD_DEVICE_COUNT + 20), Just(u32::MAX)]
}

/// In the order of devices, as rows are, or not.
fn rows(runs: &[Run], is_sorted: bool) -> Vec<(u32, usize, usize)> {
    let numbers = |run: &Run| (0..run.count).map(|place| run.start + place * run.step).collect::<Vec<_>>();
    let rows = runs.iter().flat_map(|run| numbers(run).into_iter().map(|number| (number, run.subject, run.topic)));
    let mut rows: Vec<_> = rows.collect();
    if is_sorted {
        rows = BTreeSet::from_iter(rows).into_iter().collect();
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_built_at_once_is_what_is_built_one_by_one(
        runs in prop::collection::vec(run(), 0..8),
        is_sorted in prop::bool::weighted(0.8),
        is_divided in any::<bool>(),
        devices in prop::collection::btree_map(number(), being(), 0..60),
        mutes in prop::collection::vec((number(), prop::option::of(0..5_usize)), 0..5),
    ) {
        let (mut index, mut builder, mut known) = (Index::new(), Builder::new(), HashMap::new());
        let mut other = Builder::new();
        for (&number, being) in &devices {
            index.set_device(DeviceNumber(number), None, Some(Being::traits(being)));
            let builder = if is_divided { &mut other } else { &mut builder };
            builder.set_device(DeviceNumber(number), being.traits());
        }
        for (number, of, about) in rows(&runs, is_sorted) {
            let number = DeviceNumber(number);
            index.insert(number, &subject(of), &topic(about));
            match known.get(&(of, about)) {
                Some(&subscribers) => builder.subscribe_too(number, subscribers),
                None => _ = known.insert((of, about), builder.subscribe(number, &subject(of), &topic(about))),
            }
        }
        for (number, of) in mutes {
            let of = of.map(subject);
            index.mute(DeviceNumber(number), of.as_ref());
            other.mute(DeviceNumber(number), of.as_ref());
        }
        builder.add(other);
        let built = builder.finish();
        built.check();
        prop_assert_eq!(contents(&built), contents(&index));
        prop_assert_eq!(built.subscription_count(), index.subscription_count());
        prop_assert_eq!(built.range_count(), index.range_count());
        prop_assert_eq!(forms(&built), forms(&index));
    }
}

/// How each set is kept, in words. Which blocks of a bitmap are runs depends on how it came about, and is left out.
fn forms(index: &Index) -> BTreeMap<(String, String), Vec<String>> {
    let form = |(shard, part): (u16, &Part)| match part {
        Part::Halves(halves) => format!("{shard}: {halves:?}"),
        Part::Bitmap(bitmap) => format!("{shard}: a bitmap of {}", bitmap.roaring().len()),
    };
    let sets = index.sets().iter_from(0).map(|(key, members)| match members {
        Members::Gaps(gaps) => (words(index, key), vec![format!("{gaps:?}")]),
        Members::Wide(wide) => (words(index, key), wide.parts().map(form).collect()),
    });
    sets.collect()
}

#[test]
fn nothing_makes_an_empty_index() {
    let built = Builder::new().finish();
    built.check();
    assert!(contents(&built).is_empty());
}
