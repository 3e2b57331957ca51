//! Selectors, answered with the sets of the index.
//!
//! A selector first becomes a plan: its names are looked up once, and the parts of each `and` are ordered, the smallest
//! first and negated parts last. Then each shard of device numbers is evaluated alone. So the memory is a few bitmaps
//! of one shard (at most 128 KiB each) for each level of the tree, and the resulting audience. `and` evaluates each
//! part only within the devices that are left, so a large set after a small one costs as much as the small one. `not`
//! is the difference from these devices. All devices are combined only if `all` or a `not` stands alone.
//!
//! Time: one look-up per shard for each set that the selector names, and set algebra over the sets found. `* on` looks
//! up each topic, or searches all sets if they are fewer; the language limits how often it may appear.
//!
//! For the audience of an event the caller holds the index still, because the audience must be that of one moment. If
//! shards were evaluated one after another, a user or a token that moves to another device in between could be found
//! twice or not at all. An answer from before the selection could count in one shard and not in the next.
//!
//! Counts and exports promise less, and evaluate one shard at a time: [`Explaining`], which evaluates each part in
//! full, and [`Selecting`]. Between two shards the index may change, and names may come and go, so they are looked up
//! again. Only the order of the parts stays.

use std::cell::OnceCell;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::{AppId, Country, Filter, Locale, Platform, Selector, SelectorNode, Subject, TopicName, UserId};

use crate::frozen::Frozen;
use crate::index::{Index, MUTED_ALL, NO_NAME, platform_key, user_of};
use crate::names::NameNumber;
use crate::sets::{SetKey, family};

/// A selector with the current number of devices for each part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The whole selector.
    pub root: ExplainedNode,
    /// The devices that it selects, without those that muted everything. Mutes of a subject depend on the event.
    pub unmuted_count: u64,
    /// All devices there are.
    pub device_count: u64,
}

/// A part of a selector. Its count does not depend on the parts around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedNode {
    /// `and`, `or`, `not`, or the canonical text of a part that has no children.
    pub text: String,
    /// The devices that it selects.
    pub count: u64,
    /// Its parts, in the order in which they are evaluated.
    pub children: Vec<ExplainedNode>,
}

impl Index {
    /// The devices that `selector` selects at this moment, each once; only those that `filter` admits, and without
    /// those that muted everything or any of `subjects`.
    pub fn freeze_selected(&self, selector: &Selector, subjects: &[Subject], filter: &Filter) -> Frozen {
        let plan = Step::new(self, selector.root());
        let selected = |shard| Some(Shard::new(self, shard).select(&plan, None));
        self.limited(subjects, filter, selected, self.range_count())
    }

    /// How many devices each part of `selector` selects, counted one by one.
    pub fn explain(&self, selector: &Selector) -> Explanation {
        let mut explaining = Explaining::new(self, selector);
        while explaining.next_shard(self) {}
        explaining.finish()
    }
}

/// An unfinished [`Explanation`], for a caller that must not hold the index still for all of it.
pub struct Explaining<'a> {
    plan: Step<'a>,
    explanation: Explanation,
    next_shard: usize,
}

impl<'a> Explaining<'a> {
    /// Nothing is counted yet; the parts are in the best order for the current index.
    pub fn new(index: &Index, selector: &'a Selector) -> Self {
        let plan = Step::new(index, selector.root());
        let explanation = Explanation { root: plan.explained(), unmuted_count: 0, device_count: 0 };
        Self { plan, explanation, next_shard: 0 }
    }

    /// Counts the devices of one more shard as they are now; false if there is none left.
    pub fn next_shard(&mut self, index: &Index) -> bool {
        if self.next_shard >= index.range_count() {
            return false;
        }
        self.plan.look_up(index);
        let shard = Shard::new(index, self.next_shard);
        let Explanation { root, unmuted_count, device_count } = &mut self.explanation;
        let selected = shard.measure(&self.plan, root);
        let muted = index.bitmap(shard.shard, MUTED_ALL).unwrap_or_default();
        *unmuted_count += selected.len() - selected.intersection_len(&muted);
        *device_count += shard.all().len();
        self.next_shard += 1;
        true
    }

    /// The result.
    pub fn finish(self) -> Explanation {
        self.explanation
    }
}

