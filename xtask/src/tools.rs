//! Used by several steps: Debian packages, the results of test runners, work side by side.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, Error, anyhow};

use crate::command::{is_there, run};
use crate::step::{Failure, Tally};
use crate::workshop::Workshop;

/// Programs that tests use: the program, its Debian package, and the crate whose tests need it.
pub(crate) const TEST_TOOLS: [(&str, &str, &str); 2] =
    [("msgfmt", "gettext", "tidings-gettext"), ("redis-server", "redis-server", "tidings-pool")];

/// Runs a command that runs tests. `read` reads the numbers of passed and failed tests from its lines.
pub(crate) fn counted(
    workshop: &Workshop,
    name: &str,
    command: Command,
    read: fn(&str) -> Option<(usize, usize)>,
) -> Result<Tally, Failure> {
    let (mut passed, mut failed) = (0, 0);
    let ended = run(workshop, name, command, |line| {
        let (more_passed, more_failed) = read(line).unwrap_or_default();
        passed += more_passed;
        failed += more_failed;
    });
    let ended = ended.and_then(|()| if passed == 0 { Err(anyhow!("no test was run")) } else { Ok(()) });
    match ended {
        Ok(()) => Ok(Tally { passed, skipped: Vec::new() }),
        Err(error) => Err(Failure::Failed { error, passed, failed }),
    }
}

/// Calls `work` for each item, in order, `at_once` at a time. The results have no order.
pub(crate) fn side_by_side<T: Send, E: Send>(at_once: usize, items: Vec<T>, work: impl Fn(T) -> E + Sync) -> Vec<E> {
    let (queue, ends) = (Mutex::new(items.into_iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no thread panics while it holds the lock").next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(item) = next() {
                    let end = work(item);
                    ends.lock().expect("no thread panics while it holds the lock").push(end);
                }
            });
        }
    });
    ends.into_inner().expect("no thread panicked while it held the lock")
}

/// Whether the installed versions are the pinned ones.
pub(crate) fn is_same(installed: &Path, pinned: &Path) -> Result<bool, Error> {
    let pinned = fs::read(pinned).context("cannot read the pinned versions")?;
    Ok(fs::read(installed).is_ok_and(|installed| installed == pinned))
}

/// `test result: ok. 23 passed; 0 failed; …`
pub(crate) fn cargo_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| counts[..counts.find(word)?].split_whitespace().next_back()?.parse().ok();
    Some((before(" passed;")?, before(" failed;")?))
}

/// Whether `apt-get` has read the lists of packages. Only one `apt-get` can work at a time; steps run side by side.
static HAS_LISTS: Mutex<bool> = Mutex::new(false);

/// Chromium, in which tests of several steps look at pages: its program and its Debian package.
pub(crate) const CHROMIUM: &str = "chromium";

/// Whether `program` is installed, after an attempt to install its Debian package.
pub(crate) fn debian_tool(workshop: &Workshop, step: &str, program: &str, package: &str) -> bool {
    if !is_there(program) {
        debian_install(workshop, step, &[package]);
    }
    is_there(program)
}

/// Installs Debian packages if this user may. The caller checks whether they are installed then. The lists of packages are
/// read once a run.
pub(crate) fn debian_install(workshop: &Workshop, step: &str, packages: &[&str]) {
    if !is_root() || !is_there("apt-get") {
        return;
    }
    let apt_get = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        run(workshop, step, command, |_| ()).is_ok()
    };
    let mut has_lists = HAS_LISTS.lock().expect("no thread panics while it holds the lock");
    *has_lists = *has_lists || apt_get(&["update"]);
    if *has_lists {
        apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::cargo_result;

    #[test]
    fn the_result_of_cargo_is_read() {
        let line = "test result: FAILED. 23 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.16s";
        assert_eq!(cargo_result(line), Some((23, 2)));
        assert_eq!(cargo_result("test result_reads ... ok"), None);
    }
}
