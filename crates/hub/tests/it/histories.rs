//! Publications of durable channels that only the store has: whoever asks for them gets what it would get of a hub that had
//! held all of them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use proptest::prelude::*;
use tidings_hub::{Histories, Kept, Load, LoadFuture, Wanted};
use tidings_protocol::RecoveryMode;
use tidings_stream::{Gap, History, Retention};
use tokio::task::{JoinSet, yield_now};

use super::*;

const NAME: &str = "durable:1";
const SIZE: usize = 6;
/// Longer than a channel that nobody reads holds its publications.
const TTL: Duration = Duration::from_secs(200);
const IDLE: Duration = Duration::from_secs(60);

/// The rows of one channel in a store. What a read finds is decided when it begins; it ends when it is told to.
#[derive(Debug)]
pub(crate) struct Journal {
    now: AtomicU64,
    rows: Mutex<Vec<(Publication, Timestamp)>>,
    /// Reads that do not end by themselves.
    reads: Mutex<Vec<(Load, Kept)>>,
    waits: AtomicBool,
    read_count: AtomicUsize,
    is_broken: AtomicBool,
}

impl Journal {
    /// With publications of [`NOW`]; reads end at once.
    pub(crate) fn with(publications: impl IntoIterator<Item = Publication>) -> Arc<Self> {
        Self::at(publications, NOW)
    }

    /// With publications of this time.
    pub(crate) fn at(publications: impl IntoIterator<Item = Publication>, time: Timestamp) -> Arc<Self> {
        let rows = publications.into_iter().map(|publication| (publication, time)).collect();
        Arc::new(Self {
            now: AtomicU64::new(NOW.0),
            rows: Mutex::new(rows),
            reads: Mutex::default(),
            waits: AtomicBool::new(false),
            read_count: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        })
    }

    /// Ends the reads that have begun.
    fn end_reads(&self) {
        for (load, kept) in std::mem::take(&mut *self.reads.lock().unwrap()) {
            load.finish(kept);
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }

    /// What was published at `time` is over now.
    fn is_over(&self, time: Timestamp) -> bool {
        time.saturating_add(TTL) <= self.now()
    }

    fn publish(&self, offset: u64) -> Publication {
        let mut rows = self.rows.lock().unwrap();
        if rows.last().is_some_and(|(_, time)| self.is_over(*time)) {
            rows.clear();
        }
        rows.push((at(offset), self.now()));
        let surplus = rows.len().saturating_sub(SIZE);
        rows.drain(..surplus);
        at(offset)
    }

    fn remove(&self, until: u64) {
        self.rows.lock().unwrap().retain(|(publication, _)| publication.offset.0 > until);
    }
}

impl Histories for Journal {
    fn begin(&self, load: Load) {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows.lock().unwrap();
        let published_at = rows.last().map(|(_, time)| *time).unwrap_or_default();
        let kept = rows.iter().filter(|_| !self.is_over(published_at)).map(|(publication, _)| publication.clone());
        let kept = Kept { publications: kept.collect(), published_at };
        if self.waits.load(Ordering::Relaxed) {
            self.reads.lock().unwrap().push((load, kept));
        } else if !self.is_broken.load(Ordering::Relaxed) {
            load.finish(kept);
        }
    }
}

fn after(offset: u64) -> Wanted<'static> {
    Wanted::After(Offset(offset), "")
}

fn at(offset: u64) -> Publication {
    Publication { offset: Offset(offset), ..publication(offset) }
}

/// A hub that reads what it lacks from the journal, in which nothing has happened but the channel's last publication.
fn hub_of(journal: &Arc<Journal>, top: u64, published_at: Timestamp) -> Hub {
    let hub = bounded_hub(journal, usize::MAX);
    hub.restore(&channel(NAME), Offset(top), published_at).unwrap();
    hub
}

