//! `cargo xtask bench`: runs benchmarks of the release binary and keeps their results in `docs/benchmarks/NAME.json`, with
//! the commit, the machine, how busy it was before and after, and the checksum of what was computed. The tables of
//! `docs/benchmarks.md` are made from these files; the step `tidy` checks this, and that the commits are in the history.
//!
//! A number that nobody can repeat is worth nothing. So nothing is measured while a file has changes that are not committed
//! ([`tree`]), or while other programs work ([`machine`]); and nothing is kept if the same program has computed something
//! else before ([`record`]). `--anyway` is for trying things out: it measures always, and keeps nothing.
//!
//! A table is between the lines `<!-- benchmarks/NAME.json -->` and `<!-- end -->`. With
//! `<!-- benchmarks/NAME.json goals -->` it has only the rows with a goal. Timings prove nothing about correctness, so this
//! is not a step of `cargo xtask test`.

mod machine;
mod record;
mod tree;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;

use self::machine::{Load, Machine, Watched, quiet};
use self::record::{Record, Report, table, write_tables};
use self::tree::{clean_commit, head};
use crate::command::{cargo, run, start_log, today};
use crate::compile::Binary;
use crate::install::{CENTRIFUGO, go, go_as, need_tools};
use crate::step::Failure;
use crate::workshop::Workshop;

const STEP: &str = "bench";

/// What is kept: the name, and the words after `tidings bench`.
const RECORDED: [(&str, &[&str]); 13] = [
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
    ("age", &["age"]),
];
/// These are measured beside Centrifugo.
const BESIDE_CENTRIFUGO: [&str; 3] = ["fanout", "publish", "storm"];
/// The package of the newer Centrifugo, whose version `conformance/centrifugo6` pins, and its program's name here: its own
/// name is that of the older one.
const CENTRIFUGO_6: (&str, &str) = ("github.com/centrifugal/centrifugo/v6", "centrifugo6");
/// In cargo's target folder: where `tidings bench --peers` finds both.
const PEERS: &str = "conformance";

#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Run only these benchmarks [default: all of them, about an hour].
    #[arg(value_name = "NAME", value_parser = RECORDED.map(|(name, _)| name))]
    names: Vec<String>,
    /// Run no benchmark; make the tables again from the kept results.
    #[arg(long)]
    tables: bool,
    /// Try things out: also with changes that are not committed, and beside other work. Prints the tables, keeps nothing.
    #[arg(long, conflicts_with = "tables")]
    anyway: bool,
    /// More words for `tidings bench`, such as `--runs 5`.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

/// Runs the chosen benchmarks, and makes the tables.
pub(crate) fn bench(workshop: &Workshop, arguments: &BenchArguments) -> Result<()> {
    let is_asked = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|asked| asked == name);
    let asked = || RECORDED.into_iter().filter(|(name, _)| is_asked(name));
    if arguments.tables {
        return write_tables(&workshop.root);
    }
    let commit = if arguments.anyway { head(&workshop.root)? + "+" } else { clean_commit(&workshop.root)? };
    start_log(workshop, STEP)?;
    let words = ["build", "--release", "-p", "tidings", "--features", "bench-peers"];
    run(workshop, STEP, cargo(workshop, &words), |_| ())?;
    if asked().any(|(name, _)| BESIDE_CENTRIFUGO.contains(&name)) {
        build_centrifugos(workshop)?;
    }
    for (name, words) in asked() {
        let before = if arguments.anyway { Watched::now()? } else { quiet(Watched::now)? };
        let words: Vec<&str> = words.iter().copied().chain(arguments.words.iter().map(String::as_str)).collect();
        let record = measure(workshop, name, &words, &commit, &before)?;
        if arguments.anyway {
            println!("\n{}\n\nNothing is kept.", table(&record));
            continue;
        }
        keep(&workshop.root, name, &record)?;
        write_tables(&workshop.root)?;
    }
    Ok(())
}

