//! `docs/proof.json`: when each step of the long proof ran last, on which commit, how long it took and how it ended.
//!
//! A step writes its record when it ends, if the files that it judges ([`PRODUCT`], and `xtask`'s own harness) are committed.
//! `cargo xtask test --all` leaves out a step that has a record of success for the same product code, so a long proof that was
//! broken off goes on where it was. `cargo xtask test` prints how old each record is, and which crates that the step names as
//! its subject have changed since. The step `tidy` checks the form of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::git;
use crate::step::Step;

/// Where the records are.
pub(crate) const FILE: &str = "docs/proof.json";
/// What a step judges, with what it judges it: a change in it makes each record of success too old to leave a step out.
const PRODUCT: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "features", "conformance", "fuzz", "ops"];
/// A step without a subject is about all crates.
const ALL_CRATES: &str = "crates";

/// How one step ended last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// 40 hexadecimal digits.
    pub(crate) commit: String,
    /// In UTC.
    #[serde(with = "day")]
    pub(crate) date: Date,
    pub(crate) seconds: u64,
    /// Whether the step passed.
    pub(crate) passed: bool,
    /// The line that the table showed.
    pub(crate) result: String,
}

/// A day as `2026-11-29`.
mod day {
    use jiff::civil::Date;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(day: &Date, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(day)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The records by the name of their step.
pub(crate) type Records = BTreeMap<String, Record>;

/// Reads the file; no records if there is none.
pub(crate) fn read(root: &Path) -> Result<Records> {
    match fs::read_to_string(root.join(FILE)) {
        Ok(text) => serde_json::from_str(&text).context(FILE),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::new()),
        Err(error) => Err(error).context(FILE),
    }
}

/// Steps that end at the same time write one after the other.
static WRITING: Mutex<()> = Mutex::new(());

/// Keeps how a step ended, if what it judged is a commit. Says why not otherwise.
pub(crate) fn keep(root: &Path, step: &Step, ended: (u64, bool, &str), today: Date) -> Result<(), String> {
    let (seconds, passed, result) = ended;
    let commit = git::head(root).ok_or("there is no git history")?;
    let changed = git::uncommitted(root, &PRODUCT).ok_or("git does not say what has changed")?;
    if let Some(file) = changed.first() {
        return Err(format!("{file} is not committed ({} such files)", changed.len()));
    }
    let _guard = WRITING.lock().expect("no thread panics while it holds the lock");
    let mut records = read(root).map_err(|error| format!("{error:#}"))?;
    let result = result.lines().next().unwrap_or_default().to_owned();
    records.insert(step.name.to_owned(), Record { commit, date: today, seconds, passed, result });
    let text = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())? + "\n";
    fs::write(root.join(FILE), text).map_err(|error| format!("{FILE}: {error}"))
}

/// The record of a success of this step for the same product code.
pub(crate) fn success<'a>(root: &Path, records: &'a Records, step: &Step) -> Option<&'a Record> {
    let record = records.get(step.name).filter(|record| record.passed)?;
    let changed = git::changed_since(root, &record.commit, &PRODUCT)?;
    let uncommitted = git::uncommitted(root, &PRODUCT)?;
    (changed.is_empty() && uncommitted.is_empty()).then_some(record)
}

/// One line for each long step: how old its record is, and what of its subject has changed since.
pub(crate) fn ages(root: &Path, records: &Records, steps: &[&Step], today: Date) -> Vec<String> {
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or_default();
    let told = steps.iter().map(|step| match records.get(step.name) {
        None => (step.name, "never ran".to_owned()),
        Some(record) => (step.name, age(root, record, step, today)),
    });
    told.map(|(name, told)| format!("{name:<width$}  {told}")).collect()
}

fn age(root: &Path, record: &Record, step: &Step, today: Date) -> String {
    let Record { commit, date, seconds, passed, .. } = record;
    let days = today.since(*date).map_or(0, |span| span.get_days());
    let age = match days {
        0 => "today".to_owned(),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    };
    let ended = if *passed { "passed" } else { "FAILED" };
    let short = commit.get(..10).unwrap_or(commit);
    format!("{ended} {age} at {short}, in {seconds} s; {}", changed_crates(root, commit, step))
}

/// Which crates of the step's subject have changed since `commit`.
fn changed_crates(root: &Path, commit: &str, step: &Step) -> String {
    let folders: Vec<String> = match step.subject {
        [] => vec![ALL_CRATES.to_owned()],
        crates => crates.iter().map(|name| format!("crates/{name}")).collect(),
    };
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let Some(changed) = git::changed_since(root, commit, &folders) else {
        return "this clone does not know that commit".to_owned();
    };
    let crates: BTreeSet<&str> = changed.iter().filter_map(|file| file.split('/').nth(1)).collect();
    if crates.is_empty() {
        return "its subject has not changed".to_owned();
    }
    format!("changed since: {}", crates.into_iter().collect::<Vec<_>>().join(", "))
}

