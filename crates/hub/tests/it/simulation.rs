//! Readers over a bad network, as a simulation without clock, threads and sockets. One seed decides everything: which
//! publications come, how fast each link is, when it stops, after which byte it is cut, when the server is killed. The same
//! seed gives the same trace.
//!
//! The hub is the real one. What stands in for the rest is small: loops that hand frames on as those of the edge do ([`edge`]),
//! links of bytes, and readers that know what an SDK knows (their position, and the data before). A reader must be able to
//! account for each publication: it has it, or it was told of a gap. A gap must have a reason ([`judge`]).
//!
//! In each channel there are readers that get everything, and readers that may get less: that skip, that get the newest of each
//! key (`memory:1`: a tag, `journal:1`: a place in the data, `latest:1`: all have the same key), or that are written at most so often a
//! second. A link may stop: no byte goes through until it goes on, or until the server gives it up. One reader of each channel is
//! *healthy*: its link takes all at once, and neither stops nor is cut. It has each publication at once, whatever the others do.
//!
//! `TIDINGS_SEED=7 cargo test -p tidings-hub --test it simulation -- --nocapture` runs one seed and prints its trace.
//! `TIDINGS_SEED_COUNT=300` runs so many.

mod edge;
mod judge;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tidings_hub::Channel;
use tidings_protocol::{PublicationKey, RecoveryMode, SlowReaders, TagsFilter, Thinning, UnreadFilter};
use tidings_types::PushForm;

use self::edge::{Loop, Thin};
use self::judge::Sent;

use super::*;

#[path = "../../../protocol/tests/it/undelta.rs"]
mod undelta;

const SEED_COUNT: u64 = 40;
const STEPS: usize = 1_500;
const CHANNELS: [&str; 3] = ["memory:1", "journal:1", "latest:1"];
const HISTORY_SIZE: usize = 12;
const HISTORY_TTL_MS: u64 = 10_000;
const MONTH_MS: u64 = 31 * 24 * 3600 * 1000;
const TAIL_FRAMES: usize = 10;
/// The readers of each channel, with what each gets; the first one is healthy.
const READERS_EACH: [(SlowReaders, u32, Wants); 9] = [
    (SlowReaders::Disconnect, 0, Wants::All),
    (SlowReaders::Disconnect, 0, Wants::All),
    (SlowReaders::Disconnect, 0, Wants::All),
    (SlowReaders::Disconnect, 0, Wants::Odd),
    (SlowReaders::Skip, 0, Wants::All),
    (SlowReaders::Skip, 0, Wants::Odd),
    (SlowReaders::Latest, 0, Wants::All),
    (SlowReaders::Latest, 0, Wants::Odd),
    (SlowReaders::Latest, 4, Wants::All),
];
const READERS: usize = CHANNELS.len() * READERS_EACH.len();
/// The first readers.
const HEALTHY: usize = CHANNELS.len();
const LOOPS: usize = 2;
/// This loop takes a turn after each publication. The other one may be late.
const PROMPT_LOOP: usize = 0;
/// No message is longer.
const MESSAGE_BYTES_MAX: usize = 300;
const RESUME_LIMIT: usize = 9;

#[derive(Clone, Copy, PartialEq)]
enum Wants {
    All,
    Odd,
}

/// What was published at an offset.
struct Written {
    data: String,
    is_odd: bool,
    /// What it is about.
    thing: Option<u64>,
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
    thin: Thin,
    /// No byte goes through before this step.
    stopped_until: Option<usize>,
    /// It does not go on then, but is cut.
    is_dead: bool,
    /// Its first frame, and the channel's top at that time.
    joined_at: (u64, u64),
    /// Publications that no tail could hold any more when the server came to them.
    lost: BTreeSet<u64>,
    /// What is on its way.
    sent: VecDeque<Sent>,
    /// When the server wrote a publication last.
    written_at: Option<Timestamp>,
    /// Written by the server, not yet there.
    bytes: VecDeque<u8>,
    /// Arrived, without a whole message.
    arrived: Vec<u8>,
}

impl Link {
    fn new(on: usize, client: ClientId, subscribed: Subscribed, has_base: bool) -> Self {
        let Subscribed { channel, next, top, .. } = subscribed;
        Self {
            on,
            client,
            channel,
            epoch: top.epoch.as_str().to_owned(),
            next,
            has_base,
            thin: Thin::at(top.offset),
            stopped_until: None,
            is_dead: false,
            joined_at: (next, top.offset.0),
            lost: BTreeSet::new(),
            sent: VecDeque::new(),
            written_at: None,
            bytes: VecDeque::new(),
            arrived: Vec::new(),
        }
    }
}

