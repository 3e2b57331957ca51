//! The shards of a checkpoint of the audience index.

use tidings_audience::Index;

/// Devices that are counted; more say no more.
const COUNTED: usize = 1 << 16;

/// A shard: refused, or an index that is written and read again as it is.
pub(crate) fn shard(bytes: &[u8]) {
    let mut index = Index::new();
    if let Err(error) = index.decode_shard(0, bytes) {
        assert!(error.offset <= error.length && error.length == bytes.len(), "{error}");
        return;
    }
    let written = written(&index);
    let mut again = Index::new();
    for (shard, bytes) in written.iter().enumerate() {
        again.decode_shard(shard, bytes).expect("what was written is read");
    }
    let counts = |index: &Index| (index.subscription_count(), index.subject_count(), index.user_count());
    assert_eq!(counts(&again), counts(&index));
    assert!(written == self::written(&again), "there is one way to write it");
    let mut by_device = vec![0; COUNTED];
    index.count_into(&mut by_device, |_| true);
    assert!(by_device.iter().map(|&count| u64::from(count)).sum::<u64>() <= index.subscription_count());
}

fn written(index: &Index) -> Vec<Vec<u8>> {
    let shard = |shard| {
        let mut bytes = Vec::new();
        index.encode_shard(shard, &mut bytes);
        bytes
    };
    (0..index.shard_count()).map(shard).collect()
}
