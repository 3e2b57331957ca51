//! The memory sum: how much memory the limits of the configuration allow, in named terms.
//!
//! There are two sums: the memory when every count is reached (connections, channels, devices), and the memory while
//! also every buffer is full, because every peer is slow. Empty buffers cost nothing. Each term is a count times bytes.
//! A setting limits the count; a setting or a constant here gives the bytes, and each constant says where it comes from.
//! Not in the sum: the kernel's socket buffers, the program itself, and subscriptions of devices (about 5 bytes each).

use std::fmt;

use serde::Serialize;
use tidings_api::{IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_KEY_COUNT_MAX};
use tidings_console::{SAMPLE_BYTES, SESSION_BYTES};
use tidings_intake::POLL_COUNT_MAX;
use tidings_protocol::{
    CONNECT_SUBSCRIPTION_COUNT_MAX, EMULATED_BYTES_MAX, HOOK_HEADER_BYTES_MAX, SlowReaders, SubscribeRequest,
};
use tidings_sender::{Extent, JobSize, WAITING_BYTES_PART, WAITING_PER_SLOT};
use tidings_store::WRITE_BUFFER_BYTES_MAX;
use tidings_telemetry::trace::SPAN_COUNT_MAX;
use tidings_types::EventPriority;

use super::value::ByteSize;
use super::{Config, WebPush};

/// Lines that wait for the agent of `[influx]`: some hundred bytes for each of the registry's at most 4096 series.
pub const INFLUX_BUFFER_BYTES: usize = 1 << 20;
/// Histories of durable channels that are read from the disk at a time. Further ones wait.
pub const HISTORY_READ_COUNT_MAX: usize = 16;
/// Log lines that wait for standard error.
pub const LOG_BYTES_MAX: usize = 4 << 20;
/// Memory of an idle WebSocket connection (the goal, without buffers).
const CONNECTION_BYTES: u64 = 6 << 10;
/// Additional memory of an idle WebSocket over TLS: the session and its read buffer of 4 KiB (8.2 KiB, measured).
const TLS_CONNECTION_BYTES: u64 = 10 << 10;
/// Records of a WebSocket over TLS: one that waits for the socket, and one that is incomplete.
const TLS_RECORD_BYTES: u64 = 2 * (18 << 10);
/// Copies of the current reply of a loop: as text, as a frame, and in the connection's buffer, which may be twice as large.
const REPLY_COPIES: u64 = 4;
/// One subscription of a connection: its entries in the session (under 32 bytes plus the name), the loop and the channel.
const SUBSCRIPTION_BYTES: u64 = 256;
/// A command that is read: a connect with as many subscriptions as it may have. Its texts are no larger than its frame.
const COMMAND_BYTES: u64 = (CONNECT_SUBSCRIPTION_COUNT_MAX * size_of::<SubscribeRequest>()) as u64;
/// A subscription's tags filters, the client's and that of its terms (see [`tidings_protocol::TagsFilter`]).
const TAGS_FILTER_BYTES: u64 = 2 * (6 << 10);
/// A channel without publications: name, lock, positions, readers (1.2 KiB, measured).
const CHANNEL_BYTES: u64 = 1280;
/// A publication in a history. A typical size: the only limit is that of a request's body.
const PUBLICATION_BYTES: u64 = 1 << 10;
/// A waiting notification: ids, a token of about 200 bytes (a browser's endpoint is as long), and its place in the lake.
/// Notifications share the payload.
const NOTIFICATION_BYTES: u64 = 512;
/// A notification in flight: the same, an HTTP/2 stream, headers, and a payload of at most 4 KiB until it is written.
const IN_FLIGHT_BYTES: u64 = 6 << 10;
/// Notifications that may wait for a retry, per notification that may be in flight.
const WAITING_FACTOR: usize = 16;
/// A connection to a browser's push service: buffers of HTTP/1.1 and TLS, and the notification in flight.
const BROWSER_BYTES: u64 = 100 << 10;
/// A registered device: the place of its record, hints, its entries in the sets of its traits (60 bytes, measured), and
/// its user with the list of the user's devices. The record itself is in a file.
const DEVICE_BYTES: u64 = 160;
/// Renderings of the largest job for each app: in all places that typed values may have, and in as many languages.
const RENDERING_COUNT: usize = 1024;
/// A waiting job without its sets and counts: its row and its entries in the sets of waiting jobs.
const WAITING_JOB_BYTES: u64 = 1 << 10;
/// A report that the webhook's receiver has not accepted: its due time, twice for the order, and its entry in the table.
const TELLING_BYTES: u64 = 160;
/// A change of who is here that is not told yet: a name of about 200 bytes, and its entries in two tables.
const PRESENCE_CHANGE_BYTES: u64 = 512;
/// A call of a hook in flight, except question and body of the answer: what is read, and the answer's head.
const HOOK_CALL_BYTES: u64 = 64 << 10;
/// A known entry of a feed: a key and a number in a hash table that may be half empty.
const FEED_ENTRY_BYTES: u64 = 64;
/// A document that is read: pieces, buffers, what a mapping holds by default (16 MiB), and 256 events of at most 64 KiB.
const DOCUMENT_BYTES: u64 = 33 << 20;
/// A span that waits for the collector: its ids and times, and at most 8 attributes with short texts.
const SPAN_BYTES: u64 = 1 << 10;
/// The counts of a finished job.
const REPORT_BYTES: u64 = 1 << 10;

