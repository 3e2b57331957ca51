//! Commands that a hook decides: in order, one at a time, while the loop serves others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_edge::shares::Asker;
use tidings_edge::{HookFuture, Hooks};
use tidings_protocol::token::sign_connection_token;
use tidings_protocol::{Admission, HookAnswer, HookCall};
use tidings_telemetry::unix_now;
use tidings_types::Format;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::server::{Options, Server, token_secret};

/// A back end that answers what the question's data says: `{"answer": …}`. If its data says `"wait": true`, the answer
/// waits for a permit. What has expired may not go on. It keeps what it was asked.
pub(crate) struct Backend {
    asked: Arc<std::sync::Mutex<Vec<Value>>>,
    permits: Arc<Semaphore>,
}

impl Default for Backend {
    fn default() -> Self {
        Self { asked: Arc::default(), permits: Arc::new(Semaphore::new(0)) }
    }
}

impl Backend {
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn release(&self) {
        self.permits.add_permits(1);
    }
}

impl Hooks for Backend {
    fn call(&self, call: HookCall, _: Asker) -> HookFuture {
        let question: Value = serde_json::from_slice(&call.body(true)).unwrap();
        let (data, permits) = (question["data"].clone(), self.permits.clone());
        self.asked.lock().unwrap().push(question);
        Box::pin(async move {
            if data["wait"] == true {
                permits.acquire().await.unwrap().forget();
            }
            let answer = data.get("answer").cloned().unwrap_or(json!({"result": {"expired": true}}));
            HookAnswer::read(answer.to_string().as_bytes()).unwrap()
        })
    }
}

in_both!(a_hook_says_who_the_client_is);
async fn a_hook_says_who_the_client_is(format: Format) {
    let server = Server::start(Options { connect_hook: true, ..Options::of(format) }).await;
    let result = json!({"user": "42", "data": "welcome", "channels": ["kept:1"], "info": {"name": "Ada"}});
    let mut client = Client::open(&server).await;
    let data = json!({"wait": true, "answer": {"result": result}});
    client.send(json!({"id": 1, "connect": {"data": data, "name": "app"}})).await;
    client.send(json!({"id": 2, "presence_stats": {"channel": "kept:1"}})).await;
    server.until("it is asked", || !server.backend.asked().is_empty()).await;
    assert_eq!(server.edge().user_count(), 0);
    server.backend.release();
    let connected = client.next().await;
    assert_eq!((&connected["id"], &connected["connect"]["data"]), (&json!(1), &json!("welcome")));
    assert_eq!(client.next().await["id"], 2, "the next command waits for the answer");
    server.publish("kept:1", json!("heard"));
    assert_eq!(client.next_push().await["pub"]["data"], "heard");
    assert_eq!(server.backend.asked()[0]["name"], "app");
    assert_eq!(server.edge().user_count(), 1);
}

in_both!(a_client_that_the_hook_refuses_is_told_and_closed);
async fn a_client_that_the_hook_refuses_is_told_and_closed(format: Format) {
    let server = Server::start(Options { connect_hook: true, ..Options::of(format) }).await;
    let mut client = Client::open(&server).await;
    let data = json!({"answer": {"error": {"code": 1001, "message": "full", "temporary": true}}});
    client.send(json!({"id": 1, "connect": {"data": data}})).await;
    assert_eq!(client.reply(1).await["error"], json!({"code": 1001, "message": "full", "temporary": true}));
    client.send(json!({"id": 2, "connect": {}})).await;
    assert_eq!(client.drain().await.1, Some(3501), "the connection is of no more use");
    assert_eq!(server.backend.asked().len(), 1);
    let mut client = Client::open(&server).await;
    let data = json!({"answer": {"disconnect": {"code": 4501, "reason": "banned"}}});
    client.send(json!({"id": 1, "connect": {"data": data}})).await;
    assert_eq!(client.drain().await.1, Some(4501));
}

in_both!(a_client_that_leaves_or_is_late_while_the_hook_is_asked_leaves_nothing);
async fn a_client_that_leaves_or_is_late_while_the_hook_is_asked_leaves_nothing(format: Format) {
    let stale_timeout = Duration::from_millis(100);
    let server = Server::start(Options { connect_hook: true, stale_timeout, ..Options::of(format) }).await;
    for leaves in [true, false] {
        let mut client = Client::open(&server).await;
        let data = json!({"wait": true, "answer": {"result": {"user": "42", "channels": ["kept:1"]}}});
        client.send(json!({"id": 1, "connect": {"data": data}})).await;
        let count = usize::from(!leaves) + 1;
        server.until("it is asked", || server.backend.asked().len() == count).await;
        if leaves {
            drop(client);
        } else {
            assert_eq!(client.drain().await.1, Some(3502), "the time to connect is over");
            drop(client);
        }
        server.backend.release();
        server.until("it is gone", || server.edge().connection_count() == 0).await;
        assert_eq!((server.edge().user_count(), server.hub.presence(&crate::server::channel("kept:1"))), (0, vec![]));
    }
}

