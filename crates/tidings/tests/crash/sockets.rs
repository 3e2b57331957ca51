//! Connected clients: the unmodified JavaScript SDK, many in one Node process, and whether they saw what they should.
//!
//! Each line the process prints is kept with what was seen of the client and channel so far, so memory does not grow
//! with the length of the campaign, only with its breadth; what is wrong is noted at once.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde::Deserialize;
use serde_json::json;

use crate::deliveries::Wrongs;
use crate::event_number;
use crate::verdict::Logs;

/// The process, and what it has told so far.
pub(crate) struct Clients {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

/// What was seen, by client and channel.
#[derive(Default)]
pub(crate) struct Seen {
    readers: HashMap<(usize, String), Reader>,
    /// Events by offset, as the first reader saw them; all others must see the same.
    logs: HashMap<String, BTreeMap<u64, u32>>,
    epochs: HashMap<String, String>,
    pub(crate) publications: u64,
    pub(crate) resumes: u64,
    pub(crate) wrongs: Wrongs,
}

#[derive(Default)]
struct Reader {
    subscribed: u64,
    /// The last offset it has.
    offset: u64,
}

/// A line of the process.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Line {
    Subscribed { client: usize, channel: String, was_recovering: bool, recovered: bool, epoch: String, offset: u64 },
    Publication { client: usize, channel: String, offset: u64, event: Option<String> },
    Ended { client: usize, channel: Option<String>, code: u64, reason: String },
}

