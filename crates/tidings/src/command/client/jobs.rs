//! `tidings jobs`: the outcomes of events, and cancelling events. `watch` follows jobs, `brakes` pauses pushes.

use std::cmp::Reverse;
use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::api::{ApiClient, parse, segment, table};
use super::report::{Job, Outcomes, Part, Receipts};
use super::{brakes, watch};
use crate::cli::{ApiServer, JobsCommand};
use crate::command::CommandError;
use tidings_server::output::line;

/// How often `--wait` asks for the job.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Parts of a job that are shown; `--json` prints all.
const PART_COUNT_MAX: usize = 20;

pub(crate) async fn run(command: JobsCommand) -> Result<(), CommandError> {
    match command {
        JobsCommand::List { limit, before, api } => list(limit, before, &api).await,
        JobsCommand::Show { id, wait, api } => show(&id, wait, &api).await,
        JobsCommand::Watch { id, api } => watch::run(id.as_deref(), &api).await,
        JobsCommand::Cancel { id, api } => cancel(&id, &api).await,
        JobsCommand::Export { before, api } => export(before, &api).await,
        JobsCommand::Scheduled { limit, api } => scheduled(limit, &api).await,
        JobsCommand::Pause { scope, api } => brakes::pause(&scope, &api).await,
        JobsCommand::Resume { scope, api } => brakes::resume(&scope, &api).await,
        JobsCommand::Brakes { api } => brakes::list(&api).await,
    }
}

async fn cancel(id: &str, api: &ApiServer) -> Result<(), CommandError> {
    ApiClient::new(api)?.ask(Method::DELETE, &format!("/v1/events/{}", segment(id)), None).await?;
    Ok(line(if api.json { "{}".to_owned() } else { format!("cancelled {id}") })?)
}

/// Prints the server's answer while it arrives.
async fn export(before: Option<u64>, api: &ApiServer) -> Result<(), CommandError> {
    let before = before.map(|position| format!("?before={position}")).unwrap_or_default();
    let mut written = Ok(());
    let write = |chunk: &[u8]| {
        written = std::io::stdout().lock().write_all(chunk);
        written.is_ok()
    };
    ApiClient::new(api)?.stream(&format!("/v1/jobs{before}"), "application/x-ndjson", write).await?;
    written.and_then(|()| std::io::stdout().flush()).map_err(CommandError::from)
}