in_both!(an_rpc_is_answered_by_the_hook);
async fn an_rpc_is_answered_by_the_hook(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::connected(&server).await;
    let data = json!({"answer": {"result": {"data": {"sum": 3}}}});
    client.send(json!({"id": 2, "rpc": {"method": "add", "data": data}})).await;
    assert_eq!(client.reply(2).await["rpc"], json!({"data": {"sum": 3}}));
    let asked = &server.backend.asked()[0];
    let protocol = if format == Format::Json { "json" } else { "protobuf" };
    assert_eq!((&asked["method"], &asked["protocol"]), (&json!("add"), &json!(protocol)));
    assert_eq!((&asked["transport"], &asked["encoding"]), (&json!("websocket"), &json!("json")));

    let data = json!({"answer": {"error": {"code": 1001, "message": "too many", "temporary": true}}});
    client.send(json!({"id": 3, "rpc": {"method": "add", "data": data}})).await;
    assert_eq!(client.reply(3).await["error"], json!({"code": 1001, "message": "too many", "temporary": true}));

    let data = json!({"answer": {"disconnect": {"code": 4501, "reason": "enough"}}});
    client.send(json!({"id": 4, "rpc": {"method": "add", "data": data}})).await;
    assert_eq!(client.drain().await.1, Some(4501));
}

in_both!(commands_behind_a_question_wait_and_other_clients_do_not);
async fn commands_behind_a_question_wait_and_other_clients_do_not(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut first = Client::connected(&server).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(Client::connected(&server).await); // On both loops.
    }
    let waiting = json!({"wait": true, "answer": {"result": {"data": 1}}});
    first.send(json!({"id": 2, "rpc": {"method": "wait", "data": waiting}})).await;
    first.send(json!({"id": 3, "presence_stats": {"channel": "kept:1"}})).await;
    server.until("it is asked", || !server.backend.asked().is_empty()).await;
    for other in &mut others {
        other.flush().await;
    }
    server.backend.release();
    assert_eq!(first.next().await, json!({"id": 2, "rpc": {"data": 1}}), "the first command is answered first");
    assert_eq!(first.next().await["id"], 3);
}

