//! `tidings jobs`: what became of events.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::{ApiClient, parse, segment, table};
use crate::cli::{ApiServer, JobsCommand};
use crate::command::CommandError;
use crate::command::output::line;

/// How often a job that is waited for is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// An event and what became of it, as the API tells.
#[derive(Deserialize)]
struct Job {
    id: String,
    position: u64,
    state: String,
    #[serde(default)]
    audience: u64,
    #[serde(default)]
    held: u64,
    #[serde(default)]
    outcomes: Outcomes,
    #[serde(default)]
    receipts: Option<Receipts>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Outcomes {
    accepted: u64,
    received: u64,
    expired: u64,
    unknown: u64,
    cancelled: u64,
    rejected: BTreeMap<String, u64>,
    suppressed: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Receipts {
    written: u64,
    received: u64,
}

impl Outcomes {
    fn total(&self) -> u64 {
        self.accepted + self.received + self.expired + self.unknown + self.cancelled + self.refused() + self.spared()
    }

    fn refused(&self) -> u64 {
        self.rejected.values().sum()
    }

    fn spared(&self) -> u64 {
        self.suppressed.values().sum()
    }
}

/// Does what is asked.
pub(crate) async fn run(command: JobsCommand) -> Result<(), CommandError> {
    match command {
        JobsCommand::List { limit, before, api } => list(limit, before, &api).await,
        JobsCommand::Show { id, wait, api } => show(&id, wait, &api).await,
    }
}

async fn list(limit: u32, before: Option<u64>, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct List {
        jobs: Vec<Job>,
    }
    let before = before.map(|position| format!("&before={position}")).unwrap_or_default();
    let answer = ApiClient::new(api)?.get(&format!("/v1/jobs?limit={limit}{before}")).await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    let heads = ["POSITION", "EVENT", "STATE", "AUDIENCE", "ACCEPTED", "RECEIVED", "REJECTED", "SUPPRESSED", "HELD"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(parse::<List>(&answer)?.jobs.into_iter().map(|job| {
        let Job { id, position, state, audience, held, outcomes, .. } = job;
        let (refused, spared) = (outcomes.refused(), outcomes.spared());
        let numbers = [audience, outcomes.accepted, outcomes.received, refused, spared, held].map(|n| n.to_string());
        [position.to_string(), id, state].into_iter().chain(numbers).collect()
    }));
    Ok(line(table(&rows))?)
}

async fn show(id: &str, wait: bool, api: &ApiServer) -> Result<(), CommandError> {
    let (client, path) = (ApiClient::new(api)?, format!("/v1/events/{}", segment(id)));
    let bar = ProgressBar::new(0); // To standard error, and only on a terminal.
    bar.set_style(
        ProgressStyle::with_template("{msg} {wide_bar:.cyan} {human_pos}/{human_len}").expect("the template is ours"),
    );
    let answer = loop {
        let answer = client.get(&path).await?;
        let job: Job = parse(&answer)?;
        if !wait || !matches!(job.state.as_str(), "waiting" | "running") {
            break answer;
        }
        bar.set_message(job.state);
        bar.set_length(job.audience);
        bar.set_position(job.outcomes.total());
        tokio::time::sleep(LOOK_INTERVAL).await;
    };
    bar.finish_and_clear();
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    Ok(line(words(&parse(&answer)?))?)
}

fn words(job: &Job) -> String {
    let Job { id, position, state, audience, held, outcomes, receipts } = job;
    let row = |name: &str, count: u64| vec![name.to_owned(), count.to_string()];
    let mut rows = vec![
        vec!["event".to_owned(), id.clone()],
        row("position", *position),
        vec!["state".to_owned(), state.clone()],
        row("audience", *audience),
    ];
    let Outcomes { accepted, received, expired, unknown, cancelled, rejected, suppressed } = outcomes;
    let counts = [
        ("held for receipts", *held),
        ("accepted by the provider", *accepted),
        ("received live, not pushed", *received),
        ("expired", *expired),
        ("unknown", *unknown),
        ("cancelled", *cancelled),
    ];
    rows.extend(counts.into_iter().filter(|&(_, count)| count > 0).map(|(name, count)| row(name, count)));
    rows.extend(rejected.iter().map(|(why, count)| row(&format!("rejected, {why}"), *count)));
    rows.extend(suppressed.iter().map(|(why, count)| row(&format!("not sent, {why}"), *count)));
    if let Some(Receipts { written, received }) = receipts {
        rows.push(row("written to connections", *written));
        rows.push(row("receipts from connections", *received));
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_in_words() {
        let answer = r#"{"id":"goal-1","position":7,"topic":"goal","accepted_at":"2026-11-21T12:00:00Z",
            "state":"finished","audience":10,"held":0,"channels":[],
            "outcomes":{"accepted":5,"received":2,"expired":0,"unknown":0,"cancelled":0,
                        "rejected":{"Unregistered":1},"suppressed":{"no_token":2}},
            "receipts":{"written":3,"received":2}}"#;
        let job: Job = serde_json::from_str(answer).unwrap();
        assert_eq!(job.outcomes.total(), job.audience);
        let text = words(&job);
        for part in
            ["state                      finished", "accepted by the provider   5", "rejected, Unregistered     1"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("expired"), "zeros are left out");
    }
}
