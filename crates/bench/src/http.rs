//! `bench http`: our HTTP/1.1 client against nginx, compared with other clients and with `wrk`, which only repeats one
//! prepared request.
//!
//! nginx has one worker on one core and answers every request with the same 128 bytes. The clients run one after the
//! other on the other core. A case is `connections × pipeline depth`. With our client, a task of its own awaits each
//! request. With wrk, each connection has a pipeline of that depth. Clients without pipelining have as many requests in
//! flight, on as many connections as they choose.
//!
//! Every run checks its answers: each answer is 200 with the right body, or is counted as an error. An error of our client
//! fails the run.

mod nginx;
#[cfg(feature = "peers")]
mod peers;
mod wrk;

use std::fmt;
use std::time::Duration;

use tidings_http1::{Client, ClientConfig, Origin, Request};
use tidings_server::command_error::{CommandError, failed, failed_by};
use tokio::time::sleep;

use self::nginx::{BODY, Nginx};
use self::wrk::Wrk;
use super::process::{self, Cores};
use super::report::{Finished, Goal, Report};
use crate::args::BenchHttpArgs;
use crate::checksum::Digest;
use crate::load::{self, Ask, Load, TIMEOUT};
use crate::report::{column, progress, ratios};

/// Our rate as a share of wrk's, in cases with pipelining.
const GOAL_OF_WRK: f64 = 0.8;
/// Our rate as a multiple of reqwest's, in the case for which reqwest's figures were published.
const GOAL_OF_REQWEST: f64 = 3.0;
const PUBLISHED: Case = Case { pool: 128, concurrency: 2048 };
/// How long all connections may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many connections there are, and how many requests are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    pool: u32,
    concurrency: u32,
}

const CASES: [Case; 6] = [
    Case { pool: 1, concurrency: 1 },
    Case { pool: 1, concurrency: 64 },
    Case { pool: 8, concurrency: 128 },
    Case { pool: 32, concurrency: 512 },
    Case { pool: 128, concurrency: 128 },
    PUBLISHED,
];

impl Case {
    fn depth(self) -> u32 {
        self.concurrency / self.pool
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.pool, self.depth())
    }
}

/// The name of a client, and its result in each run.
type Row = (&'static str, Vec<Load>);

pub(super) async fn run(args: &BenchHttpArgs) -> Result<Finished, CommandError> {
    let cores = Cores::choose(1)?;
    process::need_files(3 * 2048)?;
    process::pin(&[cores.server])?; // nginx runs on the core of the process that starts it.
    let nginx = Nginx::start().await?;
    process::pin(&cores.load)?;
    let wrk = Wrk::find()?;

    let mut report = Report::new("http");
    report.answered("nginx's answer", answer(&nginx).await?)?;
    for case in CASES {
        let bench = Bench { case, nginx: &nginx, wrk: wrk.as_ref(), seconds: args.seconds };
        bench.run(args.common.runs, &mut report).await?;
    }
    report.note("A case is connections × pipeline depth. CPU time is per request, kernel included.");
    report.note(format!("Answers have {} bytes of body; nginx {}, one worker.", BODY.len(), nginx.version));
    if wrk.is_none() {
        report.note("wrk was not found, so the physical limit is unknown (Debian: wrk).");
    }
    if cfg!(not(feature = "peers")) {
        report.note("Other clients were not measured: built without --features bench-peers.");
    }
    if cores.are_shared() {
        report.note("The machine has one core: nginx and the clients shared it.");
    }
    report.finish()
}

/// One answer, as our client reads it. Every other one is compared with what nginx must say.
async fn answer(nginx: &Nginx) -> Result<Digest, CommandError> {
    let client = Tidings::start(nginx, CASES[0]).await?;
    let answer = client.client.send(client.request, TIMEOUT).await;
    let mut digest = Digest::default();
    digest.add(answer.map_err(|error| failed_by("nginx does not answer", &error))?.body());
    Ok(digest)
}

/// The measurement of one case.
struct Bench<'a> {
    case: Case,
    nginx: &'a Nginx,
    wrk: Option<&'a Wrk>,
    seconds: u32,
}

