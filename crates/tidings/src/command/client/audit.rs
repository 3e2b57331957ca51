//! `tidings audit`: who changed what, from the server's audit log.
//!
//! With `--follow` the command asks again every second and prints what is new, the oldest entry first.
//!
//! Bounds: of what happened between two looks, the newest [`PAGE_COUNT_MAX`] pages are shown; a remark says if there was
//! more.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tidings_server::output::{Kind, line, remark};
use tokio::time::sleep;

use super::api::{ApiClient, parse, segment, table};
use crate::cli::{ApiServer, AuditArgs};
use crate::command::CommandError;

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pages of one look.
const PAGE_COUNT_MAX: usize = 10;

#[derive(Deserialize)]
struct Page {
    entries: Vec<Value>,
    next: Option<String>,
    #[serde(default)]
    damaged: u64,
}

/// What is shown of an entry.
#[derive(Deserialize)]
struct Shown {
    id: String,
    at: String,
    who: String,
    action: String,
    result: u16,
    #[serde(default)]
    address: String,
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    more_ids: u64,
    #[serde(default)]
    to: String,
    devices: Option<u64>,
    count: Option<u64>,
}

impl Shown {
    fn row(self) -> Vec<String> {
        let counted = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
        let more = Some(self.more_ids).filter(|more| *more > 0);
        let parts = [
            Some(self.ids.join(" ")).filter(|ids| !ids.is_empty()),
            counted(more, "more"),
            Some(self.to).filter(|to| !to.is_empty()),
            counted(self.devices, "devices"),
            counted(self.count, "times"),
        ];
        let what = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        vec![self.at, self.who, self.address, self.action, self.result.to_string(), what]
    }
}

pub(crate) async fn run(args: AuditArgs) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.api)?;
    let filters = [("action", &args.action), ("who", &args.who)];
    let filters = filters.map(|(name, value)| value.as_ref().map(|value| format!("&{name}={}", segment(value))));
    let filters: String = filters.into_iter().flatten().collect();
    let before = args.before.as_ref().map(|before| format!("&before={}", segment(before))).unwrap_or_default();
    let answer = client.get(&format!("/v1/audit?limit={}{filters}{before}", args.limit)).await?;
    if !args.follow {
        return list(&answer, &args.api);
    }
    let Page { entries, damaged, .. } = parse(&answer)?;
    warn_of(damaged);
    let mut seen = show(entries, &args.api)?;
    loop {
        sleep(LOOK_INTERVAL).await;
        let new = news(&client, &filters, seen.as_deref()).await?;
        seen = show(new, &args.api)?.or(seen);
    }
}

fn list(answer: &str, api: &ApiServer) -> Result<(), CommandError> {
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    let Page { entries, damaged, .. } = parse(answer)?;
    let mut rows = vec![["AT", "WHO", "FROM", "ACTION", "RESULT", "WHAT"].map(str::to_owned).to_vec()];
    for entry in entries {
        rows.push(shown(&entry)?.row());
    }
    warn_of(damaged);
    Ok(line(table(&rows))?)
}

/// The entries after `seen`, newest first; without it, all.
async fn news(client: &ApiClient, filters: &str, seen: Option<&str>) -> Result<Vec<Value>, CommandError> {
    let (mut new, mut before) = (Vec::new(), String::new());
    for _ in 0..PAGE_COUNT_MAX {
        let page: Page = parse(&client.get(&format!("/v1/audit?limit=1000{filters}{before}")).await?)?;
        for entry in page.entries {
            if seen == entry["id"].as_str() {
                return Ok(new);
            }
            new.push(entry);
        }
        match page.next {
            Some(next) => before = format!("&before={}", segment(&next)),
            None => return Ok(new),
        }
    }
    remark(Kind::Warning, "there are more new entries than are shown: list them with --before");
    Ok(new)
}

/// Prints the entries, which are newest first, and returns the id of the newest.
fn show(entries: Vec<Value>, api: &ApiServer) -> Result<Option<String>, CommandError> {
    let newest = entries.first().map(shown).transpose()?.map(|entry| entry.id);
    for entry in entries.iter().rev() {
        line(if api.json { entry.to_string() } else { shown(entry)?.row().join("  ") })?;
    }
    Ok(newest)
}

fn shown(entry: &Value) -> Result<Shown, CommandError> {
    parse(&entry.to_string())
}

fn warn_of(damaged: u64) {
    if damaged > 0 {
        remark(Kind::Warning, format!("{damaged} lines of the log cannot be read and are not shown"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_told_in_a_row() {
        let entry = serde_json::json!({"id": "1-0", "at": "2026-07-15T18:04:05.000Z", "by": "key", "who": "ops",
            "action": "event.publish", "ids": ["goal-1", "goal-2"], "more_ids": 3, "to": "topic goal, 1 subject",
            "devices": 7, "result": 202});
        let row = shown(&entry).unwrap().row();
        let what = "goal-1 goal-2; 3 more; topic goal, 1 subject; 7 devices";
        assert_eq!(row, ["2026-07-15T18:04:05.000Z", "ops", "", "event.publish", "202", what]);
    }
}
