//! Two stores that share a log: whatever callers, disks and the log do, and whoever leads, both end with the same rows and
//! the same data in memory, and their sinks were told the same.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use proptest::prelude::*;
use tidings_types::JournalPosition;
use tokio::task::JoinSet;

use super::derived::{Change, apply, change, facts, fault};
use super::*;
use crate::committer::follow::read_position;
use crate::{CommitLog, LogError, LogPosition, LogRecord, Role};

/// A log in memory. Its hashes are its sequence numbers.
#[derive(Default)]
pub(super) struct Paper {
    /// `None`: a term began.
    pub(super) records: Vec<Option<Vec<u8>>>,
    term: u64,
    /// What happens to the next record.
    fault: Option<LogFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogFault {
    /// It is not stored, and the node is told that this is unknown.
    Lost,
    /// It is stored, and the node is told that this is unknown.
    Doubtful,
}

pub(super) struct Reader {
    paper: Arc<Mutex<Paper>>,
    read: usize,
    term: Option<u64>,
}

impl Reader {
    pub(super) fn of(paper: &Arc<Mutex<Paper>>) -> Box<Self> {
        Box::new(Self { paper: paper.clone(), read: 0, term: None })
    }
}

pub(super) fn at(sequence: usize) -> LogPosition {
    LogPosition { sequence: sequence as u64, hash: sequence as u128, term: 0 }
}

fn unavailable() -> LogError {
    LogError::Unavailable(Box::<dyn Error + Send + Sync>::from("the test says so"))
}

impl CommitLog for Reader {
    fn seek(&mut self, after: LogPosition) {
        (self.read, self.term) = (after.sequence as usize, None);
    }

    fn next(&mut self, _: Duration) -> Result<Option<LogRecord>, LogError> {
        loop {
            let Some(record) = self.paper.lock().unwrap().records.get(self.read).cloned() else {
                std::thread::yield_now();
                return Ok(None);
            };
            self.read += 1;
            if let Some(bytes) = record {
                return Ok(Some(LogRecord { position: at(self.read), bytes }));
            }
        }
    }

    fn lead(&mut self) -> Result<Option<LogPosition>, LogError> {
        let mut paper = self.paper.lock().unwrap();
        if paper.records[self.read..].iter().any(Option::is_some) {
            return Ok(None);
        }
        paper.records.push(None);
        paper.term += 1;
        (self.read, self.term) = (paper.records.len(), Some(paper.term));
        Ok(Some(at(self.read)))
    }

    fn append(&mut self, record: &[u8]) -> Result<LogPosition, LogError> {
        let mut paper = self.paper.lock().unwrap();
        if self.term != Some(paper.term) {
            return Err(LogError::Fenced { sequence: paper.records.len() as u64 });
        }
        let fault = paper.fault.take();
        if fault != Some(LogFault::Lost) {
            paper.records.push(Some(record.to_vec()));
            self.read = paper.records.len();
        }
        if fault.is_some() { Err(unavailable()) } else { Ok(at(self.read)) }
    }
}

/// Keeps all that it is told.
#[derive(Default)]
pub(super) struct Diary(Mutex<BTreeMap<&'static str, Vec<String>>>);

impl Diary {
    fn note(&self, of: &'static str, what: String) {
        self.0.lock().unwrap().entry(of).or_default().push(what);
    }

    pub(super) fn told(&self) -> BTreeMap<&'static str, Vec<String>> {
        self.0.lock().unwrap().clone()
    }
}

impl CommitSink for Diary {
    fn on_publication(&self, name: &ChannelName, at: StreamPosition, what: &StoredPublication, to: &DurableChannel) {
        let StoredPublication { data, tags, info, time, receipt, texts, trace: _ } = what;
        let text = format!("{name} {at:?} {} {tags:?} {info:?} {time:?} {receipt:?} {texts:?} {to:?}", data.as_str());
        self.note("channels", text);
    }

    fn on_events(&self, end: JournalPosition) {
        self.note("events", format!("{end:?}"));
    }

