//! A server that stops while a client takes nothing and a caller does not finish what it says.

use hyper::Method;
use serde_json::json;
use tidings_trial::caller::Caller;
use tidings_trial::launcher::{Server, program};
use tidings_trial::raw;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const API_KEY: &str = "stop-test-key-0123456789";

const CONFIGURATION: &str = r#"
data_dir = "data"

[http]
listen = "127.0.0.1:0"

[client]
allow_anonymous = true
uni_http_stream = true
close_timeout = "500ms"
shutdown_spread = "0s"
shutdown_timeout = "500ms"

[channel.without_namespace]
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
slow_readers = "skip"

[[api.keys]]
name = "test"
key = "stop-test-key-0123456789"
scopes = ["publish", "read"]
"#;

/// More than the buffers of both systems take.
const PUBLICATION_COUNT: usize = 300;
const PUBLICATION_BYTES: usize = 60_000;

#[tokio::test]
async fn a_stop_does_not_wait_for_those_who_stand_still_and_says_who_they_are() {
    let mut server = Server::new("the server", program(env!("CARGO_BIN_EXE_tidings")));
    server.configure(CONFIGURATION);
    server.start().await;
    let mut reader = raw::line(server.addr, raw::HOME).await.unwrap();
    let connect = json!({"subs": {"news": {}}}).to_string();
    let headers = ["Content-Type: application/json"];
    reader.write_all(&raw::request("POST", "/connection/uni_http_stream", &headers, connect.as_bytes())).await.unwrap();
    let mut head = [0; 12];
    reader.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut caller = Caller::new(server.addr, API_KEY);
    let publication = json!({"channel": "news", "data": "x".repeat(PUBLICATION_BYTES)});
    for _ in 0..PUBLICATION_COUNT {
        assert!(caller.insist(Method::POST, "/api/publish", Some(&publication)).await.is_success());
    }
    let mut writer = raw::line(server.addr, raw::HOME).await.unwrap();
    let key = format!("X-API-Key: {API_KEY}");
    let headers = [&*key, "Content-Type: application/json", "Expect: 100-continue"];
    let unfinished = raw::request("POST", "/api/publish", &headers, &[b' '; 1000]);
    writer.write_all(&unfinished[..unfinished.len() - 1000]).await.unwrap();
    writer.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 100", "it waits for the rest of the request");

    server.stop_well().await;
    let log = server.log();
    let told = |what: &str| log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {log}"));
    for (line, who) in [("Clients were cut off", &reader), ("Connections were cut off", &writer)] {
        let (line, who) = (told(line), who.local_addr().unwrap());
        assert!(line.contains("WARN") && line.contains("count=1 ") && line.contains(&who.to_string()), "{line}");
    }
}
