//! Readers over a bad network, as a simulation without clock, threads and sockets. One seed decides everything: which
//! publications come, how fast each link is, after which byte it is cut, when the server is killed. The same seed gives the
//! same trace.
//!
//! The hub is the real one. What stands in for the rest is small: a loop that hands frames on as the edge does, links of
//! bytes, and readers that know what an SDK knows (their position, and the data before). A reader must be able to account
//! for each publication: it has it, or it was told of a gap. A gap must have a reason.
//!
//! `TIDINGS_SEED=7 cargo test -p tidings-hub --test it simulation -- --nocapture` runs one seed and prints its trace.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tidings_hub::Channel;
use tidings_protocol::RecoveryMode;
use tidings_types::PushForm;

use super::*;

#[path = "../../../protocol/tests/it/undelta.rs"]
mod undelta;

const SEEDS: std::ops::Range<u64> = 1..41;
const STEPS: usize = 1_500;
const CHANNELS: [&str; 3] = ["memory:1", "journal:1", "latest:1"];
const HISTORY_SIZE: usize = 12;
const HISTORY_TTL_MS: u64 = 10_000;
const MONTH_MS: u64 = 31 * 24 * 3600 * 1000;
const TAIL_FRAMES: usize = 10;
const READERS: usize = 9;
const LOOPS: usize = 2;
/// A link takes another frame while it holds fewer bytes.
const LINK_BYTES: usize = 250;
const RESUME_LIMIT: usize = 9;

/// What was published at an offset.
struct Written {
    data: String,
    is_odd: bool,
}

/// What a channel holds in one epoch, as the rules say.
#[derive(Default)]
struct Stream {
    written: BTreeMap<u64, Written>,
    /// The last offset that the hub knows; a journal may be ahead of it.
    top: u64,
    /// Up to here nothing is kept, whatever the size of the history is.
    removed: u64,
    published_at: Timestamp,
}

impl Stream {
    /// Whether a reader at `offset` can be given all that it has missed.
    fn keeps_from(&self, offset: u64) -> bool {
        let first = (self.top.saturating_sub(HISTORY_SIZE as u64)).max(self.removed) + 1;
        offset <= self.top && offset + 1 >= first && self.top - offset <= RESUME_LIMIT as u64
    }

    fn expire(&mut self, now: Timestamp) {
        if self.published_at.0 + HISTORY_TTL_MS <= now.0 {
            self.removed = self.top;
        }
    }
}

/// A connection, and what is on its way.
struct Link {
    on: usize,
    client: ClientId,
    channel: Arc<Channel>,
    epoch: String,
    /// Index of the next frame for it.
    next: u64,
    has_base: bool,
    /// Written by the server, not yet there.
    bytes: VecDeque<u8>,
    /// Arrived, without a whole message.
    arrived: Vec<u8>,
}

/// What an application has at the other end.
struct Reader {
    channel: &'static str,
    form: PushForm,
    wants_odd_only: bool,
    /// Bytes that arrive at a time.
    speed: usize,
    /// The last position that it knows.
    position: Option<(String, u64)>,
    /// The data of the last publication, for the next delta.
    base: Option<String>,
    link: Option<Link>,
}

impl Reader {
    fn wants(&self, written: &Written) -> bool {
        !self.wants_odd_only || written.is_odd
    }
}

/// One loop of the edge: the next frame of each channel that it reads.
#[derive(Default)]
struct Loop {
    next: BTreeMap<&'static str, (Arc<Channel>, u64)>,
}

/// What has happened, so that a run without events is noticed.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    received: usize,
    deltas: usize,
    recovered: usize,
    gaps: usize,
    slow: usize,
    torn: usize,
    restarts: usize,
    months: usize,
    epochs: usize,
}

