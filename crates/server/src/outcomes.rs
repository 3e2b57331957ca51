//! The page `docs/outcomes.md`: every state of an event and every reason, written from the code that has them.
//!
//! The test below compares the page with the code. After a change of the code, write the page anew:
//! `WRITE_PAGE=1 cargo test -p tidings-server --lib outcomes`.

use std::fmt::Write as _;

use tidings_api::EventState;
use tidings_push::{Reason, apns, fcm, web_push};
use tidings_sender::{DeviceOutcome, Suppression};

const HEAD: &str = "\
# Outcomes: what became of an event and of each device

For engineers and operators who read reports (`GET /v1/events/{id}`, `GET /v1/jobs`, `tidings jobs show`, the
[webhook](webhook.md)). The server's code has these words, and this page is written from it.
";

/// The whole page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut table = |title: &str, text: &str, word: &str, rows: &mut dyn Iterator<Item = (&str, &str)>| {
        let rows = rows.map(|(name, about)| format!("| `{name}` | {about} |\n")).collect::<String>();
        let text = if text.is_empty() { String::new() } else { format!("{text}\n\n") };
        write!(page, "\n## {title}\n\n{text}| {word} | Means |\n|---|---|\n{rows}").expect("memory takes it");
    };
    let states = EventState::ALL.iter().map(|state| (state.as_str(), state.about()));
    table("States of an event", "", "`state`", &mut states.into_iter());
    let mut kinds: Vec<DeviceOutcome> = DeviceOutcome::all().collect();
    kinds.dedup_by_key(|outcome| outcome.as_str());
    let kinds = kinds.iter().map(|outcome| (outcome.as_str(), outcome.about()));
    let text = "Every selected device ends in exactly one outcome, so the outcomes together are the audience.";
    table("Outcomes of a device", text, "Outcome", &mut kinds.into_iter());
    let why = Suppression::ALL.iter().map(|why| (why.as_str(), why.about()));
    table("Why a device is suppressed", "", "Reason", &mut why.into_iter());
    let text = "The words are Apple's. What may pass, such as `ServiceUnavailable` or a refused credential, is retried and is no\n\
                rejection: if the event's time ends first, the device counts as `expired`. The same holds for FCM and browsers.";
    let apple = apns::Reason::ALL.iter().map(|reason| (reason.as_str(), reason.about()));
    table("Why APNs rejects", text, "Reason", &mut apple.into_iter());
    let google = fcm::Reason::ALL.iter().map(|reason| (reason.as_str(), reason.about()));
    table(
        "Why FCM rejects",
        "The words are Google's, but `INVALID_ARGUMENT_TOKEN` and `FCM_OTHER`.",
        "Reason",
        &mut google.into_iter(),
    );
    let browsers = web_push::Reason::ALL.iter().map(|reason| (reason.as_str(), reason.about()));
    table(
        "Why the push service of a browser rejects",
        "The words are ours: push services answer with numbers.",
        "Reason",
        &mut browsers.into_iter(),
    );
    let ours = Reason::ALL.iter().filter(|reason| matches!(reason, Reason::Panicked(_)));
    let ours = ours.map(|reason| (reason.as_str(), reason.about()));
    table("Rejected by a mistake of Tidings", "", "Reason", &mut ours.into_iter());
    page
}

#[test]
fn the_page_says_what_the_code_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outcomes.md");
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == page(),
        "docs/outcomes.md is not of this code; WRITE_PAGE=1 cargo test -p tidings-server --lib outcomes"
    );
}
