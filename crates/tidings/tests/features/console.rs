//! The console as somebody uses it in a browser: page objects, one for each page of the menu, over what all pages share.
//!
//! A step says what somebody does; where that is on a page only these files know. `page.js` finds things on pages by the
//! words on them. A page object is made by going to its page, or where that page is already there.

#[path = "console/audience.rs"]
mod audience;
#[path = "console/channels.rs"]
mod channels;
#[path = "console/events.rs"]
mod events;
#[path = "console/feeds.rs"]
mod feeds;
#[path = "console/now.rs"]
mod now;
#[path = "console/providers.rs"]
mod providers;
#[path = "console/screens.rs"]
mod screens;
#[path = "console/system.rs"]
mod system;
#[path = "console/texts.rs"]
mod texts;
#[path = "console/why.rs"]
mod why;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::chromium::{Chromium, Tab};
use crate::wait::{PATIENCE, try_until};

pub(crate) use audience::Audience;
pub(crate) use channels::Channel;
pub(crate) use events::Event;
pub(crate) use feeds::Feeds;
pub(crate) use now::{Now, Question};
pub(crate) use providers::Providers;
pub(crate) use screens::Screens;
pub(crate) use system::System;
pub(crate) use texts::Texts;
pub(crate) use why::Why;

const PAGE: &str = include_str!("console/page.js");
/// How many bytes of a page are told where something is wrong.
const TOLD_BYTES: usize = 1500;

/// The names of the pages in the menu.
pub(crate) const MENU: [&str; 9] =
    ["Now", "Events", "Why", "Providers", "Audience", "Channels", "Translations", "Feeds", "System"];
const LOG_IN: &str = "Log in";

/// A row of a table, by the names of its columns.
pub(crate) type Row = BTreeMap<String, String>;

/// A browser with the console, and whoever sits in front of it.
pub(crate) struct Console {
    tab: Tab,
    origin: String,
}

impl Console {
    /// Opens the log-in, as somebody who was never here.
    pub(crate) async fn open(chromium: &Chromium, addr: SocketAddr) -> Self {
        let console = Self { tab: chromium.tab().await, origin: format!("http://{addr}") };
        console.go("/console/login").await;
        console
    }

    pub(crate) async fn log_in(&self, key: &str) {
        self.fill("API key", key).await;
        self.press(LOG_IN).await;
    }

    pub(crate) async fn log_out(&self) {
        self.press("Log out").await;
    }

    /// Whether it asks who is there.
    pub(crate) async fn asks_for_key(&self) -> bool {
        self.heading().await == LOG_IN
    }

    /// Who is logged in, with the role.
    pub(crate) async fn who(&self) -> String {
        self.look("who", json!([])).await
    }

    /// From now on pages have no scripts.
    pub(crate) async fn forbid_scripts(&self) {
        self.tab.forbid_scripts().await;
    }

    /// Goes to a page by the menu.
    pub(crate) async fn choose(&self, page: &str) {
        self.press(page).await;
        self.expect(page).await;
    }

    /// Goes to an address of the console.
    pub(crate) async fn go(&self, path: &str) {
        self.tab.go(&format!("{}{path}", self.origin)).await;
        self.arrive(path).await;
    }

    /// Fails if another page is shown.
    pub(crate) async fn expect(&self, heading: &str) {
        let shown = self.heading().await;
        assert_eq!(shown, heading, "the page that is shown:\n{}", self.told().await);
    }

    /// Fails if no page below this address is shown.
    async fn expect_below(&self, path: &str) {
        let address = self.address().await;
        assert!(address.starts_with(path), "the page that is shown is not below {path}:\n{}", self.told().await);
    }

    async fn address(&self) -> String {
        self.look("address", json!([])).await
    }

    pub(crate) async fn heading(&self) -> String {
        self.look("heading", json!([])).await
    }

    /// What the page says happened, what is wrong, or what to look at.
    pub(crate) async fn notes(&self) -> Vec<String> {
        self.look("notes", json!([])).await
    }

