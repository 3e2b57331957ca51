//! Which frames are for one subscriber, found once and asked several times.
//!
//! A filter is applied once to each publication of a turn, however many subscribers have it ([`Verdicts`]). For that, equal filters
//! of a loop's subscribers are one and the same ([`Filters`]).

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use tidings_hub::Wishes;
use tidings_protocol::TagsFilter;
use tidings_stream::{Frame, FrameKind};

/// Of some frames in order, which are for a subscriber.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    joins: bool,
    /// Whether each frame passes the filter, and how many of these belong to frames that came before.
    filtered: Option<(Rc<[bool]>, usize)>,
}

impl Wanted {
    /// Applies the filter to all of `frames`.
    pub(crate) fn of(wishes: &Wishes, frames: &[Frame]) -> Self {
        let filtered = wishes.filter.as_ref().map(|filter| (apply(filter, frames), 0));
        Self { joins: wishes.joins, filtered }
    }

    /// Whether the frame at `index` is for the subscriber.
    pub(crate) fn has(&self, index: usize, frame: &Frame) -> bool {
        match frame.kind {
            FrameKind::Publication(_) => self.filtered.as_ref().is_none_or(|(passes, before)| passes[before + index]),
            FrameKind::JoinLeave => self.joins,
            FrameKind::Restart => false,
        }
    }
}

fn apply(filter: &TagsFilter, frames: &[Frame]) -> Rc<[bool]> {
    let passes = |frame: &Frame| match &frame.kind {
        FrameKind::Publication(tags) => filter.matches(tags),
        FrameKind::JoinLeave | FrameKind::Restart => false,
    };
    frames.iter().map(passes).collect()
}

/// What filters say to the same frames, each asked once.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(RefCell<HashMap<*const TagsFilter, Verdict>>);

#[derive(Debug)]
struct Verdict {
    /// Keeps the address from becoming that of another filter.
    _filter: Arc<TagsFilter>,
    passes: Rc<[bool]>,
}

impl Verdicts {
    /// Which of the frames from the index `from` on are for a subscriber with these wishes.
    pub(crate) fn wanted(&self, wishes: &Wishes, frames: &[Frame], from: usize) -> Wanted {
        let filtered = wishes.filter.as_ref().map(|filter| {
            let mut known = self.0.borrow_mut();
            let verdict = known
                .entry(Arc::as_ptr(filter))
                .or_insert_with(|| Verdict { _filter: filter.clone(), passes: apply(filter, frames) });
            (verdict.passes.clone(), from)
        });
        Wanted { joins: wishes.joins, filtered }
    }
}

/// The filters of a loop's subscribers. Those that nobody has any more are dropped now and then: there are at most as many of them
/// as of the others, and [`SPARE_COUNT`].
#[derive(Debug)]
pub(crate) struct Filters {
    known: HashSet<Arc<TagsFilter>>,
    /// With so many, those that nobody has are dropped.
    drop_at: usize,
}

const SPARE_COUNT: usize = 64;

impl Default for Filters {
    fn default() -> Self {
        Self { known: HashSet::new(), drop_at: SPARE_COUNT }
    }
}

impl Filters {
    /// The filter that equal ones share.
    pub(crate) fn share(&mut self, filter: Arc<TagsFilter>) -> Arc<TagsFilter> {
        if let Some(known) = self.known.get(&filter) {
            return known.clone();
        }
        if self.known.len() >= self.drop_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.known.shrink_to(self.known.len());
            self.drop_at = self.known.len() * 2 + SPARE_COUNT;
        }
        self.known.insert(filter.clone());
        filter
    }
}

#[cfg(test)]
mod tests {
    use tidings_protocol::UnreadFilter;
    use tidings_types::{Json, Tags};

    use super::*;

    fn filter(value: &str) -> Arc<TagsFilter> {
        let filter = Json::of(&serde_json::json!({"key": "kind", "cmp": "eq", "val": value}));
        Arc::new(TagsFilter::read(&UnreadFilter::Json(filter)).unwrap())
    }

    fn frames(kinds: &[&str]) -> Vec<Frame> {
        let none = || std::iter::empty::<tidings_stream::Encoded>();
        let tags = |kind: &str| Tags::from(std::collections::BTreeMap::from([("kind".to_owned(), kind.to_owned())]));
        kinds.iter().map(|kind| Frame::new(FrameKind::Publication(tags(kind)), none(), 0, None)).collect()
    }

    #[test]
    fn equal_filters_are_one_and_those_that_nobody_has_are_dropped() {
        let mut filters = Filters::default();
        let kept = filters.share(filter("kept"));
        assert!(Arc::ptr_eq(&kept, &filters.share(filter("kept"))));
        for number in 0..10_000 {
            filters.share(filter(&number.to_string()));
            assert!(filters.known.len() <= 2 * (SPARE_COUNT + 1), "{} filters for one subscriber", filters.known.len());
        }
        assert!(Arc::ptr_eq(&kept, &filters.share(filter("kept"))));
    }

    #[test]
    fn a_filter_is_asked_once_for_each_publication_of_a_turn() {
        let (frames, verdicts) = (frames(&["a", "b", "a"]), Verdicts::default());
        let wishes = Wishes { filter: Some(filter("a")), ..Wishes::default() };
        let wanted = verdicts.wanted(&wishes, &frames, 1);
        assert_eq!([wanted.has(0, &frames[1]), wanted.has(1, &frames[2])], [false, true]);
        let first = &wanted.filtered.as_ref().unwrap().0;
        let again = verdicts.wanted(&wishes, &frames, 0);
        assert!(Rc::ptr_eq(first, &again.filtered.as_ref().unwrap().0), "the same answer is shared");
        let other = Wishes { filter: Some(filter("b")), ..Wishes::default() };
        let other = verdicts.wanted(&other, &frames, 0);
        assert_eq!([0, 1, 2].map(|index| other.has(index, &frames[index])), [false, true, false]);
        assert_eq!([0, 1, 2].map(|index| again.has(index, &frames[index])), [true, false, true]);
    }
}
