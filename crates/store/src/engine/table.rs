//! The tables of rows, called keyspaces by fjall, and how the files of each are made.
//!
//! `rows.rs` says what is in them. A table keeps the options with which it was made.

use fjall::CompressionType;
use fjall::KeyspaceCreateOptions;
use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy};

/// Bytes of a block before it is compressed, in tables that are walked along. With 16 KiB a table is 4 % smaller, but the
/// few rows of one device take twice the time to read.
const WALKED_BLOCK_BYTES: u32 = 4 << 10;

/// The same of devices, which are asked for one by one: that takes the time of 4 KiB without compression.
const DEVICE_BLOCK_BYTES: u32 = 2 << 10;

/// The key in [`Table::Meta`] of the row that counts commits. The engine looks for it in the log.
pub(crate) const STATE_KEY: &[u8] = b"state";

/// The tables; `rows.rs` says what is in them.
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
}

impl Table {
    pub(crate) const ALL: [Self; 21] = [
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
        }
    }

    /// How its files are made. Tables that exist keep what they were made with.
    pub(super) fn options(self) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default().max_memtable_size(self.write_buffer_bytes());
        // In parts of 4 KiB. As a whole, those of a file take megabytes, which the cache does not keep where it has many
        // shards (four for each core): then each row that is asked for reads them anew, a tenth of a millisecond or more.
        let parted = |options: KeyspaceCreateOptions| {
            options
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        // As it comes, fjall compresses from the third level on, and a table of less than 256 MiB has two.
        let compressed = |options: KeyspaceCreateOptions, block_bytes| {
            parted(options)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .data_block_size_policy(BlockSizePolicy::all(block_bytes))
        };
        match self {
            // Never asked for a key, the index knows: only walked along. So filters are of no use.
            Self::Subscription | Self::Change => {
                compressed(options, WALKED_BLOCK_BYTES).filter_policy(FilterPolicy::disabled())
            }
            // Who asks for a number knows that it is there.
            Self::Device => compressed(options, DEVICE_BLOCK_BYTES).expect_point_read_hits(true),
            Self::DeviceId => parted(options),
            // Of hashes nothing is left out.
            Self::Token => parted(options).data_block_compression_policy(CompressionPolicy::disabled()),
            _ => options,
        }
    }

    /// Memory for rows not yet in a file of the table. Their sum, times four at worst, is the engine's memory for writes.
    fn write_buffer_bytes(self) -> u64 {
        match self {
            Self::Event | Self::History | Self::Device | Self::Subscription => 32 << 20,
            _ => 8 << 20,
        }
    }
}

// Tables are found by their place in `ALL`.
const _: () = {
    let mut place = 0;
    while place < Table::ALL.len() {
        assert!(Table::ALL[place] as usize == place);
        place += 1;
    }
};
