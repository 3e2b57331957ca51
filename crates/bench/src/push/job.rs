//! Posts events over HTTP, and waits for their jobs.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_types::{EventPriority, JobState, JournalPosition, TimeTo};
use tokio::time::{Instant, sleep};

use super::language::{MINUTE, SCORER, TEAM};
use super::provider::check;
use super::setup::{self, TOPIC};
use tidings_client::ServerUrl;
use tidings_server::Server;

/// How long an event may take.
const DEADLINE: Duration = Duration::from_secs(300);
/// How often a job is looked at: in this process, and over HTTP.
const LOOK: Duration = Duration::from_millis(2);
const ASK: Duration = Duration::from_millis(20);

/// The API of a server.
pub(super) struct Door {
    url: ServerUrl,
    key: Option<String>,
}

/// The fields that are read of a job from `GET /v1/jobs/{position}`.
#[derive(Debug, Deserialize)]
struct ToldJob {
    state: String,
    audience: u64,
    outcomes: ToldOutcomes,
    #[serde(default)]
    time_to: Option<ToldTimes>,
}

#[derive(Debug, Deserialize)]
struct ToldOutcomes {
    accepted: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct ToldTimes {
    pub(super) p50_ms: u64,
    pub(super) p100_ms: u64,
}

/// The fields that are read of an answer of `POST /v1/audience/preview`.
#[derive(Debug, Deserialize)]
struct Preview {
    estimate: Vec<PreviewPool>,
}

#[derive(Debug, Deserialize)]
struct PreviewPool {
    #[serde(default)]
    minutes: Option<f64>,
}

impl Door {
    /// The API of a server in this process.
    pub(super) fn of(server: &Server) -> Self {
        Self { url: ServerUrl::of_listener(server.api_addr()), key: server.api_key().map(str::to_owned) }
    }

    /// The API of a server in another process.
    pub(super) fn at(url: &str, key: String) -> Result<Self, CommandError> {
        Ok(Self { url: ServerUrl::parse(url)?, key: Some(key) })
    }

    /// Posts an event to the first `audience` devices.
    pub(super) async fn post(
        &self,
        id: &str,
        audience: u32,
        priority: EventPriority,
    ) -> Result<JournalPosition, CommandError> {
        #[derive(Deserialize)]
        struct Accepted {
            position: u64,
        }
        let event = json!({
            "id": id, "topic": TOPIC, "subjects": [setup::subject(audience)], "priority": priority.as_str(),
            "params": {"team": TEAM, "scorer": SCORER, "minute": MINUTE},
        });
        let (status, body) = self.url.post("/v1/events", self.key.as_deref(), Bytes::from(event.to_string())).await?;
        if status != StatusCode::ACCEPTED {
            return Err(failed(format!("the event was answered with {status}: {}", String::from_utf8_lossy(&body))));
        }
        let accepted: Accepted =
            serde_json::from_slice(&body).map_err(|error| failed_by("the event's answer", &error))?;
        Ok(JournalPosition(accepted.position))
    }

    /// The seconds that the server's preview estimates for an event to the first `audience` devices.
    pub(super) async fn forecast(&self, audience: u32) -> Result<f64, CommandError> {
        let event = json!({"topic": TOPIC, "subjects": [setup::subject(audience)]});
        let event = Bytes::from(event.to_string());
        let (status, body) = self.url.post("/v1/audience/preview", self.key.as_deref(), event).await?;
        if status != StatusCode::OK {
            return Err(failed(format!("the preview was answered with {status}: {}", String::from_utf8_lossy(&body))));
        }
        let preview: Preview = serde_json::from_slice(&body).map_err(|error| failed_by("the preview", &error))?;
        let minutes = preview.estimate.first().and_then(|pool| pool.minutes);
        Ok(minutes.ok_or_else(|| failed("the preview does not say how long it takes"))? * 60.0)
    }

    /// Waits for the end of a job. All `count` devices must be accepted.
    pub(super) async fn finished(&self, position: JournalPosition, count: u32) -> Result<ToldTimes, CommandError> {
        let (path, began) = (format!("/v1/jobs/{}", position.0), Instant::now());
        while began.elapsed() < DEADLINE {
            let (status, body) = self.url.request(Method::GET, &path, self.key.as_deref(), None).await?;
            // The job begins a moment after its event was accepted.
            if status == StatusCode::OK {
                let job: ToldJob =
                    serde_json::from_slice(&body).map_err(|error| failed_by("the job's report", &error))?;
                if job.state == "finished" {
                    let count = u64::from(count);
                    check(&[
                        ("devices in the job's report", job.audience, count),
                        ("accepted by the job's report", job.outcomes.accepted, count),
                    ])?;
                    return job.time_to.ok_or_else(no_times);
                }
            } else if status != StatusCode::NOT_FOUND {
                return Err(failed(format!("GET {path}: {status}")));
            }
            sleep(ASK).await;
        }
        Err(late())
    }
}

fn late() -> CommandError {
    failed(format!("waited {} s until the job was done", DEADLINE.as_secs()))
}

fn no_times() -> CommandError {
    failed("the job's report has no times")
}

/// Waits for the end of a job of this process's server. All `count` devices must be accepted.
pub(super) async fn finished(server: &Server, position: JournalPosition, count: u32) -> Result<TimeTo, CommandError> {
    let began = Instant::now();
    loop {
        match server.sender().job(position) {
            Some(job) if job.state == JobState::Finished => {
                let count = u64::from(count);
                check(&[
                    ("accepted by the job's report", job.counts.accepted(), count),
                    ("outcomes in the job's report", job.counts.total(), count),
                ])?;
                return job.time_to.ok_or_else(no_times);
            }
            _ if began.elapsed() > DEADLINE => return Err(late()),
            _ => sleep(LOOK).await,
        }
    }
}

/// Waits until `count` devices of a running job have their outcome.
pub(super) async fn under_way(server: &Server, position: JournalPosition, count: u64) -> Result<(), CommandError> {
    let began = Instant::now();
    while server.sender().job(position).is_none_or(|job| job.counts.total() < count) {
        if began.elapsed() > DEADLINE {
            return Err(late());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Whether every device has its outcome.
pub(super) fn is_finished(server: &Server, position: JournalPosition) -> bool {
    server.sender().job(position).is_some_and(|job| job.state == JobState::Finished)
}
