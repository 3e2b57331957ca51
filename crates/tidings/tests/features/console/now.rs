//! The page "Now", and what stands between an operator and a pause that touches many devices.

use super::{Console, Row};

const NAME: &str = "Now";

pub(crate) struct Now<'c>(&'c Console);

impl<'c> Now<'c> {
    pub(crate) async fn open(console: &'c Console) -> Self {
        console.choose(NAME).await;
        Self(console)
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect(NAME).await;
        Self(console)
    }

    /// An event among those that run or, if none runs, among the latest.
    pub(crate) async fn event(&self, id: &str) -> Option<Row> {
        let all = [self.0.rows("Running now").await, self.0.rows("Latest events").await].concat();
        all.into_iter().find(|row| row["Event"] == id)
    }

    pub(crate) async fn pause(&self, scope: &str) {
        self.0.fill("Pause pushes of", scope).await;
        self.0.press("Pause").await;
    }

    pub(crate) async fn resume(&self, scope: &str) {
        self.0.press(&format!("Resume {scope}")).await;
    }
}

/// The question for the number of devices.
pub(crate) struct Question<'c>(&'c Console);

impl<'c> Question<'c> {
    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect("Are you sure?").await;
        Self(console)
    }

    /// What is asked, and what was wrong with the answer before.
    pub(crate) async fn text(&self) -> String {
        self.0.text().await
    }

    pub(crate) async fn answer(&self, number: &str, button: &str) {
        self.0.fill("Number of devices", number).await;
        self.0.press(button).await;
    }
}
