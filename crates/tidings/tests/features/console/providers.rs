//! The page "Providers".

use std::collections::BTreeMap;

use serde_json::json;

use super::Console;

const NAME: &str = "Providers";

pub(crate) struct Providers<'c>(&'c Console);

impl<'c> Providers<'c> {
    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect(NAME).await;
        Self(console)
    }

    /// What is said of a provider, such as "APNs, simulator".
    pub(crate) async fn of(&self, name: &str) -> Option<String> {
        let mut sections: BTreeMap<String, String> = self.0.look("sections", json!([])).await;
        sections.remove(name)
    }
}
