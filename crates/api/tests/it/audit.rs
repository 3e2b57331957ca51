//! The audit log: each attempt to change something is there once, whoever tries, and no secret is.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidings_api::OnBehalf;
use tidings_audit::{By, Entry};
use tokio::time::{Instant, sleep};

use crate::support::Server;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const PHONE: &str = r#"{"platform":"ios","token":"0123456789abcdef0123456789abcdef","app":"a.b","locale":"sv"}"#;

impl Server {
    /// The newest entries when there are at least `count`, without times; the oldest first.
    async fn audited(&self, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let page = self.send("GET", "/v1/audit?limit=1000", "").await;
            assert_eq!(page.status, StatusCode::OK, "{page:?}");
            let mut entries: Vec<Value> = serde_json::from_value(page.json()["entries"].clone()).unwrap();
            if entries.len() >= count {
                entries.reverse();
                return entries;
            }
            assert!(Instant::now() < deadline, "{count} entries, got {entries:#?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// An entry with every field, and a damaged line.
    pub(crate) async fn fill_audit(&self) {
        let mut entry = Entry {
            address: Some([127, 0, 0, 1].into()),
            devices: Some(3),
            result: 202,
            count: 2,
            trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
            ..Entry::new(By::Console, "ada", "event.publish")
        };
        (0..20).for_each(|id| entry.touch(&format!("e-{id}")));
        entry.address_to("topic goal, 1 subject");
        self.audit.record(entry);
        self.audited(1).await;
        let mut file = fs::OpenOptions::new().append(true).open(self.folder().join("audit/00000001.ndjson")).unwrap();
        file.write_all(b"{\"at\":\n").unwrap();
    }
}

#[tokio::test]
async fn each_attempt_is_recorded_once_with_its_action_and_ids() {
    let server = Server::start();
    let event = r#"{"id":"e-1","topic":"goal","subjects":["match:1","team:2"],"params":{"team":"secret words"}}"#;
    let later = r#"[{"id":"e-2","topic":"goal","subjects":["match:1"],"at":"2099-01-01T00:00:00Z"}]"#;
    let chosen = r#"{"id":"e-3","topic":"goal","subjects":["match:1"],"params":{"team":"A"},"to":{"selector":"platform = ios"},"expect_audience":{"max":5}}"#;
    let cases = [
        ("POST", "/v1/events", event, 202, "event.publish", vec!["e-1"]),
        ("POST", "/v1/events", later, 400, "event.publish", vec!["e-2"]),
        ("POST", "/v1/events", chosen, 202, "event.publish", vec!["e-3"]),
        ("POST", "/v1/events", "{", 400, "event.publish", vec![]),
        ("DELETE", "/v1/events/e-9", "", 404, "event.cancel", vec!["e-9"]),
        ("PUT", "/v1/brakes/topic%3Agoal", "", 201, "brake.set", vec!["topic:goal"]),
        ("DELETE", "/v1/brakes/topic%3Agoal", "", 204, "brake.release", vec!["topic:goal"]),
        ("PUT", "/v1/devices/d-1", PHONE, 201, "device.put", vec!["d-1"]),
        ("POST", "/v1/devices/d-1/credential", "", 200, "device.credential", vec!["d-1"]),
        ("PUT", "/v1/devices/d-1/mutes/everything", "{}", 201, "device.mute", vec!["d-1", "everything"]),
        ("DELETE", "/v1/devices/d-1/mutes/everything", "", 204, "device.unmute", vec!["d-1", "everything"]),
        ("POST", "/v1/devices/d-1/logout", "", 200, "device.logout", vec!["d-1"]),
        ("DELETE", "/v1/devices/d-1", "", 204, "device.delete", vec!["d-1"]),
        ("DELETE", "/v1/users/u-1", "", 200, "user.erase", vec!["u-1"]),
        ("GET", "/v1/users/u-1/export", "", 200, "user.export", vec!["u-1"]),
        ("POST", "/v1/imports?name=move", "\n", 200, "devices.import", vec!["move"]),
        ("GET", "/v1/export", "", 200, "devices.export", vec![]),
        ("GET", "/v1/store/backup", "", 200, "store.backup", vec![]),
        ("POST", "/v1/texts/reload", "", 200, "texts.reload", vec![]),
        (
            "POST",
            "/api/publish",
            r#"{"channel":"news","data":{"x":"secret words"}}"#,
            0,
            "channel.publish",
            vec!["news"],
        ),
        ("POST", "/api/broadcast", r#"{"channels":["a","b"],"data":{}}"#, 0, "channel.broadcast", vec!["a", "b"]),
        ("POST", "/api/disconnect", r#"{"user":"u-1"}"#, 0, "client.disconnect", vec!["user:u-1"]),
        (
            "POST",
            "/api/unsubscribe",
            r#"{"user":"u-1","channel":"?"}"#,
            0,
            "client.unsubscribe",
            vec!["user:u-1", "channel:?"],
        ),
    ];
    for (count, (method, path, body, status, action, ids)) in cases.iter().enumerate() {
        let answer = server.send(method, path, (*body).to_owned()).await;
        let entries = server.audited(count + 1).await;
        let last = entries.last().unwrap();
        assert_eq!(entries.len(), count + 1, "once: {entries:#?}");
        assert_eq!(
            (&last["action"], &last["who"], &last["by"]),
            (&json!(action), &json!("root"), &json!("key")),
            "{path}"
        );
        assert_eq!(last.get("ids").unwrap_or(&json!([])), &json!(ids), "{path} {answer:?}");
        if *status > 0 {
            assert_eq!((answer.status.as_u16(), &last["result"]), (*status, &json!(status)), "{path} {answer:?}");
        }
    }
    let entries = server.audited(cases.len()).await;
    assert_eq!(entries[0]["to"], "topic goal, 2 subjects");
    assert_eq!(
        (&entries[2]["to"], &entries[2]["devices"]),
        (&json!("topic goal, 1 subject, selector platform = ios"), &json!(0))
    );
    assert_eq!(entries[13]["devices"], 0, "erased");
    let file = fs::read_to_string(server.folder().join("audit/00000001.ndjson")).unwrap();
    for secret in [TOKEN, "secret words", "\"root\"}", "apikey"] {
        assert!(!file.contains(secret), "{secret} is in {file}");
    }
}

#[tokio::test]
async fn refused_attempts_are_recorded_and_what_only_reads_is_not() {
    let server = Server::start();
    let with = async |key: &str, method: &str, path: &str| {
        server.send_with(method, path, &[("x-api-key", key)], "").await.status.as_u16()
    };
    assert_eq!(with("read", "PUT", "/v1/brakes/everything").await, 403);
    assert_eq!(with("nobody", "PUT", "/v1/brakes/everything").await, 401);
    assert_eq!(with("read", "GET", "/v1/brakes").await, 200);
    assert_eq!(with("read", "GET", "/v1/audit").await, 403);
    assert_eq!(with("root", "PUT", "/v1/brakes/nothing").await, 400);
    let told: Vec<_> =
        server.audited(2).await.into_iter().map(|entry| (entry["who"].clone(), entry["result"].clone())).collect();
    assert_eq!(told, [(json!("read"), json!(403)), (json!("root"), json!(400))]);
}

#[tokio::test]
async fn each_command_of_a_batch_is_recorded_with_its_own_result() {
    let server = Server::start();
    let batch = r#"{"commands":[{"publish":{"channel":"news","data":{}}},{"info":{}},{"disconnect":{"user":"u-1"}}]}"#;
    server.send_with("POST", "/api/batch", &[("x-api-key", "publish")], batch).await;
    let told: Vec<_> = server
        .audited(2)
        .await
        .into_iter()
        .map(|entry| (entry["action"].clone(), entry["who"].clone(), entry["result"] == 403))
        .collect();
    let expected = [("channel.publish", false), ("client.disconnect", true)];
    assert_eq!(told, expected.map(|(action, is_refused)| (json!(action), json!("publish"), is_refused)));
}

#[tokio::test]
async fn what_a_part_of_this_server_does_for_a_person_is_recorded_as_done_by_that_person() {
    let server = Server::start();
    let mut request =
        axum::http::Request::put("/v1/brakes/everything").header("x-api-key", "root").body("".into()).unwrap();
    request.extensions_mut().insert(OnBehalf { user: "ada".to_owned(), address: Some([10, 0, 0, 1].into()) });
    server.answer(request).await;
    let entry = server.audited(1).await.remove(0);
    assert_eq!(
        (&entry["by"], &entry["who"], &entry["address"]),
        (&json!("console"), &json!("ada"), &json!("10.0.0.1"))
    );
}

#[tokio::test]
async fn pages_are_filtered_and_follow_each_other() {
    let server = Server::start();
    server.fill_audit().await;
    for scope in ["everything", "topic:a", "topic:b"] {
        server.send("PUT", &format!("/v1/brakes/{scope}"), "").await;
    }
    server.audited(4).await;
    let ids = async |query: &str| {
        let page = server.send("GET", &format!("/v1/audit?{query}"), "").await.json();
        let ids: Vec<Value> = page["entries"].as_array().unwrap().iter().map(|entry| entry["ids"][0].clone()).collect();
        (ids, page["next"].as_str().map(str::to_owned), page["damaged"].clone())
    };
    let (newest, next, _) = ids("limit=2").await;
    assert_eq!(newest, ["topic:b", "topic:a"]);
    let (rest, next, damaged) = ids(&format!("limit=2&before={}", next.unwrap())).await;
    assert_eq!((rest, next, damaged), (vec![json!("everything"), json!("e-0")], None, json!(1)));
    assert_eq!(ids("action=event.publish").await.0, ["e-0"]);
    assert_eq!(ids("who=root&action=brake.set").await.0.len(), 3);
    assert!(ids("who=nobody").await.0.is_empty());
    for wrong in ["before=x", "before=1", "limit=0", "since=1"] {
        assert_eq!(
            server.send("GET", &format!("/v1/audit?{wrong}"), "").await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}