fn bounded_hub(journal: &Arc<Journal>, bytes_max: usize) -> Hub {
    let kept = NamespaceOptions { history_size: SIZE as u32, history_ttl: TTL, ..NamespaceOptions::closed() };
    let durable = NamespaceOptions { durable: true, ..kept };
    let latest = NamespaceOptions { recovery_mode: RecoveryMode::Cache, ..durable };
    let named = BTreeMap::from([("durable".to_owned(), durable), ("latest".to_owned(), latest)]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max: 10,
        tail: TailBounds { frame_count_max: 1000, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
        receipt_event_count_max: 3,
        receipt_bytes_max: 1 << 20,
    };
    Hub::new(config, 2).with_histories(journal.clone(), bytes_max)
}

/// Waits until there is nothing to wait for.
pub(crate) fn wait_for(load: Option<LoadFuture>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    load.into_iter().for_each(|load| runtime.block_on(load));
}

/// What a reader gets that resumes after `since`.
fn resumed(hub: &Hub, since: u64) -> Result<Vec<u64>, u64> {
    let from = ResumeFrom { offset: Offset(since), epoch: None, limit: 1000.into(), is_required: false };
    let made = join(hub, NAME, Some(from));
    hub.unsubscribe(&made.channel, loop_ids(hub)[0], ClientId::from_random(1), None, JSON);
    match made.recovery.unwrap() {
        Recovery::Recovered(missed) => Ok(missed.iter().map(|publication| publication.offset.0).collect()),
        Recovery::Gap(Gap { top }) => Err(top.offset.0),
    }
}

#[test]
fn only_who_asks_for_older_publications_waits_for_the_store() {
    let journal = Journal::with((3..=7).map(at));
    let (hub, name) = (hub_of(&journal, 7, NOW), channel(NAME));
    assert_eq!(join(&hub, NAME, None).top.offset, Offset(7), "a new reader knows where it is");
    hub.publish_durable(&name, Offset(8), at(8), NOW).unwrap();
    for at_least in [7, 8, 9] {
        assert!(hub.load(&name, after(at_least)).is_none(), "{at_least}");
    }
    assert_eq!((resumed(&hub, 7), resumed(&hub, 8)), (Ok(vec![8]), Ok(vec![])));
    assert_eq!(resumed(&hub, 5), Err(8), "who does not wait is told of a gap");
    assert!(hub.load(&channel("durable:2"), Wanted::Any).is_none(), "the store has no such channel");
    wait_for(hub.load(&name, after(5)));
    assert_eq!((resumed(&hub, 5), resumed(&hub, 2)), (Ok(vec![6, 7, 8]), Ok(vec![3, 4, 5, 6, 7, 8])));
    assert_eq!((resumed(&hub, 1), journal.read_count.load(Ordering::Relaxed)), (Err(8), 1));
    assert!(hub.load(&name, Wanted::Any).is_none(), "it has all");
}

#[tokio::test]
async fn however_many_ask_a_channel_is_read_once_and_also_if_nobody_waits_any_more() {
    let journal = Journal::with((1..=3).map(at));
    journal.waits.store(true, Ordering::Relaxed);
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    drop(hub.load(&name, Wanted::Any));
    let mut asking: JoinSet<()> = (0..100).map(|_| hub.load(&name, Wanted::Any).unwrap()).collect();
    yield_now().await;
    assert!(asking.try_join_next().is_none());
    journal.end_reads();
    assert_eq!((resumed(&hub, 0), journal.read_count.load(Ordering::Relaxed)), (Ok(vec![1, 2, 3]), 1));
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

/// A scheduled event makes the store say that the channel was published in later than it was.
#[test]
fn a_history_ends_when_its_last_publication_has_expired() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name) = (hub_of(&journal, 3, NOW.saturating_add(TTL)), channel(NAME));
    let _reader = join(&hub, NAME, None);
    wait_for(hub.load(&name, Wanted::Any));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3]));
    hub.sweep(NOW.saturating_add(TTL));
    assert_eq!(resumed(&hub, 0), Err(3));
}

/// The hub begins while the store forgets the channel, and somebody publishes in it again. It is told of both later.
#[test]
fn what_the_hub_is_told_late_it_can_read() {
    let (hub, name) = (hub_of(&Journal::with([at(108)]), 108, NOW), channel(NAME));
    hub.on_channel_forgotten(&name, Offset(107));
    hub.publish_durable(&name, Offset(108), at(108), NOW).unwrap();
    assert!(!hub.is_first(&name).unwrap());
    wait_for(hub.load(&name, after(107)));
    assert_eq!((resumed(&hub, 107), resumed(&hub, 106)), (Ok(vec![108]), Err(108)));
}

