//! The page "Why": why a device got an event or not, and a test for a device.

use serde::Deserialize;
use serde_json::json;

use super::Console;

pub(crate) struct Why<'c>(&'c Console);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Told {
    pub(crate) verdict: String,
    pub(crate) reasons: Vec<String>,
}

impl<'c> Why<'c> {
    /// Looks a device up.
    pub(crate) async fn of(console: &'c Console, device: &str) -> Self {
        Self::ask(console, device, "").await
    }

    /// Asks about a device and an event.
    pub(crate) async fn ask(console: &'c Console, device: &str, event: &str) -> Self {
        console.choose("Why").await;
        console.fill("Device", device).await;
        console.fill("Event, if you ask about one", event).await;
        console.press("Show").await;
        console.expect(device).await;
        Self(console)
    }

    pub(crate) async fn here(console: &'c Console) -> Self {
        console.expect_below("/console/why").await;
        Self(console)
    }

    pub(crate) async fn told(&self) -> Told {
        self.0.look("why", json!([])).await
    }

    /// Sends a test with this title that is not delivered.
    pub(crate) async fn rehearse_test(&self, title: &str) {
        self.0.fill("Title", title).await;
        self.0.press("Dry run").await;
    }

    /// Sends the test that was rehearsed.
    pub(crate) async fn push_test(&self, title: &str) {
        self.0.fill("Title", title).await;
        self.0.press("Push it to this device").await;
    }

    /// The event that the page was asked about: of a test, the test.
    pub(crate) async fn event(&self) -> String {
        let address = self.0.address().await;
        let (_, event) = address.split_once("event=").expect("the address has the event");
        event.split('&').next().expect("there is a first part").to_owned()
    }
}
