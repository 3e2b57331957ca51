//! The server that tells.

use std::ops::{Deref, DerefMut};

use hyper::Method;
use serde_json::{Value, json};
use tidings_trial::caller::{Answer, Caller};
use tidings_trial::launcher;
use tidings_trial::process::Signal;
use tidings_trial::wait::{PATIENCE, try_until};

const KEY: &str = "key-of-the-backend-0123456789";

pub(crate) struct Server(launcher::Server);

impl Server {
    /// With these settings in `[webhook]`.
    pub(crate) async fn start(webhook: &str) -> Self {
        let mut server = launcher::Server::new("the server", env!("CARGO_BIN_EXE_tidings"));
        server.configure(&format!(
            "data_dir = \"data\"\n[http]\nlisten = \"127.0.0.1:0\"\n[[api.keys]]\nname = \"backend\"\nkey = \"{KEY}\"\n\
             [channel.namespaces.match]\ndurable = true\nhistory_size = 10\nhistory_ttl = \"1h\"\n\
             [topics.goal]\ntitle = \"Goal\"\nbody = \"Goal\"\n[webhook]\n{webhook}\n"
        ));
        server.write("secret", crate::SECRET);
        server.write("secret-before", crate::OTHER_SECRET);
        server
            .process()
            .set_variable("TIDINGS_LOG__FILTER", "info,tidings=debug,tidings_http1=debug,tidings_pool=debug");
        server.start().await;
        Self(server)
    }

    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// `kill -9`, and another life.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill();
        self.0.start().await;
    }

    /// An orderly stop, and another life.
    pub(crate) async fn restart(&mut self) {
        self.stop_well().await;
        self.0.start().await;
    }

    /// Accepts an event that concerns nobody, so that it is done at once.
    pub(crate) async fn tell(&self, id: &str) {
        let event = json!({"id": id, "topic": "goal", "subjects": ["match:1"], "push": "never"});
        let answer = self.call(Method::POST, "/v1/events", Some(&event)).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.call(Method::GET, path, None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// Waits until a line of `/metrics` is this one.
    pub(crate) async fn shows(&self, line: &str) {
        let mut page = String::new();
        let shown = try_until(PATIENCE, async || {
            page = self.call(Method::GET, "/metrics", None).await.text();
            page.lines().any(|found| found == line).then_some(())
        });
        let is_shown = shown.await.is_some();
        let near: Vec<_> = page.lines().filter(|found| found.contains("untold") || found.contains("webhook")).collect();
        assert!(is_shown, "never {line}:\n{}\n{}", near.join("\n"), self.log());
    }

    /// Waits until the log has this text so often.
    pub(crate) async fn says(&self, text: &str, count: usize) {
        let said = try_until(PATIENCE, async || (self.log().matches(text).count() >= count).then_some(()));
        assert!(said.await.is_some(), "never {text:?}:\n{}", self.log());
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = Caller::new(self.addr, KEY).call(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }
}

impl Deref for Server {
    type Target = launcher::Server;

    fn deref(&self) -> &launcher::Server {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut launcher::Server {
        &mut self.0
    }
}
