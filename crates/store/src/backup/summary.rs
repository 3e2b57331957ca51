//! What is in a backup, and how far one has come.

use tidings_types::Epoch;

use crate::engine::Table;

/// What a backup has: all tables but those that are derived. Who reads one rests on this order: a table comes behind
/// those that its rows speak of.
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
    Table::PublishKeyOrder,
    Table::PublishKey,
    Table::Job,
    Table::Cancelled,
    Table::Brake,
    Table::Import,
];

/// What a backup is of, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    /// The store's format.
    pub format: String,
    /// The life of the store it is of.
    pub epoch: Epoch,
    /// The number of the last commit that is in it.
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

/// How far a backup, a restore or a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the backup, written or read.
    pub bytes: u64,
    /// Rows in them.
    pub rows: u64,
}
