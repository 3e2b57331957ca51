//! What data providers send, and the mappings that people write for it.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use tidings_feed::{Document, Entry, Mapping, Outcome, Summary, read};
use tidings_types::Timestamp;

const ABOUT: Document<'static> = Document { feed: "f", now: Timestamp(1_795_553_100_000), charset: None };

/// XML, RSS and Atom of every shipped mapping, and a mapping with namespaces, tests and paths around the entries.
static MAPPINGS: LazyLock<Vec<Mapping>> = LazyLock::new(|| {
    let own = r#"kind = "xml"
entries = "/d/g/e"
id = "{@id}"
topic = "t"
subjects = ["s:{x[@a='1'][!y]/@b | /d/g/@n | .}", { each = "x/@a", as = "slug", put = "a:{}" }]
without_id = "content"
limits.depth = 20
[namespaces]
default = "urn:a"
[params]
html = { from = "{x}", as = "html", max = 20 }
time = { from = "{@t}", as = "datetime", zone = "Europe/Stockholm" }"#;
    let shipped = Mapping::shipped_names().filter_map(Mapping::shipped);
    shipped.chain([own]).map(|text| Mapping::parse(text).expect("it is one")).collect()
});

/// Every document is read to its end or refused. An event is JSON, and cutting a document only takes its end away.
pub(crate) fn xml(bytes: &[u8]) {
    for mapping in &*MAPPINGS {
        let whole = entries(bytes, mapping);
        for entry in &whole.0 {
            if let Outcome::Event(draft) = &entry.outcome {
                serde_json::from_str::<serde_json::Value>(&draft.json).expect("an event is JSON");
            }
        }
        let (begun, _) = entries(&bytes[..bytes.len() / 2], mapping);
        // Entries that are held come at the end, and some only with their lookup tables.
        if whole.1.is_some() && mapping.kind() != tidings_feed::Kind::Json && !begun.is_empty() {
            assert!(begun.len() <= whole.0.len());
        }
    }
}

fn entries(bytes: &[u8], mapping: &Mapping) -> (Vec<Entry>, Option<Summary>) {
    let mut entries = Vec::new();
    let end = read(bytes, mapping, &ABOUT, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    (entries, end.ok())
}

/// A mapping, and after a zero byte a document for it.
pub(crate) fn mapping(bytes: &[u8]) {
    let (mapping, document) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"{\"d\":[{\"id\":1,\"s\":\"a\"}]}"[..]),
    };
    let Ok(text) = std::str::from_utf8(mapping) else { return };
    match Mapping::parse(text) {
        Ok(mapping) => drop(entries(document, &mapping)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
