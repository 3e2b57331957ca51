//! Sends metrics to an agent: the change of the registry as InfluxDB lines, in UDP packets, every interval.
//!
//! ```text
//! registry ─► Exporter ─lines─► BatchWriter ─pages─► Pool of UDP sockets ─packets─► agent
//! ```
//!
//! A page is one packet of whole lines. The sockets take turns. A socket whose packets the agent's host refuses is
//! replaced, and the name is looked up again. Nothing is sent twice, because some databases would count it twice.
//! Points that could not be sent, or waited too long, are counted ([`Traffic::register`]). Packets that the network
//! loses cannot be counted. The log says once that packets are refused, and once that they are taken again. A host that
//! drops packets silently looks like a host that takes them.
//!
//! Bounds: [`BUFFER_BYTES`] of lines wait; beyond that the oldest are dropped. One packet is in flight at a
//! time. Only the end of the server waits for this module: it gives the last flush [`STOP_TIMEOUT`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidings_batch::{BatchConfig, BatchWriter, Full, Sink};
use tidings_pool::{Codec, Decoded, Expect, Outgoing, Pool, PoolConfig, Protocol, RequestId, Strategy, Udp};
use tidings_telemetry::influx::{Exporter, LineConfig};
use tidings_telemetry::memory::Term;
use tidings_telemetry::metrics::influx as table;
use tidings_telemetry::{Counter, Registry, unix_now};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use tidings_config::Influx;

/// Lines that wait for the agent: some hundred bytes for each of the registry's at most 4096 series.
const BUFFER_BYTES: usize = 1 << 20;
/// Shorter than any line.
const LINE_BYTES_MIN: usize = 32;
/// How long a packet that is not full waits for the next line of the same flush.
const LINGER: Duration = Duration::from_millis(20);
/// How long a packet may wait for a socket, that is for the look-up of the agent's name.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last flush may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The task that sends; aborted when dropped.
#[derive(Debug)]
pub(crate) struct Influxing {
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Influxing {
    /// Starts sending, if an agent is configured.
    pub(crate) fn start(config: &Influx, registry: &Registry) -> Option<Self> {
        let address = config.address.as_ref()?.0.clone();
        let packet_bytes = config.packet_bytes.as_usize();
        let traffic = Traffic::start(&address, config.socket_count, packet_bytes);
        traffic.register(registry);
        let lines = LineConfig { prefix: "tidings", tags: tags(config), line_bytes_max: packet_bytes };
        let exporter = Exporter::new(registry, lines);
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(run(exporter, traffic, Arrival::new(address), config.interval, stopped));
        Some(Self { stop, task })
    }

    /// Sends what came since the last flush, and ends.
    ///
    /// # Cancel safety
    /// If dropped before it is done, part of the last flush may be missing.
    pub(crate) async fn stop(mut self) {
        drop(self.stop);
        self.task.join_next().await;
    }
}

/// The configured tags, and `host` unless it is configured.
fn tags(config: &Influx) -> BTreeMap<String, String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let configured = config.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone()));
    [("host".to_owned(), host)].into_iter().chain(configured).collect()
}

async fn run(
    mut exporter: Exporter,
    traffic: Traffic,
    mut arrival: Arrival,
    interval: Duration,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut driver = JoinSet::new();
    driver.spawn(traffic.writer.driver().expect("nobody else starts it").run());
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_last = false;
    while !is_last {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut stopped => is_last = true,
        }
        arrival.look(&traffic); // At the result of the flush before.
        let flushed = exporter.flush(unix_now(), |line| {
            let _ = traffic.writer.write(line); // The writer counts refused lines.
        });
        traffic.oversize.add(flushed.oversize_count);
    }
    let _ = traffic.writer.close(STOP_TIMEOUT).await; // Nobody could be told of the error.
}

/// What lines that wait for the agent may take.
pub(crate) fn memory_terms(config: &Influx) -> Vec<Term> {
    let bytes = batching(config.packet_bytes.as_usize()).memory_bytes_max();
    vec![Term::peak("metrics to send", 1, bytes, "influx.address")]
}

fn batching(packet_bytes: usize) -> BatchConfig {
    BatchConfig {
        page_bytes: packet_bytes,
        count_max: BUFFER_BYTES / LINE_BYTES_MIN,
        bytes_max: BUFFER_BYTES,
        full: Full::EvictOldest,
        linger: LINGER,
        write_timeout: SEND_TIMEOUT,
        announce: None, // `tidings_influx_dropped_total` goes the same way.
    }
}

