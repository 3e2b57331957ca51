//! `cargo xtask bench`: runs benchmarks of the release binary and keeps their results in `docs/benchmarks/NAME.json`, with
//! the commit and the machine. The tables of `docs/benchmarks.md` are made from these files; the step `tidy` checks this.
//!
//! A table is between the lines `<!-- benchmarks/NAME.json -->` and `<!-- end -->`. With
//! `<!-- benchmarks/NAME.json goals -->` it has only the rows with a goal. Timings prove nothing about correctness, so this
//! is not a step of `cargo xtask test`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::{cargo, run, start_log};
use crate::compile::BINARY;
use crate::workshop::Workshop;

const STEP: &str = "bench";
const PAGE: &str = "docs/benchmarks.md";
const FOLDER: &str = "docs/benchmarks";
const END: &str = "<!-- end -->";
/// Behind a file's name: only rows with a goal.
const GOALS: &str = " goals";

/// What is kept: the name, and the words after `tidings bench`.
const RECORDED: [(&str, &[&str]); 12] = [
    ("fanout", &["fanout"]),
    ("publish", &["publish"]),
    ("storm", &["storm"]),
    ("audience", &["audience", "--subscriptions", "25M"]),
    ("push", &["push"]),
    ("push-audience", &["push", "--audience", "1.3M", "--only", "audience"]),
    ("buffer", &["buffer"]),
    ("batch", &["batch"]),
    ("http", &["http"]),
    ("msgpack", &["msgpack"]),
    ("feed", &["feed"]),
    ("translate", &["translate"]),
];

#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Run only these benchmarks [default: all of them, about an hour].
    #[arg(value_name = "NAME", value_parser = RECORDED.map(|(name, _)| name))]
    names: Vec<String>,
    /// Run no benchmark; make the tables again from the kept results.
    #[arg(long)]
    tables: bool,
    /// More words for `tidings bench`, such as `--runs 5`.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

/// The kept result of one benchmark.
#[derive(Serialize, Deserialize)]
struct Record {
    command: String,
    /// The program's commit, with `+` if files have changed since.
    commit: String,
    date: String,
    machine: Machine,
    report: Report,
}

#[derive(Serialize, Deserialize)]
struct Machine {
    processor: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
    /// The load of the minute before.
    load: String,
}

/// The program's report. The tables need only these fields.
#[derive(Serialize, Deserialize)]
struct Report {
    measures: Vec<Measure>,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Serialize, Deserialize)]
struct Measure {
    name: String,
    unit: String,
    /// Median, spread and goal, formatted.
    shown: [String; 3],
    met: Option<bool>,
    #[serde(flatten)]
    rest: Value,
}

/// Runs the chosen benchmarks, and makes the tables.
pub(crate) fn bench(workshop: &Workshop, arguments: &BenchArguments) -> Result<()> {
    let is_asked = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|asked| asked == name);
    if !arguments.tables {
        start_log(workshop, STEP)?;
        let words = ["build", "--release", "-p", "tidings", "--features", "bench-peers"];
        run(workshop, STEP, cargo(workshop, &words), |_| ())?;
        for (name, words) in RECORDED.into_iter().filter(|(name, _)| is_asked(name)) {
            let words: Vec<&str> = words.iter().copied().chain(arguments.words.iter().map(String::as_str)).collect();
            let record = measure(workshop, &words)?;
            fs::create_dir_all(workshop.root.join(FOLDER))?;
            let text = serde_json::to_string_pretty(&record)? + "\n";
            fs::write(workshop.root.join(FOLDER).join(format!("{name}.json")), text)?;
        }
    }
    let page = fs::read_to_string(workshop.root.join(PAGE)).context(PAGE)?;
    fs::write(workshop.root.join(PAGE), with_tables(&workshop.root, &page)?).context(PAGE)
}

/// Complaints for the step `tidy`: tables that differ from their files.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    Ok(match with_tables(root, &page) {
        Ok(made) if made == page => Vec::new(),
        Ok(_) => vec![format!("{PAGE}: a table differs from its file in {FOLDER}: run cargo xtask bench --tables")],
        Err(error) => vec![format!("{PAGE}: {error:#}")],
    })
}

fn measure(workshop: &Workshop, words: &[&str]) -> Result<Record> {
    let machine = machine()?;
    let mut command = Command::new(workshop.built(BINARY));
    command.arg("bench").args(words).arg("--json").current_dir(&workshop.root).stderr(Stdio::inherit());
    let shown = format!("tidings bench {}", words.join(" "));
    println!("    {shown}");
    let output = command.output().with_context(|| format!("{shown} cannot be started"))?;
    ensure!(output.status.success(), "{shown}: {}", output.status);
    let report = serde_json::from_slice(&output.stdout).with_context(|| format!("what {shown} says"))?;
    let said = |words: &[&str]| said("git", words, &workshop.root);
    let changed = said(&["status", "--porcelain", "--", "Cargo.toml", "Cargo.lock", "crates"])?;
    let changed = if changed.is_empty() { "" } else { "+" };
    let commit = said(&["rev-parse", "--short=10", "HEAD"])? + changed;
    Ok(Record { command: shown, commit, date: said_alone("date", &["-u", "+%F"])?, machine, report })
}

