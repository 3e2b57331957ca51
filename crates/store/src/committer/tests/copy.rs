//! A store that begins as a copy of another one and follows the same log: it ends as all others, and can lead.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::derived::{Change, apply, change, fault};
use super::follow::{Diary, Node, Pair, Paper, Trouble, at, begin, pair, set_fault, trouble};
use super::*;
use crate::backup::{Backup, BackupError, RestoredPushes, leave_log, restore, restore_copy};
use crate::log::LOG_KEY;
use crate::meta::read_state;
use crate::rows::change_key;
use crate::{LogPosition, Role};

/// The backup of a store. If the store is opened again meanwhile, another one is tried.
async fn backup_of(store: &Store) -> Vec<u8> {
    let mut pulse = tokio::time::interval(Duration::from_millis(2));
    for _ in 0..5000 {
        let mut bytes = Vec::new();
        match store.backup(&mut bytes) {
            Err(BackupError::GivenUp) => pulse.tick().await,
            made => {
                made.unwrap();
                return bytes;
            }
        };
    }
    panic!("the store is not opened again");
}

/// A store that begins as a copy of another one.
struct Copy {
    node: Node,
    /// The key of the first change that it can have.
    first_change: Vec<u8>,
}

impl Copy {
    async fn of(store: &Store, paper: &Arc<Mutex<Paper>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        restore_copy(&backup_of(store).await[..], folder.path(), |_| ()).unwrap();
        let state = read_state(&Engine::open_again(folder.path(), 1 << 20).unwrap()).unwrap();
        Self { node: Node::start_in(folder, paper), first_change: change_key(state.change_end).to_vec() }
    }

    /// All rows of a node, except changes from before the copy.
    fn rows_since(&self, node: &Node) -> BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut rows = node.rows();
        if let Some(changes) = rows.get_mut("change") {
            changes.retain(|key, _| *key >= self.first_change);
        }
        rows
    }

    /// Waits until its rows and memory are as those of another node that rests, and both sinks were told of all rows.
    async fn becomes_like(&self, node: &Node, paper: &Arc<Mutex<Paper>>) {
        self.node.catches_up(paper).await;
        node.catches_up(paper).await;
        let all = |of: &Node| (self.rows_since(of), of.facts(), of.store.log_position());
        let mut pulse = tokio::time::interval(Duration::from_millis(2));
        let alike = async {
            while all(&self.node) != all(node) {
                pulse.tick().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), alike).await.is_err() {
            assert_eq!(all(&self.node), all(node));
        }
    }
}

/// What happens to the copy during a group of changes.
#[derive(Debug, Clone)]
enum Visit {
    None,
    /// It is closed and started again, with its checkpoint or without.
    Restart(bool),
    Disk(Option<Fault>),
}

impl Visit {
    async fn to(self, copy: &mut Node, paper: &Arc<Mutex<Paper>>) {
        match self {
            Self::None => {}
            Self::Restart(has_checkpoint) => copy.restart(paper, has_checkpoint).await,
            Self::Disk(fault) => set_fault(&copy.store, fault),
        }
    }
}

fn visit() -> impl Strategy<Value = Visit> {
    prop_oneof![
        2 => Just(Visit::None),
        2 => any::<bool>().prop_map(Visit::Restart),
        1 => fault().prop_map(Visit::Disk),
    ]
}

/// When the copy is made, and of which store.
#[derive(Debug, Clone)]
struct Moment {
    group: prop::sample::Index,
    is_of_leader: bool,
    /// While the changes of the group are made, or before.
    is_meanwhile: bool,
}

impl Moment {
    async fn copy(&self, pair: &Pair) -> Copy {
        let source = if self.is_of_leader { pair.leader() } else { pair.follower() };
        Copy::of(&source.store, &pair.paper).await
    }
}

