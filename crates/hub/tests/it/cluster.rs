//! One home and two copies of memory channels, as a simulation without clock, threads and sockets. One seed decides
//! everything: what is published and removed, how late news are, when a link loses everything, when a copy takes over.
//!
//! The hubs are the real ones. What stands in for the rest is small: links that hand on news in order, pages of copies that
//! may be made long before they are sent, and readers that know what an SDK knows: an epoch from when they came, an offset, and
//! what they read from the tail. A reader that reads a restart frame comes back later, with the position that it has. It must
//! have each publication once, or be told of a gap. In the end all copies are equal to the home.
//!
//! `TIDINGS_SEED=7 cargo test -p tidings-hub --test it cluster -- --nocapture` runs one seed and prints its trace.

use std::collections::{HashSet, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidings_hub::{Applied, ChannelCopy, CopyCursor, News};

use super::copies::{Outbox, sent};
use super::*;

const SEEDS: std::ops::Range<u64> = 1..46;
const STEPS: usize = 6_000;
const NODES: usize = 3;
const READERS: usize = 12;
const CHANNELS: [&str; 7] = ["kept:1", "kept:2", "kept:3", "kept:4", "kept:5", "plain", "durable:1"];
/// Those whose publications are kept in memory.
const KEPT: usize = 5;
/// In this one there is seldom a publication, so that rounds end without one.
const RARE: usize = 0;
const TTL_MS: u64 = 10_000;
const MONTH_MS: u64 = 31 * 24 * 3600 * 1000;
/// A page has about three small publications.
const PAGE_BYTES: usize = 700;
/// So many of [`CHANNELS`] are in a message, in this order: that of the channel table is random.
const MESSAGE_CHANNELS: usize = 2;

/// What is on its way to a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Message {
    News(News),
    Begin { memory_epoch: u64 },
    Page(Vec<ChannelCopy>),
    End,
}

struct Node {
    hub: Hub,
    outbox: Arc<Outbox>,
    link: Option<Link>,
}

/// The link of a copy to the home.
#[derive(Default)]
struct Link {
    messages: VecDeque<Message>,
    /// The first of the channels for which the round has made no message yet.
    next: Option<usize>,
    /// Made, but not sent yet.
    page: Option<(Vec<ChannelCopy>, bool)>,
    /// Channels that the copy has asked for.
    asked: VecDeque<ChannelName>,
}

struct Reader {
    name: &'static str,
    /// The epoch that it was told when it came, and the offset of the last publication that it has.
    position: Option<(String, u64)>,
    /// What it has got since it was told a position: up to its offset, without a gap.
    had: Vec<u64>,
    /// What it was given by this connection that is not kept. Another node may give it later.
    seen: HashSet<u64>,
    at: Option<(usize, ClientId, Subscribed)>,
}

/// What has happened, so that a run without events is noticed.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Counts {
    received: usize,
    not_kept: usize,
    recovered: usize,
    gaps: usize,
    missing: usize,
    restarted: usize,
    renamed: usize,
    rounds: usize,
    forgotten: usize,
    taken_over: usize,
    swallowed: usize,
}