fn machine() -> Result<Machine> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
    let processors = read("/proc/cpuinfo")?;
    let processor = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or("unknown", |(_, name)| name).to_owned();
    let memory = read("/proc/meminfo")?;
    let kilobytes: u64 = memory.split_whitespace().nth(1).and_then(|count| count.parse().ok()).context("memory")?;
    let load = read("/proc/loadavg")?.split_whitespace().next().context("load")?.to_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = said_alone("uname", &["-sr"])?;
    Ok(Machine { processor, cores, memory_gib: kilobytes >> 20, kernel, load })
}

fn said_alone(program: &str, words: &[&str]) -> Result<String> {
    said(program, words, Path::new("."))
}

fn said(program: &str, words: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new(program).args(words).current_dir(folder).output().with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// `page` with its tables made from the files that they name.
fn with_tables(root: &Path, page: &str) -> Result<String> {
    let (mut made, mut rest) = (String::new(), page);
    while let Some((before, name, after)) = next_table(rest)? {
        let (name, is_short) = name.strip_suffix(GOALS).map_or((name, false), |name| (name, true));
        let path = format!("{FOLDER}/{name}");
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let mut record: Record = serde_json::from_str(&text).with_context(|| path.clone())?;
        record.report.measures.retain(|measure| !is_short || measure.met.is_some());
        made.push_str(&format!("{before}\n\n{}\n\n{END}", table(&record)));
        rest = after;
    }
    Ok(made + rest)
}

/// Splits the text at the next table: the text before it, the name of its file, and the text after it.
fn next_table(text: &str) -> Result<Option<(&str, &str, &str)>> {
    const START: (&str, &str) = ("<!-- benchmarks/", " -->");
    let Some(start) = text.find(START.0) else { return Ok(None) };
    let name = &text[start + START.0.len()..];
    let Some((name, _)) = name.split_once(START.1).filter(|(name, _)| !name.contains('\n')) else {
        bail!("the first line of a table does not end with {:?}", START.1);
    };
    let from = start + START.0.len() + name.len() + START.1.len();
    let end = text[from..].find(END).with_context(|| format!("the table of {name} has no line {END:?}"))?;
    Ok(Some((&text[..from], name, &text[from + end + END.len()..])))
}

fn table(record: &Record) -> String {
    let Record { command, commit, date, machine, report } = record;
    let Machine { processor, cores, memory_gib, kernel, load } = machine;
    let mut text = format!(
        "`{command}` at {commit}, {date}: {processor}, {cores} cores, {memory_gib} GiB, {kernel}; load before {load}.\n\n\
         | | unit | median | spread | goal | met |\n|---|---|---|---|---|---|"
    );
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

    fn kept(folder: &Path) {
        fs::create_dir_all(folder.join(FOLDER)).unwrap();
        let measure = |name: &str, met: Option<bool>| json!({"name": name, "unit": "ms", "runs": [1.0], "shown": ["1.00", "1.00 – 2.00", "≤ 2.00"], "met": met});
        let machine = json!({"processor": "P", "cores": 2, "memory_gib": 8, "kernel": "Linux 6", "load": "0.10"});
        let report = json!({"benchmark": "fanout", "measures": [measure("a", Some(false)), measure("b", None)]});
        let record = json!({
            "command": "tidings bench fanout", "commit": "abc", "date": "2026-01-02", "machine": machine, "report": report,
        });
        fs::write(folder.join(FOLDER).join("fanout.json"), record.to_string()).unwrap();
    }

    #[test]
    fn tables_are_made_and_making_them_again_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("xtask-bench-{}", std::process::id()));
        kept(&folder);
        let page = "Before.\n\n<!-- benchmarks/fanout.json -->\nold\n<!-- end -->\n\nAfter.\n";
        let made = with_tables(&folder, page).unwrap();
        let again = with_tables(&folder, &made).unwrap();
        let short = with_tables(&folder, &page.replace("json", "json goals")).unwrap();
        let missing = with_tables(&folder, &page.replace("fanout", "other"));
        fs::remove_dir_all(&folder).unwrap();
        let expected = "Before.\n\n<!-- benchmarks/fanout.json -->\n\n\
             `tidings bench fanout` at abc, 2026-01-02: P, 2 cores, 8 GiB, Linux 6; load before 0.10.\n\n\
             | | unit | median | spread | goal | met |\n|---|---|---|---|---|---|\n\
             | a | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 | **no** |\n| b | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 |  |\n\n\
             <!-- end -->\n\nAfter.\n";
        assert_eq!((made.as_str(), again.as_str()), (expected, expected));
        let only_judged =
            expected.replace("json", "json goals").replace("| b | ms | 1.00 | 1.00 – 2.00 | ≤ 2.00 |  |\n", "");
        assert_eq!(short, only_judged);
        assert!(missing.unwrap_err().to_string().contains("other.json"));
        assert!(with_tables(&folder, "<!-- benchmarks/x.json -->\n").is_err());
    }
}
