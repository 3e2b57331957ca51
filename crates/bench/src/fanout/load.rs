//! One load on one server: publishes at a steady rate and waits until every client has every publication.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidings_server::command_error::{CommandError, failed};
use tidings_types::{Json, Variant};
use tokio::time::{MissedTickBehavior, interval};

use super::command::{Command, Listening, Mark};
use crate::args::PeerRole;
use crate::checksum::Digest;
use crate::peer::Peer;
use crate::process::Cores;
use crate::swarm::{Delivered, Greeting, Swarm, data, until};

/// Publications per second in one channel, and its number of subscribers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) subscribers: u32,
    pub(super) rate: u32,
    /// Publications that are published together. Divides `rate`.
    burst: u32,
    /// Clients beside the subscribers that read less than is published.
    slow: u32,
}

pub(super) const LOADS: [Load; 3] = [
    Load { subscribers: 1000, rate: 100, burst: 1, slow: 0 },
    Load { subscribers: 100, rate: 1000, burst: 1, slow: 0 },
    Load { subscribers: 1000, rate: 100, burst: 10, slow: 0 },
];

impl Load {
    /// The same with a tenth of slow readers.
    pub(super) fn with_slow(self) -> Self {
        let slow = self.subscribers / 10;
        Self { subscribers: self.subscribers - slow, slow, ..self }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}/s", self.subscribers, self.rate)?;
        if self.burst > 1 { write!(f, " in {}s", self.burst) } else { Ok(()) }
    }
}

/// The result of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// CPU time of the server per delivery.
    pub(super) cpu_micros: f64,
    pub(super) p50_millis: f64,
    pub(super) p99_millis: f64,
    /// What all subscribers got.
    pub(super) digest: Digest,
}

impl Sample {
    /// Of so many deliveries, for which the server used so much CPU time.
    pub(super) fn new(delivered: &Delivered, deliveries: u64, cpu: Duration) -> Result<Self, CommandError> {
        let Delivered { latency, digest } = delivered;
        if latency.count() != deliveries {
            return Err(failed(format!("{} of {deliveries} deliveries were timed", latency.count())));
        }
        Ok(Self {
            cpu_micros: cpu.as_secs_f64() * 1e6 / deliveries as f64,
            p50_millis: latency.quantile(0.5).as_secs_f64() * 1e3,
            p99_millis: latency.quantile(0.99).as_secs_f64() * 1e3,
            digest: *digest,
        })
    }
}

/// Starts a server, runs one load against it, and stops it.
pub(super) async fn measure(
    role: PeerRole,
    channel: &'static str,
    variant: Variant,
    load: Load,
    seconds: u32,
    cores: &Cores,
) -> Result<Sample, CommandError> {
    let (mut peer, Listening(addr)) = Peer::start(role, &[cores.server])?;
    let greeting = match role {
        PeerRole::Bare => Greeting::None,
        _ => Greeting::Subscribe { channel, variant },
    };
    let swarm = Swarm::start(addr, load.subscribers, greeting)?;
    swarm.ready().await?;
    let slow = Swarm::start(addr, load.slow, Greeting::Lag { channel })?;
    slow.ready().await?;
    let clients = (load.subscribers + load.slow) as usize;
    until("the server has all clients", async || Ok(peer.ask::<Mark>(Command::Mark)?.connections == clients)).await?;

    let warmed_up = u64::from(load.rate);
    at_rate(load, 1..=warmed_up, async |numbers| publish(&mut peer, channel, numbers)).await?;
    swarm.delivered(warmed_up * u64::from(load.subscribers)).await?;
    swarm.record_from(warmed_up + 1);
    let before: Mark = peer.ask(Command::Mark)?;
    let last = warmed_up + u64::from(load.rate) * u64::from(seconds);
    at_rate(load, warmed_up + 1..=last, async |numbers| publish(&mut peer, channel, numbers)).await?;
    swarm.delivered(last * u64::from(load.subscribers)).await?;
    let after: Mark = peer.ask(Command::Mark)?;
    slow.stop()?;
    let deliveries = (last - warmed_up) * u64::from(load.subscribers);
    Sample::new(&swarm.stop()?, deliveries, after.usage.cpu - before.usage.cpu)
}

/// Calls `publish` with these numbers at the load's rate. After a delay it is faster until it has caught up.
pub(super) async fn at_rate(
    load: Load,
    numbers: RangeInclusive<u64>,
    mut publish: impl AsyncFnMut(RangeInclusive<u64>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut ticks = interval(Duration::from_secs(1) * load.burst / load.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let last = *numbers.end();
    for first in numbers.step_by(load.burst as usize) {
        ticks.tick().await;
        publish(first..=last.min(first + u64::from(load.burst) - 1)).await?;
    }
    Ok(())
}

/// Publishes these numbers in one write.
fn publish(peer: &mut Peer, channel: &str, numbers: RangeInclusive<u64>) -> Result<(), CommandError> {
    let command = |number| Command::Publish { channel: channel.to_owned(), number, data: Json::of(&data(number)) };
    peer.tell(&numbers.map(command).collect::<Vec<_>>())
}