/// All devices that a selector selects, also muted ones, for a caller that must not hold the index still for all of
/// them. The devices of each shard are those of the moment at which the shard was evaluated.
pub struct Selecting<'a> {
    plan: Step<'a>,
    shards: Vec<Option<Arc<RoaringBitmap>>>,
}

impl<'a> Selecting<'a> {
    /// No devices yet.
    pub fn new(index: &Index, selector: &'a Selector) -> Self {
        Self { plan: Step::new(index, selector.root()), shards: Vec::new() }
    }

    /// Finds the devices of one more shard; false if there is none left.
    pub fn next_shard(&mut self, index: &Index) -> bool {
        if self.shards.len() >= index.range_count() {
            return false;
        }
        self.plan.look_up(index);
        let selected = Shard::new(index, self.shards.len()).select(&self.plan, None);
        self.shards.push((!selected.is_empty()).then_some(selected));
        true
    }

    /// The devices.
    pub fn finish(self) -> Frozen {
        Frozen::from_shards(self.shards.into_iter())
    }
}

/// A part of a selector with its names looked up.
struct Step<'a> {
    node: &'a SelectorNode,
    work: Work<'a>,
    /// An upper limit of the devices that it selects.
    count_max: u64,
}

enum Work<'a> {
    All,
    /// The members of any of these sets.
    Sets(Vec<SetKey>),
    Not(Box<Step<'a>>),
    /// In the order in which it is worked out.
    And(Vec<Step<'a>>),
    Or(Vec<Step<'a>>),
}

impl<'a> Step<'a> {
    fn new(index: &Index, node: &'a SelectorNode) -> Self {
        let steps = |nodes: &'a [SelectorNode]| nodes.iter().map(|node| Self::new(index, node)).collect::<Vec<_>>();
        let work = match node {
            SelectorNode::All => Work::All,
            SelectorNode::Not(inner) => Work::Not(Box::new(Self::new(index, inner))),
            SelectorNode::And(all) => {
                let mut steps = steps(all);
                steps.sort_by_key(|step| (matches!(step.work, Work::Not(_)), step.count_max));
                Work::And(steps)
            }
            SelectorNode::Or(any) => Work::Or(steps(any)),
            leaf => Work::Sets(keys(index, leaf)),
        };
        let count_max = work.count_max(index);
        Self { node, work, count_max }
    }

    /// Looks all names up anew; the order stays.
    fn look_up(&mut self, index: &Index) {
        match &mut self.work {
            Work::All => {}
            Work::Sets(sets) => *sets = keys(index, self.node),
            Work::Not(inner) => inner.look_up(index),
            Work::And(steps) | Work::Or(steps) => steps.iter_mut().for_each(|step| step.look_up(index)),
        }
    }

    /// Without counts yet.
    fn explained(&self) -> ExplainedNode {
        let text = match self.work {
            Work::And(_) => "and".to_owned(),
            Work::Or(_) => "or".to_owned(),
            Work::Not(_) => "not".to_owned(),
            Work::All | Work::Sets(_) => self.node.to_string(),
        };
        let children = match &self.work {
            Work::And(steps) | Work::Or(steps) => steps.iter().map(Self::explained).collect(),
            Work::Not(inner) => vec![inner.explained()],
            Work::All | Work::Sets(_) => Vec::new(),
        };
        ExplainedNode { text, count: 0, children }
    }
}

impl Work<'_> {
    fn count_max(&self, index: &Index) -> u64 {
        match self {
            Self::All | Self::Not(_) => u64::MAX,
            Self::Sets(keys) => keys.iter().map(|&key| index.set_len(key)).sum(),
            Self::And(steps) => steps.iter().map(|step| step.count_max).min().unwrap_or(u64::MAX),
            Self::Or(steps) => steps.iter().fold(0, |sum, step| sum.saturating_add(step.count_max)),
        }
    }
}

/// The sets of a part without children; those that there are.
fn keys(index: &Index, leaf: &SelectorNode) -> Vec<SetKey> {
    match leaf {
        SelectorNode::Subscribed { topics, subjects } => subscribed(index, topics.as_deref(), subjects),
        SelectorNode::Platform(of) => of.iter().map(|&platform| platform_key(platform)).collect(),
        SelectorNode::App(of) => named(index, family::APP, of.iter().map(AppId::as_str)),
        SelectorNode::Locale(of) => named(index, family::LOCALE, of.iter().map(Locale::as_str)),
        SelectorNode::Country(of) => {
            let names = of.iter().map(|country| country.as_ref().map_or(NO_NAME, Country::as_str));
            named(index, family::COUNTRY, names)
        }
        SelectorNode::User(of) => {
            let names = of.iter().map(|user| user.as_ref().map_or(NO_NAME, UserId::as_str));
            named(index, family::USER, names)
        }
        SelectorNode::All | SelectorNode::Not(_) | SelectorNode::And(_) | SelectorNode::Or(_) => Vec::new(),
    }
}

fn named<'a>(index: &Index, family: NameNumber, names: impl Iterator<Item = &'a str>) -> Vec<SetKey> {
    names.filter_map(|name| index.key(family, name)).collect()
}

