//! What is written is read again, whatever happened in between; other bytes are refused.

use std::sync::LazyLock;

use proptest::prelude::*;
use tidings_types::DeviceNumber;

use super::*;
use crate::index::tests::{
    Model, Operation, apply, being_of, contents, operation, register, subject as subject_of, topic,
};

/// Few, so that small indexes have several shards.
const SLOT_COUNT: usize = 4;

fn encode(index: &Index, shard: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    index.encode_slots(shard * SLOT_COUNT..(shard + 1) * SLOT_COUNT, &mut bytes);
    bytes
}

/// One after the other, and some at once with their names apart.
fn decode(shards: &[Vec<u8>], group: usize) -> Index {
    let mut index = Index::new();
    shards.iter().enumerate().for_each(|(shard, bytes)| index.decode_shard(shard, bytes).unwrap());
    index.check();
    let (mut naming, mut filling) = (Naming::default(), Filling::default());
    for shards in shards.chunks(group) {
        filling.add(naming.name(shards.iter().map(|bytes| Shard::read(0, bytes.clone()).unwrap()).collect()));
    }
    let at_once = filling.finish(naming);
    at_once.check();
    assert_eq!(contents(&at_once), contents(&index));
    assert_eq!(at_once.subscription_count(), index.subscription_count());
    assert_eq!(at_once.range_count(), index.range_count());
    at_once
}

fn all_shards(index: &Index) -> Vec<Vec<u8>> {
    (0..index.sets().end().div_ceil(SLOT_COUNT)).map(|shard| encode(index, shard)).collect()
}

/// What the change rows of an operation would do, whatever was there before.
fn replay(index: &mut Index, model: &mut Model, operations: &[Operation]) {
    for operation in operations {
        crate::index::tests::replay(index, model, operation);
    }
}

fn applied(operations: &[Operation]) -> (Index, Model) {
    let (mut index, mut model) = (Index::new(), Model::default());
    operations.iter().for_each(|operation| apply(&mut index, &mut model, operation));
    (index, model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read_again(operations in prop::collection::vec(operation(), 0..50), group in 1..4_usize) {
        let (index, _) = applied(&operations);
        let read = decode(&all_shards(&index), group);
        prop_assert_eq!(contents(&read), contents(&index));
        prop_assert_eq!(read.subscription_count(), index.subscription_count());
        prop_assert_eq!(read.range_count() <= index.range_count(), true);
        let again = decode(&all_shards(&read), group);
        prop_assert_eq!(contents(&again), contents(&index));
        prop_assert_eq!(all_shards(&again), all_shards(&read), "there is one way to write it");
    }

    /// Shards are written one after the other while the index changes; all changes since the first are made again.
    #[test]
    fn a_fuzzy_checkpoint_and_the_changes_since_make_the_index(
        before in prop::collection::vec(operation(), 0..30),
        meanwhile in prop::collection::vec((operation(), 0..3_usize), 0..40),
        group in 1..4_usize,
    ) {
        let (mut index, mut model) = applied(&before);
        let (_, mut replayed) = applied(&before);
        let (mut shards, mut since) = (Vec::new(), Vec::new());
        for (operation, count) in meanwhile {
            for _ in 0..count {
                shards.push(encode(&index, shards.len()));
            }
            apply(&mut index, &mut model, &operation);
            since.push(operation);
        }
        while shards.len() * SLOT_COUNT < index.sets().end() {
            shards.push(encode(&index, shards.len()));
        }
        let mut read = decode(&shards, group);
        replay(&mut read, &mut replayed, &since);
        read.check();
        prop_assert_eq!(contents(&read), contents(&index));
        prop_assert_eq!(read.subscription_count(), index.subscription_count());
    }
}

/// A shard with sets of all kinds and forms.
static SHARD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (mut index, _) = applied(&[]);
    for (subject, count, step) in [(0, 3, 7), (1, 200, 300), (2, 1000, 1100), (3, 9000, 1), (4, 9000, 2)] {
        (0..count).for_each(|place| _ = index.insert(DeviceNumber(place * step), &subject_of(subject), &topic(0)));
    }
    index.insert(DeviceNumber(u32::MAX), &subject_of(0), &topic(1));
    for number in [0, 70_000, u32::MAX] {
        register(&mut index, &mut Model::default(), number, Some(&being_of(Some("42"))));
        index.mute(DeviceNumber(number), None);
        index.mute(DeviceNumber(number), Some(&subject_of(1)));
    }
    let mut bytes = Vec::new();
    index.encode_slots(0..usize::MAX, &mut bytes);
    bytes
});