impl Clients {
    /// Starts the process; `channels` are those of each client.
    pub(crate) fn start(url: &str, channels: &[Vec<String>]) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash");
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/js");
        install(&sdk);
        let mut child = Command::new("node")
            .arg(tests.join("clients.mjs"))
            .arg(&sdk)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start node, which the clients run on: {error}"));
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "{}", json!({ "url": url, "clients": channels })).unwrap();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let reader = std::thread::spawn({
            let seen = seen.clone();
            move || {
                for line in output.lines().map_while(Result::ok) {
                    seen.lock().unwrap().take_line(&line);
                }
            }
        });
        Self { child, input: Some(input), reader: Some(reader), seen }
    }

    /// Fails when the process ended by itself or something wrong was seen.
    pub(crate) fn check(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the clients' process ended by itself: {ended:?}");
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrongs.is_empty(), "clients saw {}", seen.wrongs);
    }

    /// How many subscriptions have been live so far.
    pub(crate) fn subscription_count(&self) -> usize {
        self.seen.lock().unwrap().readers.len()
    }

    pub(crate) fn publication_count(&self) -> u64 {
        self.seen.lock().unwrap().publications
    }

    /// Whether everybody has everything up to `tops`, by channel.
    pub(crate) fn have_all(&self, tops: &HashMap<String, u64>) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.readers.iter().all(|((_, channel), reader)| tops.get(channel).is_none_or(|top| reader.offset >= *top))
    }

    /// Ends the process and returns what was seen.
    pub(crate) fn finish(mut self) -> Seen {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the clients' process ended with {status}");
        self.reader.take().expect("ended once").join().expect("reading lines does not panic");
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The SDK in the versions pinned for the conformance tests.
fn install(sdk: &Path) {
    if !sdk.join("node_modules/centrifuge").exists() {
        let status = Command::new("npm").arg("ci").current_dir(sdk).stdout(Stdio::null()).status();
        let status = status.unwrap_or_else(|error| panic!("cannot run npm, which installs the SDK: {error}"));
        assert!(status.success(), "npm ci in conformance/js ended with {status}");
    }
}

impl Seen {
    fn take_line(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Subscribed { client, channel, was_recovering, recovered, epoch, offset }) => {
                let known = self.epochs.entry(channel.clone()).or_insert_with(|| epoch.clone());
                self.wrongs.require(*known == epoch, || format!("{channel} had epoch {known} and now has {epoch}"));
                let reader = self.readers.entry((client, channel)).or_default();
                reader.subscribed += 1;
                if reader.subscribed == 1 {
                    reader.offset = offset;
                } else {
                    self.resumes += 1;
                    self.wrongs.require(was_recovering && recovered, || {
                        format!("client {client} came back: wasRecovering {was_recovering}, recovered {recovered}")
                    });
                }
            }
            Ok(Line::Publication { client, channel, offset, event }) => {
                self.publications += 1;
                let reader = self.readers.entry((client, channel.clone())).or_default();
                let expected = reader.offset + 1;
                reader.offset = offset;
                self.wrongs.require(offset == expected && reader.subscribed > 0, || {
                    format!("client {client} got {offset} of {channel} where {expected} was due")
                });
                let Some(event) = event.as_deref().and_then(event_number) else {
                    return self.wrongs.add(|| format!("client {client} got {offset} of {channel}, no event of ours"));
                };
                let first = *self.logs.entry(channel.clone()).or_default().entry(offset).or_insert(event);
                self.wrongs.require(first == event, || {
                    format!("client {client} got event {event} as {offset} of {channel}, another one got {first}")
                });
            }
            Ok(Line::Ended { client, channel, code, reason }) => self.wrongs.add(|| {
                format!("client {client} was sent away from {}: {code} {reason}", channel.as_deref().unwrap_or("all"))
            }),
            Err(error) => self.wrongs.add(|| format!("a line cannot be read: {error}: {line}")),
        }
    }

    /// Whether all was seen: `logs` has every channel's events by offset.
    pub(crate) fn check(mut self, logs: &Logs, must_have_resumed: bool) -> Wrongs {
        let mut wrongs = std::mem::take(&mut self.wrongs);
        for (channel, log) in &self.logs {
            for (offset, event) in log {
                let expected = logs.get(channel).and_then(|log| log.get(offset));
                wrongs.require(expected == Some(event), || {
                    format!("clients got event {event} as {offset} of {channel}, acknowledged there was {expected:?}")
                });
            }
        }
        for ((client, channel), reader) in &self.readers {
            let top = logs.get(channel).and_then(|log| log.last_key_value()).map_or(0, |(offset, _)| *offset);
            let offset = reader.offset;
            wrongs.require(offset == top, || format!("client {client} has {channel} up to {offset}, not {top}"));
            wrongs.require(reader.subscribed > 1 || !must_have_resumed, || {
                format!("client {client} never came back to {channel}: it was not tested")
            });
        }
        wrongs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSCRIBED: (bool, bool, &str) = (false, false, "epoch");
    const RESUMED: (bool, bool, &str) = (true, true, "epoch");

    /// Subscribes client 0, which then is at 4, or was.
    fn subscribed((was_recovering, recovered, epoch): (bool, bool, &str)) -> String {
        let line = json!({
            "kind": "subscribed", "client": 0, "channel": "match:1",
            "wasRecovering": was_recovering, "recovered": recovered, "epoch": epoch, "offset": 4,
        });
        line.to_string()
    }

    fn publication(offset: u64, event: &str) -> String {
        json!({ "kind": "publication", "client": 0, "channel": "match:1", "offset": offset, "event": event })
            .to_string()
    }

    fn wrongs(lines: &[String]) -> Wrongs {
        let mut seen = Seen::default();
        lines.iter().for_each(|line| seen.take_line(line));
        let log = BTreeMap::from([(4, 40), (5, 50), (6, 60)]);
        seen.check(&HashMap::from([("match:1".to_owned(), log)]), true)
    }

    #[test]
    fn everything_once_in_order_over_a_resume_is_right() {
        let lines = [subscribed(SUBSCRIBED), publication(5, "e-50"), subscribed(RESUMED), publication(6, "e-60")];
        let found = wrongs(&lines);
        assert!(found.is_empty(), "{found}");
    }

    #[test]
    fn whatever_else_a_client_sees_is_wrong() {
        let [first, resumed] = [SUBSCRIBED, RESUMED].map(subscribed);
        let [five, six] = [publication(5, "e-50"), publication(6, "e-60")];
        let not_recovered = subscribed((true, false, "epoch"));
        let new_epoch = subscribed((true, true, "other"));
        let ended = r#"{"kind":"ended","client":0,"channel":null,"code":3500,"reason":"invalid token"}"#.to_owned();
        let cases = [
            ("lost in between", vec![&first, &resumed, &six]),
            ("lost at the end", vec![&first, &resumed, &five]),
            ("twice", vec![&first, &five, &five, &resumed, &six]),
            ("out of order", vec![&first, &six, &five, &resumed]),
            ("never came back", vec![&first, &five, &six]),
            ("not recovered", vec![&first, &five, &not_recovered, &six]),
            ("another epoch", vec![&first, &five, &new_epoch, &six]),
            ("sent away", vec![&first, &five, &resumed, &six, &ended]),
        ];
        for (what, lines) in cases {
            let lines: Vec<String> = lines.into_iter().cloned().collect();
            assert!(!wrongs(&lines).is_empty(), "{what}");
        }
        let other_event = [first, publication(5, "e-51"), resumed, six];
        assert!(!wrongs(&other_event).is_empty(), "another event than acknowledged");
        assert!(!wrongs(&["{}".to_owned()]).is_empty(), "nonsense");
    }
}
