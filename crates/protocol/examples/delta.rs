//! Makes Fossil deltas, for the judge in `conformance/`: a JSON object per line, both ways.
//!
//! In: `{"seq", "old", "new"}`. Out: a first line `{"hello": true}`, then per line `{"seq", "delta"}`; the delta is null
//! where it would save too little.

use std::io::{self, BufRead as _, Write as _};

use serde::Deserialize;
use serde_json::{Value, json};
use tidings_protocol::fossil::delta;

#[derive(Deserialize)]
struct Line {
    seq: Value,
    old: String,
    new: String,
}

fn main() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", json!({"hello": true}))?;
    for line in io::stdin().lock().lines() {
        let line: Line = serde_json::from_str(&line?)?;
        writeln!(stdout, "{}", json!({"seq": line.seq, "delta": delta(&line.old, &line.new)}))?;
        stdout.flush()?;
    }
    Ok(())
}
