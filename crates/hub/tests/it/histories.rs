//! Publications of durable channels that only the store has: whoever asks for them gets what it would get of a hub that had
//! held all of them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use proptest::prelude::*;
use tidings_hub::{Histories, HistoryFuture, LoadFuture};
use tidings_stream::{Gap, History, Retention};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};

use super::*;

const NAME: &str = "durable:1";
const SIZE: usize = 6;
/// Longer than a channel that nobody reads holds its publications.
const TTL: Duration = Duration::from_secs(200);
const IDLE: Duration = Duration::from_secs(60);

/// The rows of one channel in a store. What a read finds is decided when it begins; it ends when there is a permit.
#[derive(Debug)]
pub(crate) struct Journal {
    now: AtomicU64,
    rows: Mutex<Vec<(Publication, Timestamp)>>,
    permits: Arc<Semaphore>,
    read_count: AtomicUsize,
    is_broken: AtomicBool,
}

impl Journal {
    /// With these publications, and enough permits.
    pub(crate) fn with(publications: impl IntoIterator<Item = Publication>) -> Arc<Self> {
        let rows = publications.into_iter().map(|publication| (publication, NOW)).collect();
        Arc::new(Self {
            now: AtomicU64::new(NOW.0),
            rows: Mutex::new(rows),
            permits: Arc::new(Semaphore::new(1000)),
            read_count: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        })
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
    fn read(&self, _: &ChannelName) -> HistoryFuture {
        self.read_count.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows.lock().unwrap();
        let is_over = rows.last().is_none_or(|(_, time)| self.is_over(*time));
        let kept: Vec<_> = rows.iter().filter(|_| !is_over).map(|(publication, _)| publication.clone()).collect();
        let (permits, is_broken) = (self.permits.clone(), self.is_broken.load(Ordering::Relaxed));
        Box::pin(async move {
            permits.acquire().await.unwrap().forget();
            (!is_broken).then_some(kept)
        })
    }
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
    let named = BTreeMap::from([("durable".to_owned(), NamespaceOptions { durable: true, ..kept })]);
    let config = HubConfig {
        namespaces: Arc::new(Namespaces::new(NamespaceOptions::closed(), named)),
        channel_count_max: 10,
        tail: TailBounds { frame_count_max: 1000, bytes_max: usize::MAX },
        tails_bytes_max: usize::MAX,
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
        assert!(hub.load(&name, Some(Offset(at_least))).is_none(), "{at_least}");
    }
    assert_eq!((resumed(&hub, 7), resumed(&hub, 8)), (Ok(vec![8]), Ok(vec![])));
    assert_eq!(resumed(&hub, 5), Err(8), "who does not wait is told of a gap");
    assert!(hub.load(&channel("durable:2"), None).is_none(), "the store has no such channel");
    wait_for(hub.load(&name, Some(Offset(5))));
    assert_eq!((resumed(&hub, 5), resumed(&hub, 2)), (Ok(vec![6, 7, 8]), Ok(vec![3, 4, 5, 6, 7, 8])));
    assert_eq!((resumed(&hub, 1), journal.read_count.load(Ordering::Relaxed)), (Err(8), 1));
    assert!(hub.load(&name, None).is_none(), "it has all");
}

#[tokio::test]
async fn however_many_ask_a_channel_is_read_once() {
    let journal = Journal::with((1..=3).map(at));
    journal.permits.forget_permits(1000);
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    let mut asking: JoinSet<()> = (0..100).map(|_| hub.load(&name, None).unwrap()).collect();
    yield_now().await;
    journal.permits.add_permits(100);
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
    assert_eq!((resumed(&hub, 0), journal.read_count.load(Ordering::Relaxed)), (Ok(vec![1, 2, 3]), 1));
}

#[test]
fn what_cannot_be_read_is_a_gap_now_and_read_later() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    journal.is_broken.store(true, Ordering::Relaxed);
    wait_for(hub.load(&name, Some(Offset(0))));
    assert_eq!(resumed(&hub, 0), Err(3));
    journal.is_broken.store(false, Ordering::Relaxed);
    wait_for(hub.load(&name, Some(Offset(0))));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3]));
}