/// The path of the lines, with its counters.
struct Traffic {
    writer: BatchWriter,
    pool: Pool<Lines>,
    /// Points too long for a packet.
    oversize: Counter,
}

impl Traffic {
    fn start(address: &str, socket_count: usize, packet_bytes: usize) -> Self {
        let config = PoolConfig { strategy: Strategy::RoundRobin, ..PoolConfig::new("influx", socket_count) };
        let pool = Pool::start(config, Lines, Udp::new(address)).expect("the ranges of the settings are the pool's");
        let writer = BatchWriter::new(batching(packet_bytes), Packets { pool: pool.clone(), packet_bytes });
        Self { writer, pool, oversize: Counter::default() }
    }

    /// Makes its counters part of the metrics.
    fn register(&self, registry: &Registry) {
        let counter = |metric, value: fn(tidings_batch::Counters) -> u64| {
            let writer = self.writer.clone();
            registry.computed(metric, &[], Arc::new(move || value(writer.counters()) as f64));
        };
        counter(&table::POINTS_TOTAL, |counters| counters.sent);
        counter(&table::PACKETS_TOTAL, |counters| counters.pages);
        let (writer, oversize) = (self.writer.clone(), self.oversize.clone());
        let dropped = Arc::new(move || {
            let counters = writer.counters();
            (counters.dropped + counters.refused + oversize.value()) as f64
        });
        registry.computed(&table::DROPPED_TOTAL, &[], dropped);
        let pool = self.pool.clone();
        registry.computed(&table::REFUSALS_TOTAL, &[], Arc::new(move || refusals(&pool) as f64));
    }

    /// The number of signs that packets do not arrive. It only grows.
    fn trouble(&self) -> u64 {
        let counters = self.writer.counters();
        counters.dropped + counters.refused + refusals(&self.pool)
    }
}

fn refusals(pool: &Pool<Lines>) -> u64 {
    let counters = pool.counters();
    counters.disconnects + counters.connect_failures
}

/// Whether packets seem to arrive. Logs when that changes.
///
/// A socket reports a refused packet only when it sends the next one. So packets arrive again when each socket has sent
/// twice: two rounds.
struct Arrival {
    address: String,
    seems_well: bool,
    /// As it was at the last look.
    trouble: u64,
    /// Packets that had been sent when this round began.
    packets: u64,
    rounds: u32,
}

impl Arrival {
    fn new(address: String) -> Self {
        Self { address, seems_well: true, trouble: 0, packets: 0, rounds: 0 }
    }

    /// Called once a flush.
    fn look(&mut self, traffic: &Traffic) {
        let (trouble, counters) = (traffic.trouble(), traffic.writer.counters());
        let is_worse = trouble > self.trouble;
        self.trouble = trouble;
        if is_worse {
            (self.rounds, self.packets) = (0, counters.pages);
        } else if counters.pages - self.packets >= traffic.pool.config().connection_count as u64 {
            (self.rounds, self.packets) = (self.rounds.saturating_add(1), counters.pages);
        }
        let (address, dropped) = (&self.address, counters.dropped + counters.refused);
        if self.seems_well && is_worse {
            self.seems_well = false;
            warn!(address, dropped, "Metrics do not arrive: nobody listens at the address, or the host is unknown");
        } else if !self.seems_well && self.rounds >= 2 {
            self.seems_well = true;
            info!(address, dropped, "Metrics arrive again");
        }
    }
}

/// Pages into sockets.
struct Packets {
    pool: Pool<Lines>,
    packet_bytes: usize,
}

impl Sink for Packets {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.pool.call(Bytes::copy_from_slice(page), SEND_TIMEOUT).await.map_err(io::Error::other)
    }

    fn page_bytes_max(&self) -> Option<usize> {
        Some(self.packet_bytes)
    }
}

/// Packets that nobody answers, and of which none is repeated.
#[derive(Debug)]
struct Lines;

impl Protocol for Lines {
    type Request = Bytes;
    type Response = ();
    type Error = Infallible;
    type Codec = Self;

    fn codec(&self) -> Self {
        Self
    }
}

impl Codec<Lines> for Lines {
    fn encode(&mut self, packet: &Bytes, _id: RequestId, out: &mut Outgoing) -> Result<Expect<()>, Infallible> {
        out.put_bytes(packet.clone());
        Ok(Expect::Nothing(()))
    }

    fn decode(&mut self, _oldest: Option<&Bytes>, input: &mut BytesMut) -> Result<Decoded<()>, Infallible> {
        input.clear(); // No answer is expected, whoever sent this.
        Ok(Decoded::Skipped)
    }
}

#[cfg(test)]
mod tests;
