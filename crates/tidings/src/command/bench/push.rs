//! `bench push`: from an event handed to the API to the provider's answer for the last device, by the whole server.
//!
//! The server runs in this process, held to one core; the provider is a simulator in another one, on another core. An
//! event goes in over HTTP; its audience is selected from the store, translated, sent over TLS and HTTP/2, and accounted
//! for. The rate is the audience divided by the time from the event's acceptance to the last answer.
//!
//! The physical limit beside it is h2load, a program that only repeats one ready-made request, against the same
//! simulator with as many connections and streams. Where the provider takes its time, the limit is another: streams ÷
//! round trip.
//!
//! Every run checks, in the simulator's ledger and in the job's report: each device accepted once, in its language, and
//! never more streams than allowed. Devices are registered beforehand, connections open, one event warms up.

mod h2load;
mod setup;
pub(super) mod simulator;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidings_sender::{JobReport, JobState, TimeTo};
use tidings_types::JournalPosition;
use tokio::time::{Instant, sleep};

use self::h2load::H2load;
use self::setup::Folder;
use self::simulator::{Command, Greeting, Mark};
use super::peer::Peer;
use super::process::{self, Cores, Usage};
use super::report::{Goal, Report};
use super::{failed, failed_by, progress};
use crate::cli::{BenchPushArgs, PeerRole};
use crate::command::CommandError;
use crate::command::http::ServerUrl;
use crate::server::Server;

/// Of h2load's rate.
const GOAL_OF_H2LOAD: f64 = 0.7;
const GOAL_RATE: f64 = 150_000.0;
/// How long one event may take.
const DEADLINE: Duration = Duration::from_secs(300);
/// Where the provider is slow, so many seconds' worth of devices are enough.
const SLOW_SECONDS: f64 = 5.0;

/// How the provider behaves, and how many connections there are to it.
#[derive(Debug, Clone, Copy)]
struct Case {
    delay_ms: u32,
    streams: u32,
    connections: u32,
}

/// Without delay two connections, the server's default; a slow provider is given ten.
const CASES: [Case; 4] = [
    Case { delay_ms: 0, streams: 1000, connections: 2 },
    Case { delay_ms: 0, streams: 100, connections: 2 },
    Case { delay_ms: 100, streams: 1000, connections: 10 },
    Case { delay_ms: 100, streams: 100, connections: 10 },
];

impl Case {
    /// Notifications a second that the streams allow, however fast the two sides are.
    fn model_rate(self) -> Option<f64> {
        (self.delay_ms > 0).then(|| f64::from(self.connections * self.streams) * 1e3 / f64::from(self.delay_ms))
    }

    fn device_count(self, wanted: u32) -> u32 {
        self.model_rate().map_or(wanted, |rate| wanted.min((rate * SLOW_SECONDS) as u32))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {} × {} streams", self.delay_ms, self.connections, self.streams)
    }
}

/// What came of one event.
struct Sample {
    rate: f64,
    /// Processor time per notification: ours, the simulator's.
    server_micros: f64,
    simulator_micros: f64,
    time_to: TimeTo,
}

pub(super) async fn run(args: &BenchPushArgs) -> Result<Report, CommandError> {
    // What goes wrong inside the server is to be seen; a logger that is already there does as well.
    let _ = crate::log::init(tidings_telemetry::log::Format::Text, "warn");
    let cores = Cores::choose()?;
    let counts = CASES.map(|case| case.device_count(args.devices));
    let (mut simulator, greeting): (_, Greeting) = Peer::start(PeerRole::Simulator, cores.load)?;
    let folder = Folder::make(args.dir.as_deref(), &greeting)?;
    setup::import(&folder, args.devices, &counts).await?;
    process::pin(cores.server)?;

    let mut report = Report::new("push");
    let h2load = H2load::find(&greeting, &folder)?;
    for (index, (case, count)) in CASES.into_iter().zip(counts).enumerate() {
        simulator.tell(&[Command::Behave { delay_ms: case.delay_ms.into(), stream_limit: case.streams }])?;
        let mut bench = Bench { case, index, count, simulator: &mut simulator, h2load: h2load.as_ref() };
        bench.run(&folder, &greeting, args.common.runs, &mut report).await?;
    }
    report.note(
        "A case is the provider's round trip and connections × streams. CPU is per notification, kernel included.",
    );
    if h2load.is_none() {
        report.note("h2load was not found: there is no physical limit to compare with (Debian: nghttp2-client).");
    }
    if cores.server == cores.load {
        report.note("There is one core: server and simulator shared it.");
    }
    Ok(report)
}

/// One case on its way.
struct Bench<'a> {
    case: Case,
    index: usize,
    count: u32,
    simulator: &'a mut Peer,
    h2load: Option<&'a H2load>,
}