#[test]
fn what_came_while_a_channel_was_read_is_not_let_go_of_before_it_has_been_read() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name, other) = (bounded_hub(&journal, 1), channel(NAME), channel("durable:2"));
    hub.restore(&name, Offset(3), NOW).unwrap();
    journal.waits.store(true, Ordering::Relaxed);
    drop(hub.load(&name, Wanted::Any));
    for offset in 4..=5 {
        hub.publish_durable(&name, Offset(offset), journal.publish(offset), NOW).unwrap();
    }
    hub.publish_durable(&other, Offset(1), at(1), NOW).unwrap(); // It was used last, and there is no room for both.
    journal.end_reads();
    assert!(!hub.lacks(&name, Wanted::Any));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3, 4, 5]));
}

#[test]
fn what_is_over_does_not_come_back_with_the_next_publication() {
    let journal = Journal::with([at(1)]);
    let (hub, name) = (hub_of(&journal, 1, NOW), channel(NAME));
    wait_for(hub.load(&name, Wanted::Any));
    hub.publish_durable(&name, Offset(2), at(2), NOW.saturating_add(TTL)).unwrap();
    assert!(!hub.lacks(&name, Wanted::Any));
    assert_eq!((resumed(&hub, 1), resumed(&hub, 0)), (Ok(vec![2]), Err(2)));
}

#[test]
fn who_needs_nothing_of_the_store_does_not_ask_it() {
    let hub = hub_of(&Journal::with((1..=3).map(at)), 3, NOW);
    let name = channel(NAME);
    let epoch = hub.history(&name, HistoryFilter::default()).unwrap().1.epoch;
    assert!(!hub.lacks(&name, Wanted::After(Offset(1), "another life")), "there is a gap, whatever it has");
    assert!(hub.lacks(&name, Wanted::After(Offset(1), epoch.as_str())));
    let latest = channel("latest:1");
    hub.restore(&latest, Offset(3), NOW).unwrap();
    assert!(!hub.lacks(&latest, Wanted::After(Offset(3), epoch.as_str())), "it is at the top");
    assert!(hub.lacks(&latest, Wanted::After(Offset(3), "")) && hub.lacks(&latest, Wanted::After(Offset(1), "other")));
    hub.publish_durable(&latest, Offset(4), at(4), NOW).unwrap();
    assert!(!hub.lacks(&latest, Wanted::After(Offset(1), epoch.as_str())), "the latest one is held");
}

#[test]
fn what_cannot_be_read_is_a_gap_now_and_read_later() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    journal.is_broken.store(true, Ordering::Relaxed);
    wait_for(hub.load(&name, after(0)));
    assert_eq!(resumed(&hub, 0), Err(3));
    journal.is_broken.store(false, Ordering::Relaxed);
    wait_for(hub.load(&name, after(0)));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3]));
}

#[test]
fn a_channel_that_nobody_reads_lets_go_of_its_publications() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    wait_for(hub.load(&name, Wanted::Any));
    let reader = join(&hub, NAME, None);
    let mut now = NOW;
    let mut sweep_after = |time| {
        now = now.saturating_add(time);
        journal.now.store(now.0, Ordering::Relaxed);
        hub.sweep(now);
    };
    sweep_after(IDLE);
    sweep_after(IDLE);
    assert!(!hub.lacks(&name, Wanted::Any), "it is read");
    hub.publish_durable(&name, Offset(4), journal.publish(4), journal.now()).unwrap();
    hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    sweep_after(Duration::ZERO);
    sweep_after(IDLE / 2);
    assert!(!hub.lacks(&name, Wanted::Any), "not long enough");
    sweep_after(IDLE / 2);
    assert!(!hub.lacks(&name, Wanted::Any), "it was asked for meanwhile");
    sweep_after(Duration::ZERO);
    sweep_after(IDLE);
    assert!(hub.lacks(&name, Wanted::Any));
    hub.publish_durable(&name, Offset(5), journal.publish(5), journal.now()).unwrap();
    assert_eq!((resumed(&hub, 4), resumed(&hub, 3)), (Ok(vec![5]), Err(5)));
    wait_for(hub.load(&name, after(3)));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3, 4, 5]));
    sweep_after(IDLE / 2);
    assert!(!hub.lacks(&name, Wanted::Any));
    sweep_after(TTL);
    assert!(!hub.lacks(&name, Wanted::Any), "nor does the store keep any");
}

