//! `tidings demo --nodes 3`: kills the processes of a cluster, one after the other, and shows that nothing is lost.
//!
//! ```text
//!   poster ──── POST /v1/events, in turn ───► server a ─┐
//!                                             server b ─┼─ one leads, two stand by ◄──► three NATS servers
//!   3 clients ◄── durable channel, one each ─ server c ─┘
//! ```
//!
//! One of the six processes is killed at a time. The next one is killed when the one before runs again and has caught up.
//! After each kill, the events since the last one are looked up on the leader, and each client must have got them. At the
//! end all events are looked up. How often clients connect is told and not judged.

mod caller;
mod client;
mod fleet;
mod ledger;
mod nats;
mod plan;
mod report;
mod shared;
mod stage;
mod traffic;
mod waiting;

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tidings_server::command_error::{CommandError, failed};
use tidings_server::output::{Kind as Remark, grouped, line, remark};
use tidings_server::stopped;
use tidings_telemetry::unix_now;
use tokio::time::{Instant, timeout};

use self::caller::Callers;
use self::fleet::Fleet;
use self::plan::{Kind, Member, Plan};
use self::report::{Kills, Report};
use self::shared::{Whereabouts, describe_moves};
use self::stage::{NODE_COUNT, PATIENCE, late, node_name};
use self::traffic::Traffic;
use super::args::DemoArgs;
use super::clock::LATECOMER_TIME;
use super::view::format_duration;

/// The shortest time between a kill and its line. A pause may begin a moment after the kill.
const WATCH_TIME: Duration = Duration::from_secs(3);

/// The pauses before a process is started again, and before the next kill, in milliseconds.
const DOWN_MILLIS: std::ops::Range<u64> = 1500..3000;
const CALM_MILLIS: std::ops::Range<u64> = 2000..4000;

const INTRODUCTION: &str = "\
Three servers (a, b, c) work as a cluster. Each of them serves clients and takes events. One leads: it accepts all
events. The others are standbys: they pass events on to the leader, and are ready to lead. The leader acknowledges
an event when it is in a log, which three NATS servers keep.

Numbered events are posted all the time, one after the other, to a, b and c in turn. Three clients read them; each
has a server of its own. One of the six processes is killed every few seconds, and started again later. An event that
is not acknowledged is posted again with the same id, to the next server. A client whose connection breaks connects
to its own server again, or to the next one if that does not run. It goes on where it was. The clients of the other
servers stay connected, also when the leader is killed.

After each kill, each acknowledged event must be on the leader, and must have reached each client once and in order.
Times are UTC. Ctrl-C ends the demo.
";

/// Runs the cluster, and kills its processes.
///
/// # Errors
/// If something is lost, comes twice or out of order, or if the cluster cannot be started or does not come back.
pub(crate) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    let mut show = Show::set(args)?;
    let performed = tokio::select! {
        biased;
        () = stopped()? => Ok(false),
        performed = show.perform() => performed.map(|()| true),
    };
    let ended = match performed {
        Err(error) => Err(error),
        Ok(is_whole) => tokio::select! {
            biased;
            () = stopped()? => return Err(failed("interrupted before the verdict")),
            ended = show.conclude(is_whole) => ended,
        },
    };
    if ended.as_ref().is_err_and(|error| !error.is_broken_pipe()) && show.is_troubled {
        remark(Remark::Note, show.fleet.log_ends());
    }
    ended
}

/// All parts of the demo.
struct Show {
    args: DemoArgs,
    began: Instant,
    /// The search for the leader.
    callers: Callers,
    /// `None` until the cluster works.
    traffic: Option<Traffic>,
    plan: Plan<Xoshiro256PlusPlus>,
    rng: Xoshiro256PlusPlus,
    leader: usize,
    /// Where the clients were when it was last told.
    whereabouts: [Whereabouts; NODE_COUNT],
    /// Events that were looked up.
    checked: usize,
    kills: Kills,
    /// The last kill, until it is checked.
    unchecked: Option<Kind>,
    /// Whether the logs may explain what went wrong.
    is_troubled: bool,
    // If anything fails, these are killed last.
    fleet: Fleet,
}

impl Show {
    fn set(args: DemoArgs) -> Result<Self, CommandError> {
        let program = nats::find(args.nats_server.as_deref())?;
        let fleet = Fleet::prepare(&program)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(rand::random());
        Ok(Self {
            args,
            began: Instant::now(),
            callers: Callers::new(&fleet.addrs, &fleet.key),
            traffic: None,
            plan: Plan::new(Xoshiro256PlusPlus::seed_from_u64(rng.random())),
            rng,
            leader: 0,
            whereabouts: Default::default(),
            checked: 0,
            kills: Kills::default(),
            unchecked: None,
            is_troubled: true,
            fleet,
        })
    }

