//! The page "Feeds".

use super::Console;

const NAME: &str = "Feeds";

pub(crate) struct Feeds<'c>(&'c Console);

impl<'c> Feeds<'c> {
    pub(crate) async fn open(console: &'c Console) -> Self {
        console.choose(NAME).await;
        Self(console)
    }

    /// What came of the entries of the only feed since the server started.
    pub(crate) async fn total(&self) -> String {
        self.0.fact("Since the start").await.expect("there is a feed")
    }

    /// Unfolds the wrong entries of the only feed; what the page says then.
    pub(crate) async fn wrong_entries(&self) -> String {
        self.0.unfold("Wrong entries").await;
        self.0.text().await
    }
}