struct World {
    random: StdRng,
    now: Timestamp,
    hub: Hub,
    loops: Vec<Loop>,
    readers: Vec<Reader>,
    /// By channel and epoch.
    streams: BTreeMap<(&'static str, String), Stream>,
    /// What the journal has accepted and the hub has not got yet.
    accepted: VecDeque<u64>,
    client_count: u128,
    value: u64,
    /// In the order in which they were seen: their texts are random, and differ between two runs.
    epochs: Vec<String>,
    trace: String,
    counts: Counts,
}

fn new_hub() -> Hub {
    let ttl = Duration::from_millis(HISTORY_TTL_MS);
    let memory = NamespaceOptions { history_size: HISTORY_SIZE as u32, history_ttl: ttl, ..NamespaceOptions::closed() };
    let named = BTreeMap::from([
        ("memory".to_owned(), memory),
        ("journal".to_owned(), NamespaceOptions { durable: true, ..memory }),
        ("latest".to_owned(), NamespaceOptions { recovery_mode: RecoveryMode::Cache, ..memory }),
    ]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max: 3,
        tail: TailBounds { frame_count_max: TAIL_FRAMES, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 1,
        receipt_bytes_max: 256 << 20,
    };
    Hub::new(config, LOOPS)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let readers = (0..READERS).map(|index| Reader {
            channel: CHANNELS[index % CHANNELS.len()],
            form: PushForm { has_deltas: index % 2 == 1, ..JSON.into() },
            wants_odd_only: index / CHANNELS.len() == 2,
            speed: [7, 60, 1_000][random.random_range(0..3)],
            position: None,
            base: None,
            link: None,
        });
        let readers = readers.collect();
        Self {
            random,
            now: NOW,
            hub: new_hub(),
            loops: (0..LOOPS).map(|_| Loop::default()).collect(),
            readers,
            streams: BTreeMap::new(),
            accepted: VecDeque::new(),
            client_count: 0,
            value: 0,
            epochs: Vec::new(),
            trace: String::new(),
            counts: Counts::default(),
        }
    }

    fn run(mut self) -> (String, Counts) {
        for _ in 0..STEPS {
            let who = self.random.random_range(0..READERS);
            match self.random.random_range(0..100) {
                0..30 => self.publish(),
                30..38 => self.apply(),
                38..62 => self.turn(who % LOOPS),
                62..88 => self.arrive(who),
                88..92 => self.cut(who, "cut"),
                92..96 => self.connect_all(),
                96 => self.restart(),
                97 => match who {
                    0..4 => self.pass_months(),
                    _ => self.pass_time(6_000),
                },
                98 => self.remove_history(),
                _ => self.forget_position(who),
            }
        }
        self.finish();
        (self.trace, self.counts)
    }

    fn note(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.trace, "{line}").unwrap();
    }

    /// The number of an epoch in the trace.
    fn epoch_number(&mut self, epoch: &str) -> usize {
        let known = self.epochs.iter().position(|known| known == epoch);
        known.unwrap_or_else(|| {
            self.epochs.push(epoch.to_owned());
            self.epochs.len() - 1
        })
    }

    /// A server's life has one current epoch for each channel.
    fn epoch(&self, name: &str) -> String {
        self.hub.history(&channel(name), HistoryFilter::default()).unwrap().1.epoch.as_str().to_owned()
    }

    fn stream(&mut self, name: &'static str) -> &mut Stream {
        let epoch = self.epoch(name);
        self.streams.entry((name, epoch)).or_default()
    }

    fn publish(&mut self) {
        let name = CHANNELS[self.random.random_range(0..CHANNELS.len())];
        for _ in 0..self.random.random_range(1..5) {
            self.value += 1;
            let (value, now) = (self.value, self.now);
            let data = format!("{{\"score\":{value},\"text\":\"the same words in each publication\"}}");
            let written = Written { data, is_odd: value % 2 == 1 };
            let stream = self.stream(name);
            let offset = stream.written.keys().next_back().map_or(1, |last| last + 1);
            let publication = as_publication(&written);
            stream.written.insert(offset, written);
            self.note(format_args!("publish {name} {offset} {value}"));
            if name == "journal:1" {
                self.accepted.push_back(offset);
                continue;
            }
            let stream = self.stream(name);
            (stream.top, stream.published_at) = (offset, now);
            let new = NewPublication { publication, skip_history: false };
            let position = self.hub.publish(&channel(name), new, now).unwrap().expect("it is kept");
            assert_eq!(position.offset.0, offset, "{name}");
        }
    }

