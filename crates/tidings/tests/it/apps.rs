//! Apps that call the API themselves, on the listener that all can reach, while everything else is inside.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidings_protocol::Admission;
use tidings_protocol::token::{TokenSecret, sign_connection_token};
use tidings_telemetry::unix_now;
use tidings_trial::ports::free_port;

use crate::program::Server;

const SECRET: &str = "a secret of thirty-two characters";
const KEY: &str = "a key of the backend";
const DEVICE: &str = r#"{"platform":"android","token":"t-1","app":"a","locale":"en"}"#;

/// Starts a server, and returns when it listens: also where.
fn start(dir: &std::path::Path, inside: SocketAddr, apps: &str) -> (Server, SocketAddr) {
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\ninternal_listen = \"{inside}\"\n[client]\ntoken.hmac_secret = \
         \"{SECRET}\"\n[[api.keys]]\nname = \"backend\"\nkey = \"{KEY}\"\n{apps}",
        dir.join("data")
    );
    fs::write(dir.join("tidings.toml"), config).unwrap();
    let server = Server::launch(dir);
    let line = server.says("listening on http://");
    let addr = line.split_once("listening on http://").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    (server, addr)
}

/// The answer's status, and what it holds.
fn ask(addr: SocketAddr, method: &str, path: &str, shown: (&str, &str), body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (name, value, length) = (shown.0, shown.1, body.len());
    let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n");
    write!(socket, "{head}{name}: {value}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn an_app_registers_outside_what_the_backend_sees_inside() {
    let dir = tempfile::tempdir().unwrap();
    let inside = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let ada = Admission { user: "ada".to_owned(), ..Admission::default() };
    let token = sign_connection_token(&TokenSecret::new(SECRET.as_bytes()).unwrap(), &ada, unix_now());
    let hers = ("authorization", &*format!("Bearer {token}"));
    let key = ("x-api-key", KEY);
    {
        let (_server, addr) = start(dir.path(), inside, "");
        assert_eq!(ask(addr, "PUT", "/v1/devices/d", hers, DEVICE).0, 404, "off unless it is said");
        assert_eq!(ask(inside, "PUT", "/v1/devices/d", hers, DEVICE).0, 401);
    }
    let apps = "[apps]\nenabled = true\nsubjects = [\"team:*\"]\n[limits]\napp_per_second = 1\napp_burst = 6\n";
    let (_server, addr) = start(dir.path(), inside, apps);
    let (status, answer) = ask(addr, "PUT", "/v1/devices/d", hers, DEVICE);
    assert_eq!(status, 201, "{answer}");
    let list = |subject: &str| format!(r#"{{"subscriptions":[{{"subject":"{subject}","topics":["goal"]}}]}}"#);
    for (subject, status) in [("team:1", 200), ("match:1", 403), ("user:bob", 403)] {
        let answer = ask(addr, "POST", "/v1/devices/d/subscriptions", hers, &list(subject));
        assert_eq!(answer.0, status, "{subject} {answer:?}");
    }
    for (addr, path, shown, status) in [
        (addr, "/v1/devices/d", key, 401),
        (addr, "/v1/devices", key, 404),
        (addr, "/openapi.json", key, 404),
        (inside, "/v1/devices/d", key, 200),
        (inside, "/v1/users/ada/devices", key, 200),
        (inside, "/v1/devices/d", hers, 200),
    ] {
        let answer = ask(addr, "GET", path, shown, "");
        assert_eq!(answer.0, status, "{addr} {path} {answer:?}");
    }
    assert!((0..200).any(|_| ask(addr, "GET", "/v1/devices/d", hers, "").0 == 429), "one a second, six at once");
}