fn moment() -> impl Strategy<Value = Moment> {
    let parts = (any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    parts.prop_map(|(group, is_of_leader, is_meanwhile)| Moment { group, is_of_leader, is_meanwhile })
}

type Told = BTreeMap<&'static str, usize>;

/// How often each kind of news was told.
fn told(node: &Node) -> Told {
    node.diary.told().into_iter().map(|(of, told)| (of, told.len())).collect()
}

/// The copy was told all that the other was told since the copy was made, in the same order. `before` and `after` are what
/// the other had been told at two moments around that.
fn check_told(copy: &Node, other: &Node, [before, after]: &[Told; 2]) {
    let of_copy = copy.diary.told();
    for (of, all) in other.diary.told() {
        let since = of_copy.get(of).map_or(&[][..], Vec::as_slice);
        assert!(all.ends_with(since), "{of}: {since:?} is no end of {all:?}");
        let count = |told: &Told| told.get(of).copied().unwrap_or(0);
        let missed = all.len() - since.len();
        assert!((count(before)..=count(after)).contains(&missed), "{of}: {missed} of {all:?} were not told");
    }
}

type Group = (Trouble, Vec<Change>, Visit);

async fn run(first: Vec<Change>, groups: Vec<Group>, last: Vec<Change>, moment: Moment) {
    let mut pair = Pair::start().await;
    for change in first {
        apply(&pair.leader().store, change).await;
    }
    pair.rests().await;
    pair.leader().leads().await;
    let copied_in = moment.group.index(groups.len());
    let (mut copy, mut around) = (None::<Copy>, <[Told; 2]>::default());
    for (index, (trouble, changes, visit)) in groups.into_iter().enumerate() {
        let is_now = index == copied_in;
        if is_now {
            around = [told(pair.leader()), told(pair.leader())];
        }
        if is_now && !moment.is_meanwhile {
            copy = Some(moment.copy(&pair).await);
        }
        pair.meets(trouble).await;
        let applied = begin(changes, &pair.leader().store);
        if is_now && moment.is_meanwhile {
            tokio::task::yield_now().await; // So that the changes are on their way.
            copy = Some(moment.copy(&pair).await);
        }
        if let Some(copy) = &mut copy {
            visit.to(&mut copy.node, &pair.paper).await;
        }
        applied.join_all().await;
        pair.rests().await;
        if is_now && moment.is_meanwhile {
            around[1] = told(pair.leader());
        }
        if let Some(copy) = &copy {
            set_fault(&copy.node.store, None);
            copy.becomes_like(pair.leader(), &pair.paper).await;
            check_told(&copy.node, pair.leader(), &around);
        }
        pair.leader().store.lead(true);
    }
    let copy = copy.expect("it was made in one of the groups");
    pair.leader().rests().await;
    copy.node.leads().await;
    begin(last, &copy.node.store).join_all().await;
    copy.node.rests().await;
    for node in &pair.nodes {
        copy.becomes_like(node, &pair.paper).await;
        check_told(&copy.node, node, &around);
    }
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    prop::collection::vec((trouble(), prop::collection::vec(change(), 1..8), visit()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_that_follows_is_as_the_others_and_can_lead(
        first in prop_oneof![1 => Just(Vec::new()), 6 => prop::collection::vec(change(), 15..40)],
        groups in groups(),
        last in prop::collection::vec(change(), 1..8),
        moment in moment(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(first, groups, last, moment));
    }
}

#[tokio::test]
async fn a_copy_is_the_same_store_and_a_restored_one_is_alone() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, _follower] = pair(&paper).await;
    let mut waiting = event("e0");
    waiting[0].event.at = Some(Timestamp(1000));
    leader.store.append_events(waiting, Timestamp(1)).await.unwrap();
    leader.store.put_device(device("d0"), PutTerms::default(), Timestamp(1)).await.unwrap();
    leader.rests().await;
    let backup = backup_of(&leader.store).await;
    let (same, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(same.path().join("checkpoint"), "of an earlier life with the same epoch").unwrap();
    let summary = restore_copy(&backup[..], same.path(), |_| ()).unwrap();
    assert_eq!(summary.epoch, leader.store.channel_start().epoch);
    assert!(!same.path().join("checkpoint").exists());
    assert!(matches!(restore_copy(&backup[..], same.path(), |_| ()), Err(BackupError::HasStore { .. })));
    assert!(matches!(Store::open(config(same.path()), Arc::<Diary>::default()), Err(crate::OpenError::HasLog)));
    let copy = Node::start_in(same, &paper);
    let (mut rows, mut of_leader) = (copy.rows(), leader.rows());
    assert_eq!((rows.remove("change").unwrap().len(), rows["brake"].len()), (0, 0));
    of_leader.remove("change");
    assert_eq!(rows, of_leader);

    let restored = restore(&backup[..], other.path(), RestoredPushes::Paused(Timestamp(2)), |_| ()).unwrap();
    assert!(restored.is_paused);
    let store = open(other.path(), Arc::default());
    assert_ne!(store.channel_start().epoch, summary.epoch);
    assert_eq!((store.counts().devices, store.log_position()), (1, LogPosition::default()));
    store.append_events(event("e1"), Timestamp(1)).await.unwrap();
    store.close().await;
    drop(store);
    let node = Node::start_in(other, &Arc::default());
    node.leads().await;
    node.store.append_events(event("e2"), Timestamp(1)).await.unwrap();
}

#[tokio::test]
async fn a_store_that_leaves_its_log_is_alone_and_another_one() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, follower] = pair(&paper).await;
    leader.store.put_device(device("d0"), PutTerms::default(), Timestamp(1)).await.unwrap();
    let epoch = leader.store.channel_start().epoch;
    let folder = leader.folder.path().to_owned();
    assert!(leave_log(&folder).is_err(), "it is in use");
    leader.store.close().await;
    assert!(leave_log(&folder).unwrap());
    assert!(!leave_log(&folder).unwrap(), "it has left already");
    let store = open(&folder, Arc::default());
    assert_eq!((store.counts().devices, store.log_position()), (1, LogPosition::default()));
    assert_ne!(store.channel_start().epoch, epoch);
    store.close().await;
    drop(store);

    // It can begin another log, and not follow the old one.
    let mut node = Node::start_in(leader.folder, &Arc::default());
    node.leads().await;
    drop(follower);
    node.restart(&paper, false).await;
    node.becomes(Role::Lost).await;
}

