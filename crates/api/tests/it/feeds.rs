//! Routes of feeds, and events that come from feeds.

use axum::http::StatusCode;
use serde_json::json;
use tidings_api::{Publisher, Unpublished};
use tidings_store::AppendedTo;

use crate::support::*;

#[tokio::test]
async fn a_document_is_handed_to_its_feed() {
    let server = Server::start();
    let listed = server.send("GET", "/v1/feeds", "").await;
    assert_eq!((listed.status, &listed.json()["feeds"][0]["name"]), (StatusCode::OK, &json!("news")));
    let taken = server.post("/v1/feeds/news", "one\ntwo").await;
    assert_eq!((taken.status, &taken.json()["sent"]), (StatusCode::OK, &json!(2)), "{taken:?}");
    for (path, body, status, detail) in [
        ("/v1/feeds/other", "", 404, "no feed is called other"),
        ("/v1/feeds/a%20b", "", 400, "must be 1 to 40 letters"),
        ("/v1/feeds/news", "broken", 400, "line 1: it is broken; entries before that: 1 sent"),
        ("/v1/feeds/news", "large", 413, "at most 4 bytes"),
        ("/v1/feeds/news", "busy", 503, "the journal is full"),
    ] {
        let refused = server.post(path, body).await;
        assert_eq!(refused.status.as_u16(), status, "{path} {body}");
        assert!(refused.detail().contains(detail), "{}", refused.detail());
    }
    assert_eq!(server.post("/v1/feeds/news/poll", "").await.status, StatusCode::OK);
    assert_eq!(server.post("/v1/feeds/other/poll", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn feeds_need_scopes_and_a_key_without_a_limit() {
    let server = Server::start();
    for (key, path, status) in [
        ("publish", "/v1/feeds/news", 200),
        ("read", "/v1/feeds/news", 403),
        ("capped", "/v1/feeds/news", 403),
        ("publish", "/v1/feeds/news/poll", 403),
        ("operate", "/v1/feeds/news/poll", 200),
    ] {
        assert_eq!(
            server.send_with("POST", path, &[("x-api-key", key)], "").await.status.as_u16(),
            status,
            "{key} {path}"
        );
    }
}

#[tokio::test]
async fn events_of_a_feed_pass_the_checks_of_requests_one_by_one() {
    let server = Server::start();
    let publisher = Publisher::new(server.hub.clone(), server.store.clone(), checks(), Default::default());
    let event = |id: &str, rest: &str| {
        format!(r#"{{"id":"{id}","topic":"goal","subjects":["match:1"],"params":{{"team":"x"}}{rest}}}"#)
    };
    let first = publisher.publish(&[event("a", ""), event("b", "")]).await.unwrap();
    assert!(first.iter().all(|verdict| matches!(&verdict, Ok(new) if !new.repeated)), "{first:?}");
    let all = [
        event("c", r#","ttl":"x""#),
        event("a", ""),
        event("b", r#","ttl":90"#),
        event("d", r#","at":"2020-01-01T00:00:00Z""#),
        event("e", r#","channels":["loose:1"]"#),
        "[]".to_owned(),
        event("f", ""),
    ];
    let verdicts = publisher.publish(&all).await.unwrap();
    let field = |index: usize| match &verdicts[index] {
        Err(Unpublished::Invalid { field, .. }) => field.as_str(),
        other => panic!("{other:?}"),
    };
    assert_eq!([field(0), field(3), field(4), field(5)], ["ttl", "at", "channels[0]", ""]);
    assert!(matches!(&verdicts[1], Ok(known) if known.repeated));
    assert_eq!(verdicts[2], Err(Unpublished::Conflict));
    assert!(matches!(&verdicts[6], Ok(new) if matches!(new.to, AppendedTo::Journal { .. }) && !new.repeated));
}
