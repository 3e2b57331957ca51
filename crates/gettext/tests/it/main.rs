//! The public interface: reading and writing PO files, checks, rendering, and comparisons with other programs.
//!
//! GNU gettext and `node` (for ICU's plural rules) must be installed. Without them, the tests that need them
//! fail.

mod check;
mod demo;
mod icu;
mod intl;
mod languages;
mod merge;
mod msgfmt;
mod normalise;
mod po;
mod pseudo;
mod render;
mod select;
mod stats;

use std::io::Write as _;
use std::process::{Command, Stdio};

use tidings_gettext::{Catalogue, Problem, Template, Translations};
use tidings_types::Locale;

/// A header for a file in this language. Entries may follow.
fn header(language: &str, plural_forms: &str) -> String {
    format!(
        "msgid \"\"\nmsgstr \"\"\n\"Language: {language}\\n\"\n\"MIME-Version: 1.0\\n\"\n\
         \"Content-Type: text/plain; charset=UTF-8\\n\"\n\"Content-Transfer-Encoding: 8bit\\n\"\n\
         \"Plural-Forms: {plural_forms}\\n\"\n\n"
    )
}

const TWO: &str = "nplurals=2; plural=n != 1;";
const POLISH: &str = "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);";

fn locale(text: &str) -> Locale {
    Locale::new(text).unwrap()
}

fn translations(files: &[(&str, &str)]) -> Translations {
    let read = |(name, text): &(&str, &str)| (locale(name), Catalogue::parse(text.as_bytes()).unwrap());
    Translations::new(files.iter().map(read).collect())
}

/// Checks a file with this crate. The error has all mistakes.
fn our_verdict(name: &str, text: &[u8], templates: &[Template]) -> Result<(), String> {
    let catalogue = Catalogue::parse(text).map_err(|error| error.to_string())?;
    let problems = Translations::new(vec![(locale(name), catalogue)]).check(templates);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))
    }
}

/// Runs a program of GNU gettext on these files, and returns what it writes, or its complaint.
fn gnu(program: &str, arguments: &[&str], files: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let paths = files.iter().enumerate().map(|(index, text)| {
        let path = folder.path().join(format!("{index}.po"));
        std::fs::write(&path, text).unwrap();
        path
    });
    let output = Command::new(program).args(arguments).args(paths).env("LC_ALL", "C").output();
    let output = output.expect("GNU gettext must be installed for this test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Checks a file with `msgfmt -c`.
fn msgfmt_verdict(text: &[u8]) -> Result<(), String> {
    let mut msgfmt = Command::new("msgfmt")
        .args(["-c", "-o", "/dev/null", "-"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("msgfmt (GNU gettext) must be installed for this test");
    msgfmt.stdin.take().unwrap().write_all(text).unwrap();
    let output = msgfmt.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
