//! A page that only listens: it opens a stream of server-sent events, says with it who it is, and never says anything
//! again.

use std::net::SocketAddr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wait::PATIENCE;

pub(crate) struct Listener {
    stream: TcpStream,
    /// What came and was not taken yet.
    bytes: Vec<u8>,
    /// The ids of the events, in the order they came, repeats included.
    events: Vec<String>,
}

impl Listener {
    /// Listens to what this token names.
    pub(crate) async fn open(addr: SocketAddr, token: &str) -> Self {
        let said = json!({ "token": token }).to_string();
        let query = utf8_percent_encode(&said, NON_ALPHANUMERIC);
        let request = format!("GET /connection/uni_sse?cf_connect={query} HTTP/1.1\r\nHost: features\r\n\r\n");
        let mut stream = TcpStream::connect(addr).await.expect("the server listens");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut listener = Self { stream, bytes: Vec::new(), events: Vec::new() };
        let first = listener.next().await;
        assert!(first["connect"].is_object(), "it is not let in: {first}");
        listener
    }

    /// Waits for this event; all that came until then, and it.
    pub(crate) async fn events_until(&mut self, last: &str) -> &[String] {
        while self.events.last().is_none_or(|event| event != last) {
            let message = self.next().await;
            self.events.extend(message["pub"]["tags"]["event"].as_str().map(str::to_owned));
        }
        &self.events
    }

    async fn next(&mut self) -> Value {
        loop {
            // Before the first event is the head of the response.
            while let Some(at) = self.bytes.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..at + 2).collect();
                if let Some(data) = event.windows(6).position(|window| window == b"data: ") {
                    return serde_json::from_slice(&event[data + 6..]).expect("the server speaks JSON");
                }
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.bytes)).await;
            let count = read.unwrap_or_else(|_| panic!("nothing comes within {} s", PATIENCE.as_secs()));
            assert!(count.expect("the stream goes on") > 0, "the server ends the stream");
        }
    }
}