#[tokio::test]
async fn the_position_of_a_backup_is_of_the_moment_of_its_rows() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, follower] = pair(&paper).await;
    leader.store.append_events(event("e0"), Timestamp(1)).await.unwrap();
    follower.catches_up(&paper).await;
    for node in [&leader, &follower] {
        let mut position = at(paper.lock().unwrap().records.len());
        eventually("it has applied all", || node.store.log_position() == position).await;
        let backup = node.store.begin_backup().unwrap();
        leader.store.append_events(event(&format!("e{}", position.sequence)), Timestamp(1)).await.unwrap();
        follower.catches_up(&paper).await;
        assert_eq!(backup.log_position().unwrap(), Some(position));
        let (folder, mut bytes) = (tempfile::tempdir().unwrap(), Vec::new());
        backup.write_to(&mut bytes, |_| ()).unwrap();
        restore_copy(&bytes[..], folder.path(), |_| ()).unwrap();
        assert_eq!(Backup::of_folder(folder.path()).unwrap().log_position().unwrap(), Some(position));
        let copy = Node::start_in(folder, &paper);
        assert!(copy.store.log_position().sequence >= position.sequence, "also before it follows");
        position = at(paper.lock().unwrap().records.len());
        eventually("it has applied what is new", || copy.store.log_position() == position).await;
        assert_eq!(copy.store.journal_end(), leader.store.journal_end());
    }
}

