//! The page "Channels", and that of one channel.

use super::{Console, Row};

pub(crate) struct Channel<'c>(&'c Console);

impl<'c> Channel<'c> {
    /// Opens a channel from the list of those with readers.
    pub(crate) async fn open(console: &'c Console, name: &str) -> Self {
        console.choose("Channels").await;
        console.press(name).await;
        console.expect(name).await;
        Self(console)
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect_below("/console/channels/").await;
        Self(console)
    }

    pub(crate) async fn watch(&self) {
        self.0.press("Look on live for a minute").await;
    }

    pub(crate) async fn show_what_is_said(&self) {
        self.0.press("Show what is said").await;
    }

    pub(crate) async fn readers(&self) -> String {
        self.0.tile("Readers").await.expect("it is shown").value
    }

    /// The newest publications, the newest first.
    pub(crate) async fn publications(&self) -> Vec<Row> {
        self.0.rows("The newest publications").await
    }
}