impl Bench<'_> {
    /// Measures all clients in turns, `runs` times. So a ratio compares measurements that are close in time.
    async fn run(&self, runs: u32, report: &mut Report) -> Result<(), CommandError> {
        let (mut ours, mut wrks, mut peers) = (Vec::new(), Vec::new(), Vec::<Row>::new());
        for run in 1..=runs {
            progress(format!("{}, run {run} of {runs}", self.case));
            ours.push(self.measure(self.nginx, Tidings::start(self.nginx, self.case)).await?);
            if let Some(wrk) = self.wrk {
                wrks.push(wrk.measure(self.nginx.url(), self.case.pool, self.case.depth(), self.seconds).await?);
            }
            self.run_peers(&mut peers).await?;
        }
        // How many answers there are depends on the time; none may be wrong.
        let (asked, errors) = ours.iter().fold((0, 0), |sum, load| (sum.0 + load.asked, sum.1 + load.errors));
        if errors > 0 || asked == 0 {
            return Err(failed(format!("{}: {errors} of {asked} answers were wrong", self.case)));
        }
        self.tell(&ours, &wrks, &peers, report);
        Ok(())
    }

    #[cfg(feature = "peers")]
    async fn run_peers(&self, rows: &mut Vec<Row>) -> Result<(), CommandError> {
        let (url, concurrency) = (self.nginx.url(), self.case.concurrency);
        let loads = [
            ("reqwest", self.measure(self.nginx, peers::Reqwest::start(url)).await?),
            ("hyper-util", self.measure(self.nginx, peers::HyperUtil::start(url)).await?),
            ("ureq", peers::ureq(url, concurrency, self.seconds).await?),
        ];
        for (name, load) in loads {
            match rows.iter_mut().find(|(other, _)| *other == name) {
                Some((_, loads)) => loads.push(load),
                None => rows.push((name, vec![load])),
            }
        }
        Ok(())
    }

    #[cfg(not(feature = "peers"))]
    async fn run_peers(&self, _: &mut Vec<Row>) -> Result<(), CommandError> {
        std::future::ready(Ok(())).await
    }

    /// Measures a client on a thread with its own runtime, because the other clients have one thread too.
    async fn measure<A: Ask>(
        &self,
        nginx: &Nginx,
        start: impl Future<Output = Result<A, CommandError>> + Send + 'static,
    ) -> Result<Load, CommandError> {
        let (concurrency, seconds) = (self.case.concurrency, self.seconds);
        let before = nginx.cpu()?;
        let driven = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { load::drive(start.await?, concurrency, seconds).await })
        });
        let mut load = driven.await.expect("driving does not panic")?;
        load.server_micros = (nginx.cpu()? - before).as_secs_f64() * 1e6 / load.asked.max(1) as f64;
        Ok(load)
    }

    fn tell(&self, ours: &[Load], wrks: &[wrk::Sample], peers: &[Row], report: &mut Report) {
        let case = self.case;
        let rates = column(ours, |load| load.rate);
        report.measure(format!("{case}: requests"), "1/s", rates.clone());
        report.judge(format!("{case}: errors"), "", column(ours, |load| load.errors as f64), Goal::AtMost(0.0));
        report.measure(format!("{case}: CPU"), "µs", column(ours, |load| load.client_micros));
        report.measure(format!("{case}: CPU, nginx"), "µs", column(ours, |load| load.server_micros));
        let quantiles = [("50 %", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("99.99 %", 0.9999), ("100 %", 1.0)];
        for (name, share) in quantiles {
            let values = ours.iter().map(|load| load.latency_millis(share)).collect();
            report.measure(format!("{case}: {name}"), "ms", values);
        }
        let mut compare = |name: &str, others: Vec<f64>, goal: Option<f64>| {
            let ratios = ratios(&rates, &others);
            report.measure(format!("{case}: {name}"), "1/s", others);
            let name = format!("{case}: of {name}");
            report.judge(name, "×", ratios, goal.map(Goal::AtLeast));
        };
        let goal_of_wrk = (case.depth() > 1).then_some(GOAL_OF_WRK);
        compare("wrk", column(wrks, |sample| sample.rate), goal_of_wrk);
        for (name, loads) in peers {
            let goal = (case == PUBLISHED && *name == "reqwest").then_some(GOAL_OF_REQWEST);
            compare(name, column(loads, |load| load.rate), goal);
        }
        report.measure(format!("{case}: CPU, wrk"), "µs", column(wrks, |sample| sample.micros));
        for (name, loads) in peers {
            report.measure(format!("{case}: CPU, {name}"), "µs", column(loads, |load| load.client_micros));
            report.measure(format!("{case}: errors, {name}"), "", column(loads, |load| load.errors as f64));
        }
    }
}

/// Our client.
#[derive(Clone)]
struct Tidings {
    client: Client,
    request: Request,
}

impl Tidings {
    /// Opens all connections. Nothing happens before the future is awaited.
    fn start(nginx: &Nginx, case: Case) -> impl Future<Output = Result<Self, CommandError>> + Send + 'static {
        let url = nginx.url().to_owned();
        async move {
            let (origin, target) = Origin::split(&url).map_err(|error| failed_by("nginx's address", &error))?;
            let request = Request::get(&target).map_err(|error| failed_by("nginx's address", &error))?;
            let config = ClientConfig::new("bench", case.pool as usize);
            let client =
                Client::start(&origin, config).map_err(|error| failed_by("cannot start the client", &error))?;
            let all_up = async {
                while client.counters().connected < u64::from(case.pool) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            let in_time = tokio::time::timeout(CONNECT_TIMEOUT, all_up).await;
            in_time.map_err(|_| failed("nginx does not accept our connections"))?;
            Ok(Self { client, request })
        }
    }
}

impl Ask for Tidings {
    async fn ask(&self) -> bool {
        let answer = self.client.send(self.request.clone(), TIMEOUT).await;
        answer.is_ok_and(|response| response.status() == hyper::StatusCode::OK && response.body() == BODY)
    }
}