    /// Fails unless a note says this.
    pub(crate) async fn expect_note(&self, words: &str) {
        let notes = self.notes().await;
        assert!(notes.iter().any(|note| note.contains(words)), "{words:?} is not in {notes:?}\n{}", self.told().await);
    }

    pub(crate) async fn text(&self) -> String {
        self.look("text", json!([])).await
    }

    /// The buttons on the page that would change something.
    pub(crate) async fn acting_buttons(&self) -> Vec<String> {
        self.look("acting", json!([])).await
    }

    /// Sends what the form of an action sends, without its button: the status and the words of the answer.
    pub(crate) async fn forge(&self, action: &str, words: Value) -> (u16, String) {
        let answer: Value = self.look("forge", json!([action, words])).await;
        let status = answer["status"].as_u64().and_then(|status| status.try_into().ok());
        (status.expect("a status"), answer["text"].as_str().expect("a page").to_owned())
    }

    /// The page for programs.
    pub(crate) async fn json(&self) -> Value {
        self.look("json", json!([])).await
    }

    /// Keeps the page in mind, for [`Console::is_same`].
    pub(crate) async fn remember(&self) {
        self.look::<bool>("remember", json!([])).await;
    }

    /// Whether the page was not loaded again since then.
    pub(crate) async fn is_same(&self) -> bool {
        self.look("isSame", json!([])).await
    }

    /// The page as PNG.
    pub(crate) async fn picture(&self) -> Result<Vec<u8>, String> {
        self.tab.picture().await
    }

    pub(crate) async fn close(self) {
        self.tab.close().await;
    }

    async fn rows(&self, caption: &str) -> Vec<Row> {
        self.look("rows", json!([caption])).await
    }

    async fn tile(&self, name: &str) -> Option<Tile> {
        self.look("tile", json!([name])).await
    }

    async fn fact(&self, name: &str) -> Option<String> {
        self.look("fact", json!([name])).await
    }

    async fn fill(&self, label: &str, text: &str) {
        self.look::<Value>("fill", json!([label, text])).await;
    }

    /// Presses a button or follows a link, and waits for the page that it leads to.
    async fn press(&self, name: &str) {
        self.look::<Value>("press", json!([name])).await;
        self.arrive(name).await;
    }

    /// Opens what is folded under these words.
    async fn unfold(&self, name: &str) {
        self.look::<bool>("unfold", json!([name])).await;
    }

    async fn arrive(&self, from: &str) {
        // On the way from one page to the next there is none to ask.
        let is_there = async || self.try_look("isThere", &json!([])).await.ok()?.as_bool()?.then_some(());
        self.until(&format!("the page behind {from:?} is loaded"), is_there).await;
    }

    /// Looks until there is something to see. What the page shows instead is told in the end.
    pub(crate) async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        match try_until(PATIENCE, look).await {
            Some(seen) => seen,
            None => panic!("within {} s it does not come to this: {what}\n{}", PATIENCE.as_secs(), self.told().await),
        }
    }

    /// What is seen on the page: see the function of this name in `page.js`.
    async fn look<T: DeserializeOwned>(&self, name: &str, words: Value) -> T {
        let seen = match self.try_look(name, &words).await {
            Ok(seen) => seen,
            Err(error) => panic!("{error}\n{}", self.told().await),
        };
        serde_json::from_value(seen).unwrap_or_else(|error| panic!("{name}{words}: {error}"))
    }

    async fn try_look(&self, name: &str, words: &Value) -> Result<Value, String> {
        self.tab.run(&format!("({PAGE}).{name}(...{words})")).await
    }

    /// Where the browser is and what it shows, for whoever looks for a mistake.
    async fn told(&self) -> String {
        let seen = async |name: &str, words: Value| match self.try_look(name, &words).await {
            Ok(seen) => seen.as_str().unwrap_or_default().to_owned(),
            Err(error) => error,
        };
        let (address, mut text) = (seen("address", json!([])).await, seen("text", json!(["body"])).await);
        text.truncate(text.floor_char_boundary(TOLD_BYTES));
        format!("The page {address} shows:\n{text}")
    }
}

/// A number that is to be seen first.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Tile {
    pub(crate) value: String,
    pub(crate) more: String,
}