struct World {
    random: StdRng,
    now: Timestamp,
    nodes: Vec<Node>,
    home: usize,
    readers: Vec<Reader>,
    /// By channel and epoch: the values in the order of their offsets.
    written: BTreeMap<(&'static str, String), Vec<u64>>,
    value: u64,
    client_count: u128,
    /// Whether what happens is printed.
    is_traced: bool,
    counts: Counts,
}

fn node() -> Node {
    let ttl = Duration::from_millis(TTL_MS);
    let kept = NamespaceOptions { history_size: 6, history_ttl: ttl, ..NamespaceOptions::closed() };
    let named =
        BTreeMap::from([("kept".to_owned(), kept), ("durable".to_owned(), NamespaceOptions { durable: true, ..kept })]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max: 100,
        tail: TailBounds { frame_count_max: 1_000, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 1,
        receipt_bytes_max: 256 << 20,
    };
    let outbox = Arc::new(Outbox::default());
    let hub = Hub::new(config, 1).with_relay(outbox.clone());
    hub.set_home(false);
    Node { hub, outbox, link: None }
}

impl World {
    fn new(seed: u64) -> Self {
        let reader = |index: usize| Reader {
            name: CHANNELS[if index < 9 { index % CHANNELS.len() } else { RARE }],
            position: None,
            had: Vec::new(),
            seen: HashSet::new(),
            at: None,
        };
        let world = Self {
            random: StdRng::seed_from_u64(seed),
            now: NOW,
            nodes: (0..NODES).map(|_| node()).collect(),
            home: 0,
            readers: (0..READERS).map(reader).collect(),
            written: BTreeMap::new(),
            value: 0,
            client_count: 0,
            is_traced: false,
            counts: Counts::default(),
        };
        world.nodes[0].hub.take_over();
        world
    }

    fn run(mut self) -> Counts {
        for _ in 0..STEPS {
            let (node, who) = (self.random.random_range(0..NODES), self.random.random_range(0..READERS));
            match self.random.random_range(0..1000) {
                0..220 => self.publish(),
                220..480 => self.deliver(node),
                480..700 => self.send_copies(node),
                700..800 => self.connect(who),
                800..900 => self.read(who),
                900..925 => self.leave(who),
                925..945 => self.remove_history(),
                945..950 => self.cut(node),
                950..975 => self.link(node),
                975..992 => self.pass_time(),
                992..997 => self.forget_position(who),
                _ => self.take_over(node),
            }
            self.relay();
        }
        self.finish();
        self.counts
    }

    #[expect(clippy::print_stdout, reason = "whoever repeats a seed reads its trace")]
    fn note(&self, line: std::fmt::Arguments<'_>) {
        if self.is_traced {
            println!("{line}");
        }
    }

    fn copies(&self) -> impl Iterator<Item = usize> + use<> {
        let home = self.home;
        (0..NODES).filter(move |node| *node != home)
    }

    fn top_at(&self, node: usize, name: &str) -> (String, u64) {
        let (_, top) = self.nodes[node].hub.history(&channel(name), HistoryFilter::default()).unwrap();
        (top.epoch.as_str().to_owned(), top.offset.0)
    }

    /// What the home tells goes on the links that are there.
    fn relay(&mut self) {
        let told = self.nodes[self.home].outbox.take();
        self.relay_all(&told);
    }

    fn relay_all(&mut self, told: &[News]) {
        self.counts.forgotten += told.iter().filter(|news| matches!(news, News::Forgotten { .. })).count();
        for copy in self.copies() {
            assert!(self.nodes[copy].outbox.take().is_empty(), "a copy tells nothing of memory channels");
            if let Some(link) = &mut self.nodes[copy].link {
                link.messages.extend(told.iter().cloned().map(Message::News));
            }
        }
    }

    fn publish(&mut self) {
        let index = self.random.random_range(0..CHANNELS.len());
        let name = CHANNELS[index];
        if index == RARE && self.random.random_range(0..8) > 0 {
            return;
        }
        for _ in 0..self.random.random_range(1..4) {
            self.value += 1;
            let value = self.value;
            let skip_history = index >= KEPT || self.random.random_range(0..8) == 0;
            let version = (self.random.random_range(0..3) == 0)
                .then(|| Version { number: self.random.random_range(0..value), epoch: "v".into() });
            let new = NewPublication { publication: publication(value), skip_history };
            let hub = &self.nodes[self.home].hub;
            let position = match hub.publish_newer(&channel(name), new, version.as_ref(), self.now) {
                Ok(Some(position)) => position,
                Ok(None) => continue, // It is not kept.
                Err(error) => panic!("{error}"),
            };
            let written = self.written.entry((name, position.epoch.as_str().to_owned())).or_default();
            if position.offset.0 == written.len() as u64 {
                self.counts.swallowed += 1;
                continue;
            }
            written.push(value);
            assert_eq!(position.offset.0, written.len() as u64, "{name}");
            self.note(format_args!("publish {name} {} {value}", position.offset.0));
        }
    }

    /// A message arrives at a copy.
    fn deliver(&mut self, node: usize) {
        let count = self.random.random_range(1..6);
        for _ in 0..count {
            let Some(message) = self.nodes[node].link.as_mut().and_then(|link| link.messages.pop_front()) else {
                return;
            };
            self.note(format_args!("{node} gets {message:?}"));
            self.receive(node, sent(&message));
        }
    }

    fn receive(&mut self, node: usize, message: Message) {
        let hub = &self.nodes[node].hub;
        match message {
            Message::News(news) => match hub.apply(news, self.now) {
                Applied::Done => {}
                Applied::Missing(name) => {
                    self.counts.missing += 1;
                    let asked = &mut self.nodes[node].link.as_mut().expect("it came by it").asked;
                    if !asked.contains(&name) {
                        asked.push_back(name);
                    }
                }
            },
            Message::Begin { memory_epoch } => {
                hub.begin_round();
                hub.set_memory_epoch(memory_epoch);
            }
            Message::Page(page) => page.into_iter().for_each(|copy| hub.take_copy(copy, self.now)),
            Message::End => {
                self.counts.rounds += 1;
                hub.end_round();
            }
        }
    }

    /// The home makes or sends a page, or makes and sends the answer for one channel: a channel that was asked for was
    /// published in a moment ago, so it is not forgotten meanwhile.
    fn send_copies(&mut self, node: usize) {
        let is_answer = self.random.random_range(0..2) == 0;
        let Some(mut link) = self.nodes[node].link.take() else { return };
        let home = &self.nodes[self.home].hub;
        if is_answer && let Some(asked) = link.asked.pop_front() {
            link.messages.push_back(Message::Page(home.copy_of(&asked).into_iter().collect()));
        } else if let Some((page, is_last)) = link.page.take() {
            link.messages.push_back(Message::Page(page));
            link.messages.extend(is_last.then_some(Message::End));
        } else if let Some(next) = link.next.take() {
            let names = &CHANNELS[next..CHANNELS.len().min(next + MESSAGE_CHANNELS)];
            let page = names.iter().filter_map(|name| all_copies(home).remove(*name)).collect();
            let after = next + MESSAGE_CHANNELS;
            link.next = Some(after).filter(|after| *after < CHANNELS.len());
            link.page = Some((page, link.next.is_none()));
        }
        self.nodes[node].link = Some(link);
    }

    /// The link loses what is on its way, and everything until it is there again.
    fn cut(&mut self, node: usize) {
        self.nodes[node].link = None;
        self.note(format_args!("{node} is cut off"));
    }

    fn link(&mut self, node: usize) {
        if node == self.home || self.nodes[node].link.is_some() {
            return;
        }
        let memory_epoch = self.nodes[self.home].hub.memory_epoch();
        let messages = VecDeque::from([Message::Begin { memory_epoch }]);
        self.nodes[node].link = Some(Link { messages, next: Some(0), ..Link::default() });
        self.note(format_args!("{node} is linked"));
    }

    /// A copy becomes the home, without what was on its way. The home before is a copy, without a link.
    fn take_over(&mut self, node: usize) {
        if node == self.home {
            return;
        }
        self.relay();
        (0..NODES).for_each(|node| self.cut(node));
        self.nodes[self.home].hub.set_home(false);
        let before: Vec<_> = CHANNELS[..KEPT].iter().map(|name| (*name, self.top_at(node, name))).collect();
        self.nodes[node].hub.take_over();
        self.home = node;
        for (name, (epoch, top)) in before {
            let (epoch_after, top_after) = self.top_at(node, name);
            assert_eq!(top, top_after);
            let written = self.written.get(&(name, epoch)).map_or(&[][..], |written| &written[..top as usize]);
            let taken = self.written.insert((name, epoch_after), written.to_vec());
            assert!(taken.is_none(), "{name} has a new epoch");
        }
        self.counts.taken_over += 1;
        self.note(format_args!("{node} takes over"));
    }

    fn remove_history(&mut self) {
        let name = CHANNELS[self.random.random_range(0..KEPT)];
        let (_, top) = self.top_at(self.home, name);
        let until = (self.random.random_range(0..2) == 0).then(|| Offset(self.random.random_range(0..top + 2)));
        self.nodes[self.home].hub.remove_history(&channel(name), until);
        self.note(format_args!("the history of {name} is removed until {until:?} of {top}"));
    }

    fn pass_time(&mut self) {
        self.relay();
        let is_long = self.random.random_range(0..3) == 0; // The home forgets all channels that it has no reader of.
        let steps = if is_long { [TTL_MS, MONTH_MS] } else { [self.random.random_range(0..TTL_MS), 1] };
        for step in steps {
            self.now = Timestamp(self.now.0 + step);
            self.nodes.iter().for_each(|node| _ = node.hub.sweep(self.now));
        }
        let now = self.now;
        self.note(format_args!("time {}", now.0));
        let mut told = self.nodes[self.home].outbox.take();
        told.sort_by_key(|news| match news {
            News::MemoryEpoch { .. } => (0, None),
            News::Removed { channel, .. } => (1, Some(channel.clone())),
            News::Forgotten { channel } => (2, Some(channel.clone())),
            _ => unreachable!("nobody publishes"),
        });
        self.relay_all(&told);
    }

    fn connect(&mut self, who: usize) {
        if self.readers[who].at.is_none() {
            let node = self.random.random_range(0..NODES);
            self.connect_to(who, node);
        }
    }

    fn connect_to(&mut self, who: usize, node: usize) {
        self.client_count += 1;
        let (name, client) = (self.readers[who].name, ClientId::from_random(self.client_count));
        let resume = self.readers[who].position.clone().map(|(epoch, offset)| ResumeFrom {
            offset: Offset(offset),
            epoch: Some(epoch),
            limit: usize::MAX.into(),
            is_required: false,
        });
        let hub = &self.nodes[node].hub;
        let member = Member::reader(loop_ids(hub)[0], client, JSON);
        let mut subscribed = hub.subscribe(&channel(name), &member, resume.as_ref()).unwrap();
        let (epoch, top) = (subscribed.top.epoch.as_str().to_owned(), subscribed.top.offset.0);
        self.note(format_args!("reader {who} joins {name} on {node} at {top}"));
        match subscribed.recovery.take() {
            Some(Recovery::Recovered(publications)) => {
                self.check_same(who);
                for publication in publications {
                    self.counts.recovered += 1;
                    let value = serde_json::from_str(publication.data.as_str()).unwrap();
                    self.take(who, publication.offset.0, value);
                }
                assert_eq!(self.readers[who].position, Some((epoch, top)), "reader {who} is at the top");
            }
            recovery => {
                self.counts.gaps += usize::from(recovery.is_some());
                self.readers[who].position = Some((epoch, top));
                self.readers[who].had.clear();
            }
        }
        self.readers[who].seen.clear();
        self.readers[who].at = Some((node, client, subscribed));
    }

    /// The reader gets the frames that wait for it, up to a restart frame.
    fn read(&mut self, who: usize) {
        let Some((_, _, subscribed)) = &mut self.readers[who].at else { return };
        let mut frames = Vec::new();
        loop {
            let (next, more) = subscribed.channel.fetch(subscribed.next, usize::MAX, &mut frames).unwrap();
            subscribed.next = next;
            if !more {
                break;
            }
        }
        for text in texts(&frames) {
            let publication = &serde_json::from_str::<Value>(&text).unwrap()["push"]["pub"];
            let value = publication["data"].as_u64().unwrap();
            match publication["offset"].as_u64() {
                Some(offset) => self.take(who, offset, value),
                None => {
                    self.counts.not_kept += 1;
                    assert!(self.readers[who].seen.insert(value), "reader {who} gets {value} twice");
                }
            }
        }
        if frames.iter().any(tidings_stream::Frame::is_restart) {
            self.counts.restarted += 1;
            self.note(format_args!("reader {who} is to start anew"));
            self.unsubscribe(who);
        }
    }

    /// The publication is the next one that the reader lacks.
    fn take(&mut self, who: usize, offset: u64, value: u64) {
        self.counts.received += 1;
        self.note(format_args!("reader {who} has {offset} {value}"));
        let reader = &mut self.readers[who];
        let (epoch, before) = reader.position.clone().expect("it has subscribed");
        assert_eq!(offset, before + 1, "reader {who} has {before} and gets {offset}");
        reader.had.push(value);
        reader.position = Some((epoch.clone(), offset));
        let (name, had) = (reader.name, &self.readers[who].had);
        let since = (offset - had.len() as u64) as usize;
        let is_in = |written: &Vec<u64>| written.get(since..offset as usize) == Some(&had[..]);
        let known = self.written.get(&(name, epoch.clone()));
        if known.is_some_and(is_in) {
            return;
        }
        // Nobody had published when it came, and the first publication has another epoch.
        let all = self.written.iter().filter(|((other, _), _)| *other == name);
        let is_renamed = since == 0 && all.map(|(_, written)| written).any(is_in);
        assert!(is_renamed, "reader {who} gets {value} at {offset} of {epoch}");
        assert!(known.is_none_or(Vec::is_empty), "reader {who} lacks {known:?}, and gets {value}");
        self.counts.renamed += 1;
    }

    /// A reader that resumes has what was published in its epoch up to its offset.
    fn check_same(&self, who: usize) {
        let Reader { name, position, had, .. } = &self.readers[who];
        let (epoch, offset) = position.clone().expect("it wants to resume");
        let written = self.written.get(&(*name, epoch.clone())).map_or(&[][..], Vec::as_slice);
        let since = offset as usize - had.len();
        assert_eq!(written.get(since..offset as usize), Some(&had[..]), "reader {who} resumes at {offset} of {epoch}");
    }

    fn leave(&mut self, who: usize) {
        self.read(who);
        self.unsubscribe(who);
    }

    fn unsubscribe(&mut self, who: usize) {
        if let Some((node, client, subscribed)) = self.readers[who].at.take() {
            let hub = &self.nodes[node].hub;
            hub.unsubscribe(&subscribed.channel, loop_ids(hub)[0], client, None, JSON);
            self.note(format_args!("reader {who} leaves"));
        }
    }

    fn forget_position(&mut self, who: usize) {
        self.leave(who);
        self.readers[who].position = None;
        self.readers[who].had.clear();
    }

    /// The network is good from now on: every copy is like the home, and every reader has everything.
    fn finish(&mut self) {
        for node in self.copies() {
            self.link(node);
        }
        for _ in 0..1_000 {
            for node in self.copies() {
                self.send_copies(node);
                self.deliver(node);
            }
        }
        for node in self.copies() {
            let link = self.nodes[node].link.as_ref().expect("it is linked");
            assert!(link.messages.is_empty() && link.next.is_none() && link.asked.is_empty(), "it is quiet");
        }
        for who in 0..READERS {
            self.read(who);
            self.connect(who); // If it has to start anew.
            self.read(who);
        }
        for name in &CHANNELS[..KEPT] {
            let home = self.content(self.home, name);
            for node in self.copies() {
                assert_eq!(self.content(node, name), home, "{name} at {node}");
            }
            let top = self.top_at(self.home, name);
            for reader in self.readers.iter().filter(|reader| reader.name == *name && reader.at.is_some()) {
                let (epoch, offset) = reader.position.clone().expect("it has subscribed");
                assert_eq!(offset, top.1, "a reader of {name} has everything");
                let written = self.written.get(&(*name, top.0.clone())).map_or(&[][..], Vec::as_slice);
                let since = offset as usize - reader.had.len();
                assert!(epoch == top.0 || since == 0);
                assert_eq!(written[since..], reader.had, "a reader of {name} has it as the home");
            }
        }
    }

    /// What a node knows of a channel, and how it answers.
    fn content(&self, node: usize, name: &str) -> impl PartialEq + std::fmt::Debug + use<> {
        let hub = &self.nodes[node].hub;
        let copy = hub.copy_of(&channel(name));
        let copy = copy.map(|copy| if copy.kept.is_empty() { ChannelCopy { at: NOW, ..copy } } else { copy });
        let history = copy.is_some().then(|| hub.history(&channel(name), HistoryFilter::default()).unwrap());
        (copy, history)
    }
}

/// All pages of a hub, by channel.
fn all_copies(hub: &Hub) -> BTreeMap<String, ChannelCopy> {
    let (mut copies, mut next) = (BTreeMap::new(), Some(CopyCursor::default()));
    while let Some(cursor) = next.take() {
        let (page, after) = hub.copies(sent(&cursor), PAGE_BYTES);
        copies.extend(page.into_iter().map(|copy| (copy.channel.as_str().to_owned(), copy)));
        next = after;
    }
    copies
}

#[test]
#[expect(clippy::print_stderr, reason = "whoever repeats a seed reads its trace")]
fn copies_become_like_their_home_and_no_reader_misses_anything_untold() {
    if let Some(seed) = std::env::var("TIDINGS_SEED").ok().map(|seed| seed.parse().expect("a number")) {
        let counts = World { is_traced: true, ..World::new(seed) }.run();
        assert!(counts.received > 0, "{counts:?}");
        return;
    }
    let mut all = [0; 11];
    for seed in SEEDS {
        let found = std::panic::catch_unwind(|| World::new(seed).run());
        let counts = found.unwrap_or_else(|fault| {
            eprintln!("TIDINGS_SEED={seed} repeats it");
            std::panic::resume_unwind(fault)
        });
        let Counts { received, not_kept, recovered, gaps, missing, .. } = counts;
        let Counts { restarted, renamed, rounds, forgotten, taken_over, swallowed, .. } = counts;
        let often = [received, not_kept, gaps, restarted, rounds, forgotten, taken_over, swallowed];
        assert!(!often.contains(&0), "seed {seed} tries too little: {counts:?}");
        let seen = [
            received, not_kept, recovered, gaps, missing, restarted, renamed, rounds, forgotten, taken_over, swallowed,
        ];
        all = std::array::from_fn(|index| all[index] + seen[index]);
    }
    assert!(all.iter().all(|count| *count > 20), "all seeds try too little: {all:?}");
}
