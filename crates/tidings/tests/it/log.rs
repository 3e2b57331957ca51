//! Log lines from outside: those before an end are there, and a standard error that is stuck stops nothing.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;

use rustix::process::Signal;

use crate::program::{PATIENCE, Running, Server, tidings};

fn configure(dir: &Path, format: &str, filter: &str) {
    let config = format!(
        "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[client]\nallow_anonymous = true\n[log]\nformat = \
         {format:?}\nfilter = {filter:?}\n",
        dir.join("data")
    );
    fs::write(dir.join("tidings.toml"), config).unwrap();
}

fn serve(dir: &Path, format: &str, filter: &str) -> Command {
    configure(dir, format, filter);
    let mut command = tidings(["serve"], dir);
    command.stdout(Stdio::null());
    command
}

/// What a start that fails says, each line being JSON.
fn said(command: &mut Command, code: i32) -> Vec<serde_json::Value> {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

#[test]
fn lines_before_an_exit_with_an_error_are_there_and_before_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let lines = said(serve(dir.path(), "json", "trace").args(["--seed", "missing.json"]), 1);
    assert_eq!(lines[0]["message"], "Starting", "first of all, what is served where");
    assert_eq!(lines[0]["listen"], "127.0.0.1:0");
    let error = lines.iter().position(|line| line["level"] == "ERROR").expect("it says why");
    assert!(lines[error]["message"].as_str().unwrap().contains("missing.json"), "{}", lines[error]);
    // Behind it may come lines of threads that are still closing what they hold.
    assert!(
        lines[..error].iter().any(|line| line["message"] == "Memory when every count is at its limit"),
        "{lines:?}"
    );
}

#[test]
fn a_start_that_fails_says_so_in_the_format_of_log_lines() {
    let dir = tempfile::tempdir().unwrap();
    let why = |lines: &[serde_json::Value]| {
        assert_eq!((lines.len(), &lines[0]["level"]), (1, &serde_json::json!("ERROR")), "{lines:?}");
        lines[0]["message"].as_str().unwrap().to_owned()
    };
    let mut wrong = serve(dir.path(), "json", "info");
    let mistake = why(&said(wrong.env("TIDINGS_HTTP__REQUEST_COUNT_MAX", "none"), 2));
    assert!(mistake.contains("TIDINGS_HTTP__REQUEST_COUNT_MAX"), "{mistake}");
    let filter = why(&said(&mut serve(dir.path(), "json", "=loud="), 2));
    assert!(filter.contains("filter"), "{filter}");
    let mut missing = serve(dir.path(), "text", "info");
    let missing = why(&said(missing.args(["--config", "missing.toml"]).env("TIDINGS_LOG__FORMAT", "json"), 2));
    assert!(missing.contains("missing.toml"), "{missing}");
}

#[test]
fn an_orderly_stop_says_so_last() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "text", "info");
    let mut server = Server::launch(dir.path());
    server.says("listening on http://");
    server.stop();
    let rest = server.rest();
    let begins = rest.iter().position(|line| line.starts_with("stopping; "));
    let ends = rest.iter().position(|line| line.ends_with(" Stopped"));
    assert!(begins < ends && begins.is_some(), "first that it stops, then that it has: {rest:#?}");
    assert_eq!(ends, Some(rest.len() - 1), "nothing is said after that: {rest:#?}");
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let mut server = Running(serve(dir.path(), "text", "info").stderr(writer.try_clone().unwrap()).spawn().unwrap());
    let (tx, rx) = sync_channel(1);
    std::thread::spawn(move || {
        let mut lines = BufReader::with_capacity(1, reader);
        let mut line = String::new();
        while !line.contains("listening on http://") {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        tx.send((line, lines)) // Nobody reads on.
    });
    let (line, lines) = rx.recv_timeout(PATIENCE).expect("it listens");
    fill(writer);
    let mut stream = std::net::TcpStream::connect(line.split(['/', ' ']).nth(4).unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    server.signal(Signal::HUP); // It has something to say now.
    write!(stream, "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    server.signal(Signal::TERM);
    assert!(server.end().success(), "it ends, though its last lines cannot be written");
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
