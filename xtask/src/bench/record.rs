//! The kept results, their form, and the tables that are made from them.
//!
//! | A record in | must have |
//! |---|---|
//! | `docs/benchmarks` | a commit that is in the history, without changes that were not committed; its whole hash, the checksum of what was computed, and the load before and after |
//! | `docs/benchmarks` with `old` | such a commit; `old` says what it lacks, and stands above its table |
//! | `docs/benchmarks/history` | `old`, which says why it is there |
//!
//! A record that `cargo xtask bench` writes never has `old`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::{Load, Machine};
use crate::git;

pub(super) const FOLDER: &str = "docs/benchmarks";
/// Within [`FOLDER`]: records that were replaced, or cannot be repeated.
const HISTORY: &str = "history/";
/// The pages with tables: of the newest runs, and of older ones.
pub(super) const PAGES: [&str; 2] = ["docs/benchmarks.md", "docs/benchmarks/history.md"];
const START: (&str, &str) = ("<!-- benchmarks/", " -->");
const END: &str = "<!-- end -->";
/// Behind a file's name: only rows with a goal.
const GOALS: &str = " goals";

/// Digits of a whole commit hash, of a checksum, and of the shortest commit hash of an old record.
const COMMIT_DIGITS: usize = 40;
const CHECKSUM_DIGITS: usize = 16;
const COMMIT_DIGITS_MIN: usize = 10;

/// The kept result of one benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) command: String,
    /// The program's commit. Of a record in the history: with `+` if files had changed since.
    pub(super) commit: String,
    pub(super) date: String,
    pub(super) machine: Machine,
    /// Of a record that was made before records had this form: what is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<String>,
    pub(super) report: Report,
}

/// The program's report. The tables need only these fields.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Of everything that was computed; only old records have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) checksum: String,
    pub(super) measures: Vec<Measure>,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measure {
    name: String,
    unit: String,
    /// Median, spread and goal, formatted.
    shown: [String; 3],
    met: Option<bool>,
    #[serde(flatten)]
    rest: Value,
}

impl Record {
    fn read(root: &Path, name: &str) -> Result<Self> {
        let path = format!("{FOLDER}/{name}");
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        serde_json::from_str(&text).context(path)
    }

    /// Writes it, in place of the last one.
    ///
    /// # Errors
    /// If the same program, with the same command, has computed something else then.
    pub(super) fn keep(&self, root: &Path, name: &str) -> Result<()> {
        let file = format!("{name}.json");
        if let Ok(last) = Self::read(root, &file)
            && (&last.commit, &last.command) == (&self.commit, &self.command)
            && last.report.checksum != self.report.checksum
        {
            let (then, now) = (&last.report.checksum, &self.report.checksum);
            bail!(
                "{}: the same program has computed something else on {} ({then}) than now ({now}), so nothing is kept",
                self.command,
                last.date
            );
        }
        fs::create_dir_all(root.join(FOLDER))?;
        fs::write(root.join(FOLDER).join(file), serde_json::to_string_pretty(self)? + "\n").context(FOLDER)
    }

    /// What is missing in its form. `name`: its file in [`FOLDER`].
    fn complaints(&self, name: &str) -> Vec<String> {
        let Self { commit, machine, old, report, .. } = self;
        let is_hex = |text: &str| text.chars().all(|digit| digit.is_ascii_digit() || ('a'..='f').contains(&digit));
        let mut complaints = Vec::new();
        match old {
            Some(why) if !why.is_empty() => {
                let commit = if name.starts_with(HISTORY) { commit.trim_end_matches('+') } else { commit };
                if !is_hex(commit) || commit.len() < COMMIT_DIGITS_MIN {
                    complaints.push(format!("{commit:?} is no commit without changes"));
                }
            }
            Some(_) => complaints.push("`old` does not say why".to_owned()),
            None if name.starts_with(HISTORY) => complaints.push("`old` does not say why it is here".to_owned()),
            None => {
                if !is_hex(commit) || commit.len() != COMMIT_DIGITS {
                    complaints.push(format!("{commit:?} is no whole commit without changes"));
                }
                if !is_hex(&report.checksum) || report.checksum.len() != CHECKSUM_DIGITS {
                    complaints.push("it has no checksum of what was computed".to_owned());
                }
                if let Load::Average(_) = machine.load {
                    complaints.push("it does not say how busy the machine was before and after".to_owned());
                }
            }
        }
        complaints
    }
}

