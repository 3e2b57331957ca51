//! Log lines from outside: those before an end are there, and a standard error that is stuck stops nothing.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the server however the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn serve(dir: &Path, format: &str, filter: &str) -> Command {
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[client]\nallow_anonymous = true\n[log]\nformat = \
         {format:?}\nfilter = {filter:?}\n",
        dir.join("data")
    );
    fs::write(dir.join("tidings.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.env_clear().current_dir(dir).arg("serve").stdout(Stdio::null());
    command
}

#[test]
fn lines_before_an_exit_with_an_error_are_there_and_before_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = serve(dir.path(), "json", "trace").args(["--seed", "missing.json"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let error = lines.iter().position(|line| line.starts_with("error: ")).expect("it says why");
    assert!(lines[error].contains("missing.json"), "{}", lines[error]);
    // Behind it may come lines of threads that are still closing what they hold.
    let messages: Vec<String> = lines[..error]
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].to_string())
        .collect();
    assert!(messages.iter().any(|message| message.contains("Memory, every count at its limit")), "{messages:?}");
}

#[test]
fn an_orderly_stop_says_so_last() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server(serve(dir.path(), "text", "info").stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("listening on http://")));
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    assert!(lines.any(|line| line.unwrap().starts_with("stopping; ")));
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let mut server = Server(serve(dir.path(), "text", "info").stderr(writer.try_clone().unwrap()).spawn().unwrap());
    let mut lines = BufReader::with_capacity(1, reader);
    let mut line = String::new();
    while !line.contains("listening on http://") {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    fill(writer);
    let mut stream = std::net::TcpStream::connect(line.split(['/', ' ']).nth(4).unwrap()).unwrap();
    kill_process(Pid::from_child(&server.0), Signal::HUP).unwrap(); // It has something to say now.
    write!(stream, "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let (tx, rx) = sync_channel(1);
    std::thread::spawn(move || tx.send(server.0.wait().unwrap().success()));
    assert_eq!(rx.recv_timeout(PATIENCE), Ok(true), "it ends, though its last lines cannot be written");
    drop(lines);
}

/// Leaves no room in the pipe.
fn fill(mut pipe: io::PipeWriter) {
    const CAPACITY: usize = 64 * 1024;
    let (tx, rx) = sync_channel(CAPACITY);
    std::thread::spawn(move || {
        while pipe.write_all(&[b'.'; 1024]).is_ok() {
            tx.send(()).unwrap();
        }
    });
    for _ in 0..CAPACITY / 1024 - 1 {
        rx.recv_timeout(PATIENCE).unwrap();
    }
}
