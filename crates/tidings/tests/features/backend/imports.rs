//! Many devices at once, as lines: in, and out again.

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Backend, Refusal};

/// The import that the features speak of.
const IMPORT: &str = "/v1/imports?name=move";
/// What one object a line is called.
const LINES: &str = "application/x-ndjson";

impl Backend {
    /// Imports lines, all of them.
    pub(crate) async fn import(&self, lines: String) -> Value {
        self.import_at(IMPORT, lines).await
    }

    /// The same for what comes behind the first `done` lines.
    pub(crate) async fn import_rest(&self, done: u64, lines: String) -> Value {
        self.import_at(&format!("{IMPORT}&from={done}"), lines).await
    }

    async fn import_at(&self, path: &str, lines: String) -> Value {
        let mut told = self.lines(Method::POST, path, lines).await;
        let end = told.pop().expect("an end");
        assert_eq!(end["done"], true, "{end}");
        end
    }

    /// Begins to import lines and stops in the middle. The connection waits for the rest.
    pub(crate) async fn import_half(&self, lines: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.addr).await.expect("the server listens");
        let (key, length) = (self.key.expect("a backend has one"), lines.len());
        let half = &lines[..length / 2];
        let request =
            format!("POST {IMPORT} HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\ncontent-length: {length}\r\n\r\n{half}");
        socket.write_all(request.as_bytes()).await.expect("the server reads");
        socket
    }

    /// How many lines of the import are done.
    pub(crate) async fn imported(&self) -> u64 {
        match self.call(Method::GET, "/v1/imports/move", None).await {
            Ok(progress) => progress["lines"].as_u64().expect("a number"),
            Err(Refusal { status: 404, .. }) => 0,
            Err(refusal) => panic!("asking for the import is refused: {refusal:?}"),
        }
    }

    /// All devices that there are.
    pub(crate) async fn export(&self) -> Vec<Value> {
        self.lines(Method::GET, "/v1/export", String::new()).await
    }

    /// Lines in and lines out.
    async fn lines(&self, method: Method, path: &str, lines: String) -> Vec<Value> {
        let answer = self.answer(method, path, Some(("content-type", LINES)), Bytes::from(lines)).await;
        assert_eq!(answer.status, 200, "{path}: {:?}", answer.body);
        let lines = std::str::from_utf8(&answer.body).expect("text").lines();
        lines.map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    }
}