    /// Starts everything and kills processes: one of each kind, or without end.
    async fn perform(&mut self) -> Result<(), CommandError> {
        self.say(INTRODUCTION)?;
        self.start().await?;
        for turn in 1.. {
            self.pause(CALM_MILLIS).await?;
            let (kind, member) = self.plan.next(self.leader);
            self.kill(kind, member).await?;
            self.pause(DOWN_MILLIS).await?;
            self.start_again(member).await?;
            if self.args.once && turn == Kind::ALL.len() {
                return self.pause(DOWN_MILLIS).await;
            }
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), CommandError> {
        let began = Instant::now();
        self.fleet.start_brokers()?;
        for index in 0..NODE_COUNT {
            self.comes_back(Member::Nats(index), began).await?;
        }
        self.tell(format!("three NATS servers run after {}", format_duration(began.elapsed())))?;
        let began = Instant::now();
        // The first server makes the streams. Otherwise all would ask for them at the same time, and wait for each other.
        self.fleet.start(Member::Server(0))?;
        self.leader = self.find_leader(began).await?;
        self.tell(format!("server {} leads after {}", node_name(self.leader), format_duration(began.elapsed())))?;
        let began = Instant::now();
        for index in 1..NODE_COUNT {
            self.fleet.start(Member::Server(index))?;
        }
        for index in 1..NODE_COUNT {
            self.comes_back(Member::Server(index), began).await?;
        }
        let took = format_duration(began.elapsed());
        self.tell(format!("servers b and c follow as standbys after {took}"))?;
        self.start_traffic().await
    }

    async fn start_traffic(&mut self) -> Result<(), CommandError> {
        let mut traffic = Traffic::start(&self.fleet.addrs, &self.fleet.key);
        let are_connected = |_: &Self| traffic.whereabouts().iter().all(|client| client.connections > 0);
        self.until("a client does not connect", Instant::now(), are_connected).await?;
        self.whereabouts = traffic.whereabouts();
        let [one, two, three] = self.whereabouts.map(|client| node_name(client.server));
        traffic.post();
        self.traffic = Some(traffic);
        self.tell(format!(
            "clients 1, 2 and 3 are connected, to {one}, {two} and {three}; events are posted from now on"
        ))
    }

    /// Kills a process, waits until events are acknowledged again, and checks that nothing is lost.
    async fn kill(&mut self, kind: Kind, member: Member) -> Result<(), CommandError> {
        let traffic = self.traffic()?;
        traffic.longest_pause(); // From now on.
        let count_before = traffic.acknowledged_count();
        let leader_before = self.leader;
        let killed = Instant::now();
        self.fleet.kill(member);
        self.kills.add(kind);
        self.unchecked = Some(kind);
        self.leader = self.find_leader(killed).await?;
        let took = killed.elapsed();
        let waiting = "no event is acknowledged";
        // One event may have been on its way. The one after it was posted after the kill.
        self.until(waiting, killed, |show| show.acknowledged_count() >= count_before + 2).await?;
        tokio::time::sleep_until(killed + WATCH_TIME).await;
        let again = self.acknowledged_count() + 1;
        self.until(waiting, killed, |show| show.acknowledged_count() >= again).await?;
        let pause = self.traffic()?.longest_pause();
        self.kills.add_pause(kind, pause);
        self.unchecked = None;
        let count = self.check(self.checked, killed).await?;
        let effect = if self.leader == leader_before {
            format!("events waited at most {}", format_duration(pause))
        } else {
            format!("{} leads after {}", node_name(self.leader), format_duration(took))
        };
        let (killed, was, count) = (self.fleet.name(member), describe(kind), grouped(count));
        self.tell(format!("{killed} killed, {was}; {effect}; {count} events acknowledged, none lost"))?;
        self.tell_moves()
    }

    /// Tells which clients had to connect again since this was last told.
    fn tell_moves(&mut self) -> Result<(), CommandError> {
        let now = self.traffic()?.whereabouts();
        let text = describe_moves(&self.whereabouts, &now);
        self.whereabouts = now;
        self.tell(text)
    }

    async fn start_again(&mut self, member: Member) -> Result<(), CommandError> {
        let started = Instant::now();
        self.fleet.start(member)?;
        self.comes_back(member, started).await?;
        let (name, took) = (self.fleet.name(member), format_duration(started.elapsed()));
        let what = match member {
            Member::Server(_) => format!("follows {} as a standby", node_name(self.leader)),
            Member::Nats(_) => "has caught up".to_owned(),
        };
        self.tell(format!("{name} started again; it {what} after {took}"))
    }

    /// Checks the events from `from` on: they must be on the leader, and each client must have got them. Returns how
    /// many events there are.
    async fn check(&mut self, from: usize, since: Instant) -> Result<usize, CommandError> {
        let count = self.acknowledged_count();
        // If this takes too long, a client has lost something: the verdict says what.
        let arrived = self.until("a client does not get all events", since, |show| show.have_got(count)).await;
        let traffic = self.traffic()?;
        let looked_up = timeout(PATIENCE.max(per_event(count - from)), traffic.look_up(from..count)).await;
        looked_up.map_err(|_| late("events cannot be looked up"))?;
        self.checked = count;
        let verdict = self.traffic()?.judge(count);
        if verdict.is_clean() { arrived.map(|()| count) } else { Err(failed(verdict.to_text())) }
    }

    /// Stops posting, checks all events, and prints the result. `is_whole` unless interrupted.
    async fn conclude(&mut self, is_whole: bool) -> Result<(), CommandError> {
        self.is_troubled = false;
        let interrupted = || failed("interrupted before the verdict");
        let Some(traffic) = &mut self.traffic else { return if self.args.once { Err(interrupted()) } else { Ok(()) } };
        self.is_troubled = true;
        let stopped = timeout(PATIENCE, traffic.stop_posting()).await;
        stopped.map_err(|_| late("the last event is not acknowledged"))?;
        if let Some(kind) = self.unchecked.take() {
            self.kills.add_pause(kind, traffic.longest_pause());
        }
        self.leader = self.find_leader(Instant::now()).await?;
        let count = self.acknowledged_count();
        self.tell(format!("no more events are posted; each of the {} is looked up on the leader", grouped(count)))?;
        let checked = self.check(0, Instant::now()).await;
        tokio::time::sleep(LATECOMER_TIME).await;
        let report = self.report()?;
        if self.args.json {
            line(report.to_json())?;
        } else {
            self.say(format!("\n{}", report.to_text()))?;
        }
        if let Some(fault) = report.fault() {
            return Err(failed(fault));
        }
        checked?;
        self.is_troubled = false;
        if self.args.once && !is_whole { Err(interrupted()) } else { Ok(()) }
    }

    fn report(&self) -> Result<Report, CommandError> {
        let traffic = self.traffic()?;
        let tally = traffic.tally();
        let verdict = traffic.judge(tally.events);
        Ok(Report::new(tally, verdict, self.kills, node_name(self.leader), self.began.elapsed()))
    }

    fn traffic(&self) -> Result<&Traffic, CommandError> {
        self.traffic.as_ref().ok_or_else(|| failed("the cluster has not started yet"))
    }

    fn acknowledged_count(&self) -> usize {
        self.traffic.as_ref().map_or(0, Traffic::acknowledged_count)
    }

    fn have_got(&self, count: usize) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| traffic.have_got(count))
    }

    /// Prints a line with the time.
    fn tell(&self, text: impl AsRef<str>) -> Result<(), CommandError> {
        self.say(format!("{}  {}", time_of_day(unix_now().0 / 1000), text.as_ref()))
    }

    /// Prints a text; to standard error if standard output is for the result as JSON.
    fn say(&self, text: impl AsRef<str>) -> Result<(), CommandError> {
        if self.args.json {
            remark(Remark::Note, text.as_ref());
            return Ok(());
        }
        Ok(line(text.as_ref())?)
    }
}

/// What was killed, in words.
fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Leader => "it led",
        Kind::Standby => "a standby",
        Kind::Nats => "one of three",
    }
}

/// How long so many look-ups may take.
fn per_event(count: usize) -> Duration {
    Duration::from_millis(10) * u32::try_from(count).unwrap_or(u32::MAX)
}

/// The time of day, as in 12:00:05.
fn time_of_day(unix_seconds: u64) -> String {
    let [hours, minutes, seconds] = [unix_seconds / 3600 % 24, unix_seconds / 60 % 60, unix_seconds % 60];
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_utc() {
        assert_eq!(time_of_day(1_671_375_605), "15:00:05");
        assert_eq!(time_of_day(86_400), "00:00:00");
    }

    #[test]
    fn the_introduction_fits_a_wide_terminal() {
        assert!(INTRODUCTION.lines().all(|line| line.len() <= 120));
    }
}