    fn on_history_removed(&self, channel: &ChannelName, until: Offset) {
        self.note("channels", format!("{channel} until {until:?}"));
    }

    fn on_channel_forgotten(&self, channel: &ChannelName, floor: Offset) {
        self.note("channels", format!("{channel} forgotten at {floor:?}"));
    }

    fn on_device_removed(&self, number: DeviceNumber) {
        self.note("devices", format!("{number:?}"));
    }
}

pub(super) struct Node {
    pub(super) store: Store,
    pub(super) diary: Arc<Diary>,
    pub(super) folder: tempfile::TempDir,
}

type TableRows = BTreeMap<Vec<u8>, Vec<u8>>;

impl Node {
    pub(super) fn start(paper: &Arc<Mutex<Paper>>) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), paper)
    }

    /// Writes a checkpoint after few changes.
    pub(super) fn start_in(folder: tempfile::TempDir, paper: &Arc<Mutex<Paper>>) -> Self {
        let few = StoreConfig { checkpoint_change_count: 2, ..config(folder.path()) };
        Self::start_with(few, folder, paper)
    }

    pub(super) fn start_with(config: StoreConfig, folder: tempfile::TempDir, paper: &Arc<Mutex<Paper>>) -> Self {
        let diary = Arc::<Diary>::default();
        let store = Store::join(config, Reader::of(paper), diary.clone()).unwrap();
        Self { store, diary, folder }
    }

    /// Closes the store and starts it again.
    pub(super) async fn restart(&mut self, paper: &Arc<Mutex<Paper>>, has_checkpoint: bool) {
        self.store.close().await;
        let checkpoint = self.folder.path().join("checkpoint");
        if !has_checkpoint && checkpoint.exists() {
            std::fs::remove_file(checkpoint).unwrap();
        }
        let config = self.store.shared().config.clone();
        self.store = Store::join(config, Reader::of(paper), self.diary.clone()).unwrap();
    }

    pub(super) async fn leads(&self) {
        self.store.lead(true);
        self.becomes(Role::Leading).await;
    }

    /// Maintenance writes when it likes, so the leader rests while stores are compared.
    pub(super) async fn rests(&self) {
        self.store.lead(false);
        self.becomes(Role::Following).await;
    }

    pub(super) async fn becomes(&self, role: Role) {
        let mut roles = self.store.role();
        let waited = tokio::time::timeout(Duration::from_secs(20), roles.wait_for(|now| *now == role)).await;
        waited.expect("its role changes").unwrap();
    }

    /// All rows, by table; none while the store is opened again.
    pub(super) fn rows(&self) -> BTreeMap<&'static str, TableRows> {
        let engine = self.store.shared().engine.read();
        let Some(engine) = engine.as_ref() else { return BTreeMap::new() };
        let of = |table: Table| {
            let mut rows = BTreeMap::new();
            let visit = |key: &[u8], row: &[u8]| {
                rows.insert(key.to_vec(), row.to_vec());
                Ok::<_, EngineError>(true)
            };
            engine.scan(Place::Open, table, &Span::all(), visit).unwrap();
            (table.name(), rows)
        };
        Table::ALL.into_iter().map(of).collect()
    }

    pub(super) fn facts(&self) -> Vec<String> {
        let shared = self.store.shared();
        facts(&shared.table.read(), &shared.index.read(), &shared.brakes.borrow())
    }

    /// Waits until it has the rows of all batches of the log, while nobody appends. Memory and sink follow a moment later.
    pub(super) async fn catches_up(&self, paper: &Arc<Mutex<Paper>>) {
        let end = || paper.lock().unwrap().records.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let is_there = || {
            let engine = self.store.shared().engine.read();
            let position = engine.as_ref().map(|engine| read_position(engine).unwrap());
            position.is_some_and(|position| position.sequence as usize >= end())
        };
        eventually("it has read all", is_there).await;
    }
}

/// What happens before a group of changes.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    None,
    /// The other node leads.
    Move,
    /// Of the leader, and of the follower.
    Disks(Option<Fault>, Option<Fault>),
    Log(LogFault),
}

