//! A goal beside a newsletter: how long who is told urgently waits while many others are being told without haste.
//!
//! A newsletter (priority low) to a million devices runs; again and again comes a goal (priority high) to a thousand of
//! the same devices, over the same connections. A goal counts when the newsletter was still running at its end; when a
//! newsletter ends, the next one begins. Before that, the same goals alone. All of it is checked in report and ledger:
//! each device has every newsletter and every goal once.
//!
//! The time to the first send is that to the first answer less the round trip.

use std::path::Path;
use std::time::Duration;

use tidings_sender::JobReport;
use tidings_server::command_error::{CommandError, failed};
use tidings_types::{EventPriority, JournalPosition};
use tokio::time::sleep;

use super::case::Case;
use super::cores::Sides;
use super::job::{Door, finished, is_finished, under_way};
use super::provider::{Provider, check_ledger};
use super::setup::{Folder, start_server};
use crate::args::BenchPushServer;
use crate::report::{Goal, Report};
use crate::report::{judge_if, millis, progress};
use crate::statistic::quantile;
use tidings_server::Server;

/// Devices of a goal.
pub(super) const GOAL_AUDIENCE: u32 = 1000;
/// A provider that is neither next door nor the limit at once: the newsletter fills it, and a goal finds no free
/// stream.
pub(super) const PROVIDER: Case =
    Case { round_trip_ms: 50, streams: 1000, connections: 2, window_bytes: 8 << 20, with_peers: false };
/// Goals beside the newsletter, and alone.
const GOAL_COUNT: usize = 100;
const ALONE_COUNT: usize = 30;
/// Newsletters that may end before all goals were told: a machine that needs more is too fast for this benchmark.
const NEWSLETTER_COUNT_MAX: u32 = 20;
/// Between two goals.
const PAUSE: Duration = Duration::from_millis(100);
/// To the first send of a goal, beside a newsletter; 99 % of goals.
const GOAL_FIRST_MS: f64 = 300.0;

const BESIDE: &str = "beside a newsletter";

/// What becomes of the goals.
#[derive(Default)]
struct Goals {
    /// To the first answer, and to the last.
    first: Vec<f64>,
    last: Vec<f64>,
}

impl Goals {
    fn add(&mut self, job: &JobReport) -> Result<(), CommandError> {
        let time_to = job.time_to.ok_or_else(|| failed("the job's report has no times"))?;
        self.first.push(millis(time_to.first));
        self.last.push(millis(time_to.p100));
        Ok(())
    }
}

/// A server with what was handed to it so far.
struct Post<'a> {
    server: &'a Server,
    door: Door,
    audience: u32,
    goals: u32,
    newsletters: u32,
}

impl Post<'_> {
    async fn goal(&mut self) -> Result<JobReport, CommandError> {
        self.goals += 1;
        let id = format!("goal-{}", self.goals);
        let position = self.door.post(&id, GOAL_AUDIENCE, EventPriority::High).await?;
        finished(self.server, position, GOAL_AUDIENCE).await
    }

    /// Returns when it fills the connections.
    async fn newsletter(&mut self) -> Result<JournalPosition, CommandError> {
        self.newsletters += 1;
        if self.newsletters > NEWSLETTER_COUNT_MAX {
            return Err(failed(format!("{NEWSLETTER_COUNT_MAX} newsletters were over before {GOAL_COUNT} goals")));
        }
        let id = format!("newsletter-{}", self.newsletters);
        let position = self.door.post(&id, self.audience, EventPriority::Low).await?;
        under_way(self.server, position, u64::from(2 * PROVIDER.stream_count()).min(self.audience.into())).await?;
        Ok(position)
    }
}

/// Measures it with newsletters to so many devices.
pub(super) async fn run(
    audience: u32,
    sides: &Sides,
    folder: &Folder,
    peers: &Path,
    report: &mut Report,
) -> Result<(), CommandError> {
    let mut provider = Provider::start(BenchPushServer::Simulator, PROVIDER, sides, &folder.path(""), peers)?;
    let server = start_server(folder, &provider.greeting, PROVIDER).await?;
    let mut post = Post { server: &server, door: Door::of(&server), audience, goals: 0, newsletters: 0 };
    let before = provider.mark()?.ledger;
    post.goal().await?; // Warms up.
    progress(format!("newsletter: {ALONE_COUNT} goals alone"));
    let mut alone = Goals::default();
    for _ in 0..ALONE_COUNT {
        alone.add(&post.goal().await?)?;
        sleep(PAUSE).await;
    }
    let beside = goals_beside(&mut post).await?;
    let (goals, newsletters) = (post.goals, post.newsletters);
    let after = provider.mark()?.ledger;
    server.stop().await;
    let count = u64::from(goals) * u64::from(GOAL_AUDIENCE) + u64::from(newsletters) * u64::from(audience);
    if let (Some(before), Some(after)) = (before, after) {
        check_ledger(&before, &after, count, true)?;
    }
    tell(alone, beside, report);
    Ok(())
}

async fn goals_beside(post: &mut Post<'_>) -> Result<Goals, CommandError> {
    let mut goals = Goals::default();
    let mut newsletter = post.newsletter().await?;
    while goals.first.len() < GOAL_COUNT {
        if goals.first.len() % 20 == 0 {
            progress(format!("newsletter: goal {} of {GOAL_COUNT}", goals.first.len()));
        }
        let job = post.goal().await?;
        if is_finished(post.server, newsletter) {
            finished(post.server, newsletter, post.audience).await?; // Its report is right.
            newsletter = post.newsletter().await?;
        } else {
            goals.add(&job)?;
            sleep(PAUSE).await;
        }
    }
    progress("newsletter: waiting for its end");
    finished(post.server, newsletter, post.audience).await?;
    Ok(goals)
}

fn tell(alone: Goals, beside: Goals, report: &mut Report) {
    let round_trip = f64::from(PROVIDER.round_trip_ms);
    for (what, mut goals) in [("alone", alone), (BESIDE, beside)] {
        let name = format!("{PROVIDER}: a goal {what}");
        let (first, last) = (quantile(&mut goals.first, 0.99), quantile(&mut goals.last, 0.99));
        report.measure(format!("{name}: first answer"), "ms", goals.first);
        report.measure(format!("{name}: first answer, 99 %"), "ms", vec![first]);
        let first_send = (first - round_trip).max(0.0);
        let (send, goal) = (format!("{name}: first send, 99 %"), Goal::AtMost(GOAL_FIRST_MS));
        judge_if(report, what == BESIDE, send, "ms", vec![first_send], goal);
        report.measure(format!("{name}: last answer"), "ms", goals.last);
        report.measure(format!("{name}: last answer, 99 %"), "ms", vec![last]);
    }
    report.note(format!(
        "Goals are to {GOAL_AUDIENCE} devices, {ALONE_COUNT} alone and {GOAL_COUNT} while the newsletter runs; a first \
         send is a first answer less the round trip."
    ));
}