#[test]
fn all_histories_together_have_a_budget_and_those_that_were_not_used_for_longest_go() {
    const COUNT: u64 = 40;
    const BYTES_MAX: usize = 20_000;
    let journal = Journal::with((1..=6).map(at));
    let hub = bounded_hub(&journal, BYTES_MAX);
    let names: Vec<_> = (0..COUNT).map(|number| channel(&format!("durable:{number}"))).collect();
    let is_held = |name: &ChannelName| !hub.lacks(name, Wanted::Any);
    for name in &names {
        hub.restore(name, Offset(6), NOW).unwrap();
    }
    for name in &names {
        wait_for(hub.load(name, Wanted::Any));
        assert!(is_held(name), "what was asked for is there");
        assert!(hub.held_history_bytes() <= BYTES_MAX, "{}", hub.held_history_bytes());
    }
    let held: Vec<bool> = names.iter().map(is_held).collect();
    assert!(held.is_sorted() && held.iter().filter(|held| **held).count() > 3, "the last ones: {held:?}");
    assert!(hub.dropped_history_count() > 10);
    // The first channels are used again, by many at a time, while others are read.
    std::thread::scope(|scope| {
        for (thread, names) in names[..32].chunks(8).enumerate() {
            let hub = &hub;
            scope.spawn(move || {
                for offset in 7..200 {
                    for name in names {
                        hub.publish_durable(name, Offset(offset), at(offset), NOW).unwrap();
                        wait_for(hub.load(name, after(offset - 2)).filter(|_| thread == 0));
                        assert!(hub.held_history_bytes() <= BYTES_MAX + 4 * 5000, "one history for each thread");
                    }
                }
            });
        }
    });
    assert!(!is_held(&names[COUNT as usize - 1]), "it was used before all others");
    hub.sweep(NOW.saturating_add(IDLE));
    hub.sweep(NOW.saturating_add(2 * IDLE));
    assert_eq!(hub.held_history_bytes(), 0);
    // A history that is larger than the budget is held alone.
    let hub = bounded_hub(&journal, 1);
    hub.restore(&names[0], Offset(6), NOW).unwrap();
    wait_for(hub.load(&names[0], Wanted::Any));
    assert!(!hub.lacks(&names[0], Wanted::Any));
    hub.publish_durable(&names[1], Offset(1), at(1), NOW).unwrap();
    assert!(hub.lacks(&names[0], Wanted::Any));
}

#[derive(Debug, Clone)]
enum Step {
    Publish,
    /// The hub is told of so many things that the store has done.
    Tell(usize),
    Wait(u64),
    /// The store removes the publications up to this many before the last one.
    Remove(u64),
    BeginLoad(u64),
    EndLoads,
    Resume(u64),
    Come,
    Leave,
    Restart {
        /// The store says that the last publication is later than it is.
        has_scheduled: bool,
    },
}

#[derive(Debug, Clone)]
enum News {
    Published(u64, Timestamp),
    Removed(u64),
}

struct World {
    journal: Arc<Journal>,
    hub: Hub,
    /// What a hub has that holds all.
    all: History<u64>,
    /// Done by the store, and not told to the hub.
    news: VecDeque<News>,
    top: u64,
    published_at: Timestamp,
    readers: Vec<Subscribed>,
}

