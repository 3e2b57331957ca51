//! Apps that call the API themselves, on the listener that all can reach, while everything else is inside.

#[path = "support/port.rs"]
mod port;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use port::free_port;
use tidings_protocol::Admission;
use tidings_protocol::token::{TokenSecret, sign_connection_token};
use tidings_telemetry::unix_now;

const SECRET: &str = "a secret of thirty-two characters";
const KEY: &str = "a key of the backend";
const DEVICE: &str = r#"{"platform":"android","token":"t-1","app":"a","locale":"en"}"#;

/// Ends the server however the test ends.
struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn start(dir: &std::path::Path, inside: SocketAddr, apps: &str) -> Server {
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\ninternal_listen = \"{inside}\"\n[client]\ntoken.hmac_secret = \
         \"{SECRET}\"\n[[api.keys]]\nname = \"backend\"\nkey = \"{KEY}\"\n{apps}",
        dir.join("data")
    );
    fs::write(dir.join("tidings.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.env_clear().arg("serve").arg("--config").arg(dir.join("tidings.toml"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.find_map(|line| Some(line.split_once("listening on http://")?.1.to_owned())).expect("it starts");
    let addr = told.split_whitespace().next().unwrap().parse().unwrap();
    std::thread::spawn(move || lines.for_each(drop)); // So that it never waits for its reader.
    Server { child, addr }
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
        let server = start(dir.path(), inside, "");
        assert_eq!(ask(server.addr, "PUT", "/v1/devices/d", hers, DEVICE).0, 404, "off unless it is said");
        assert_eq!(ask(inside, "PUT", "/v1/devices/d", hers, DEVICE).0, 401);
    }
    let apps = "[apps]\nenabled = true\nsubjects = [\"team:*\"]\n[limits]\napp_per_second = 1\napp_burst = 6\n";
    let server = start(dir.path(), inside, apps);
    let (status, answer) = ask(server.addr, "PUT", "/v1/devices/d", hers, DEVICE);
    assert_eq!(status, 201, "{answer}");
    let list = |subject: &str| format!(r#"{{"subscriptions":[{{"subject":"{subject}","topics":["goal"]}}]}}"#);
    for (subject, status) in [("team:1", 200), ("match:1", 403), ("user:bob", 403)] {
        let answer = ask(server.addr, "POST", "/v1/devices/d/subscriptions", hers, &list(subject));
        assert_eq!(answer.0, status, "{subject} {answer:?}");
    }
    for (addr, path, shown, status) in [
        (server.addr, "/v1/devices/d", key, 401),
        (server.addr, "/v1/devices", key, 404),
        (server.addr, "/openapi.json", key, 404),
        (inside, "/v1/devices/d", key, 200),
        (inside, "/v1/users/ada/devices", key, 200),
        (inside, "/v1/devices/d", hers, 200),
    ] {
        let answer = ask(addr, "GET", path, shown, "");
        assert_eq!(answer.0, status, "{addr} {path} {answer:?}");
    }
    assert!((0..200).any(|_| ask(server.addr, "GET", "/v1/devices/d", hers, "").0 == 429), "one a second, six at once");
}