/// When the memory of a term is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// While the count is reached.
    Standing,
    /// The same, computed from a typical size that no setting limits.
    Estimate,
    /// Only while the buffer is full.
    Peak,
}

/// One term of the sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Term {
    /// What the memory is for.
    pub name: &'static str,
    /// The count.
    pub count: u64,
    /// Bytes of one.
    pub bytes_each: u64,
    /// When it is needed.
    pub basis: Basis,
    /// The settings that decide it.
    pub settings: &'static str,
}

impl Term {
    /// Count times bytes.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.bytes_each)
    }
}

/// The sum and its terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemorySum {
    /// In the order in which an event passes them.
    pub terms: Vec<Term>,
}

impl MemorySum {
    /// The sum of all terms.
    pub fn bytes(&self) -> u64 {
        self.terms.iter().fold(0, |sum, term| sum.saturating_add(term.bytes()))
    }

    /// The sum without the terms of full buffers.
    pub fn standing_bytes(&self) -> u64 {
        let standing = self.terms.iter().filter(|term| term.basis != Basis::Peak);
        standing.fold(0, |sum, term| sum.saturating_add(term.bytes()))
    }
}

/// A table with one term per line.
impl fmt::Display for MemorySum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for term in &self.terms {
            let basis = match term.basis {
                Basis::Standing => "standing",
                Basis::Estimate => "estimate",
                Basis::Peak => "peak",
            };
            let (each, total) = (Rounded(term.bytes_each).to_string(), Rounded(term.bytes()).to_string());
            let sum = format!("{:<18}{:>9} x {each:>9} = {total:>9}", term.name, term.count);
            writeln!(f, "{sum}  {basis:<9} {}", term.settings)?;
        }
        writeln!(f, "{:<41}{:>10}", "together, every count reached", Rounded(self.standing_bytes()).to_string())?;
        write!(f, "{:<41}{:>10}", "and every buffer full at once", Rounded(self.bytes()).to_string())
    }
}