    /// The hub gets what the journal has accepted.
    fn apply(&mut self) {
        let now = self.now;
        while let Some(offset) = self.accepted.pop_front() {
            let stream = self.stream("journal:1");
            let publication = as_publication(&stream.written[&offset]);
            if offset > stream.top {
                (stream.top, stream.published_at) = (offset, now);
            }
            self.hub.publish_durable(&channel("journal:1"), Offset(offset), publication, now).unwrap();
            self.note(format_args!("apply {offset}"));
        }
    }

    /// A loop fetches what is new, once for all its readers, and writes to those that have room.
    fn turn(&mut self, on: usize) {
        let (loop_id, mailbox) = self.hub.loops().nth(on).expect("there are so many");
        let mut dirty = Vec::new();
        mailbox.take(&mut dirty);
        for channel in dirty {
            let known = self.loops[on].next.iter_mut().find(|(name, _)| **name == channel.name().as_str());
            let Some((&name, (same, next))) = known else { continue };
            if !Arc::ptr_eq(same, &channel) {
                continue; // It was forgotten and made anew since.
            }
            channel.clear_dirty(loop_id);
            let mut frames = Vec::new();
            loop {
                match channel.fetch(*next, 200, &mut frames) {
                    Ok((end, more)) => {
                        *next = end;
                        if !more {
                            break;
                        }
                    }
                    Err(lagged) => *next += lagged.missed,
                }
            }
            for who in self.linked(on, name) {
                self.write(who);
            }
            self.settle(on, name);
        }
    }

    fn linked(&self, on: usize, name: &str) -> Vec<usize> {
        let is_linked =
            |reader: &Reader| reader.channel == name && reader.link.as_ref().is_some_and(|link| link.on == on);
        (0..READERS).filter(|who| is_linked(&self.readers[*who])).collect()
    }

    /// Writes what the reader lacks while its link has room. A reader that was overtaken is cut off.
    fn write(&mut self, who: usize) {
        let reader = &mut self.readers[who];
        let Some(link) = &mut reader.link else { return };
        let until = self.loops[link.on].next[reader.channel].1;
        while link.next < until && link.bytes.len() < LINK_BYTES {
            let mut frames = Vec::new();
            if link.channel.fetch(link.next, 1, &mut frames).is_err() {
                self.counts.slow += 1;
                return self.cut(who, "slow");
            }
            let tags = match &frames[0].kind {
                tidings_stream::FrameKind::Publication(tags) => tags,
                tidings_stream::FrameKind::JoinLeave => unreachable!("nobody asks for these"),
                tidings_stream::FrameKind::Restart => unreachable!("no other hub is the home"),
            };
            let is_wanted = !reader.wants_odd_only || tags.get("odd") == Some("yes");
            if is_wanted {
                let bytes = frames[0].bytes(reader.form, link.has_base);
                assert!(!bytes.is_empty(), "a reader's frames have its form");
                link.bytes.extend(bytes);
            }
            (link.next, link.has_base) = (link.next + 1, is_wanted);
        }
    }

    fn settle(&mut self, on: usize, name: &'static str) {
        let Some((channel, next)) = self.loops[on].next.get(name).cloned() else { return };
        let linked = self.linked(on, name);
        let slowest = linked.iter().filter_map(|who| Some(self.readers[*who].link.as_ref()?.next)).min();
        let loop_id = loop_ids(&self.hub)[on];
        let base = channel.settle(loop_id, slowest.unwrap_or(next));
        for who in linked {
            if self.readers[who].link.as_ref().is_some_and(|link| link.next < base) {
                self.counts.slow += 1;
                self.cut(who, "slow");
            }
        }
    }

    /// Bytes arrive at a reader, and its link has room again.
    fn arrive(&mut self, who: usize) {
        let speed = self.readers[who].speed;
        self.deliver(who, speed);
        self.write(who);
        if let Some(on) = self.readers[who].link.as_ref().map(|link| link.on) {
            self.settle(on, self.readers[who].channel);
        }
    }

    fn deliver(&mut self, who: usize, count: usize) {
        let Some(link) = &mut self.readers[who].link else { return };
        let count = count.min(link.bytes.len());
        link.arrived.extend(link.bytes.drain(..count));
        let mut messages = Vec::new();
        while let Some((message, length)) = first_message(&link.arrived) {
            messages.push(message);
            link.arrived.drain(..length);
        }
        for message in messages {
            self.receive(who, &message["push"]["pub"]);
        }
    }

