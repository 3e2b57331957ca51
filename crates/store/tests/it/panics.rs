//! A bug that shows on the committer's thread ends the process, with a message: a store without a writer would accept and
//! never acknowledge.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidings_store::{CommitSink, DurableChannel, Store, StoredPublication};
use tidings_telemetry::panics;
use tidings_types::{ChannelName, JournalPosition, StreamPosition};

use crate::support::*;

const CHILD: &str = "TIDINGS_STORE_PANIC";

struct Panicking;

impl CommitSink for Panicking {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {
        panic!("as asked");
    }
}

#[tokio::test]
#[ignore = "child process: the process whose committer panics"]
async fn in_a_child() {
    let folder = std::env::var_os(CHILD).expect("started by the test below");
    #[expect(clippy::print_stderr, reason = "the parent reads it")]
    panics::install(|words| eprint!("last words: {words}"));
    let store = Store::open(config(folder.as_ref()), Arc::new(Panicking)).unwrap();
    let appended = store.append_events(vec![new_event("e", 1, &[])], T0);
    drop(tokio::time::timeout(Duration::from_secs(20), appended).await);
}

#[test]
fn a_panic_of_the_committer_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "panics::in_a_child", "--ignored", "--nocapture"]).env(CHILD, folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("last words: thread \"store-committer\" panicked at "), "{text}");
    assert!(text.contains("panics.rs:") && text.contains("as asked; the process ends"), "{text}");
}