/// Complaints about all records and their tables. What cannot be checked here is said, and is no complaint.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let mut shown = String::new();
    for path in PAGES {
        let page = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        match with_tables(root, &page) {
            Ok(made) if made == page => {}
            Ok(_) => complaints.push(format!("{path}: a table differs from its file: run cargo xtask bench --tables")),
            Err(error) => complaints.push(format!("{path}: {error:#}")),
        }
        shown.push_str(&page);
    }
    let mut is_unknown = false;
    for name in names(root)? {
        let mut complain = |what: String| complaints.push(format!("{FOLDER}/{name}: {what}"));
        if !shown.contains(&format!("{}{name}", START.0)) {
            complain("no page has its table".to_owned());
        }
        let record = match Record::read(root, &name) {
            Ok(record) => record,
            Err(error) => {
                complain(format!("{error:#}"));
                continue;
            }
        };
        let form = record.complaints(&name);
        let is_commit = form.is_empty() && !name.starts_with(HISTORY);
        form.into_iter().for_each(&mut complain);
        match if is_commit { git::is_ancestor(root, &record.commit) } else { Some(true) } {
            Some(true) => {}
            Some(false) => complain(format!(
                "its commit {} is not in the history of this one: repeat the benchmark",
                record.commit
            )),
            None => is_unknown = true,
        }
    }
    if is_unknown {
        println!("    the commits of {FOLDER} cannot be checked: this clone has not the whole history");
    }
    Ok(complaints)
}

/// The files of all records, as names within [`FOLDER`], in order.
fn names(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for within in ["", HISTORY] {
        let Ok(entries) = fs::read_dir(root.join(FOLDER).join(within)) else { continue };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.ends_with(".json").then(|| format!("{within}{name}")));
        }
    }
    names.sort();
    Ok(names)
}

/// Makes the tables of all pages from the kept results.
pub(super) fn write_tables(root: &Path) -> Result<()> {
    for path in PAGES {
        let page = fs::read_to_string(root.join(path)).context(path)?;
        fs::write(root.join(path), with_tables(root, &page)?).context(path)?;
    }
    Ok(())
}

/// `page` with its tables made from the files that they name.
fn with_tables(root: &Path, page: &str) -> Result<String> {
    let (mut made, mut rest) = (String::new(), page);
    while let Some((before, name, after)) = next_table(rest)? {
        let (name, is_short) = name.strip_suffix(GOALS).map_or((name, false), |name| (name, true));
        let is_missing = !name.starts_with(HISTORY) && !root.join(FOLDER).join(name).exists();
        let text = if is_missing {
            let benchmark = name.trim_end_matches(".json");
            format!("**No record.** `cargo xtask bench {benchmark}` makes one.")
        } else {
            let mut record = Record::read(root, name)?;
            record.report.measures.retain(|measure| !is_short || measure.met.is_some());
            table(&record)
        };
        made.push_str(&format!("{before}\n\n{text}\n\n{END}"));
        rest = after;
    }
    Ok(made + rest)
}

/// Splits the text at the next table: the text before it, the name of its file, and the text after it.
fn next_table(text: &str) -> Result<Option<(&str, &str, &str)>> {
    let Some(start) = text.find(START.0) else { return Ok(None) };
    let name = &text[start + START.0.len()..];
    let Some((name, _)) = name.split_once(START.1).filter(|(name, _)| !name.contains('\n')) else {
        bail!("the first line of a table does not end with {:?}", START.1);
    };
    let from = start + START.0.len() + name.len() + START.1.len();
    let end = text[from..].find(END).with_context(|| format!("the table of {name} has no line {END:?}"))?;
    Ok(Some((&text[..from], name, &text[from + end + END.len()..])))
}