    /// A publication is there: it is the next one that the reader wants, and its data is what was published.
    fn receive(&mut self, who: usize, publication: &Value) {
        let offset = publication["offset"].as_u64().expect("an offset");
        let reader = &self.readers[who];
        let data = match (&publication["data"], publication["delta"].as_bool()) {
            (Value::String(delta), Some(true)) => {
                self.counts.deltas += 1;
                let base = reader.base.as_ref().expect("a delta needs the data before");
                let data = undelta::apply(base.as_bytes(), delta.as_bytes()).expect("a delta for this data");
                String::from_utf8(data).unwrap()
            }
            (Value::String(whole), _) => whole.clone(),
            (data, _) => data.to_string(),
        };
        self.counts.received += 1;
        self.note(format_args!("reader {who} has {offset}"));
        self.take(who, offset, &data);
    }

    fn take(&mut self, who: usize, offset: u64, data: &str) {
        let reader = &mut self.readers[who];
        let (epoch, before) = reader.position.clone().expect("it has subscribed");
        let stream = &self.streams[&(reader.channel, epoch.clone())];
        assert!(offset > before, "reader {who} has {before} and gets {offset}");
        let missed: Vec<u64> = stream.written.range(before + 1..offset).map(|(offset, _)| *offset).collect();
        let missed = missed.into_iter().filter(|offset| reader.wants(&stream.written[offset])).collect::<Vec<_>>();
        assert!(missed.is_empty(), "reader {who} has {before}, gets {offset} and was not told of {missed:?}");
        let written = &stream.written[&offset];
        assert!(reader.wants(written), "reader {who} gets {offset}, which it does not want");
        let as_value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(as_value(data), as_value(&written.data), "reader {who} at {offset}");
        reader.base = Some(written.data.clone());
        reader.position = Some((epoch, offset));
    }

    /// The link ends. Some of what was on its way still arrives, perhaps half a message.
    fn cut(&mut self, who: usize, why: &str) {
        let Some(link) = &self.readers[who].link else { return };
        let count = self.random.random_range(0..=link.bytes.len());
        self.deliver(who, count);
        let reader = &mut self.readers[who];
        let link = reader.link.take().expect("it is there");
        self.counts.torn += usize::from(!link.arrived.is_empty());
        reader.base = None;
        let (name, form) = (reader.channel, reader.form);
        self.hub.unsubscribe(&link.channel, loop_ids(&self.hub)[link.on], link.client, None, form);
        if self.linked(link.on, name).is_empty() {
            self.loops[link.on].next.remove(name);
        }
        self.note(format_args!("reader {who} {why}, {} bytes of a message", link.arrived.len()));
    }

    fn connect_all(&mut self) {
        for who in 0..READERS {
            if self.readers[who].link.is_none() {
                self.connect(who);
            }
        }
    }

    fn connect(&mut self, who: usize) {
        self.client_count += 1;
        let (on, client) = (self.random.random_range(0..LOOPS), ClientId::from_random(self.client_count));
        let reader = &self.readers[who];
        let name = reader.channel;
        let resume = reader.position.clone().map(|(epoch, offset)| ResumeFrom {
            offset: Offset(offset),
            epoch: Some(epoch),
            limit: RESUME_LIMIT.into(),
            is_required: false,
        });
        let member = Member::reader(loop_ids(&self.hub)[on], client, reader.form);
        let subscribed = self.hub.subscribe(&channel(name), &member, resume.as_ref()).unwrap();
        let (epoch, top) = (subscribed.top.epoch.as_str().to_owned(), subscribed.top.offset.0);
        let loops = self.loops[on].next.entry(name);
        loops.or_insert_with(|| (subscribed.channel.clone(), subscribed.next));
        let stream = self.streams.entry((name, epoch.clone())).or_default();
        assert_eq!(top, stream.top, "{name}");
        let number = self.epoch_number(&epoch);
        self.note(format_args!("reader {who} joins {name} at {top} of epoch {number}"));
        let mut has_base = false;
        match subscribed.recovery {
            None => {}
            Some(Recovery::Gap(_)) => self.be_told_of_a_gap(who, &epoch),
            Some(Recovery::Recovered(publications)) => {
                let last = publications.last().map(|publication| publication.offset);
                self.recover(who, &epoch, &publications);
                has_base = last.is_some() && last == subscribed.delta_base && self.readers[who].base.is_some();
                self.must_lack_nothing(who, top);
            }
        }
        let reader = &mut self.readers[who];
        reader.position = Some((epoch.clone(), top));
        let (bytes, arrived) = (VecDeque::new(), Vec::new());
        let (channel, next) = (subscribed.channel, subscribed.next);
        reader.link = Some(Link { on, client, channel, epoch, next, has_base, bytes, arrived });
    }

