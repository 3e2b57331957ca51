//! The page "Events", and that of one event.

use serde::Deserialize;
use serde_json::json;

use super::{Console, Tile};

pub(crate) struct Event<'c>(&'c Console);

/// What became of some devices.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) reasons: Vec<String>,
}

impl<'c> Event<'c> {
    /// Opens an event from the list of events.
    pub(crate) async fn open(console: &'c Console, id: &str) -> Self {
        console.choose("Events").await;
        console.press(id).await;
        console.expect(id).await;
        Self(console)
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect_below("/console/events/").await;
        Self(console)
    }

    /// How many devices it is for.
    pub(crate) async fn devices(&self) -> Option<Tile> {
        self.0.tile("Devices").await
    }

    pub(crate) async fn outcomes(&self) -> Vec<Outcome> {
        self.0.look("outcomes", json!([])).await
    }

    pub(crate) async fn cancel(&self) {
        self.0.press("Cancel this event").await;
    }
}