/// The table of a record.
pub(super) fn table(record: &Record) -> String {
    let Record { command, commit, date, machine, old, report } = record;
    let checksum = if report.checksum.is_empty() { String::new() } else { format!("; checksum {}", report.checksum) };
    let short = commit.get(..COMMIT_DIGITS_MIN).filter(|_| !commit.ends_with('+')).unwrap_or(commit);
    let mut text = format!("`{command}` at {short}, {date}: {}{checksum}.\n\n", machine.told());
    if let Some(why) = old {
        text.push_str(&format!("**Old record**: {why}.\n\n"));
    }
    text.push_str("| | unit | median | spread | goal | met |\n|---|---|---|---|---|---|");
    for Measure { name, unit, shown: [median, spread, goal], met, .. } in &report.measures {
        let met = met.map_or("", |met| if met { "yes" } else { "**no**" });
        text.push_str(&format!("\n| {name} | {unit} | {median} | {spread} | {goal} | {met} |"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::git::tests::{commit, repository};

    const OLD: &str = "made before";

    /// A record of this commit as JSON, in the form of today.
    fn record(commit: &str) -> Value {
        let measure = |name: &str, met: Option<bool>| json!({"name": name, "unit": "ms", "runs": [1.0], "shown": ["1.00", "1.00 – 2.00", "≤ 2.00"], "met": met});
        let glance = |busy: f64| json!({"busy_cores": busy, "load": "0.30"});
        let load = json!({"before": glance(0.04), "after": glance(0.5)});
        let machine = json!({"processor": "P", "cores": 2, "memory_gib": 8, "kernel": "Linux 6", "load": load});
        let measures = json!([measure("a", Some(false)), measure("b", None)]);
        let report = json!({"benchmark": "fanout", "checksum": "0123456789abcdef", "measures": measures});
        json!({
            "command": "tidings bench fanout", "commit": commit, "date": "2026-01-02", "machine": machine, "report": report,
        })
    }

    /// The same as an old record.
    fn old(commit: &str) -> Value {
        let mut record = record(commit);
        record["old"] = json!(OLD);
        record["machine"]["load"] = json!("0.10");
        record["report"].as_object_mut().unwrap().remove("checksum");
        record
    }

    fn write(root: &Path, name: &str, record: &Value) {
        let path = root.join(FOLDER).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, record.to_string()).unwrap();
    }

    /// Writes both pages with these tables.
    fn pages(root: &Path, new: &[&str], older: &[&str]) {
        for (path, names) in PAGES.into_iter().zip([new, older]) {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            let text: String = names.iter().map(|name| format!("<!-- benchmarks/{name} -->\n<!-- end -->\n")).collect();
            fs::write(root.join(path), text).unwrap();
        }
        let _ = write_tables(root);
    }

    #[test]
    fn tables_are_made_and_making_them_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "fanout.json", &record("abcdef0123456789"));
        let page = "Before.\n\n<!-- benchmarks/fanout.json -->\nold\n<!-- end -->\n\nAfter.\n";
        let made = with_tables(root, page).unwrap();
        let expected = "Before.\n\n<!-- benchmarks/fanout.json -->\n\n\
             `tidings bench fanout` at abcdef0123, 2026-01-02: P, 2 cores, 8 GiB, Linux 6; busy cores before 0.04, after **0.50**; \
             load before 0.30, after 0.30; checksum 0123456789abcdef.\n\n\
             | | unit | median | spread | goal | met |\n|---|---|---|---|---|---|\n\
             | a | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 | **no** |\n| b | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 |  |\n\n\
             <!-- end -->\n\nAfter.\n";
        assert_eq!((made.as_str(), with_tables(root, &made).unwrap().as_str()), (expected, expected));
        let short = with_tables(root, &page.replace("json", "json goals")).unwrap();
        let only_judged =
            expected.replace("json", "json goals").replace("| b | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 |  |\n", "");
        assert_eq!(short, only_judged);
        assert!(with_tables(root, "<!-- benchmarks/x.json -->\n").is_err());
    }

    #[test]
    fn an_old_or_missing_record_is_seen_on_its_page() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "history/fanout.json", &old("abcdef0123+"));
        let page = |name: &str| with_tables(root, &format!("<!-- benchmarks/{name}.json -->\n<!-- end -->\n"));
        let made = page("history/fanout").unwrap();
        assert!(
            made.contains("at abcdef0123+, 2026-01-02: P, 2 cores, 8 GiB, Linux 6; load before 0.10.\n\n"),
            "{made}"
        );
        assert!(made.contains("\n\n**Old record**: made before.\n\n| |"), "{made}");
        assert!(page("fanout").unwrap().contains("**No record.** `cargo xtask bench fanout` makes one."));
        assert!(format!("{:#}", page("history/other").unwrap_err()).contains("other.json"));
    }

    #[test]
    fn records_of_commits_in_the_history_pass() {
        let folder = repository();
        let root = folder.path();
        let first = commit(root, "first", "first");
        write(root, "fanout.json", &record(&first));
        write(root, "storm.json", &old(&first[..10]));
        write(root, "history/feed.json", &old("5fc7e4ecf3+"));
        write(root, "history/fanout.json", &old("0cf6f275ef"));
        pages(root, &["fanout.json", "storm.json"], &["history/feed.json", "history/fanout.json"]);
        assert_eq!(check(root).unwrap(), Vec::<String>::new());
        pages(root, &["fanout.json"], &["history/feed.json", "history/fanout.json"]);
        assert_eq!(check(root).unwrap(), ["docs/benchmarks/storm.json: no page has its table"]);
        fs::write(root.join(PAGES[0]), "<!-- benchmarks/fanout.json --> <!-- benchmarks/storm.json -->\n<!-- end -->")
            .unwrap();
        assert!(check(root).unwrap()[0].starts_with("docs/benchmarks.md: a table differs from its file"));
    }

    #[test]
    fn a_record_that_cannot_be_repeated_is_complained_about() {
        let folder = repository();
        let root = folder.path();
        let first = commit(root, "first", "first");
        let unknown = "0cf6f275ef".repeat(4);
        let without = |field: &str| {
            let mut record = record(&first);
            match field {
                "checksum" => drop(record["report"].as_object_mut().unwrap().remove("checksum")),
                "load" => record["machine"]["load"] = json!("0.10"),
                _ => record["old"] = json!(""),
            }
            record
        };
        for (name, record, expected) in [
            (
                "fanout.json",
                record(&unknown),
                format!("its commit {unknown} is not in the history of this one: repeat the benchmark"),
            ),
            (
                "fanout.json",
                old(&unknown[..10]),
                "its commit 0cf6f275ef is not in the history of this one: repeat the benchmark".to_owned(),
            ),
            ("fanout.json", record(&first[..10]), format!("{:?} is no whole commit without changes", &first[..10])),
            ("fanout.json", record(&format!("{first}+")), format!("\"{first}+\" is no whole commit without changes")),
            ("fanout.json", old(&format!("{first}+")), format!("\"{first}+\" is no commit without changes")),
            ("fanout.json", old("--all"), "\"--all\" is no commit without changes".to_owned()),
            ("fanout.json", without("checksum"), "it has no checksum of what was computed".to_owned()),
            ("fanout.json", without("load"), "it does not say how busy the machine was before and after".to_owned()),
            ("fanout.json", without("old"), "`old` does not say why".to_owned()),
            ("history/fanout.json", self::record(&first), "`old` does not say why it is here".to_owned()),
        ] {
            write(root, name, &record);
            pages(root, &[name], &[]);
            assert_eq!(check(root).unwrap(), [format!("docs/benchmarks/{name}: {expected}")]);
            fs::remove_file(root.join(FOLDER).join(name)).unwrap();
        }
    }

    #[test]
    fn without_history_the_commits_are_no_complaint() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "fanout.json", &record(&"0cf6f275ef".repeat(4)));
        pages(root, &["fanout.json"], &[]);
        assert_eq!(check(root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_same_program_must_compute_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let record = |commit: &str, checksum: &str| {
            let mut record = record(commit);
            record["report"]["checksum"] = json!(checksum);
            serde_json::from_value::<Record>(record).unwrap()
        };
        let kept = || fs::read_to_string(root.join(FOLDER).join("fanout.json")).unwrap();
        record("aa", "01").keep(root, "fanout").unwrap();
        let first = kept();
        assert!(first.contains("\"checksum\": \"01\"") && first.contains("\"benchmark\": \"fanout\""), "{first}");
        record("aa", "01").keep(root, "fanout").unwrap();
        let error = record("aa", "02").keep(root, "fanout").unwrap_err().to_string();
        assert!(error.contains("something else on 2026-01-02 (01) than now (02), so nothing is kept"), "{error}");
        assert_eq!(kept(), first);
        record("bb", "02").keep(root, "fanout").unwrap();
        let other = Record { command: "tidings bench fanout --seconds 1".to_owned(), ..record("bb", "03") };
        other.keep(root, "fanout").unwrap();
        assert!(kept().contains("\"checksum\": \"03\""));
    }
}
