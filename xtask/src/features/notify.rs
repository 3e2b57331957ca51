//! A message to a chat: the status, what failed and what has become flaky, in the form that Slack and others take.
//!
//! `curl` posts it, so that this program needs no TLS of its own, and a proxy of the system is used. The address is a
//! secret: it goes to curl by its standard input, and no error names it.
//!
//! Limits: 10 names of each kind, 200 characters a name, 20 seconds for the answer.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::report::Report;

const NAMES_MAX: usize = 10;
const NAME_CHARS_MAX: usize = 200;
const SECONDS_MAX: &str = "20";

/// The message about a run.
pub(super) fn message(report: &Report) -> Value {
    let counts = report.run.counts();
    let sign = if report.is_good() { ":white_check_mark:" } else { ":x:" };
    let line = format!("{sign} Features: {counts}");
    let failed: Vec<String> =
        report.run.failed().map(|(feature, one)| format!("{}: {}", feature.name, one.name)).collect();
    let mut blocks = vec![section(&line)];
    blocks.extend(list("Failed", &failed));
    blocks.extend(list("Cannot be read", &report.run.errors));
    blocks.extend(list("Newly flaky", &report.newly_flaky()));
    blocks.push(
        json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": escaped(&report.record().told()) }] }),
    );
    json!({ "text": line, "blocks": blocks })
}

fn section(text: &str) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } })
}

/// A block of names under a heading; none for no names.
fn list(heading: &str, names: &[String]) -> Option<Value> {
    if names.is_empty() {
        return None;
    }
    let mut text = format!("*{heading}*");
    for name in names.iter().take(NAMES_MAX) {
        let short: String = name.chars().take(NAME_CHARS_MAX).collect();
        text += &format!("\n• {}", escaped(&short));
    }
    if names.len() > NAMES_MAX {
        text += &format!("\nand {} more", names.len() - NAMES_MAX);
    }
    Some(section(&text))
}

/// The three characters that mean something in Slack's texts.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Posts it.
///
/// # Errors
/// If it was not taken. The error does not name the address.
pub(super) fn post(url: &str, message: &Value) -> Result<()> {
    let is_plain = url.chars().all(|letter| letter.is_ascii_graphic() && letter != '"' && letter != '\\');
    ensure!(is_plain && (url.starts_with("https://") || url.starts_with("http://")), "its address is no URL");
    let body = message.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let words = format!("url = \"{url}\"\nheader = \"Content-Type: application/json\"\ndata-raw = \"{body}\"\n");
    let mut command = Command::new("curl");
    // `-q`: without the settings of whoever runs this.
    command.args(["-q", "--config", "-", "--silent", "--globoff", "--proto", "=http,https", "--max-time", SECONDS_MAX]);
    command.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("curl cannot be started")?;
    let written = child.stdin.take().expect("it is piped").write_all(words.as_bytes());
    let output = child.wait_with_output()?;
    written.context("curl does not read what it is told")?;
    if !output.status.success() {
        bail!("the receiver cannot be reached (curl: {})", output.status);
    }
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(status.starts_with('2'), "the receiver answers with status {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{JoinHandle, spawn};

    use super::super::report::tests::report;
    use super::*;

    /// Takes one request and answers with this status; the request's first line and its body.
    fn receiver(status: &'static str) -> (SocketAddr, JoinHandle<(String, Value)>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let heard = spawn(move || {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = said.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            (first, serde_json::from_slice(&body).unwrap())
        });
        (addr, heard)
    }

    #[test]
    fn a_receiver_gets_the_message_to_the_letter() {
        let (addr, heard) = receiver("200 OK");
        let mut message = message(&report());
        message["text"] = json!("quotes \" backslash \\ umlaut ä\nline @file");
        post(&format!("http://{addr}/services/T0/s3cret"), &message).unwrap();
        let (first, body) = heard.join().unwrap();
        assert_eq!(first, "POST /services/T0/s3cret HTTP/1.1\r\n");
        assert_eq!(body, message);
    }

    #[test]
    fn a_receiver_that_refuses_or_is_down_is_told_without_its_address() {
        let (addr, heard) = receiver("410 Gone");
        let url = format!("http://{addr}/s3cret");
        let refused = format!("{:#}", post(&url, &json!({})).unwrap_err());
        heard.join().unwrap();
        assert_eq!(refused, "the receiver answers with status 410");
        let down = format!("{:#}", post(&url, &json!({})).unwrap_err());
        assert!(down.starts_with("the receiver cannot be reached") && !down.contains("s3cret"), "{down}");
        assert!(!down.contains(&addr.port().to_string()), "{down}");
        for wrong in ["file:///s3cret", "http://a/\"\noutput = \"s3cret", "s3cret"] {
            assert_eq!(post(wrong, &json!({})).unwrap_err().to_string(), "its address is no URL");
        }
    }

    #[test]
    fn the_message_names_what_failed_and_what_is_newly_flaky() {
        let message = message(&report());
        let text = ":x: Features: 1 passed, 1 failed, 1 pending, coverage 66 %";
        assert_eq!(message["text"], text);
        let texts: Vec<&str> = message["blocks"].as_array().unwrap()[..3]
            .iter()
            .map(|block| block["text"]["text"].as_str().unwrap())
            .collect();
        let flaky =
            "*Newly flaky*\n• push.feature: A goal is quick (flaky: it passed and failed with the same commit 5f62eeb)";
        assert_eq!(texts, [text, "*Failed*\n• Push: A goal is quick", flaky]);
    }

    #[test]
    fn a_long_list_is_cut_and_nothing_in_it_is_markup() {
        let names: Vec<String> = (0..25).map(|number| format!("<!channel> & {number}{}", "x".repeat(500))).collect();
        let block = list("Failed", &names).unwrap();
        let text = block["text"]["text"].as_str().unwrap();
        assert!(
            text.contains("&lt;!channel&gt; &amp; 9") && !text.contains("&amp; 10") && text.ends_with("and 15 more")
        );
        assert!(text.chars().count() < 3000, "Slack takes no more");
        assert_eq!(list("Failed", &[]), None);
    }
}