pub(super) fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        4 => Just(Trouble::None),
        1 => Just(Trouble::Move),
        1 => (fault(), fault()).prop_map(|(leader, follower)| Trouble::Disks(leader, follower)),
        1 => prop_oneof![Just(LogFault::Lost), Just(LogFault::Doubtful)].prop_map(Trouble::Log),
    ]
}

pub(super) fn set_fault(store: &Store, fault: Option<Fault>) {
    if let Some(engine) = store.shared().engine.read().as_ref() {
        *engine.hooks.fault.lock().unwrap() = fault;
    }
}

/// Waits until rows, memory and what was told are the same: they change one after the other.
async fn become_alike([one, other]: &[Node; 2]) {
    let told = |node: &Node| node.diary.told();
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    let alike = async {
        while one.rows() != other.rows() || one.facts() != other.facts() || told(one) != told(other) {
            pulse.tick().await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), alike).await.is_err() {
        assert_eq!(one.rows(), other.rows());
        assert_eq!(one.facts(), other.facts());
        assert_eq!(told(one), told(other));
    }
}

/// Two stores, of which one leads.
pub(super) struct Pair {
    pub(super) paper: Arc<Mutex<Paper>>,
    pub(super) nodes: [Node; 2],
    leader: usize,
}

impl Pair {
    pub(super) async fn start() -> Self {
        let paper = Arc::<Mutex<Paper>>::default();
        let mut nodes = [Node::start(&paper), Node::start(&paper)];
        nodes[0].leads().await;
        // The other one was new too, and did not know which store the log is of.
        nodes[1] = Node::start(&paper);
        Self { paper, nodes, leader: 0 }
    }

    pub(super) fn leader(&self) -> &Node {
        &self.nodes[self.leader]
    }

    pub(super) fn follower(&self) -> &Node {
        &self.nodes[1 - self.leader]
    }

    pub(super) async fn meets(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::None => {}
            Trouble::Move => {
                self.leader().rests().await;
                self.leader = 1 - self.leader;
                self.leader().store.lead(true);
            }
            Trouble::Disks(of_leader, of_follower) => {
                set_fault(&self.leader().store, of_leader);
                set_fault(&self.follower().store, of_follower);
            }
            Trouble::Log(fault) => self.paper.lock().unwrap().fault = Some(fault),
        }
        self.leader().becomes(Role::Leading).await;
    }

    /// Ends the trouble, and waits until both stores are alike and nobody writes.
    pub(super) async fn rests(&self) {
        self.paper.lock().unwrap().fault = None;
        self.nodes.iter().for_each(|node| set_fault(&node.store, None));
        self.leader().rests().await;
        for node in &self.nodes {
            node.catches_up(&self.paper).await;
        }
        become_alike(&self.nodes).await;
        let rows = self.leader().rows();
        let numbers: BTreeSet<_> = rows["device_id"].values().collect();
        assert_eq!(numbers.len(), rows["device_id"].len(), "each device has a number of its own");
    }
}

/// Begins all changes at once, so that one batch has several requests.
pub(super) fn begin(changes: Vec<Change>, store: &Store) -> JoinSet<()> {
    let mut applied = JoinSet::new();
    for change in changes {
        let store = store.clone();
        applied.spawn(async move { apply(&store, change).await });
    }
    applied
}

async fn run(groups: Vec<(Trouble, Vec<Change>)>) {
    let mut pair = Pair::start().await;
    for (trouble, changes) in groups {
        pair.meets(trouble).await;
        begin(changes, &pair.leader().store).join_all().await;
        pair.rests().await;
        pair.leader().store.lead(true);
    }
    for node in pair.nodes {
        node.store.close().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_follower_is_as_its_leader(groups in prop::collection::vec((trouble(), prop::collection::vec(change(), 1..8)), 1..10)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(groups));
    }
}

/// Starts two nodes of which the first leads.
pub(super) async fn pair(paper: &Arc<Mutex<Paper>>) -> [Node; 2] {
    let leader = Node::start(paper);
    leader.leads().await;
    [leader, Node::start(paper)]
}