/// Complaints for the step `tidy`.
pub(crate) fn check(root: &Path, steps: &[Step]) -> Vec<String> {
    let records = match read(root) {
        Ok(records) => records,
        Err(error) => return vec![format!("{error:#}")],
    };
    let complain = |(name, Record { commit, result, .. }): (&String, &Record)| {
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let faults = [
            (!steps.iter().any(|step| step.is_long && step.name == *name)).then_some("no long step has this name"),
            (!is_commit).then_some("the commit is not 40 hexadecimal digits"),
            (is_commit && git::is_ancestor(root, commit) == Some(false))
                .then_some("HEAD does not descend from the commit"),
            result.is_empty().then_some("the result is empty"),
        ];
        faults.into_iter().flatten().map(|fault| format!("{FILE}: {name}: {fault}")).collect::<Vec<_>>()
    };
    records.iter().flat_map(complain).collect()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::git::tests::commit;
    use crate::step::tests::long_step;

    fn repository() -> tempfile::TempDir {
        let folder = git::tests::repository();
        commit(folder.path(), "crates/store/lib.rs", "1");
        fs::create_dir(folder.path().join("docs")).unwrap();
        folder
    }

    #[test]
    fn a_success_counts_until_product_code_changes() {
        let (folder, soak) = (repository(), long_step("soak", &["store"]));
        let (root, day) = (folder.path(), date(2026, 11, 29));
        keep(root, &soak, (600, true, "passed (1)"), day).unwrap();
        let records = read(root).unwrap();
        assert_eq!(success(root, &records, &soak).map(|record| record.seconds), Some(600));
        assert!(success(root, &records, &long_step("chain", &[])).is_none(), "another step has no record");
        commit(root, "docs/page.md", "words");
        assert!(success(root, &records, &soak).is_some(), "words are no product code");
        fs::write(root.join("crates/store/new.rs"), "2").unwrap();
        assert!(success(root, &records, &soak).is_none(), "a file that is not committed");
        commit(root, "crates/store/new.rs", "2");
        assert!(success(root, &records, &soak).is_none(), "a file of a later commit");
    }

    #[test]
    fn a_failure_is_kept_and_is_no_reason_to_leave_the_step_out() {
        let (folder, soak) = (repository(), long_step("soak", &[]));
        keep(folder.path(), &soak, (9, false, "FAILED: x\nmore"), date(2026, 11, 29)).unwrap();
        let records = read(folder.path()).unwrap();
        assert_eq!((records["soak"].result.as_str(), records["soak"].passed), ("FAILED: x", false));
        assert!(success(folder.path(), &records, &soak).is_none());
    }

    #[test]
    fn steps_that_end_at_the_same_time_are_all_kept() {
        const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let folder = repository();
        std::thread::scope(|scope| {
            for name in NAMES {
                let root = folder.path();
                scope.spawn(move || {
                    keep(root, &long_step(name, &[]), (1, true, "passed (1)"), date(2026, 11, 29)).unwrap()
                });
            }
        });
        assert_eq!(read(folder.path()).unwrap().into_keys().collect::<Vec<_>>(), NAMES);
    }

    #[test]
    fn what_is_not_committed_is_not_recorded() {
        let (folder, soak) = (repository(), long_step("soak", &[]));
        fs::write(folder.path().join("Cargo.lock"), "").unwrap();
        let why_not = keep(folder.path(), &soak, (9, true, "passed (1)"), date(2026, 11, 29)).unwrap_err();
        assert_eq!(why_not, "Cargo.lock is not committed (1 such files)");
        assert_eq!(read(folder.path()).unwrap(), Records::new());
    }

    #[test]
    fn ages_say_what_has_changed_since() {
        let (folder, soak) = (repository(), long_step("soak", &["store"]));
        let root = folder.path();
        keep(root, &soak, (600, true, "passed (1)"), date(2026, 11, 27)).unwrap();
        commit(root, "crates/hub/lib.rs", "2");
        let told =
            |root: &Path| ages(root, &read(root).unwrap(), &[&soak, &long_step("chain", &[])], date(2026, 11, 29));
        let before = told(root);
        assert!(before[0].starts_with("soak   passed 2 days ago at "), "{before:?}");
        assert!(before[0].ends_with(", in 600 s; its subject has not changed"), "{before:?}");
        assert_eq!(before[1], "chain  never ran");
        commit(root, "crates/store/lib.rs", "3");
        assert!(told(root)[0].ends_with("; changed since: store"), "{:?}", told(root));
    }

    #[test]
    fn the_form_is_checked() {
        let folder = repository();
        let steps = [long_step("soak", &[])];
        let write = |text: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            check(folder.path(), &steps)
        };
        let head = git::head(folder.path()).unwrap();
        let record = |commit: &str| {
            format!(
                r#"{{"commit": "{commit}", "date": "2026-11-29", "seconds": 1, "passed": true, "result": "passed (1)"}}"#
            )
        };
        assert_eq!(write(&format!(r#"{{"soak": {}}}"#, record(&head))), Vec::<String>::new());
        assert_eq!(write(&format!(r#"{{"smoke": {}}}"#, record(&head))).len(), 1, "no such step");
        assert_eq!(write(&format!(r#"{{"soak": {}}}"#, record("abc"))).len(), 1, "no commit");
        assert_eq!(write(&format!(r#"{{"soak": {}}}"#, record(&"0".repeat(40)))).len(), 1, "not in the history");
        assert_eq!(write(r#"{"soak": {"commit": ""}}"#).len(), 1, "fields are missing");
    }
}
