//! The page "System", with the audit log.

use super::{Console, Row, Tile};

const NAME: &str = "System";

pub(crate) struct System<'c>(&'c Console);

impl<'c> System<'c> {
    pub(crate) async fn open(console: &'c Console) -> Self {
        console.choose(NAME).await;
        Self(console)
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect(NAME).await;
        Self(console)
    }

    /// The number of devices, with that of subscriptions.
    pub(crate) async fn devices(&self) -> Option<Tile> {
        self.0.tile("Devices").await
    }

    /// Who changed what, the newest first.
    pub(crate) async fn audit_log(&self) -> Vec<Row> {
        self.0.rows("Who changed what, the newest first").await
    }
}