#[tokio::test]
async fn a_store_says_how_far_it_is_in_its_log() {
    let paper = Arc::<Mutex<Paper>>::default();
    let [leader, follower] = pair(&paper).await;
    let end = || at(paper.lock().unwrap().records.len());
    for id in ["e0", "e1", "e2"] {
        leader.store.append_events(event(id), Timestamp(1)).await.unwrap();
        assert_eq!(leader.store.log_position(), end(), "with the answer");
    }
    eventually("it follows", || follower.store.log_position() == end()).await;
    let last = end();
    leader.rests().await;
    follower.leads().await;
    let positions = [&leader, &follower].map(|node| node.store.log_position());
    assert_eq!(positions, [last, last], "a term has no rows, so no node has more for it: others may still take over");
    assert_ne!(end(), last);
    follower.rests().await;
}

#[tokio::test]
async fn a_backup_that_knows_no_log_or_not_its_position_is_not_copied() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path(), Arc::default());
    store.append_events(event("e0"), Timestamp(1)).await.unwrap();
    let alone = store.begin_backup().unwrap();
    assert_eq!(alone.log_position().unwrap(), None);
    drop(alone);
    let refused = restore_copy(&backup_of(&store).await[..], copy.path(), |_| ());
    assert!(matches!(refused, Err(BackupError::NoLog)));
    damage(&store, Table::Meta, LOG_KEY);
    assert!(matches!(store.begin_backup().unwrap().log_position(), Err(BackupError::Engine(_))));
    let backup = backup_of(&store).await;
    assert!(matches!(restore_copy(&backup[..], copy.path(), |_| ()), Err(BackupError::Engine(_))));
    assert!(!copy.path().join("data").exists());
    restore(&backup[..], copy.path(), RestoredPushes::GoOn, |_| ()).unwrap();
    open(copy.path(), Arc::default()).close().await;
}

/// Otherwise they would stay for ever: their numbers are before all that any leader looks at.
#[tokio::test]
async fn a_copy_that_leads_has_the_others_delete_changes_that_it_does_not_have_itself() {
    let paper = Arc::<Mutex<Paper>>::default();
    let folder = tempfile::tempdir().unwrap();
    // Its checkpoint is written when it is closed.
    let leader = Node::start_with(config(folder.path()), folder, &paper);
    leader.leads().await;
    for id in ["d0", "d1", "d2"] {
        leader.store.put_device(device(id), PutTerms::default(), Timestamp(1)).await.unwrap();
    }
    let copy = Copy::of(&leader.store, &paper).await;
    leader.rests().await;
    assert_eq!((leader.rows()["change"].len(), copy.node.rows()["change"].len()), (3, 0));
    copy.node.leads().await;
    copy.node.store.log_out(&DeviceId::new("d0").unwrap()).await.unwrap();
    eventually("its checkpoint has all", || leader.rows()["change"].len() <= 1).await;
    copy.node.rests().await;
    leader.catches_up(&paper).await;
    assert_eq!(leader.rows(), copy.node.rows());
}

static CLOCK: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn a_follower_has_the_floor_that_it_follows() {
    let paper = Arc::<Mutex<Paper>>::default();
    let start = || {
        let folder = tempfile::tempdir().unwrap();
        let clock = || Timestamp(CLOCK.load(Ordering::Relaxed));
        Node::start_with(StoreConfig { clock, ..config(folder.path()) }, folder, &paper)
    };
    let leader = start();
    leader.leads().await;
    let follower = start();
    let first = follower.store.channel_start();
    leader.store.append_events(event("e0"), Timestamp(1)).await.unwrap();
    CLOCK.store(10 * 86_400_000, Ordering::Relaxed);
    let floor = StreamPosition { offset: Offset(1 << 20), ..first };
    eventually("the idle channel is forgotten", || leader.store.channel_start() == floor).await;
    eventually("it follows", || follower.store.channel_start() == floor).await;
    assert_eq!(first.offset, Offset(0));
    eventually("the sink is told too", || follower.diary.told()["channels"].len() == 2).await;
    assert_eq!(*follower.store.role().borrow(), Role::Following);
}
