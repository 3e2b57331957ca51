//! Who is told what became durable.

use tidings_types::{ChannelName, DeviceNumber, JournalPosition, Offset, StreamPosition};

use crate::channels::{DurableChannel, StoredPublication};

/// Told what became durable, on the committer's thread: after the sync, before the acknowledgement, in journal order.
///
/// Nothing is told twice. What became durable although its caller was refused (a disk that failed at the wrong
/// moment) is told as well, after the store is open again. Implementations must not block and not call the store.
pub trait CommitSink: Send + Sync {
    /// A publication was added. Offsets come without gaps, but for the first of a channel, which is behind all floors so far, and where a
    /// row was damaged.
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        publication: &StoredPublication,
        durable: &DurableChannel,
    );

    /// The journal now ends at `end`: every event before it can be read.
    fn on_events(&self, end: JournalPosition);

    /// A channel in which nothing was published for long is forgotten. From now on one that is not there begins at `floor`:
    /// its first publication has a later offset.
    fn on_channel_given_back(&self, _channel: &ChannelName, _floor: Offset) {}

    /// The device of this number is gone, and some time later the number is given to another one: what is known by it is to
    /// be forgotten within some seconds, above all which live connections were proven to be it.
    fn on_device_removed(&self, _: DeviceNumber) {}
}