/// Complaints for the step `tidy`: records that cannot be repeated, and tables that differ from their files.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    record::check(root)
}

/// Keeps a record, unless the program has changed while it ran.
fn keep(root: &Path, name: &str, record: &Record) -> Result<()> {
    let commit = clean_commit(root).with_context(|| format!("{name}: nothing is kept"))?;
    ensure!(commit == record.commit, "{name}: nothing is kept, because the commit has changed from {}", record.commit);
    record.keep(root, name)
}

/// Builds both versions of Centrifugo with which the program is compared.
fn build_centrifugos(workshop: &Workshop) -> Result<()> {
    need_tools(workshop, STEP, |program| program == "go").map_err(|failure| match failure {
        Failure::Failed { error, .. } => error,
        Failure::Missing(what) => anyhow!(what),
    })?;
    let (package, program) = CENTRIFUGO_6;
    run(workshop, STEP, go(workshop, "centrifugo", CENTRIFUGO), |_| ())?;
    run(workshop, STEP, go_as(workshop, "centrifugo6", package, program), |_| ())
}

/// `commit`: the program's. `before`: how busy the machine was just now.
fn measure(workshop: &Workshop, name: &str, words: &[&str], commit: &str, before: &Watched) -> Result<Record> {
    let mut command = Command::new(Binary::Release.of(workshop));
    command.arg("bench").args(words).arg("--json").current_dir(&workshop.root).stderr(Stdio::inherit());
    if BESIDE_CENTRIFUGO.contains(&name) {
        command.arg("--peers").arg(workshop.built(PEERS)); // Where they are differs, what they are does not.
    }
    let shown = format!("tidings bench {}", words.join(" "));
    println!("    {shown}");
    let output = command.output().with_context(|| format!("{shown} cannot be started"))?;
    ensure!(output.status.success(), "{shown}: {}", output.status);
    let report: Report = serde_json::from_slice(&output.stdout).with_context(|| format!("what {shown} says"))?;
    ensure!(!report.checksum.is_empty(), "{shown} has no checksum of what it has computed");
    let load = Load::Watched { before: before.glance(), after: Watched::now()?.glance() };
    let date = today().to_string();
    Ok(Record { command: shown, commit: commit.to_owned(), date, machine: Machine::here(load)?, old: None, report })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::git::tests::{commit, repository};

    fn record(commit: &str) -> Record {
        let glance = json!({"busy_cores": 0.01, "load": "0.10"});
        let load = json!({"before": glance, "after": glance});
        serde_json::from_value(json!({
            "command": "tidings bench fanout", "commit": commit, "date": "2026-01-02",
            "machine": {"processor": "P", "cores": 2, "memory_gib": 8, "kernel": "Linux 6", "load": load},
            "report": {"checksum": "0123456789abcdef", "measures": []},
        }))
        .unwrap()
    }

    #[test]
    fn a_program_that_has_changed_while_it_ran_is_not_kept() {
        let folder = repository();
        let root = folder.path();
        let first = head(root).unwrap();
        keep(root, "fanout", &record(&first)).unwrap();
        let file = root.join(record::FOLDER).join("fanout.json");
        assert!(fs::read_to_string(&file).unwrap().contains(&first));

        fs::remove_file(&file).unwrap();
        fs::write(root.join("new.rs"), "new").unwrap();
        let error = format!("{:#}", keep(root, "fanout", &record(&first)).unwrap_err());
        assert!(error.starts_with("fanout: nothing is kept: ") && error.contains("new.rs"), "{error}");
        let second = commit(root, "two", "two");
        let error = keep(root, "fanout", &record(&first)).unwrap_err().to_string();
        assert!(error.contains(&format!("the commit has changed from {first}")), "{error}");
        assert!(!file.exists());
        keep(root, "fanout", &record(&second)).unwrap();
        assert!(file.exists());
    }
}
