//! What happened, in the words of the API, as a backend tells it.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_types::Timestamp;

use crate::phone::Phone;

/// What happened, as the backend tells it.
#[derive(Debug, Clone)]
pub(crate) struct Event(pub(crate) Value);

impl Event {
    /// An event of this topic about this subject; Sweden has one goal in it.
    pub(crate) fn new(id: &str, topic: &str, subject: &str) -> Self {
        let params = json!({ "team": "Sweden", "goals": 1 });
        Self(json!({ "id": id, "topic": topic, "subjects": [subject], "params": params }))
    }

    pub(crate) fn id(&self) -> String {
        self.0["id"].as_str().expect("it has one").to_owned()
    }

    /// How long the server waits for receipts before it pushes.
    pub(crate) fn receipt_wait(&self) -> Duration {
        Duration::from_secs(self.0["receipt_wait"].as_u64().unwrap_or(2))
    }

    /// How long it is of use.
    pub(crate) fn life(&self) -> Duration {
        Duration::from_secs(self.0["ttl"].as_u64().unwrap_or(4 * 3600))
    }

    /// It is about these subjects.
    pub(crate) fn about(self, subjects: &[String]) -> Self {
        self.with("subjects", json!(subjects))
    }

    /// It is for this user, and nobody else.
    pub(crate) fn for_user(self, user: &str) -> Self {
        self.with("to", json!({ "users": [user] }))
    }

    /// It is for this phone, and no other.
    pub(crate) fn for_phone(self, phone: &Phone) -> Self {
        self.with("to", json!({ "devices": [phone.id] }))
    }

    /// It is for whom this selector means.
    pub(crate) fn for_selected(self, selector: &str) -> Self {
        self.with("to", json!({ "selector": selector }))
    }

    /// It is for those in this country only.
    pub(crate) fn only_in(self, country: &str) -> Self {
        self.with("filter", json!({ "countries": [country] }))
    }

    /// Who is pushed.
    pub(crate) fn push(self, policy: &str) -> Self {
        self.with("push", json!(policy))
    }

    /// Whose receipt counts.
    pub(crate) fn receipt_policy(self, policy: &str) -> Self {
        self.with("receipt_policy", json!(policy))
    }

    /// Connected phones have so long to answer.
    pub(crate) fn wait_for_receipts(self, seconds: u64) -> Self {
        self.with("receipt_wait", json!(seconds))
    }

    /// Everybody who is connected is asked whether they got it.
    pub(crate) fn ask_everybody(self) -> Self {
        self.with("receipt", json!(true))
    }

    /// It is of use for so long.
    pub(crate) fn ttl(self, seconds: u64) -> Self {
        self.with("ttl", json!(seconds))
    }

    /// What it takes the place of on a phone.
    pub(crate) fn collapse_key(self, key: &str) -> Self {
        self.with("collapse_key", json!(key))
    }

    /// Before which others it goes.
    pub(crate) fn priority(self, priority: &str) -> Self {
        self.with("priority", json!(priority))
    }

    /// It is shown to nobody.
    pub(crate) fn dry_run(self) -> Self {
        self.with("dry_run", json!(true))
    }

    /// It wakes the app and shows nothing.
    pub(crate) fn silent(self) -> Self {
        self.with("payload", json!({ "apns": { "aps": { "alert": null, "sound": null, "content-available": 1 } } }))
    }

    /// It is due then.
    pub(crate) fn at(self, at: Timestamp) -> Self {
        self.with("at", json!(tidings_api::Rfc3339(at)))
    }

    /// Its audience must not be larger.
    pub(crate) fn expect_at_most(self, count: u64) -> Self {
        self.with("expect_audience", json!({ "max": count }))
    }

    /// Who scored.
    pub(crate) fn by(self, team: &str) -> Self {
        self.with("params", json!({ "team": team }))
    }

    /// This team plays at this moment.
    pub(crate) fn kick_off(self, team: &str, at: &str, zone: &str) -> Self {
        let team = json!({ "name": team, "context": "team" });
        let at = json!({ "datetime": at, "style": "time_short", "zone": zone });
        self.with("params", json!({ "team": team, "at": at }))
    }

    /// How many goals there were.
    pub(crate) fn goals(self, count: u64) -> Self {
        self.with("params", json!({ "goals": count }))
    }

    /// The gender of the person that it is about.
    pub(crate) fn gender(self, gender: &str) -> Self {
        self.with("params", json!({ "gender": gender }))
    }

    /// Nothing is said for the text.
    pub(crate) fn without_params(self) -> Self {
        self.with("params", json!({}))
    }

    /// Its own words in one language, and in all others.
    pub(crate) fn text(self, text: &str, locale: &str, others: &str) -> Self {
        let words = |title: &str| json!({ "title": title, "body": "." });
        self.with("text", json!({ locale: words(text), "und": words(others) }))
    }

    /// It carries so many bytes for the app.
    pub(crate) fn data_bytes(self, count: usize) -> Self {
        let frame = json!("").to_string().len();
        self.with("data", json!("x".repeat(count - frame)))
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }
}