/// What an application has at the other end.
struct Reader {
    channel: &'static str,
    form: PushForm,
    wishes: Wishes,
    /// Bytes that arrive at a time.
    speed: usize,
    /// It was told that something is left out, since it last joined.
    has_gap: bool,
    /// The last position that it knows.
    position: Option<(String, u64)>,
    /// The data of the last publication, for the next delta.
    base: Option<String>,
    link: Option<Link>,
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
    /// Gaps of which a reader that skips was told.
    skipped: usize,
    /// Gaps with a publication of another key than the one that came next, where the key is a tag.
    conflated_by_tag: usize,
    /// The same, where the key is in the data.
    conflated_by_data: usize,
    /// Gaps with something that was lost.
    overrun: usize,
    /// A reader was not written because of its limit per second.
    waits: usize,
    stops: usize,
    dead: usize,
    /// A reader resumed that had been told that something is left out.
    resumed_after_gap: usize,
}

impl Counts {
    fn all(&self) -> [usize; 17] {
        let Self { received, deltas, recovered, gaps, slow, torn, restarts, months, epochs, .. } = *self;
        let Self { skipped, conflated_by_tag, conflated_by_data, overrun, waits, .. } = *self;
        let Self { stops, dead, resumed_after_gap, .. } = *self;
        let network = [received, deltas, recovered, gaps, slow, torn, restarts, months, epochs];
        let thinned = [skipped, conflated_by_tag, conflated_by_data, overrun, waits, stops, dead, resumed_after_gap];
        let mut all = network.into_iter().chain(thinned);
        std::array::from_fn(|_| all.next().expect("they are so many"))
    }
}

impl Reader {
    /// The number of a reader is its channel's number and, three times, its place in the list of the channel's readers.
    fn new(number: usize) -> Self {
        let (slow_readers, per_second_max, wants) = READERS_EACH[number / CHANNELS.len()];
        let odd = Json::of(&serde_json::json!({"key": "odd", "cmp": "eq", "val": "yes"}));
        let filter = TagsFilter::read(&UnreadFilter::Json(odd)).unwrap();
        let filter = (wants == Wants::Odd).then(|| Arc::new(filter));
        Self {
            channel: CHANNELS[number % CHANNELS.len()],
            form: PushForm { has_deltas: number % 2 == 1, ..JSON.into() },
            wishes: Wishes { filter, joins: false, thinning: Thinning { slow_readers, per_second_max } },
            speed: usize::MAX,
            has_gap: false,
            position: None,
            base: None,
            link: None,
        }
    }
}