proptest! {
    #[test]
    fn damaged_bytes_are_refused_or_make_a_whole_index(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut bytes = SHARD.clone();
        for (at, near, byte, how) in damage {
            // Near the beginning lie names and small sets.
            let at = at.index(if near { bytes.len().min(400) } else { bytes.len() });
            match how {
                0 => bytes[at] = byte,
                1 => bytes[at] ^= 1 << (byte % 8),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut read = Index::new();
        match read.decode_shard(0, &bytes) {
            Ok(()) => read.check(),
            Err(error) => prop_assert!(error.offset <= error.length && error.length == bytes.len()),
        }
    }

    #[test]
    fn any_bytes_are_refused_or_make_a_whole_index(
        bytes in prop::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..60),
    ) {
        let mut read = Index::new();
        let bytes: Vec<u8> = [VERSION].into_iter().chain(bytes).collect();
        match read.decode_shard(0, &bytes) {
            Ok(()) => read.check(),
            Err(error) => prop_assert!(error.offset <= error.length && error.length == bytes.len()),
        }
    }
}

#[test]
fn an_error_names_shard_and_place() {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(b"\x01\x00\x02ann\x02\x07");
    let error = Index::new().decode_shard(3, &bytes).unwrap_err();
    assert_eq!(error.to_string(), "shard 3 of the index cannot be read behind byte 1 of 9");
    assert!(Index::new().decode_shard(0, &[]).is_err());
    assert!(Index::new().decode_shard(0, &[VERSION]).is_ok());
    assert!(Index::new().decode_shard(0, &[VERSION + 1]).is_err());
}

/// A shard with one set of the subscribers of `goal` on `team:42`, its form as given.
fn shard_of(form: &[u8]) -> Vec<u8> {
    [&[VERSION, 0, 0, 4][..], b"goal", &[0, 7], b"team:42", form].concat()
}

/// The form of a set with these parts; each is shard, tag and the rest.
fn wide(parts: &[(u16, u8, Vec<u8>)]) -> Vec<u8> {
    let mut form = vec![parts.len() as u8 * 2 + 1];
    for (shard, tag, rest) in parts {
        form.extend_from_slice(&shard.to_le_bytes());
        form.push(*tag);
        form.extend_from_slice(rest);
    }
    form
}

/// Halves with all numbers in the last block.
fn halves(lows: &[u16]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * (BLOCK_COUNT - 1)];
    bytes.extend_from_slice(&(lows.len() as u16).to_le_bytes());
    lows.iter().for_each(|low| bytes.extend_from_slice(&low.to_le_bytes()));
    bytes
}

fn roaring(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let bitmap = RoaringBitmap::from_iter(numbers);
    let mut bytes = (bitmap.serialized_size() as u32).to_le_bytes().to_vec();
    bitmap.serialize_into(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_no_set_is_refused() {
    let many: Vec<u16> = (0..300).collect();
    let length = |form: &[u8]| {
        let mut index = Index::new();
        index.decode_shard(0, &shard_of(form)).map(|()| {
            index.check();
            index.subscription_count()
        })
    };
    for (form, expected) in [
        (vec![2, 7], Some(1)),
        (vec![0], None),
        (vec![4, 0x80, 0], None),
        (vec![2, 7, 9], None),
        (wide(&[]), None),
        (wide(&[(0, 0, halves(&[5]))]), Some(1)),
        (wide(&[(0, 0, halves(&many)), (1, 0, halves(&[5]))]), Some(301)),
        (wide(&[(1, 0, halves(&many)), (1, 0, halves(&[5]))]), None),
        (wide(&[(1, 0, halves(&many)), (0, 0, halves(&[5]))]), None),
        (wide(&[(0, 0, halves(&[]))]), None),
        (wide(&[(0, 0, halves(&[5, 5]))]), None),
        (wide(&[(4095, 0, halves(&[5]))]), Some(1)),
        (wide(&[(4096, 0, halves(&[5]))]), None),
        (wide(&[(0, 2, halves(&[5]))]), None),
        (wide(&[(0, 1, roaring(0..9000))]), Some(9000)),
        (wide(&[(0, 1, roaring(0..3000))]), Some(3000)),
        (wide(&[(0, 1, roaring(0..0))]), None),
        (wide(&[(1, 1, roaring(0..9000))]), None),
        (wide(&[(0, 1, roaring((1 << 20) - 9000..(1 << 20) + 1))]), None),
    ] {
        assert_eq!(length(&form).ok(), expected, "{form:?}");
    }
}

#[test]
fn a_set_that_is_there_twice_is_one() {
    let mut index = Index::new();
    index.decode_shard(0, &[shard_of(&[2, 7]), vec![0, 1, 1, 4, 7, 1]].concat()).unwrap();
    let lows: Vec<u16> = (0..300).collect();
    index.decode_shard(1, &shard_of(&wide(&[(0, 0, halves(&lows))]))).unwrap();
    index.check();
    assert_eq!((index.subscription_count(), index.subject_count()), (302, 1));
}

#[test]
fn an_empty_index_has_no_shards() {
    assert_eq!(Index::new().shard_count(), 0);
}
