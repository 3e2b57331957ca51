//! What a backend hands in as documents, and what became of their entries.

use bytes::Bytes;
use hyper::Method;

use super::Backend;

impl Backend {
    /// Hands in a document of the feed called `goals`.
    pub(crate) async fn post_document(&self, document: String) {
        let answer = self.answer(Method::POST, "/v1/feeds/goals", None, Bytes::from(document)).await;
        answer.read().expect("the feed takes it");
    }

    /// How many entries of it were wrong.
    pub(crate) async fn wrong_entries(&self) -> u64 {
        let feeds = self.must(Method::GET, "/v1/feeds", None).await;
        feeds["feeds"][0]["total"]["wrong"].as_u64().unwrap_or_else(|| panic!("no count in {feeds}"))
    }

    /// The ids of the jobs of its entries, as often as they are there.
    pub(crate) async fn jobs_of_feed(&self) -> Vec<String> {
        let jobs = self.must(Method::GET, "/v1/jobs?limit=1000", None).await;
        let ids = jobs["jobs"].as_array().expect("a list").iter().map(|job| job["id"].as_str().expect("an id"));
        ids.filter(|id| id.starts_with("goals")).map(str::to_owned).collect()
    }
}
