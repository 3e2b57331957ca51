//! The page "Translations".

use super::Console;

const NAME: &str = "Translations";

pub(crate) struct Texts<'c>(&'c Console);

impl<'c> Texts<'c> {
    pub(crate) async fn open(console: &'c Console) -> Self {
        console.choose(NAME).await;
        Self(console)
    }

    pub(crate) async fn read_again(&self) {
        self.0.press("Read the texts again").await;
    }

    pub(crate) async fn go_back(&self) {
        self.0.press("Back to the texts before").await;
    }
}
