//! The receiver of durable changes.

use tidings_types::{ChannelName, DeviceNumber, JournalPosition, Offset, StreamPosition};

use crate::channels::{DurableChannel, StoredPublication};

/// Gets every durable change once, on the committer's thread: after the sync, before the acknowledgement, in journal order.
///
/// If a commit fails but its batch is durable nevertheless, the sink gets the changes after the store is open again, although
/// the callers were refused. Implementations must not block and must not call the store.
pub trait CommitSink: Send + Sync {
    /// A publication was added. Offsets have no gaps, with two exceptions: the first offset of a new channel is behind the
    /// last floor, and a channel with a damaged row continues at a higher offset.
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        publication: &StoredPublication,
        durable: &DurableChannel,
    );

    /// The journal now ends at `end`: every event before it can be read.
    fn on_events(&self, end: JournalPosition);

    /// The publications of a channel up to `until` were removed; its position stays.
    fn on_history_removed(&self, _channel: &ChannelName, _until: Offset) {}

    /// An idle channel is forgotten. From now on, new channels begin at `floor`: their first publication has a higher
    /// offset.
    fn on_channel_forgotten(&self, _channel: &ChannelName, _floor: Offset) {}

    /// The device with this number is deleted. Later another device gets the number. So data kept by this number must be
    /// dropped within some seconds, above all the proofs of live connections.
    fn on_device_removed(&self, _: DeviceNumber) {}
}