/// Bytes with one decimal.
struct Rounded(u64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
            .into_iter()
            .find(|(_, unit)| self.0 >= *unit)
        {
            Some((name, unit)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Computes the sum of a configuration. `cores` is the number of loops if the configuration does not give one.
pub fn memory_sum(config: &Config, cores: usize) -> MemorySum {
    let mut terms = client_terms(config, cores);
    if config.http.tls.certificate_file.is_some() {
        let (connections, settings) = (config.client.connection_count_max, "http.tls, client.connection_count_max");
        terms.push(standing("TLS sessions", connections, TLS_CONNECTION_BYTES, settings));
        terms.push(peak("TLS records", connections, TLS_RECORD_BYTES, settings));
    }
    terms.extend(hook_terms(config));
    terms.extend(feed_terms(config));
    terms.extend(channel_terms(config));
    terms.extend(delivery_terms(config));
    if config.console.enabled {
        let sessions = config.console.session_count_max;
        terms.push(standing("console", 1, SAMPLE_BYTES as u64, "console.enabled"));
        terms.push(standing("logins", sessions, SESSION_BYTES as u64, "console.session_count_max"));
    }
    if config.influx.address.is_some() {
        terms.push(batched("metrics to send", INFLUX_BUFFER_BYTES, "influx.address"));
    }
    if config.traces.endpoint.is_some() {
        terms.push(peak("spans to send", SPAN_COUNT_MAX, SPAN_BYTES, "traces.endpoint"));
    }
    if config.audit.enabled {
        terms.push(batched("audit lines to write", tidings_audit::BUFFER_BYTES, "audit.enabled"));
    }
    terms.push(batched("log lines to write", LOG_BYTES_MAX, "fixed"));
    MemorySum { terms }
}

/// The bytes that wait in a batching writer, and its pages while they wait (see [`tidings_batch`]).
fn batched(name: &'static str, bytes_max: usize, settings: &'static str) -> Term {
    peak(name, 1, 3 * bytes_max as u64, settings)
}

fn standing(name: &'static str, count: usize, bytes_each: u64, settings: &'static str) -> Term {
    Term { name, count: count as u64, bytes_each, basis: Basis::Standing, settings }
}

fn peak(name: &'static str, count: usize, bytes_each: u64, settings: &'static str) -> Term {
    Term { basis: Basis::Peak, ..standing(name, count, bytes_each, settings) }
}

/// The known entries of all feeds, and the documents that are read at once.
fn feed_terms(config: &Config) -> Vec<Term> {
    let known = config.feeds.values().map(|feed| feed.known_count_max).sum();
    let reads = config.feeds.len().min(POLL_COUNT_MAX) + config.feeds.values().filter(|feed| feed.received).count();
    let all = vec![
        standing("known entries", known, FEED_ENTRY_BYTES, "feeds.NAME.known_count_max"),
        peak("documents", reads, DOCUMENT_BYTES, "feeds, limits of their mappings"),
    ];
    if config.feeds.is_empty() { Vec::new() } else { all }
}

fn client_terms(config: &Config, cores: usize) -> Vec<Term> {
    let (http, client, edge) = (&config.http, &config.client, &config.edge);
    let connections = client.connection_count_max;
    let loops = if edge.loops == 0 { cores } else { edge.loops };
    // A reply with a single publication may exceed the limit.
    let reply = client.reply_bytes_max.0.max(http.body_bytes_max.0);
    let subscriptions = connections.saturating_mul(client.channel_count_max);
    let mut terms = vec![
        // A MessagePack body and its JSON are in memory at the same time.
        peak(
            "requests",
            http.request_count_max,
            2 * http.body_bytes_max.0,
            "http.request_count_max, http.body_bytes_max",
        ),
        standing("connections", connections, CONNECTION_BYTES, "client.connection_count_max"),
        peak("received commands", 1, edge.input_bytes_max.0, "edge.input_bytes_max"),
        peak("commands in work", loops, COMMAND_BYTES + client.frame_bytes_max.0, "edge.loops, client.frame_bytes_max"),
        standing("subscriptions", subscriptions, SUBSCRIPTION_BYTES, "client.channel_count_max"),
        peak(
            "waiting replies",
            loops,
            edge.replies_bytes_max(loops) + edge.control_bytes_max.0 + REPLY_COPIES * reply,
            "edge.loops, edge.memory_bytes_max, edge.control_bytes_max, client.reply_bytes_max, http.body_bytes_max",
        ),
        peak("turns", loops, edge.turn_bytes_max.0, "edge.loops, edge.turn_bytes_max"),
    ];
    if config.all_namespaces().any(|(_, namespace)| namespace.allow_tags_filter) {
        terms.push(standing(
            "tags filters",
            subscriptions,
            TAGS_FILTER_BYTES,
            "client.channel_count_max, allow_tags_filter",
        ));
    }
    if client.sse || client.http_stream {
        terms.push(peak("on their way", loops, EMULATED_BYTES_MAX as u64, "edge.loops"));
    }
    terms
}

fn hook_terms(config: &Config) -> Vec<Term> {
    let calls = config.hooks.values().map(|hook| {
        let question = config.client.frame_bytes_max.0 + COMMAND_BYTES; // The command waits for the answer.
        let in_flight = HOOK_CALL_BYTES + question + 2 * hook.answer_bytes_max.0;
        hook.in_flight_max as u64 * in_flight + hook.waiting_max as u64 * question
    });
    let keeps_headers = config.hooks.values().any(|hook| !hook.client_headers.is_empty());
    let (headers, connections) = (HOOK_HEADER_BYTES_MAX as u64, config.client.connection_count_max);
    let calls = Some(calls.sum()).filter(|bytes| *bytes > 0);
    let calls = calls.map(|bytes| peak("calls of hooks", 1, bytes, "hooks.*, client.frame_bytes_max"));
    let headers = keeps_headers.then(|| {
        peak("headers for hooks", connections, headers, "hooks.*.client_headers, client.connection_count_max")
    });
    calls.into_iter().chain(headers).collect()
}

fn channel_terms(config: &Config) -> Vec<Term> {
    let channels = config.channels.count_max;
    let has_durable = config.all_namespaces().any(|(_, it)| it.durable);
    let durable = if has_durable { config.store.channel_count_max as usize } else { 0 };
    let longest = |durable| {
        let alike = config.all_namespaces().filter(|(_, it)| it.durable == durable);
        u64::from(alike.map(|(_, it)| it.history_size).max().unwrap_or(0)) * PUBLICATION_BYTES
    };
    let (history, read) = (longest(false), longest(true));
    let settings = "channels.count_max, with durable ones store.channel_count_max";
    let mut terms = vec![
        standing("channels", channels.saturating_add(durable), CHANNEL_BYTES, settings),
        standing(
            "durable histories",
            has_durable.into(),
            config.store.history_cache_bytes.0,
            "store.history_cache_bytes",
        ),
        peak("channel logs", 1, config.edge.logs_bytes_max(), "edge.memory_bytes_max"),
        peak("histories being read", HISTORY_READ_COUNT_MAX, read, "the longest history_size of durable channels"),
        Term {
            basis: Basis::Estimate,
            ..standing("channel histories", channels, history, "channels.count_max, the longest history_size")
        },
        peak("receipts", 1, config.edge.receipt_bytes_max.0, "edge.receipt_bytes_max"),
        peak("idempotency keys", IDEMPOTENCY_KEY_COUNT_MAX, IDEMPOTENCY_KEY_BYTES_MAX as u64, "fixed"),
    ];
    if config.all_namespaces().any(|(_, it)| it.allow_thinning || it.slow_readers != SlowReaders::Disconnect) {
        // The publications of the logs, to tell slow readers what they have not got. They are no larger than what is written.
        let settings = "edge.memory_bytes_max, slow_readers, allow_thinning";
        terms.push(peak("slow readers", 1, config.edge.logs_bytes_max(), settings));
    }
    terms
}

/// What a job for all devices takes, of which as many answer as may be connected.
fn largest_job_bytes(config: &Config, lane_count: usize) -> u64 {
    let (store, sender) = (&config.store, &config.sender);
    let audience = Extent::dense(store.device_count_max.into());
    let size = JobSize {
        audience,
        muted: audience,
        lane_count,
        in_flight_max: (sender.window_device_count * sender.window_open_count_max) as u64,
        rendering_count: lane_count * RENDERING_COUNT,
    };
    let answered = Extent { len: audience.len.min(config.client.connection_count_max as u64), ..audience };
    size.bytes() as u64 + answered.bytes(1)
}

fn delivery_terms(config: &Config) -> Vec<Term> {
    let (store, sender) = (&config.store, &config.sender);
    let queued: u64 = [store.event_queue_bytes_max, store.device_queue_bytes_max, store.import_queue_bytes_max]
        .iter()
        .map(|ByteSize(bytes)| *bytes)
        .sum();
    let devices = store.device_count_max as usize;
    let apps = config.apns.values().map(|section| &section.apps);
    let apps = apps.chain(config.fcm.values().map(|section| &section.apps));
    let services = config.web_push.values().map(|section| services(section).len() * section.apps.len());
    let lanes = apps.map(Vec::len).chain(services).sum::<usize>().max(1);
    // The largest job may begin while there is room for a small one.
    let jobs = sender.job_bytes_max.0 + largest_job_bytes(config, lanes);
    let tellings = if config.webhook.url.is_some() { 2 * sender.report_count_max } else { 0 };
    let changes = config.webhook.presence_url.as_ref().map_or(0, |_| config.webhook.presence_count_max);
    let (lakes, in_flight) = provider_counts(config);
    let browser = config.web_push.values().map(browser_connection_count).sum();
    vec![
        peak("store queues", 1, queued, "store.*_queue_bytes_max"),
        peak("store write buffers", 1, WRITE_BUFFER_BYTES_MAX, "fixed"),
        standing("store cache", 1, store.cache_bytes.0, "store.cache_bytes"),
        standing("devices", devices, DEVICE_BYTES, "store.device_count_max"),
        peak("jobs", 1, jobs, "sender.job_bytes_max, store.device_count_max, *.apps"),
        peak("waiting jobs", WAITING_PER_SLOT * sender.job_count_max, WAITING_JOB_BYTES, "sender.job_count_max"),
        peak("sets of waiting jobs", 1, sender.job_bytes_max.0 / WAITING_BYTES_PART as u64, "sender.job_bytes_max"),
        standing("reports", sender.report_count_max, REPORT_BYTES, "sender.report_count_max"),
        peak("trails of jobs", 1, sender.why_bytes_max.0, "sender.why_bytes_max"),
        peak("webhook backlog", tellings, TELLING_BYTES, "webhook.url, sender.report_count_max"),
        peak("presence changes", changes, PRESENCE_CHANGE_BYTES, "webhook.presence_url, webhook.presence_count_max"),
        peak("lakes", lakes, NOTIFICATION_BYTES, "*.lake_capacity, a lake for each priority"),
        peak("in flight", in_flight, IN_FLIGHT_BYTES, "*.connection_count_max, *.stream_count_max"),
        peak("repeats", WAITING_FACTOR * in_flight, NOTIFICATION_BYTES, "*.connection_count_max, *.stream_count_max"),
        peak(
            "browser services",
            browser,
            BROWSER_BYTES,
            "web_push.*.origin_count_max, web_push.*.connection_count_max",
        ),
    ]
}

/// The maximum number of origins of each push service with connections of its own, if it is known.
fn services(web_push: &WebPush) -> Vec<Option<usize>> {
    let rules = web_push.rules().map_or(Vec::new(), |rules| rules.by_host());
    rules.into_iter().map(|(_, rules)| rules.origin_count_max()).collect()
}

/// Connections to browsers' push services, quarantines included.
fn browser_connection_count(web_push: &WebPush) -> usize {
    let origins = services(web_push).into_iter().map(|count| count.unwrap_or(web_push.origin_count_max));
    2 * origins.sum::<usize>() * web_push.connection_count_max
}

/// The most notifications in lakes, and in flight, of all providers.
fn provider_counts(config: &Config) -> (usize, usize) {
    let apns = config.apns.values().map(|it| {
        let pools = 1 + usize::from(it.quarantine_connection_count > 0);
        let connections = it.connection_count_max + it.quarantine_connection_count;
        (pools * it.lake_capacity, connections * it.stream_count_max)
    });
    let fcm = config.fcm.values().map(|it| (it.lake_capacity, it.connection_count_max * it.stream_count_max));
    // Each service has a pool and a quarantine. The gateway itself holds as many notifications as its lakes.
    let web = config.web_push.values().map(|it| (2 * 2 * services(it).len() * it.lake_capacity, 0));
    let sum = |(lakes, in_flight), (lake, streams)| (lakes + EventPriority::ALL.len() * lake, in_flight + streams);
    apns.chain(fcm).chain(web).fold((0, 0), sum)
}