    /// A gap has a reason: another epoch, or something missed is no longer kept.
    fn be_told_of_a_gap(&mut self, who: usize, epoch: &str) {
        let reader = &self.readers[who];
        let (before, offset) = reader.position.clone().expect("it wanted to resume");
        let stream = &self.streams[&(reader.channel, epoch.to_owned())];
        let is_latest_gone = reader.channel == "latest:1" && stream.removed == stream.top;
        let is_lost = before != epoch || is_latest_gone || !stream.keeps_from(offset);
        assert!(is_lost, "reader {who} is told of a gap behind {offset}, but all is kept");
        self.counts.gaps += 1;
        self.counts.epochs += usize::from(before != epoch);
        self.note(format_args!("reader {who} is told of a gap behind {offset}"));
    }

    fn recover(&mut self, who: usize, epoch: &str, publications: &[Publication]) {
        let reader = &mut self.readers[who];
        let (before, mut offset) = reader.position.clone().expect("it wanted to resume");
        if reader.channel == "latest:1" {
            // It asks for the newest alone, of whatever epoch.
            assert!(publications.len() <= 1);
            let Some(latest) = publications.first() else { return assert_eq!(before, epoch) };
            offset = latest.offset.0 - 1;
        }
        assert!(reader.channel == "latest:1" || before == epoch, "an epoch's offsets mean nothing in another one");
        reader.position = Some((epoch.to_owned(), offset));
        let wanted = |publication: &&Publication| !reader.wants_odd_only || publication.tags.get("odd") == Some("yes");
        let wanted: Vec<Publication> = publications.iter().filter(wanted).cloned().collect();
        let is_last_wanted = wanted.last().map(|last| last.offset) == publications.last().map(|last| last.offset);
        for publication in &wanted {
            self.counts.recovered += 1;
            self.note(format_args!("reader {who} recovers {}", publication.offset.0));
            self.take(who, publication.offset.0, publication.data.as_str());
        }
        if !is_last_wanted {
            self.readers[who].base = None;
        }
    }

    /// Up to `top` there is nothing that the reader wants and does not have.
    fn must_lack_nothing(&self, who: usize, top: u64) {
        let reader = &self.readers[who];
        let (epoch, offset) = reader.position.clone().expect("it has subscribed");
        if offset >= top {
            return;
        }
        let stream = &self.streams[&(reader.channel, epoch)];
        let lacks = stream.written.range(offset + 1..=top).find(|(_, written)| reader.wants(written));
        assert!(lacks.is_none(), "reader {who} has {offset} and lacks {:?}", lacks.map(|(offset, _)| offset));
    }

    /// The server is killed. What is durable is there again; the epochs of memory channels are over.
    fn restart(&mut self) {
        for who in 0..READERS {
            self.cut(who, "loses its server");
        }
        self.hub = new_hub();
        self.loops = (0..LOOPS).map(|_| Loop::default()).collect();
        self.counts.restarts += 1;
        let now = self.now;
        let stream = self.stream("journal:1");
        let Some(&top) = stream.written.keys().next_back() else { return };
        stream.expire(now);
        if top > stream.top {
            (stream.top, stream.published_at) = (top, now);
        }
        let first = (top.saturating_sub(HISTORY_SIZE as u64)).max(stream.removed) + 1;
        let kept = stream
            .written
            .range(first..)
            .map(|(offset, written)| Publication { offset: Offset(*offset), ..as_publication(written) });
        let (kept, at): (Vec<Publication>, Timestamp) = (kept.collect(), stream.published_at);
        self.hub = new_hub().with_histories(histories::Journal::with(kept));
        self.hub.restore(&channel("journal:1"), Offset(top), at).unwrap();
        histories::wait_for(self.hub.load(&channel("journal:1"), None));
        self.note(format_args!("restart at {top}"));
    }