impl Bench<'_> {
    async fn run(
        &mut self,
        folder: &Folder,
        greeting: &Greeting,
        runs: u32,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        let config = folder.config(greeting, self.case.connections, self.case.streams)?;
        let server = Server::start(config).await.map_err(|error| failed_by("cannot start the server", &error))?;
        let (mut samples, mut limits) = (Vec::new(), Vec::new());
        for run in 0..=runs {
            progress(format!("{}: {} devices, run {run} of {runs}", self.case, self.count));
            let sample = self.send(&server, run).await?;
            if run > 0 {
                samples.push(sample); // The first has warmed up.
                if let Some(h2load) = self.h2load {
                    limits.push(h2load.measure(self.count, self.case.connections, self.case.streams).await?);
                }
            }
        }
        server.stop().await;
        self.tell(&samples, &limits, report);
        Ok(())
    }

    /// Sends one event to its whole audience.
    async fn send(&mut self, server: &Server, run: u32) -> Result<Sample, CommandError> {
        let simulated: Mark = self.simulator.ask(Command::Mark)?;
        let before = Usage::now()?;
        let position = post(server, &format!("bench-{}-{run}", self.index), &setup::subject(self.index)).await?;
        let job = finished(server, position).await?;
        let after = Usage::now()?;
        let answered: Mark = self.simulator.ask(Command::Mark)?;
        self.check(&job, &simulated, &answered)?;
        let time_to = job.time_to.ok_or_else(|| failed("the job's report has no times"))?;
        let per_device = |cpu: Duration| cpu.as_secs_f64() * 1e6 / f64::from(self.count);
        Ok(Sample {
            rate: f64::from(self.count) / time_to.p100.as_secs_f64(),
            server_micros: per_device(after.cpu - before.cpu),
            simulator_micros: per_device(answered.usage.cpu - simulated.usage.cpu),
            time_to,
        })
    }

    /// Once each, in the right language, within the streams.
    fn check(&self, job: &JobReport, before: &Mark, after: &Mark) -> Result<(), CommandError> {
        let count = u64::from(self.count);
        let ledger = |field: fn(&Mark) -> u64| field(after) - field(before);
        let checks = [
            ("accepted by the job's report", job.counts.accepted(), count),
            ("outcomes in the job's report", job.counts.total(), count),
            ("accepted by the provider", ledger(|mark| mark.accepted), count),
            ("different notifications at the provider", ledger(|mark| mark.notifications), count),
            ("accepted twice", ledger(|mark| mark.repeated), 0),
            ("rejected", ledger(|mark| mark.rejected), 0),
            ("in a wrong language", ledger(|mark| mark.mistranslated), 0),
            ("over the stream limit", ledger(|mark| mark.stream_limit_violations), 0),
        ];
        match checks.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(failed(format!("{found} {what} instead of {expected}"))),
            None => Ok(()),
        }
    }

    fn tell(&self, samples: &[Sample], limits: &[f64], report: &mut Report) {
        let case = self.case;
        let column = |field: fn(&Sample) -> f64| samples.iter().map(field).collect::<Vec<_>>();
        let rates = column(|sample| sample.rate);
        let name = format!("{case}: {} devices", self.count);
        if let Some(model) = case.model_rate() {
            report.measure(name, "1/s", rates.clone());
            let shares = rates.iter().map(|rate| rate / model).collect();
            report.measure(format!("{case}: of streams ÷ round trip"), "×", shares);
        } else if case.streams == CASES[0].streams {
            report.judge(name, "1/s", rates.clone(), Goal::AtLeast(GOAL_RATE));
        } else {
            report.measure(name, "1/s", rates.clone());
        }
        report.measure(format!("{case}: h2load"), "1/s", limits.to_vec());
        let ratios = rates.iter().zip(limits).map(|(rate, limit)| rate / limit).collect();
        report.judge(format!("{case}: of h2load"), "×", ratios, Goal::AtLeast(GOAL_OF_H2LOAD));
        report.measure(format!("{case}: CPU, server"), "µs", column(|sample| sample.server_micros));
        report.measure(format!("{case}: CPU, simulator"), "µs", column(|sample| sample.simulator_micros));
        report.measure(format!("{case}: first answer"), "ms", column(|sample| millis(sample.time_to.first)));
        report.measure(format!("{case}: 50 % answered"), "ms", column(|sample| millis(sample.time_to.p50)));
        report.measure(format!("{case}: 90 %"), "ms", column(|sample| millis(sample.time_to.p90)));
        report.measure(format!("{case}: 99 %"), "ms", column(|sample| millis(sample.time_to.p99)));
        report.measure(format!("{case}: 100 %"), "ms", column(|sample| millis(sample.time_to.p100)));
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Hands an event to the API.
async fn post(server: &Server, id: &str, subject: &str) -> Result<JournalPosition, CommandError> {
    #[derive(Deserialize)]
    struct Accepted {
        position: u64,
    }
    let params = json!({"team": "Sverige", "scorer": "Karl", "minute": 90});
    let event = json!({"id": id, "topic": setup::TOPIC, "subjects": [subject], "params": params});
    let url = ServerUrl::of_listener(server.api_addr());
    let (status, body) = url.post("/v1/events", server.api_key(), Bytes::from(event.to_string())).await?;
    if status != StatusCode::ACCEPTED {
        return Err(failed(format!("the event was answered with {status}: {}", String::from_utf8_lossy(&body))));
    }
    let accepted: Accepted = serde_json::from_slice(&body).map_err(|error| failed_by("the event's answer", &error))?;
    Ok(JournalPosition(accepted.position))
}

/// Waits until every device has its outcome.
async fn finished(server: &Server, position: JournalPosition) -> Result<JobReport, CommandError> {
    let began = Instant::now();
    loop {
        match server.sender().job(position) {
            Some(job) if job.state == JobState::Finished => return Ok(job),
            _ if began.elapsed() > DEADLINE => {
                return Err(failed(format!("waited {} s until the job was done", DEADLINE.as_secs())));
            }
            _ => sleep(Duration::from_millis(2)).await,
        }
    }
}
