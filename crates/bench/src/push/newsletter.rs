//! A goal during a newsletter: how long an urgent event waits while a large, unhurried one is sent.
//!
//! A newsletter (priority low) goes to a million devices. Meanwhile goals (priority high) go to a thousand of the same
//! devices, one after the other, over the same connections. A goal counts if the newsletter is still running when the
//! goal is done. When a newsletter ends, the next one begins. Before that, the same goals are measured alone. Report and
//! ledger are checked: each device gets every newsletter and every goal once.
//!
//! The time to the first send is the time to the first answer minus the round trip.

use std::path::Path;
use std::time::Duration;

use tidings_server::command_error::{CommandError, failed};
use tidings_types::{EventPriority, JournalPosition, TimeTo};
use tokio::time::sleep;

use super::case::Case;
use super::job::{Door, finished, is_finished, under_way};
use super::provider::{Provider, check_ledger};
use super::setup::{Folder, start_server};
use crate::args::BenchPushServer;
use crate::process::Cores;
use crate::report::{Goal, Report, millis, progress};
use crate::statistic::quantile;
use tidings_server::Server;

/// Audience of a goal.
pub(super) const GOAL_AUDIENCE: u32 = 1000;
/// A provider at a medium distance that is not the limit at once. The newsletter fills it, so a goal finds no free
/// stream.
pub(super) const PROVIDER: Case =
    Case { round_trip_ms: 50, streams: 1000, connections: 2, window_bytes: 8 << 20, with_peers: false };
/// Goals during the newsletter, and alone.
const GOAL_COUNT: usize = 100;
const ALONE_COUNT: usize = 30;
/// Newsletters, at most. A machine that needs more is too fast for this benchmark.
const NEWSLETTER_COUNT_MAX: u32 = 20;
/// Pause between two goals.
const PAUSE: Duration = Duration::from_millis(100);
/// Time to the first send of a goal during a newsletter; 99 % of the goals.
const GOAL_FIRST_MS: f64 = 300.0;

const BESIDE: &str = "beside a newsletter";

/// The results of the goals, in milliseconds.
#[derive(Default)]
struct Goals {
    /// To the first answer.
    first: Vec<f64>,
    /// To the last answer.
    last: Vec<f64>,
}

impl Goals {
    fn add(&mut self, time_to: TimeTo) {
        self.first.push(millis(time_to.first));
        self.last.push(millis(time_to.p100));
    }
}

/// A server, and how many events were posted so far.
struct Post<'a> {
    server: &'a Server,
    door: Door,
    audience: u32,
    goals: u32,
    newsletters: u32,
}

impl Post<'_> {
    async fn goal(&mut self) -> Result<TimeTo, CommandError> {
        self.goals += 1;
        let id = format!("goal-{}", self.goals);
        let position = self.door.post(&id, GOAL_AUDIENCE, EventPriority::High).await?;
        finished(self.server, position, GOAL_AUDIENCE).await
    }

    /// Posts a newsletter. Returns when it fills the connections.
    async fn newsletter(&mut self) -> Result<JournalPosition, CommandError> {
        self.newsletters += 1;
        if self.newsletters > NEWSLETTER_COUNT_MAX {
            return Err(failed(format!(
                "{NEWSLETTER_COUNT_MAX} newsletters ended before {GOAL_COUNT} goals were sent"
            )));
        }
        let id = format!("newsletter-{}", self.newsletters);
        let position = self.door.post(&id, self.audience, EventPriority::Low).await?;
        under_way(self.server, position, u64::from(2 * PROVIDER.stream_count()).min(self.audience.into())).await?;
        Ok(position)
    }
}

/// Runs the measurement. `audience` is that of the newsletter.
pub(super) async fn run(
    audience: u32,
    cores: &Cores,
    folder: &Folder,
    peers: &Path,
    report: &mut Report,
) -> Result<(), CommandError> {
    let mut provider = Provider::start(BenchPushServer::Simulator, PROVIDER, cores, &folder.path(""), peers)?;
    let server = start_server(folder, &provider.greeting, PROVIDER).await?;
    let mut post = Post { server: &server, door: Door::of(&server), audience, goals: 0, newsletters: 0 };
    let before = provider.mark()?.ledger;
    post.goal().await?; // Warms up.
    progress(format!("newsletter: {ALONE_COUNT} goals alone"));
    let mut alone = Goals::default();
    for _ in 0..ALONE_COUNT {
        alone.add(post.goal().await?);
        sleep(PAUSE).await;
    }
    let middle = provider.mark()?.ledger;
    if let (Some(before), Some(middle)) = (&before, &middle) {
        let count = u64::from(post.goals) * u64::from(GOAL_AUDIENCE);
        // How many newsletters there will be depends on the time.
        report.answered("newsletter: goals alone", check_ledger(before, middle, count, true)?)?;
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
        let time_to = post.goal().await?;
        if is_finished(post.server, newsletter) {
            finished(post.server, newsletter, post.audience).await?; // Checks its report.
            newsletter = post.newsletter().await?;
        } else {
            goals.add(time_to);
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
        let goal = (what == BESIDE).then_some(Goal::AtMost(GOAL_FIRST_MS));
        report.judge(format!("{name}: first send, 99 %"), "ms", vec![first_send], goal);
        report.measure(format!("{name}: last answer"), "ms", goals.last);
        report.measure(format!("{name}: last answer, 99 %"), "ms", vec![last]);
    }
    report.note(format!(
        "A goal goes to {GOAL_AUDIENCE} devices; {ALONE_COUNT} are sent alone and {GOAL_COUNT} during the newsletter. The \
         time to the first send is that to the first answer minus the round trip."
    ));
}