async fn scheduled(limit: u32, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct Scheduled {
        id: String,
        topic: String,
        at: String,
    }
    #[derive(Deserialize)]
    struct List {
        events: Vec<Scheduled>,
    }
    let answer = ApiClient::new(api)?.get(&format!("/v1/events?state=scheduled&limit={limit}")).await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    let mut rows = vec![["AT", "EVENT", "TOPIC"].map(str::to_owned).to_vec()];
    rows.extend(parse::<List>(&answer)?.events.into_iter().map(|Scheduled { id, topic, at }| vec![at, id, topic]));
    Ok(line(table(&rows))?)
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
        let position = position.map(|position| position.to_string()).unwrap_or_default();
        let (refused, spared) = (outcomes.refused(), outcomes.spared());
        let numbers = [audience, outcomes.accepted, outcomes.received, refused, spared, held].map(|n| n.to_string());
        [position, id, state].into_iter().chain(numbers).collect()
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
        if !wait || job.is_closed() {
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
    let Job { id, position, priority, state, at, paused_by, audience, held, retried, outcomes, .. } = job;
    let Job { time_to, time_to_by, receipts, by, .. } = job;
    let row = |name: &str, text: &dyn Display| vec![name.to_owned(), text.to_string()];
    let mut rows = vec![row("event", id), row("state", state)];
    rows.extend(at.iter().map(|at| row("due", at)));
    rows.extend(paused_by.iter().map(|scope| row("paused by", scope)));
    rows.extend(position.iter().map(|position| row("position", position)));
    rows.extend(priority.iter().filter(|priority| *priority != "normal").map(|priority| row("priority", priority)));
    if position.is_some() {
        rows.push(row("audience", audience));
    }
    let Outcomes { accepted, received, expired, unknown, cancelled, superseded, rejected, suppressed } = outcomes;
    let counts = [
        ("held for receipts", *held),
        ("accepted by the provider", *accepted),
        ("received live, not pushed", *received),
        ("superseded by a newer event", *superseded),
        ("expired", *expired),
        ("unknown", *unknown),
        ("cancelled", *cancelled),
        ("attempts repeated", *retried),
    ];
    rows.extend(counts.into_iter().filter(|&(_, count)| count > 0).map(|(name, count)| row(name, &count)));
    rows.extend(rejected.iter().map(|(why, count)| row(&format!("rejected, {why}"), count)));
    rows.extend(suppressed.iter().map(|(why, count)| row(&format!("not sent, {why}"), count)));
    rows.extend(time_to.iter().map(|time_to| row("50, 90, 99, 100 % within", time_to)));
    // One provider alone is the whole.
    let by_provider = time_to_by.iter().filter(|_| time_to_by.len() > 1);
    rows.extend(by_provider.map(|(name, time_to)| row(&format!("– {name}"), time_to)));
    if let Some(Receipts { written, received }) = receipts {
        rows.push(row("asked live for a receipt", written));
        rows.push(row("answered with one", received));
    }
    let mut text = table(&rows);
    if !by.is_empty() {
        text += &format!("\n\n{}", parts(by));
    }
    text
}

fn parts(by: &[Part]) -> String {
    let mut by: Vec<&Part> = by.iter().collect();
    by.sort_by_key(|part| Reverse(part.outcomes.total()));
    let mut rows = vec![["PROVIDER", "APP", "LOCALE", "DEVICES", "ACCEPTED", "REJECTED"].map(str::to_owned).to_vec()];
    rows.extend(by.iter().take(PART_COUNT_MAX).map(|part| {
        let Part { provider, app, locale, outcomes } = part;
        let locale = locale.clone().unwrap_or_else(|| "–".to_owned());
        let numbers = [outcomes.total(), outcomes.accepted, outcomes.refused()].map(|count| count.to_string());
        [provider.clone(), app.clone(), locale].into_iter().chain(numbers).collect()
    }));
    let mut text = table(&rows);
    if by.len() > PART_COUNT_MAX {
        text += &format!("\nand {} more, shown with --json", by.len() - PART_COUNT_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_in_words() {
        let answer = r#"{"id":"goal-1","position":7,"topic":"goal","accepted_at":"2026-11-21T12:00:00Z",
            "state":"finished","audience":10,"held":0,"channels":[],
            "outcomes":{"accepted":4,"received":2,"expired":0,"unknown":0,"cancelled":0,"superseded":1,
                        "rejected":{"Unregistered":1},"suppressed":{"no_token":2}},"retried":3,
            "by":[{"provider":"fcm","app":"a","outcomes":{"accepted":1}},
                  {"provider":"apns","app":"a","locale":"pl","outcomes":{"accepted":3,"rejected":{"Unregistered":1}}}],
            "time_to":{"first_ms":3,"p50_ms":40,"p90_ms":50,"p99_ms":1500,"p100_ms":62000},
            "receipts":{"written":3,"received":2}}"#;
        let job: Job = serde_json::from_str(answer).unwrap();
        assert_eq!(job.outcomes.total(), job.audience);
        let text = words(&job);
        for part in [
            "state                        finished",
            "accepted by the provider     4",
            "superseded by a newer event  1",
            "attempts repeated            3",
            "rejected, Unregistered       1",
            "50, 90, 99, 100 % within     0.04 s, 0.05 s, 1.50 s, 62.00 s",
            "PROVIDER  APP  LOCALE  DEVICES  ACCEPTED  REJECTED\napns      a    pl      4        3         1\nfcm ",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("expired"), "zeros are left out");
        let later = r#"{"id":"n-1","topic":"news","state":"scheduled","at":"2026-07-15T18:04:05.000Z",
            "accepted_at":"2026-07-15T08:04:05.000Z"}"#;
        let expected = "event  n-1\nstate  scheduled\ndue    2026-07-15T18:04:05.000Z";
        assert_eq!(words(&serde_json::from_str(later).unwrap()), expected);
    }
}