#[tokio::test]
async fn a_follower_is_told_of_publications_that_their_batch_has_deleted_again() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, follower] = pair(&paper).await;
    let short = |id: &str, has_texts| {
        let mut new = event(id).remove(0);
        let channel = new.channels.remove(0);
        new.channels.push(DurableChannel { history_size: 1, has_texts, ..channel });
        new
    };
    leader.store.append_events(vec![short("e0", false), short("e1", true)], Timestamp(1)).await.unwrap();
    leader.store.remove_history(&ChannelName::new("team:1").unwrap()).await.unwrap();
    let told = |node: &Node| node.diary.told();
    eventually("it is told the same", || told(&follower) == told(&leader)).await;
    assert_eq!(told(&leader)["channels"].len(), 3, "{:?}", told(&leader));
}

#[tokio::test]
async fn a_follower_refuses_writes_and_a_leader_that_another_one_follows_on_is_fenced() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [former, other] = pair(&paper).await;
    assert_eq!(
        other.store.append_events(event("e0"), Timestamp(1)).await,
        Err(AppendError::Write(WriteError::Unavailable))
    );
    former.store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    other.store.lead(true);
    other.becomes(Role::Leading).await;
    other.store.append_events(event("e2"), Timestamp(1)).await.unwrap();
    // Also an answer that changes nothing would rest on what it has missed.
    let nobody = DeviceId::new("nobody").unwrap();
    assert!(former.store.delete_device(&nobody, Precondition::None).await.is_err());
    // A write finds out that it leads no more. It does not take over again by itself.
    let refused = former.store.append_events(event("e3"), Timestamp(1)).await;
    assert_eq!(refused, Err(AppendError::Write(WriteError::Unavailable)));
    former.becomes(Role::Following).await;
    former.store.lead(true);
    former.becomes(Role::Leading).await;
    let repeated = former.store.append_events(event("e2"), Timestamp(1)).await.unwrap();
    assert!(repeated[0].repeated, "it has followed what the other one wrote");
}

#[tokio::test]
async fn a_store_with_a_log_is_not_opened_without_it_and_goes_on_where_it_was() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, follower] = pair(&paper).await;
    leader.store.append_events(event("e0"), Timestamp(1)).await.unwrap();
    follower.catches_up(&paper).await;
    let Node { store, folder, .. } = follower;
    store.close().await;
    drop(store);
    leader.store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    let alone = Store::open(config(folder.path()), Arc::<Diary>::default());
    assert!(matches!(alone, Err(crate::OpenError::HasLog)));
    let diary = Arc::<Diary>::default();
    let store = Store::join(config(folder.path()), Reader::of(&paper), diary.clone()).unwrap();
    let again = Node { store, diary, folder };
    let told = || again.diary.0.lock().unwrap().get("events").cloned();
    eventually("it is told", || told().is_some()).await;
    assert_eq!(told(), Some(vec![format!("{:?}", JournalPosition(3))]), "only what is new");
    leader.store.lead(false);
    leader.becomes(Role::Following).await;
    leader.catches_up(&paper).await;
    again.catches_up(&paper).await;
    assert_eq!(again.rows(), leader.rows());
}

#[tokio::test]
async fn a_store_does_not_follow_the_log_of_another_one() {
    let paper = Arc::<Mutex<Paper>>::default();
    let stranger = Node::start(&paper); // It was new when the log was empty, so it is a store of its own.
    let [leader, follower] = pair(&paper).await;
    leader.store.append_events(event("e0"), Timestamp(1)).await.unwrap();
    follower.catches_up(&paper).await;
    stranger.store.lead(true);
    stranger.becomes(Role::Lost).await;
    assert_eq!(stranger.store.journal_end(), JournalPosition(1), "it has nothing of the other store");
    leader.store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    follower.catches_up(&paper).await;
    assert_eq!(paper.lock().unwrap().term, 1, "it never began a term");
}
