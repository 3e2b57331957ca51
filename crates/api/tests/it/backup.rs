//! `GET /v1/store/backup`.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use tidings_store::backup;
use tower::ServiceExt;

use crate::support::{Cases, Server};

fn asked() -> Request<Body> {
    Request::builder().uri("/v1/store/backup").header("x-api-key", "root").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_backup_is_all_the_store_holds() {
    let server = Server::start();
    let device = r#"{"platform": "ios", "token": "0f8e", "app": "com.example.app", "locale": "sv"}"#;
    let made = server.send("PUT", "/v1/devices/phone-1", device).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let packed = [("x-api-key", "root"), ("accept", "application/msgpack, */*;q=0.1")];
    let answer = server.send_with("GET", "/v1/store/backup", &packed, "").await;
    let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    assert_eq!((answer.status, header("content-type")), (StatusCode::OK, "application/octet-stream".to_owned()));
    assert_eq!(header("cache-control"), "no-store", "it is full of secrets");
    let report = backup::verify(&answer.bytes[..], |_| ()).unwrap();
    assert_eq!((report.findings.count, report.summary.epoch), (0, server.store.channel_start().epoch));
    let devices = report.summary.tables.iter().find(|table| table.table == "device").unwrap();
    assert_eq!(devices.rows, 1);
}

#[tokio::test]
async fn only_whom_it_was_granted_may_have_it() {
    let server = Server::start();
    let cases = Cases::default();
    for key in ["publish", "read", "devices", "metrics", "operate"] {
        let answer = server.send_with("GET", "/v1/store/backup", &[("x-api-key", key)], "").await;
        let refused = (answer.status.as_u16(), answer.detail());
        cases.check(key, refused, (403, format!("the key {key} lacks the scope backup")));
    }
}

#[tokio::test]
async fn one_is_made_at_a_time_and_a_reader_who_leaves_ends_it() {
    let server = Server::start();
    let mut reading = server.router.clone().oneshot(asked()).await.unwrap().into_body();
    assert!(reading.frame().await.unwrap().unwrap().into_data().unwrap().len() > 12);
    let second = server.send("GET", "/v1/store/backup", "").await;
    assert_eq!(second.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(second.detail(), "another backup is being made, and only one is made at a time: try again later");
    drop(reading);
    assert_eq!(server.send("GET", "/v1/store/backup", "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn one_whose_store_closes_breaks_off() {
    let server = Server::start();
    let mut reading = server.router.clone().oneshot(asked()).await.unwrap().into_body();
    let mut bytes = reading.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    server.store.close().await;
    let mut is_broken = false;
    while let Some(frame) = reading.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap()),
            Err(_) => is_broken = true,
        }
    }
    assert!(is_broken && backup::verify(&bytes[..], |_| ()).is_err(), "nobody takes it for all");
    assert_eq!(server.send("GET", "/v1/store/backup", "").await.status, StatusCode::SERVICE_UNAVAILABLE);
}
