//! The content and the progress of a backup.

use tidings_types::Epoch;

use crate::engine::Table;

/// The tables of a backup: all except the derived one. A table comes after the tables to which its rows refer; readers
/// depend on this order.
pub(crate) const KEPT: [Table; Table::ALL.len() - 1] = [
    Table::Meta,
    Table::Device,
    Table::DeviceId,
    Table::Token,
    Table::Subscription,
    Table::Proven,
    Table::Mute,
    Table::MuteEnd,
    Table::Block,
    Table::Event,
    Table::Later,
    Table::EventId,
    Table::Channel,
    Table::History,
    Table::ChannelDue,
    Table::PublishKeyOrder,
    Table::PublishKey,
    Table::Job,
    Table::Cancelled,
    Table::Brake,
    Table::Import,
    Table::Feed,
    Table::FeedEntry,
];

/// The source and the content of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    /// The store's format.
    pub format: String,
    /// The store's epoch.
    pub epoch: Epoch,
    /// The number of the last commit in the backup.
    pub commit: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// Rows by table.
    pub tables: Vec<TableCount>,
}

impl BackupSummary {
    /// Rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|count| count.rows).sum()
    }
}

/// Rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCount {
    /// The table's name.
    pub table: &'static str,
    /// Its rows.
    pub rows: u64,
}

/// The progress of a backup, a restore or a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the backup, written or read.
    pub bytes: u64,
    /// Rows in them.
    pub rows: u64,
}
