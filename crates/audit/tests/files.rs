//! The audit log with real files: what is recorded is read back, within the bound, and through damage and a disk that
//! refuses.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tidings_audit::{Audit, AuditConfig, By, Cursor, Entry, LOST, Page, Query};
use tidings_telemetry::Registry;
use tokio::time::Instant;

const FILE_BYTES_MAX: u64 = 64 << 10;

fn start(folder: &Path) -> (Audit, Registry) {
    let registry = Registry::new();
    let config =
        AuditConfig { folder: folder.to_owned(), file_bytes_max: FILE_BYTES_MAX, file_count_max: 3, is_logged: false };
    (Audit::start(config, &registry).unwrap(), registry)
}

fn entry(who: &str) -> Entry {
    Entry { result: 200, ..Entry::new(By::Key, who, "brake.set") }
}

/// All entries, newest first, read in pages of `limit`.
fn all(audit: &Audit, limit: usize) -> Page {
    let mut all = Page::default();
    let mut query = Query { limit, ..Query::default() };
    loop {
        let page = audit.read(&query).unwrap();
        assert!(page.entries.len() <= limit);
        all.entries.extend(page.entries);
        all.damaged += page.damaged;
        query.before = page.next;
        if query.before.is_none() {
            return all;
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never {what}");
        thread::yield_now();
    }
}

fn lost(registry: &Registry) -> String {
    let text = registry.exposed(tidings_telemetry::Exposition::Text);
    text.lines().find_map(|line| line.strip_prefix("tidings_audit_lost_total ")).unwrap().to_owned()
}

#[test]
fn files_stay_within_the_bound_and_keep_the_newest_entries() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("audit");
    let (audit, registry) = start(&folder);
    let count = 4000;
    for who in 0..count {
        audit.record(entry(&format!("key-{who:04}-{}", "x".repeat(100))));
        if who % 500 == 499 {
            until("written", || {
                all(&audit, 1000)
                    .entries
                    .first()
                    .is_some_and(|(_, newest)| newest.who.starts_with(&format!("key-{who:04}")))
            });
            sleep_until_next_second(); // At most 1024 kinds in a second.
        }
    }
    let sizes: Vec<u64> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= FILE_BYTES_MAX), "{sizes:?}");
    let entries = all(&audit, 77).entries;
    assert!(entries.len() > 500, "{}", entries.len());
    for (index, (_, entry)) in entries.iter().enumerate() {
        assert!(entry.who.starts_with(&format!("key-{:04}", count - 1 - index)), "{}", entry.who);
    }
    assert!(entries.windows(2).all(|pair| pair[0].0 > pair[1].0), "cursors fall");
    assert_eq!(lost(&registry), "0");
}

fn sleep_until_next_second() {
    let second = || tidings_telemetry::unix_now().as_secs();
    let now = second();
    until("the next second", || second() != now);
}

#[test]
fn a_restart_goes_on_behind_a_line_that_was_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (audit, _) = start(dir.path());
    audit.record(entry("a"));
    until("written", || all(&audit, 10).entries.len() == 1);
    let path = dir.path().join("00000001.ndjson");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\":\"20").unwrap();
    assert_eq!(all(&audit, 10).damaged, 0, "it may still be written");
    let (audit, _) = start(dir.path());
    audit.record(entry("b"));
    until("written", || all(&audit, 10).entries.len() == 2);
    let page = all(&audit, 1);
    assert_eq!(page.damaged, 1);
    assert_eq!(page.entries.iter().map(|(_, entry)| entry.who.as_str()).collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn what_a_disk_refused_is_counted_and_told_when_it_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("audit");
    fs::write(&folder, "not a folder").unwrap();
    let (audit, registry) = start(&folder);
    let entries =
        || audit.read(&Query { limit: 1000, ..Query::default() }).map_or_else(|_| Vec::new(), |page| page.entries);
    let written = || entries().iter().filter(|(_, entry)| entry.action != LOST).count();
    let mut recorded = 0;
    // One at a time, so that nothing is lost because it comes too fast.
    let mut record = || {
        audit.record(entry("a"));
        recorded += 1;
        until("written or lost", || written() + lost(&registry).parse::<usize>().unwrap() == recorded);
    };
    record();
    assert_eq!(lost(&registry), "1");
    fs::remove_file(&folder).unwrap();
    until("written again", || {
        record();
        written() > 0
    });
    let told: Vec<_> = entries().into_iter().filter(|(_, entry)| entry.action == LOST).collect();
    assert!(told.iter().all(|(_, entry)| entry.by == By::System), "{told:?}");
    assert_eq!(told.iter().map(|(_, entry)| entry.count).sum::<u64>().to_string(), lost(&registry));
}

#[test]
fn bytes_that_are_no_entries_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let line = |who: &str| format!("{}\n", serde_json::to_string(&entry(who)).unwrap());
    let long = "x".repeat(200 << 10);
    let bytes = [line("a").as_bytes(), b"\xff\xfe\n\n{}\n[1]\n", long.as_bytes(), b"\n", line("b").as_bytes()].concat();
    fs::write(dir.path().join("00000007.ndjson"), bytes).unwrap();
    fs::write(dir.path().join("notes.txt"), "not ours").unwrap();
    let (audit, _) = start(dir.path());
    let page = all(&audit, 1);
    assert_eq!(page.entries.iter().map(|(_, entry)| entry.who.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert!(page.damaged >= 4, "{}", page.damaged);
    let nowhere: Cursor = "9-99999".parse().unwrap();
    assert_eq!(audit.read(&Query { before: Some(nowhere), limit: 9, ..Query::default() }).unwrap().entries.len(), 2);
}
