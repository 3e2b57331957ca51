//! The page "Audience".

use super::{Console, Row};

const NAME: &str = "Audience";

pub(crate) struct Audience<'c>(&'c Console);

impl<'c> Audience<'c> {
    /// Has a selector counted.
    pub(crate) async fn count(console: &'c Console, selector: &str) -> Self {
        console.choose(NAME).await;
        console.fill("Selector", selector).await;
        console.press("Count").await;
        Self::here(console).await
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect(NAME).await;
        Self(console)
    }

    /// How many devices it means.
    pub(crate) async fn devices(&self) -> String {
        self.0.tile("Devices").await.expect("it is counted").value
    }

    /// How many devices each part of the selector means.
    pub(crate) async fn parts(&self) -> Vec<Row> {
        self.0.rows("What each part of it means").await
    }

    /// Goes to a device that is shown as one of them.
    pub(crate) async fn open_device(&self, id: &str) {
        self.0.press(id).await;
    }
}
