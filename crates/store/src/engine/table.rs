//! The tables of rows, called keyspaces by fjall, and the options of their files.
//!
//! `rows.rs` says what is in them. A table keeps the options with which it was created.

use fjall::CompressionType;
use fjall::KeyspaceCreateOptions;
use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy};

/// Bytes of a block before compression, in tables that are only scanned. With 16 KiB a table is 4 % smaller, but reading
/// the few rows of one device takes twice as long.
const SCANNED_BLOCK_BYTES: u32 = 4 << 10;

/// Bytes of a block of devices, which are read one by one. Reading takes as long as with 4 KiB without compression.
const DEVICE_BLOCK_BYTES: u32 = 2 << 10;

/// The key in [`Table::Meta`] of the row that counts commits. The engine searches for it in the log.
pub(crate) const STATE_KEY: &[u8] = b"state";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Meta,
    Event,
    EventId,
    Channel,
    History,
    Job,
    Device,
    DeviceId,
    Token,
    Subscription,
    Later,
    Brake,
    Cancelled,
    Proven,
    Block,
    Mute,
    MuteEnd,
    Change,
    Import,
    PublishKey,
    PublishKeyOrder,
    Feed,
    FeedEntry,
    ChannelDue,
}

impl Table {
    pub(crate) const ALL: [Self; 24] = [
        Self::Meta,
        Self::Event,
        Self::EventId,
        Self::Channel,
        Self::History,
        Self::Job,
        Self::Device,
        Self::DeviceId,
        Self::Token,
        Self::Subscription,
        Self::Later,
        Self::Brake,
        Self::Cancelled,
        Self::Proven,
        Self::Block,
        Self::Mute,
        Self::MuteEnd,
        Self::Change,
        Self::Import,
        Self::PublishKey,
        Self::PublishKeyOrder,
        Self::Feed,
        Self::FeedEntry,
        Self::ChannelDue,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Event => "event",
            Self::EventId => "event_id",
            Self::Channel => "channel",
            Self::History => "history",
            Self::Job => "job",
            Self::Device => "device",
            Self::DeviceId => "device_id",
            Self::Token => "token",
            Self::Subscription => "subscription",
            Self::Later => "later",
            Self::Brake => "brake",
            Self::Cancelled => "cancelled",
            Self::Proven => "proven",
            Self::Block => "block",
            Self::Mute => "mute",
            Self::MuteEnd => "mute_end",
            Self::Change => "change",
            Self::Import => "import",
            Self::PublishKey => "publish_key",
            Self::PublishKeyOrder => "publish_key_order",
            Self::Feed => "feed",
            Self::FeedEntry => "feed_entry",
            Self::ChannelDue => "channel_due",
        }
    }

    /// The options of a new table.
    pub(super) fn options(self) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default().max_memtable_size(self.write_buffer_bytes());
        // Index and filter in parts of 4 KiB. As a whole they take megabytes per file. A cache with many shards (four per
        // core) does not keep such large entries, so every read of a row would take a tenth of a millisecond or more.
        let parted = |options: KeyspaceCreateOptions| {
            options
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        // By default fjall compresses from the third level on, and a table of less than 256 MiB has two levels.
        let compressed = |options: KeyspaceCreateOptions, block_bytes| {
            parted(options)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .data_block_size_policy(BlockSizePolicy::all(block_bytes))
        };
        match self {
            // Only scanned, never read by key, so filters would be useless.
            Self::Subscription | Self::Change | Self::FeedEntry => {
                compressed(options, SCANNED_BLOCK_BYTES).filter_policy(FilterPolicy::disabled())
            }
            // Only numbers that exist are read.
            Self::Device => compressed(options, DEVICE_BLOCK_BYTES).expect_point_read_hits(true),
            Self::DeviceId => parted(options),
            // Hashes cannot be compressed.
            Self::Token => parted(options).data_block_compression_policy(CompressionPolicy::disabled()),
            _ => options,
        }
    }

    /// Memory for rows that are not yet in a file; see [`WRITE_BUFFER_BYTES`].
    const fn write_buffer_bytes(self) -> u64 {
        match self {
            Self::Event | Self::History | Self::Device | Self::Subscription => 32 << 20,
            _ => 8 << 20,
        }
    }
}

/// The write buffers of all tables, one for each.
pub(crate) const WRITE_BUFFER_BYTES: u64 = {
    let (mut place, mut bytes) = (0, 0);
    while place < Table::ALL.len() {
        bytes += Table::ALL[place].write_buffer_bytes();
        place += 1;
    }
    bytes
};

// The position of a table in `ALL` is its value as an integer.
const _: () = {
    let mut place = 0;
    while place < Table::ALL.len() {
        assert!(Table::ALL[place] as usize == place);
        place += 1;
    }
};