struct World {
    random: StdRng,
    step: usize,
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
    let memory = NamespaceOptions {
        history_size: HISTORY_SIZE as u32,
        history_ttl: ttl,
        history_meta_ttl: Duration::from_millis(MONTH_MS),
        ..NamespaceOptions::closed()
    };
    let named = BTreeMap::from([
        ("memory".to_owned(), memory),
        ("journal".to_owned(), NamespaceOptions { durable: true, ..memory }),
        ("latest".to_owned(), NamespaceOptions { recovery_mode: RecoveryMode::Cache, ..memory }),
    ]);
    let keys = [("memory", "thing"), ("journal", "/thing")];
    let keys = keys.map(|(namespace, key)| (namespace.to_owned(), PublicationKey::new(key)));
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named).with_keys(keys.into())),
        channel_count_max: 3,
        tail: TailBounds { frame_count_max: TAIL_FRAMES, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 1,
        receipt_bytes_max: 256 << 20,
    };
    Hub::new(config, LOOPS)
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            step: 0,
            now: NOW,
            hub: new_hub(),
            loops: (0..LOOPS).map(|_| Loop::default()).collect(),
            readers: (0..READERS).map(Reader::new).collect(),
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
        for step in 0..STEPS {
            self.step = step;
            self.end_stops();
            let (any, weak) = (self.random.random_range(0..READERS), self.random.random_range(HEALTHY..READERS));
            match self.random.random_range(0..100) {
                0..28 => self.publish(),
                28..36 => self.apply(),
                36..54 => self.turn(any % LOOPS),
                54..79 => self.arrive_at_some(),
                79..83 => self.cut(weak, "cut"),
                83..88 => self.connect_all(),
                88..90 => self.stop(weak),
                90..96 => self.pass_time(150),
                96 if any % 2 == 0 => self.restart(),
                96 | 97 => match any {
                    0..5 => self.pass_months(),
                    _ => self.pass_time(6_000),
                },
                98 => self.remove_history(),
                _ => self.forget_position(weak),
            }
            self.check_bounds();
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
            self.publish_in(name);
        }
    }

    fn publish_in(&mut self, name: &'static str) {
        self.value += 1;
        let (value, now) = (self.value, self.now);
        let thing = Some(self.random.random_range(0..5)).filter(|thing| *thing > 0);
        let about = thing.map(|thing| format!(",\"thing\":{thing}")).unwrap_or_default();
        let data = format!("{{\"score\":{value},\"text\":\"the same words in each publication\"{about}}}");
        let written = Written { data, is_odd: value % 2 == 1, thing };
        let stream = self.stream(name);
        let offset = stream.written.keys().next_back().map_or(1, |last| last + 1);
        let publication = as_publication(&written);
        stream.written.insert(offset, written);
        self.note(format_args!("publish {name} {offset} {value}"));
        if name == "journal:1" {
            return self.accepted.push_back(offset);
        }
        let stream = self.stream(name);
        (stream.top, stream.published_at) = (offset, now);
        let new = NewPublication { publication, skip_history: false };
        let position = self.hub.publish(&channel(name), new, now).unwrap().expect("it is kept");
        assert_eq!(position.offset.0, offset, "{name}");
        self.on_published(name, offset);
        self.serve_healthy();
    }

    /// The hub gets what the journal has accepted.
    fn apply(&mut self) {
        let now = self.now;
        while let Some(offset) = self.accepted.pop_front() {
            let stream = self.stream("journal:1");
            let publication = as_publication(&stream.written[&offset]);
            let is_new = offset > stream.top;
            if is_new {
                (stream.top, stream.published_at) = (offset, now);
            }
            self.hub.publish_durable(&channel("journal:1"), Offset(offset), publication, now).unwrap();
            self.note(format_args!("apply {offset}"));
            if is_new {
                self.on_published("journal:1", offset);
                self.serve_healthy();
            }
        }
    }

    /// Whatever the others do, a healthy reader has each publication at once.
    fn serve_healthy(&mut self) {
        self.turn(PROMPT_LOOP);
        for who in 0..HEALTHY {
            while self.readers[who].link.as_ref().is_some_and(|link| !link.bytes.is_empty()) {
                self.arrive(who);
            }
            let Reader { channel, link, position, .. } = &self.readers[who];
            let Some(link) = link else { continue };
            let top = self.streams[&(*channel, link.epoch.clone())].top;
            let has = position.as_ref().map(|(_, offset)| *offset);
            assert_eq!(has, Some(top), "healthy reader {who}");
        }
    }

    fn arrive_at_some(&mut self) {
        for _ in 0..3 {
            let who = self.random.random_range(0..READERS);
            self.arrive(who);
        }
    }

    /// Bytes arrive at a reader, and its link has room again.
    fn arrive(&mut self, who: usize) {
        let is_stopped = |link: &Link| link.stopped_until.is_some();
        if self.readers[who].link.as_ref().is_none_or(is_stopped) {
            return;
        }
        self.deliver(who, self.readers[who].speed);
        self.catch_up(who);
        if let Some(on) = self.readers[who].link.as_ref().map(|link| link.on) {
            self.settle(on, self.readers[who].channel);
        }
        self.must_have_what_was_written(who);
    }

    /// A link stops, for a while or for ever.
    fn stop(&mut self, who: usize) {
        let until = self.step + self.random.random_range(20..120);
        let is_dead = self.random.random_bool(0.4);
        let Some(link) = self.readers[who].link.as_mut().filter(|link| link.stopped_until.is_none()) else { return };
        (link.stopped_until, link.is_dead) = (Some(until), is_dead);
        self.counts.stops += 1;
        self.note(format_args!("the link of reader {who} stops until step {until}"));
    }

    /// Links go on, or the server gives them up.
    fn end_stops(&mut self) {
        for who in 0..READERS {
            let is_over = |link: &&mut Link| link.stopped_until.is_some_and(|until| until <= self.step);
            let Some(link) = self.readers[who].link.as_mut().filter(is_over) else { continue };
            if link.is_dead {
                self.counts.dead += 1;
                self.cut(who, "takes nothing");
            } else {
                link.stopped_until = None;
                self.note(format_args!("the link of reader {who} goes on"));
            }
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

    /// The link ends. Some of what was on its way still arrives, perhaps half a message.
    fn cut(&mut self, who: usize, why: &str) {
        let Some(link) = &self.readers[who].link else { return };
        let count = if link.stopped_until.is_some() { 0 } else { self.random.random_range(0..=link.bytes.len()) };
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
        let speed = [7, 60, 1_000][self.random.random_range(0..3)];
        let (on, speed) = if who < HEALTHY { (PROMPT_LOOP, usize::MAX) } else { (on, speed) };
        let reader = &mut self.readers[who];
        let has_gap = std::mem::take(&mut reader.has_gap);
        reader.speed = speed;
        let name = reader.channel;
        let resume = reader.position.clone().map(|(epoch, offset)| ResumeFrom {
            offset: Offset(offset),
            epoch: Some(epoch),
            limit: RESUME_LIMIT.into(),
            is_required: false,
        });
        let wishes = reader.wishes.clone();
        let member = Member { wishes, ..Member::reader(loop_ids(&self.hub)[on], client, reader.form) };
        let mut subscribed = self.hub.subscribe(&channel(name), &member, resume.as_ref()).unwrap();
        let (epoch, top) = (subscribed.top.epoch.as_str().to_owned(), subscribed.top.offset.0);
        let loops = self.loops[on].next.entry(name);
        loops.or_insert_with(|| (subscribed.channel.clone(), subscribed.next));
        let stream = self.streams.entry((name, epoch.clone())).or_default();
        assert_eq!(top, stream.top, "{name}");
        let number = self.epoch_number(&epoch);
        self.note(format_args!("reader {who} joins {name} at {top} of epoch {number}"));
        let mut has_base = false;
        match subscribed.recovery.take() {
            None => {}
            Some(Recovery::Gap(_)) => self.be_told_of_a_gap(who, &epoch),
            Some(Recovery::Recovered(publications)) => {
                self.counts.resumed_after_gap += usize::from(has_gap);
                let last = publications.last().map(|publication| publication.offset);
                self.recover(who, &epoch, &publications);
                has_base = last.is_some() && last == subscribed.delta_base && self.readers[who].base.is_some();
                self.must_lack_nothing(who, top);
            }
        }
        let reader = &mut self.readers[who];
        reader.position = Some((epoch, top));
        reader.link = Some(Link::new(on, client, subscribed, has_base));
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
        self.hub = new_hub().with_histories(histories::Journal::at(kept, at), usize::MAX);
        self.hub.restore(&channel("journal:1"), Offset(top), at).unwrap();
        histories::wait_for(self.hub.load(&channel("journal:1"), tidings_hub::Wanted::Any));
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

    /// The network is good from now on: every reader must have everything that is not lost. What is published last reaches
    /// all of them, and tells of the rest. Then nothing is kept for anybody.
    fn finish(&mut self) {
        self.apply();
        self.step = usize::MAX;
        self.end_stops();
        self.flow();
        for _ in 0..2 {
            CHANNELS.iter().for_each(|name| self.publish_in(name)); // One of the two is odd.
        }
        self.apply();
        self.flow();
        for who in 0..READERS {
            self.must_be_at_the_top(who);
        }
        assert_eq!(self.hub.tail_bytes(), 0);
    }

    /// Everybody is connected, and all bytes arrive. A tail holds so few frames that each reader is soon in sync.
    fn flow(&mut self) {
        for _ in 0..TAIL_FRAMES + 2 {
            self.connect_all();
            self.now = Timestamp(self.now.0 + 500);
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
            let top = self.stream(self.readers[who].channel).top;
            self.must_lack_nothing(who, top);
        }
    }
}

fn as_publication(written: &Written) -> Publication {
    let odd = if written.is_odd { "yes" } else { "no" };
    let thing = written.thing.map(|thing| ("thing".to_owned(), thing.to_string()));
    let tags = [("odd".to_owned(), odd.to_owned())].into_iter().chain(thing);
    let tags = Tags::from(tags.collect::<BTreeMap<_, _>>());
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
    let seed_count = std::env::var("TIDINGS_SEED_COUNT").ok().map(|count| count.parse().expect("a number"));
    let (seed_count, mut totals) = (seed_count.unwrap_or(SEED_COUNT), Counts::default().all());
    for seed in 1..=seed_count {
        let found = std::panic::catch_unwind(|| World::new(seed).run().1);
        let counts = found.unwrap_or_else(|fault| {
            eprintln!("TIDINGS_SEED={seed} repeats it");
            std::panic::resume_unwind(fault)
        });
        for (total, count) in totals.iter_mut().zip(counts.all()) {
            *total += count;
        }
    }
    println!("{seed_count} seeds: {totals:?}");
    let is_enough = totals.iter().all(|total| *total >= seed_count as usize);
    assert!(is_enough, "not once in each run, on average: {totals:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, _) = World::new(3).run();
    assert_eq!(first, World::new(3).run().0);
    assert_ne!(first, World::new(4).run().0);
    assert!(first.lines().count() > STEPS / 2);
}