#[test]
fn a_channel_that_nobody_reads_lets_go_of_its_publications() {
    let journal = Journal::with((1..=3).map(at));
    let (hub, name) = (hub_of(&journal, 3, NOW), channel(NAME));
    wait_for(hub.load(&name, None));
    let reader = join(&hub, NAME, None);
    let later = |times: u32| NOW.saturating_add(IDLE * times / 2);
    for half in 1..4 {
        hub.sweep(later(half));
    }
    assert!(hub.load(&name, None).is_none(), "it is read");
    hub.unsubscribe(&reader.channel, loop_ids(&hub)[0], ClientId::from_random(1), None, JSON);
    hub.sweep(later(4));
    hub.sweep(later(5));
    assert!(hub.load(&name, None).is_none(), "not long enough");
    hub.sweep(later(6));
    assert!(hub.load(&name, None).is_some());
    hub.publish_durable(&name, Offset(4), journal.publish(4), later(6)).unwrap();
    assert_eq!((resumed(&hub, 3), resumed(&hub, 2)), (Ok(vec![4]), Err(4)));
    wait_for(hub.load(&name, Some(Offset(2))));
    assert_eq!(resumed(&hub, 0), Ok(vec![1, 2, 3, 4]));
    hub.sweep(later(7));
    assert!(hub.load(&name, None).is_none(), "it was asked for a moment ago");
    hub.sweep(NOW.saturating_add(3 * TTL));
    assert!(hub.load(&name, None).is_none(), "nor does the store keep any");
}

#[test]
fn all_histories_together_have_a_budget_and_those_that_were_not_used_for_longest_go() {
    const COUNT: u64 = 40;
    const BYTES_MAX: usize = 20_000;
    let journal = Journal::with((1..=6).map(at));
    let hub = bounded_hub(&journal, BYTES_MAX);
    let names: Vec<_> = (0..COUNT).map(|number| channel(&format!("durable:{number}"))).collect();
    let is_held = |name: &ChannelName| hub.load(name, None).is_none();
    for name in &names {
        hub.restore(name, Offset(6), NOW).unwrap();
    }
    for name in &names {
        wait_for(hub.load(name, None));
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
                        wait_for(hub.load(name, Some(Offset(offset - 2))).filter(|_| thread == 0));
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
    wait_for(hub.load(&names[0], None));
    assert!(hub.load(&names[0], None).is_none());
    hub.publish_durable(&names[1], Offset(1), at(1), NOW).unwrap();
    assert!(hub.load(&names[0], None).is_some());
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
    Restart,
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
    loads: JoinSet<()>,
}

impl World {
    fn new() -> Self {
        let journal = Journal::with([]);
        journal.permits.forget_permits(1000);
        let start = StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) };
        Self {
            hub: hub_of(&journal, 0, NOW),
            journal,
            all: History::new(start, Retention { size: SIZE, ttl: TTL }, |_| 1),
            news: VecDeque::new(),
            top: 0,
            published_at: NOW,
            readers: Vec::new(),
            loads: JoinSet::new(),
        }
    }

    async fn take(&mut self, step: Step) {
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
                self.tell(usize::MAX); // A hub is never behind by minutes.
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
                self.loads.extend(self.hub.load(&channel(NAME), Some(Offset(since))));
                yield_now().await;
            }
            Step::EndLoads => {
                self.end_loads().await;
                // The store may have removed what the hub would still have, and the hub is told a moment later.
                let (held, all) = (self.held(), self.all.read(HistoryFilter::default()));
                assert!(all.ends_with(&held), "{held:?} of {all:?}");
            }
            Step::Resume(back) => self.resume(self.top.saturating_sub(back)).await,
            Step::Come => self.readers.push(join(&self.hub, NAME, None)),
            Step::Leave => {
                let reader = self.readers.pop();
                let leave = |reader: Subscribed| {
                    self.hub.unsubscribe(&reader.channel, loop_ids(&self.hub)[0], ClientId::from_random(1), None, JSON);
                };
                reader.into_iter().for_each(leave);
            }
            Step::Restart => {
                self.loads.abort_all();
                self.readers.clear();
                self.hub = hub_of(&self.journal, self.top, self.published_at);
                let news: Vec<_> = self.news.iter().cloned().collect(); // The hub is told later what it knows already.
                news.into_iter().for_each(|news| self.note(&news));
            }
        }
    }

    fn note(&mut self, news: &News) {
        match *news {
            News::Published(offset, time) => _ = self.all.append_at(Offset(offset), offset, time),
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

    async fn end_loads(&mut self) {
        self.journal.permits.add_permits(self.loads.len() + 1);
        while self.loads.join_next().await.is_some() {}
        self.journal.permits.forget_permits(usize::MAX);
    }

    /// What a reader gets, and what the history has, is what it would be if the hub had held everything.
    async fn resume(&mut self, since: u64) {
        self.tell(usize::MAX);
        self.loads.extend(self.hub.load(&channel(NAME), Some(Offset(since))));
        self.end_loads().await;
        let expected = self.all.resume(Offset(since), None, 1000).map_err(|gap| gap.top.offset.0);
        assert_eq!(resumed(&self.hub, since), expected, "since {since}");
        self.loads.extend(self.hub.load(&channel(NAME), None));
        self.end_loads().await;
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
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_hub_that_reads_from_the_store_answers_like_one_that_holds_all(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.take(step).await;
            }
        });
    }
}