fn subscribed(index: &Index, topics: Option<&[TopicName]>, subjects: &[Subject]) -> Vec<SetKey> {
    let mut keys = match topics {
        None => index.subject_keys(subjects),
        Some(topics) => {
            let pairs = topics.iter().flat_map(|topic| subjects.iter().map(move |subject| (topic, subject)));
            pairs.filter_map(|(topic, subject)| index.subscription_key(topic, subject)).collect()
        }
    };
    // The devices of those subjects that are users are subscribed to everything about them.
    keys.extend(named(index, family::USER, subjects.iter().filter_map(user_of)));
    keys
}

/// One shard while it is asked.
struct Shard<'a> {
    index: &'a Index,
    shard: usize,
    all: OnceCell<Arc<RoaringBitmap>>,
}

impl<'a> Shard<'a> {
    fn new(index: &'a Index, shard: usize) -> Self {
        Self { index, shard, all: OnceCell::new() }
    }

    /// All devices.
    fn all(&self) -> &Arc<RoaringBitmap> {
        self.all.get_or_init(|| {
            let platforms: Vec<SetKey> = Platform::ALL.iter().map(|&one| platform_key(one)).collect();
            self.index.union(self.shard, &platforms).unwrap_or_default()
        })
    }

    /// The devices that a step means; of those in `within` only, when it is said.
    fn select(&self, step: &Step<'_>, within: Option<&Arc<RoaringBitmap>>) -> Arc<RoaringBitmap> {
        match &step.work {
            Work::All => within.unwrap_or_else(|| self.all()).clone(),
            Work::Sets(keys) => {
                let sets = keys.iter().filter_map(|&key| self.index.bitmap(self.shard, key));
                match within {
                    None => union(sets),
                    Some(within) => union(sets.map(|set| Arc::new(&*set & &**within))),
                }
            }
            Work::Not(inner) => {
                let rest = within.unwrap_or_else(|| self.all());
                let inner = self.select(inner, Some(rest));
                if inner.is_empty() { rest.clone() } else { Arc::new(&**rest - &*inner) }
            }
            Work::And(steps) => {
                let mut left = within.cloned();
                for step in steps {
                    let selected = self.select(step, left.as_ref());
                    let is_empty = selected.is_empty();
                    left = Some(selected);
                    if is_empty {
                        break;
                    }
                }
                left.unwrap_or_default()
            }
            Work::Or(steps) => union(steps.iter().map(|step| self.select(step, within))),
        }
    }

    /// The devices that a step means, added to its count, and those of its parts to theirs.
    fn measure(&self, step: &Step<'_>, explained: &mut ExplainedNode) -> Arc<RoaringBitmap> {
        let parts = &mut explained.children;
        let selected = match &step.work {
            Work::All | Work::Sets(_) => self.select(step, None),
            Work::Not(inner) => {
                let inner = parts.first_mut().map(|part| self.measure(inner, part)).unwrap_or_default();
                Arc::new(&**self.all() - &*inner)
            }
            Work::And(steps) => {
                let measured = steps.iter().zip(parts).map(|(step, part)| self.measure(step, part));
                measured.reduce(|left, next| Arc::new(&*left & &*next)).unwrap_or_default()
            }
            Work::Or(steps) => union(steps.iter().zip(parts).map(|(step, part)| self.measure(step, part))),
        };
        explained.count += selected.len();
        selected
    }
}

/// The members of any; one alone is shared, not copied.
fn union(mut sets: impl Iterator<Item = Arc<RoaringBitmap>>) -> Arc<RoaringBitmap> {
    let mut union = sets.next().unwrap_or_default();
    for set in sets {
        *Arc::make_mut(&mut union) |= &*set;
    }
    union
}

#[cfg(test)]
mod tests;
