//! An audience as it was at one moment.
//!
//! Where an audience is one large set of the index, the two share it until the index changes it; the index then
//! copies, so nothing frozen ever moves. Memory: at most one bit per device number of every shard that somebody is in,
//! less when few are. It is not durable: after a restart a job freezes anew and goes on behind its cursor.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

use crate::sets::SHARD_DEVICE_COUNT;

/// The audience of one event as it was when asked: device numbers, each once, in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Frozen {
    /// By shard; `None` where nobody is.
    shards: Arc<[Option<Arc<RoaringBitmap>>]>,
    count: u64,
}

impl Frozen {
    pub(crate) fn from_shards(shards: impl Iterator<Item = Option<Arc<RoaringBitmap>>>) -> Self {
        let shards: Arc<[_]> = shards.collect();
        let count = shards.iter().flatten().map(|shard| shard.len()).sum();
        Self { shards, count }
    }

    /// Who is in either.
    pub fn union(&self, other: &Self) -> Self {
        let shards = |frozen: &Self, index: usize| frozen.shards.get(index).cloned().flatten();
        let count = self.shards.len().max(other.shards.len());
        Self::from_shards((0..count).map(|index| match (shards(self, index), shards(other, index)) {
            (Some(one), Some(two)) => Some(Arc::new(&*one | &*two)),
            (one, two) => one.or(two),
        }))
    }

    /// How many devices.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the device is among them.
    pub fn contains(&self, number: DeviceNumber) -> bool {
        self.shard(number).is_some_and(|shard| shard.contains(number.0))
    }

    /// The devices from `start` on, in order of their numbers. The first comes after one look-up, not after all are found;
    /// a job that was interrupted goes on behind the last number it handled.
    pub fn iter_from(&self, start: DeviceNumber) -> impl Iterator<Item = DeviceNumber> + '_ {
        let first = (start.0 / SHARD_DEVICE_COUNT) as usize;
        let rest = self.shards.get(first..).unwrap_or_default().iter().flatten();
        rest.flat_map(move |shard| shard.range(start.0..)).map(DeviceNumber)
    }

    fn shard(&self, number: DeviceNumber) -> Option<&RoaringBitmap> {
        self.shards.get((number.0 / SHARD_DEVICE_COUNT) as usize)?.as_deref()
    }
}