    /// Nobody is there for so long that channels are forgotten. The journal's next offset is behind all earlier ones.
    fn pass_months(&mut self) {
        self.apply();
        for who in 0..READERS {
            self.cut(who, "goes home");
        }
        let top = self.stream("journal:1").top;
        self.hub.on_channel_forgotten(&channel("journal:1"), Offset(top));
        for _ in 0..3 {
            self.pass_time(1);
            self.now = Timestamp(self.now.0 + MONTH_MS);
        }
        assert_eq!(self.hub.counts().channels, 0);
        self.counts.months += 1;
    }

    fn pass_time(&mut self, most: u64) {
        self.now = Timestamp(self.now.0 + self.random.random_range(0..most));
        let now = self.now;
        self.hub.sweep(now);
        for name in CHANNELS {
            self.stream(name).expire(now);
        }
        self.note(format_args!("time {}", now.0));
    }

    fn remove_history(&mut self) {
        let name = CHANNELS[self.random.random_range(0..CHANNELS.len())];
        self.hub.remove_history(&channel(name), None);
        let stream = self.stream(name);
        stream.removed = stream.top;
        self.note(format_args!("the history of {name} is removed"));
    }

    /// The application begins anew: it wants what comes from now on.
    fn forget_position(&mut self, who: usize) {
        self.cut(who, "leaves");
        self.readers[who].position = None;
    }

    /// The network is good from now on: every reader must have everything.
    fn finish(&mut self) {
        self.apply();
        for _ in 0..10 {
            self.connect_all();
            for on in 0..LOOPS {
                self.turn(on);
            }
            for who in 0..READERS {
                while self.readers[who].link.as_ref().is_some_and(|link| !link.bytes.is_empty()) {
                    self.arrive(who);
                }
            }
        }
        for who in 0..READERS {
            let reader = &self.readers[who];
            let link = reader.link.as_ref().expect("the network is good");
            let stream = &self.streams[&(reader.channel, link.epoch.clone())];
            self.must_lack_nothing(who, stream.top);
        }
    }
}

fn as_publication(written: &Written) -> Publication {
    let odd = if written.is_odd { "yes" } else { "no" };
    let tags = Tags::from(BTreeMap::from([("odd".to_owned(), odd.to_owned())]));
    let data = Json::parse(written.data.as_bytes()).unwrap();
    Publication { data, tags, ..publication(0) }
}

/// The first whole message of a WebSocket's bytes, and its length with the header.
fn first_message(bytes: &[u8]) -> Option<(Value, usize)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
        127.. => unreachable!("no message is so long"),
        length => (2, usize::from(length)),
    };
    let text = bytes.get(start..start + length)?;
    Some((serde_json::from_slice(text).expect("a message is whole"), start + length))
}

#[test]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "whoever repeats a seed reads its trace")]
fn every_reader_has_each_publication_or_was_told_of_a_gap() {
    if let Some(seed) = std::env::var("TIDINGS_SEED").ok().map(|seed| seed.parse().expect("a number")) {
        let (trace, counts) = World::new(seed).run();
        print!("{trace}");
        assert!(counts.received > 0, "{counts:?}");
        return;
    }
    for seed in SEEDS {
        let found = std::panic::catch_unwind(|| World::new(seed).run().1);
        let counts = found.unwrap_or_else(|fault| {
            eprintln!("TIDINGS_SEED={seed} repeats it");
            std::panic::resume_unwind(fault)
        });
        let Counts { received, deltas, recovered, gaps, slow, torn, restarts, months, epochs } = counts;
        let seen = [received, deltas, recovered, gaps, slow, torn, restarts, months, epochs];
        assert!(!seen.contains(&0), "seed {seed} tries too little: {counts:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, _) = World::new(3).run();
    assert_eq!(first, World::new(3).run().0);
    assert_ne!(first, World::new(4).run().0);
    assert!(first.lines().count() > STEPS / 2);
}