/// A frame takes more memory than its bytes, so not all that one read brings become frames at once.
#[tokio::test]
async fn thousands_of_small_frames_behind_a_question_are_all_answered_in_order() {
    let server = Server::start(Options::default()).await;
    let mut client = Client::connected(&server).await;
    let waiting = json!({"wait": true, "answer": {}});
    client.send(json!({"id": 2, "rpc": {"method": "wait", "data": waiting}})).await;
    server.until("it is asked", || !server.backend.asked().is_empty()).await;
    for id in 1000..4000 {
        client.send_text(&format!(r#"{{"id":{id},"rpc":{{}}}}"#)).await;
    }
    server.backend.release();
    assert_eq!(client.next().await["id"], 2);
    for id in 1000..4000 {
        assert_eq!(client.next().await["id"], id);
    }
    client.flush().await;
}

in_both!(a_client_that_leaves_while_a_hook_is_asked_is_gone);
async fn a_client_that_leaves_while_a_hook_is_asked_is_gone(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::subscribed(&server, "kept:1").await;
    let waiting = json!({"wait": true, "answer": {}});
    client.send(json!({"id": 3, "rpc": {"method": "wait", "data": waiting}})).await;
    server.until("it is asked", || !server.backend.asked().is_empty()).await;
    drop(client);
    server.backend.release();
    server.until("it is gone", || server.edge().connection_count() == 0).await;
}

in_both!(a_client_that_answers_pings_is_not_closed_while_its_commands_wait);
async fn a_client_that_answers_pings_is_not_closed_while_its_commands_wait(format: Format) {
    let (ping_interval, pong_timeout) = (Duration::from_millis(600), Duration::from_millis(300));
    let server = Server::start(Options { ping_interval, pong_timeout, ..Options::of(format) }).await;
    for behind in [5, 300] {
        let mut client = Client::connected(&server).await;
        let mut other = Client::connected(&server).await;
        let asked = server.backend.asked().len();
        let waiting = json!({"wait": true, "answer": {"result": {"data": 1}}});
        client.send(json!({"id": 2, "rpc": {"method": "wait", "data": waiting}})).await;
        for id in 3..3 + behind {
            client.send(json!({"id": id, "presence_stats": {"channel": "kept:1"}})).await;
        }
        server.until("the hook is asked", || server.backend.asked().len() > asked).await;
        for round in 0..4 {
            assert_eq!(other.next().await, json!({}), "a ping");
            other.pong().await;
            // Behind so many frames a pong cannot be read, so no further ping comes.
            if behind == 5 || round == 0 {
                assert_eq!(client.next().await, json!({}), "pings go on");
                client.pong().await;
            }
        }
        server.backend.release();
        for id in 2..3 + behind {
            assert_eq!(client.reply(id).await["id"], id);
        }
    }
}

in_both!(a_hook_changes_what_is_published);
async fn a_hook_changes_what_is_published(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut reader = Client::connected(&server).await;
    reader.subscribe(json!({"channel": "asked:1", "data": {"answer": {}}})).await;
    let mut publisher = Client::connected(&server).await;
    let result = json!({"data": "changed", "tags": {"kind": "chat"}});
    for channel in ["asked:1", "asked-durable:1"] {
        let data = json!({"answer": {"result": result}});
        publisher.send(json!({"id": 2, "publish": {"channel": channel, "data": data}})).await;
        assert_eq!(publisher.reply(2).await["publish"], json!({}));
    }
    let publication = &reader.next_push().await["pub"];
    assert_eq!((&publication["data"], &publication["tags"]), (&json!("changed"), &json!({"kind": "chat"})));
    let (kept, _) = server.hub.history(&crate::server::channel("asked-durable:1"), Default::default()).unwrap();
    assert_eq!((kept[0].data.as_str(), kept[0].tags.get("kind")), ("\"changed\"", Some("chat")));

    let refused = json!({"answer": {"error": {"code": 1000, "message": "rude"}}});
    publisher.send(json!({"id": 3, "publish": {"channel": "asked:1", "data": refused}})).await;
    assert_eq!(publisher.reply(3).await["error"]["code"], 1000);
    assert_eq!(server.backend.asked().last().unwrap()["channel"], "asked:1");
}

in_both!(a_hook_lets_clients_subscribe);
async fn a_hook_lets_clients_subscribe(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let mut client = Client::connected(&server).await;
    let allowed = json!({"answer": {"result": {"info": {"seat": 3}, "data": "welcome"}}});
    let subscribed = client.subscribe(json!({"channel": "asked:1", "data": allowed})).await;
    assert_eq!(subscribed["data"], "welcome");
    server.publish("asked:1", json!("heard"));
    assert_eq!(client.next_push().await["pub"]["data"], "heard");
    let present = server.hub.presence(&crate::server::channel("asked:1"));
    assert_eq!(present[0].chan_info.as_ref().unwrap().as_str(), r#"{"seat":3}"#);

    let refused = json!({"answer": {"error": {"code": 403, "message": "no ticket"}}});
    client.send(json!({"id": 3, "subscribe": {"channel": "asked:2", "data": refused}})).await;
    assert_eq!(client.reply(3).await["error"]["code"], 403);
    server.publish("asked:2", json!("unheard"));
    assert_eq!(client.flush().await, Vec::<Value>::new());
}

in_both!(a_hook_is_asked_when_a_subscription_or_a_connection_has_expired);
async fn a_hook_is_asked_when_a_subscription_or_a_connection_has_expired(format: Format) {
    let server = Server::start(Options::of(format)).await;
    let soon = unix_now().saturating_add(Duration::from_millis(1500));
    let mut client = Client::connected(&server).await;
    let allowed = json!({"answer": {"result": {"expire_at": soon.as_secs()}}});
    client.subscribe(json!({"channel": "asked:1", "data": allowed})).await;
    assert_eq!(client.next_push().await["unsubscribe"]["code"], 2501);
    let asked = server.backend.asked();
    assert_eq!((asked.len(), &asked[1]["channel"], asked[1].get("data")), (2, &json!("asked:1"), None));

    let soon = unix_now().saturating_add(Duration::from_millis(1500));
    let admission = Admission { user: "42".to_owned(), expires_at: Some(soon), ..Admission::default() };
    let token = sign_connection_token(&token_secret(), &admission, unix_now());
    let mut client = Client::introduced(&server, json!({"token": token}), "kept:1").await;
    assert_eq!(client.drain().await.1, Some(3005));
    assert_eq!(server.backend.asked()[2]["user"], "42");
}
