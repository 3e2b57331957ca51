//! Normalises, merges and counts PO files, for the judge in `conformance/`: a JSON object per line, both ways.
//!
//! In: `{"seq", "po"}` with `"old"` to normalise against it, or with `"pot"` to merge. Out: a first line
//! `{"hello": true}`, then per line `{"seq", "po", "counts"}`: the file that comes out, and how many of its messages are
//! translated, fuzzy, untranslated and obsolete. `{"seq", "error"}` if a file cannot be read.

use std::io::{self, BufRead as _, Write as _};

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_gettext::{Catalogue, PoError, merge, normalise, stats};

#[derive(Deserialize)]
struct Line {
    seq: Value,
    po: String,
    old: Option<String>,
    pot: Option<String>,
}

fn main() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", json!({"hello": true}))?;
    for line in io::stdin().lock().lines() {
        let line: Line = serde_json::from_str(&line?)?;
        let mut answer = done(&line).unwrap_or_else(|error| json!({"error": error.to_string()}));
        answer["seq"] = line.seq;
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn done(line: &Line) -> Result<Value, PoError> {
    let read = |text: &str| Catalogue::parse(text.as_bytes());
    let po = read(&line.po)?;
    let made = match (&line.pot, &line.old) {
        (Some(pot), _) => merge(&po, &read(pot)?).catalogue,
        (None, Some(old)) => normalise(&po, Some(&read(old)?)),
        (None, None) => normalise(&po, None),
    };
    let stats = stats(&made, &[]);
    let counts = [stats.translated, stats.fuzzy, stats.untranslated, stats.obsolete].map(|state| state.messages);
    Ok(json!({"po": made.to_po(), "counts": counts}))
}