impl World {
    fn new() -> Self {
        let journal = Journal::with([]);
        journal.waits.store(true, Ordering::Relaxed);
        let start = StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) };
        Self {
            hub: hub_of(&journal, 0, NOW),
            journal,
            all: History::new(start, Retention { size: SIZE, ttl: TTL }, |_| 1),
            news: VecDeque::new(),
            top: 0,
            published_at: NOW,
            readers: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        let now = self.journal.now();
        match step {
            Step::Publish => {
                self.top += 1;
                self.published_at = now;
                self.journal.publish(self.top);
                self.news.push_back(News::Published(self.top, now));
            }
            Step::Tell(count) => self.tell(count),
            Step::Wait(seconds) => {
                self.tell(usize::MAX); // A hub is never behind by minutes, and no read lasts that long.
                self.journal.end_reads();
                let now = now.saturating_add(Duration::from_secs(seconds));
                self.journal.now.store(now.0, Ordering::Relaxed);
                self.hub.sweep(now);
                self.all.expire(now);
            }
            Step::Remove(before) => {
                let until = self.top.saturating_sub(before);
                self.journal.remove(until);
                self.news.push_back(News::Removed(until));
            }
            Step::BeginLoad(since) => {
                drop(self.hub.load(&channel(NAME), after(since)));
            }
            Step::EndLoads => {
                self.journal.end_reads();
                // The store may have removed what the hub would still have, and the hub is told a moment later.
                let (held, all) = (self.held(), self.all.read(HistoryFilter::default()));
                assert!(all.ends_with(&held), "{held:?} of {all:?}");
            }
            Step::Resume(back) => self.resume(self.top.saturating_sub(back)),
            Step::Come => self.readers.push(join(&self.hub, NAME, None)),
            Step::Leave => {
                let reader = self.readers.pop();
                let leave = |reader: Subscribed| {
                    self.hub.unsubscribe(&reader.channel, loop_ids(&self.hub)[0], ClientId::from_random(1), None, JSON);
                };
                reader.into_iter().for_each(leave);
            }
            Step::Restart { has_scheduled } => {
                self.journal.reads.lock().unwrap().clear();
                self.readers.clear();
                let later = if has_scheduled { 10 * TTL } else { Duration::ZERO };
                self.hub = hub_of(&self.journal, self.top, self.published_at.saturating_add(later));
                let news: Vec<_> = self.news.iter().cloned().collect(); // The hub is told later what it knows already.
                news.into_iter().for_each(|news| self.note(&news));
            }
        }
    }

    fn note(&mut self, news: &News) {
        match *news {
            News::Published(offset, time) => {
                self.all.expire(time);
                self.all.append_at(Offset(offset), offset, time);
            }
            News::Removed(until) => self.all.remove_until(Offset(until)),
        }
    }

    fn tell(&mut self, count: usize) {
        for _ in 0..count.min(self.news.len()) {
            let news = self.news.pop_front().unwrap();
            self.note(&news);
            match news {
                News::Published(offset, time) => {
                    self.hub.publish_durable(&channel(NAME), Offset(offset), at(offset), time).unwrap();
                }
                News::Removed(until) => self.hub.remove_history(&channel(NAME), Some(Offset(until))),
            }
        }
    }

    /// What a reader gets, and what the history has, is what it would be if the hub had held everything.
    fn resume(&mut self, since: u64) {
        self.tell(usize::MAX);
        drop(self.hub.load(&channel(NAME), after(since)));
        self.journal.end_reads();
        let expected = self.all.resume(Offset(since), None, 1000).map_err(|gap| gap.top.offset.0);
        assert_eq!(resumed(&self.hub, since), expected, "since {since}");
        drop(self.hub.load(&channel(NAME), Wanted::Any));
        self.journal.end_reads();
        assert_eq!(self.held(), self.all.read(HistoryFilter::default()));
        assert_eq!(self.hub.history(&channel(NAME), HistoryFilter::default()).unwrap().1, self.all.top());
    }

    fn held(&self) -> Vec<u64> {
        let (publications, _) = self.hub.history(&channel(NAME), HistoryFilter::default()).unwrap();
        let offset = |publication: &Publication| {
            assert_eq!(publication.data, Json::of(&publication.offset.0));
            publication.offset.0
        };
        publications.iter().map(offset).collect()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Publish),
        4 => (1_usize..5).prop_map(Step::Tell),
        4 => prop::sample::select(vec![1, 61, 90, 201]).prop_map(Step::Wait),
        1 => (0_u64..8).prop_map(Step::Remove),
        3 => (0_u64..30).prop_map(Step::BeginLoad),
        2 => Just(Step::EndLoads),
        4 => (0_u64..8).prop_map(Step::Resume),
        1 => Just(Step::Come),
        2 => Just(Step::Leave),
        1 => any::<bool>().prop_map(|has_scheduled| Step::Restart { has_scheduled }),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_hub_that_reads_from_the_store_answers_like_one_that_holds_all(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
    }
}
