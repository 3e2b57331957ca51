//! What a backend does with channels and connections: Centrifugo's server API.

use hyper::Method;
use serde_json::{Value, json};

use super::Backend;

impl Backend {
    /// Brings a user's connections into a channel.
    pub(crate) async fn bring_in(&self, user: &str, channel: &str) {
        self.command("subscribe", json!({ "user": user, "channel": channel })).await;
    }

    /// Takes them out of it.
    pub(crate) async fn take_out(&self, user: &str, channel: &str) {
        self.command("unsubscribe", json!({ "user": user, "channel": channel })).await;
    }

    /// Ends them.
    pub(crate) async fn send_away(&self, user: &str) {
        self.command("disconnect", json!({ "user": user })).await;
    }

    /// Publishes in a channel: the publication called `name`, which is about a team if one is given. A second one with the
    /// same key is a repeat.
    pub(crate) async fn publish(&self, channel: &str, name: &str, team: Option<&str>, key: Option<&str>) {
        let mut tags = json!({ "event": name });
        if let Some(team) = team {
            tags["team"] = json!(team);
        }
        let mut params = json!({ "channel": channel, "data": {}, "tags": tags });
        if let Some(key) = key {
            params["idempotency_key"] = json!(key);
        }
        self.command("publish", params).await;
    }

    /// Publishes where a thing is now, with a picture of it, so that many fill a line.
    pub(crate) async fn publish_position(&self, channel: &str, thing: &str, name: &str) {
        const PICTURE_BYTES: usize = 20_000;
        let (tags, picture) = (json!({ "event": name, "thing": thing }), "x".repeat(PICTURE_BYTES));
        self.command("publish", json!({ "channel": channel, "data": picture, "tags": tags })).await;
    }

    /// Who is in a channel, in order of their names.
    pub(crate) async fn present(&self, channel: &str) -> Vec<String> {
        let answer = self.command("presence", json!({ "channel": channel })).await;
        let clients = answer["presence"].as_object().expect("the connections by name").values();
        let mut users: Vec<String> = clients.filter_map(|client| Some(client["user"].as_str()?.to_owned())).collect();
        users.sort();
        users
    }

    /// The names of the last publications in a channel, the newest first.
    pub(crate) async fn last_in(&self, channel: &str, count: usize) -> Vec<String> {
        let answer = self.command("history", json!({ "channel": channel, "limit": count, "reverse": true })).await;
        let publications = answer["publications"].as_array().expect("a list").iter();
        publications.map(|one| one["tags"]["event"].as_str().expect("each has a name").to_owned()).collect()
    }

    async fn command(&self, method: &str, params: Value) -> Value {
        let mut answer = self.must(Method::POST, &format!("/api/{method}"), Some(&params)).await;
        assert!(answer.get("error").is_none(), "{method} is refused: {answer}");
        answer["result"].take()
    }
}
