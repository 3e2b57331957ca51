//! Selectors, answered with the sets of the index.
//!
//! A selector first becomes a plan: its names are looked up once, and what `and` joins is put in order, the fewest
//! first, what is negated last. Then each shard of numbers is answered by itself, so memory is a few bitmaps of one
//! shard (128 KiB each at most) for each level of the tree, and the audience that comes out. `and` hands on what is
//! left of it, so that a large set behind a small one costs what the small one does; `not` is the difference from that.
//! All devices are put together only where `all` or a `not` stands alone.
//!
//! Time: a look-up in each shard for each set that the selector names, and set algebra over those found. `* on` looks
//! for each topic once, or at all sets where these are fewer; the language limits how often it is said.
//!
//! Whom an event is for is worked out while the caller holds the index still: it is to be who was meant at one moment. A
//! user, or a token, that changes devices while shards are taken one by one would be found twice, or not at all, and an
//! answer that was given before the selection began would count in one shard and not in the next.
//!
//! Counts and exports promise less, and go one shard at a time: [`Explaining`], which needs each part by itself and works
//! everything out in full, and [`Selecting`]. Between two shards the index may change, names may come and go, and are
//! looked up anew. Only the order of the parts stays.

use std::cell::OnceCell;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::{AppId, Country, Filter, Locale, Platform, Selector, SelectorNode, Subject, TopicName, UserId};

use crate::frozen::Frozen;
use crate::index::{Index, MUTED_ALL, NO_NAME, platform_key, user_of};
use crate::names::NameNumber;
use crate::sets::{SetKey, family};

/// A selector with how many devices each part of it means at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The whole selector.
    pub root: ExplainedNode,
    /// The devices it means, less those that muted everything. Mutes of a subject depend on the event.
    pub unmuted_count: u64,
    /// All devices there are.
    pub device_count: u64,
}

/// A part of a selector, by itself: what is around it does not change its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedNode {
    /// `and`, `or`, `not`, or the canonical text of a part that has no children.
    pub text: String,
    /// The devices it means.
    pub count: u64,
    /// What it joins or negates, in the order in which it is worked out.
    pub children: Vec<ExplainedNode>,
}

impl Index {
    /// The devices that `selector` means, each once, as it is at this moment; of these whom `filter` admits and who
    /// muted neither everything nor any of `subjects`.
    pub fn freeze_selected(&self, selector: &Selector, subjects: &[Subject], filter: &Filter) -> Frozen {
        let plan = Step::new(self, selector.root());
        let selected = |shard| Some(Shard::new(self, shard).select(&plan, None));
        self.limited(subjects, filter, selected, self.range_count())
    }

    /// How many devices each part of `selector` means, counted one by one.
    pub fn explain(&self, selector: &Selector) -> Explanation {
        let mut explaining = Explaining::new(self, selector);
        while explaining.next_shard(self) {}
        explaining.finish()
    }
}

/// An [`Explanation`] in the making, for whoever does not want to hold the index still for all of it.
pub struct Explaining<'a> {
    plan: Step<'a>,
    explanation: Explanation,
    next_shard: usize,
}

impl<'a> Explaining<'a> {
    /// Nothing is counted yet; the parts are in the order that is best for the index as it is now.
    pub fn new(index: &Index, selector: &'a Selector) -> Self {
        let plan = Step::new(index, selector.root());
        let explanation = Explanation { root: plan.explained(), unmuted_count: 0, device_count: 0 };
        Self { plan, explanation, next_shard: 0 }
    }

    /// Counts the devices of one more shard as they are now; false when there is none more.
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

    /// What was counted.
    pub fn finish(self) -> Explanation {
        self.explanation
    }
}

/// All devices that a selector means, the muted too, for whoever does not want to hold the index still for all of them:
/// those of a shard are who was meant when it was looked at.
pub struct Selecting<'a> {
    plan: Step<'a>,
    shards: Vec<Option<Arc<RoaringBitmap>>>,
}

impl<'a> Selecting<'a> {
    /// Nobody is found yet.
    pub fn new(index: &Index, selector: &'a Selector) -> Self {
        Self { plan: Step::new(index, selector.root()), shards: Vec::new() }
    }

    /// Finds the devices of one more shard; false when there is none more.
    pub fn next_shard(&mut self, index: &Index) -> bool {
        if self.shards.len() >= index.range_count() {
            return false;
        }
        self.plan.look_up(index);
        let selected = Shard::new(index, self.shards.len()).select(&self.plan, None);
        self.shards.push((!selected.is_empty()).then_some(selected));
        true
    }

    /// Who was found.
    pub fn finish(self) -> Frozen {
        Frozen::from_shards(self.shards.into_iter())
    }
}

/// A part of a selector with its names looked up.
struct Step<'a> {
    node: &'a SelectorNode,
    work: Work<'a>,
    /// It means no more devices than this.
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
