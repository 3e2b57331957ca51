//! The book compared with a simple model: lists of requests that are searched from the front.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const IN_FLIGHT_MAX: usize = 4;
const ID_COUNT: u64 = 6;

#[derive(Debug, Clone, Copy)]
enum Step {
    Accept { is_alone: bool, is_first: bool, wait: u64 },
    Write { is_one_way: bool },
    Refuse,
    Answer(To),
    OneWayWritten,
    Advance(u64),
    Sweep,
    TakeWritten,
    TakeWaiting,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::bool::weighted(0.2), prop::bool::weighted(0.2), 1u64..200)
            .prop_map(|(is_alone, is_first, wait)| Step::Accept { is_alone, is_first, wait }),
        6 => prop::bool::weighted(0.2).prop_map(|is_one_way| Step::Write { is_one_way }),
        1 => Just(Step::Refuse),
        4 => Just(Step::Answer(To::Oldest)),
        4 => (0..ID_COUNT + 2).prop_map(|id| Step::Answer(To::Id(id))),
        2 => Just(Step::OneWayWritten),
        3 => (1u64..100).prop_map(Step::Advance),
        1 => Just(Step::Sweep),
        1 => Just(Step::TakeWritten),
        1 => Just(Step::TakeWaiting),
    ]
}

/// A request of the model.
#[derive(Debug, Clone)]
struct Asked {
    name: u32,
    is_alone: bool,
    at: u64,
    is_dead: bool,
}

/// The model has three lists. A request and its waiter are the same number, the name. A name that is divisible by 5 is
/// "gone".
#[derive(Debug, Default)]
struct Model {
    waiting: Vec<Asked>,
    in_flight: Vec<(RequestId, Asked)>,
    one_way: Vec<(Key, Asked)>,
    /// The ids used since the connection began.
    given: BTreeSet<RequestId>,
    now: u64,
    ended: BTreeMap<u32, u32>,
}

impl Model {
    fn end(&mut self, name: u32) {
        *self.ended.entry(name).or_default() += 1;
    }

    fn may_write(&self) -> bool {
        let Some(first) = self.waiting.first() else { return false };
        let is_free = self.in_flight.is_empty() && self.one_way.is_empty();
        let is_alone_out = self.in_flight.iter().any(|(_, asked)| asked.is_alone);
        !is_alone_out && (is_free || !first.is_alone) && self.in_flight.len() < IN_FLIGHT_MAX
    }

    fn tombstones(&self) -> usize {
        let dead = |asked: &&Asked| asked.is_dead;
        self.in_flight.iter().map(|(_, asked)| asked).chain(self.one_way.iter().map(|(_, a)| a)).filter(dead).count()
    }
}

/// Runs every step on the book and the model. Their results must agree.
struct Both {
    book: Book<u32, u32>,
    model: Model,
    is_ordered: bool,
    next_name: u32,
    written: u64,
}

impl Both {
    fn new(is_ordered: bool) -> Self {
        let matching = if is_ordered { Matching::Ordered } else { Matching::ById { id_count: ID_COUNT } };
        let book = Book::new(matching, IN_FLIGHT_MAX);
        Self { book, model: Model::default(), is_ordered, next_name: 1, written: 0 }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Accept { is_alone, is_first, wait } => self.accept(is_alone, is_first, wait),
            Step::Write { is_one_way } => self.write(is_one_way),
            Step::Refuse => {
                if self.shows() {
                    let asked = self.model.waiting.remove(0);
                    assert_eq!(self.book.refuse(), asked.name);
                    self.model.end(asked.name);
                }
            }
            Step::Answer(to) => self.answer(to),
            Step::OneWayWritten => {
                if !self.model.one_way.is_empty() {
                    let (key, asked) = self.model.one_way.remove(0);
                    assert_eq!(self.book.one_way_written(key), (!asked.is_dead).then_some(asked.name));
                    if !asked.is_dead {
                        self.model.end(asked.name);
                    }
                }
            }
            Step::Advance(ticks) => self.advance(ticks),
            Step::Sweep => {
                let mut gone = Vec::new();
                self.book.sweep(|name| name % 5 == 0, |name| gone.push(name));
                let (out, kept) = self.model.waiting.drain(..).partition(|asked| asked.name % 5 == 0);
                self.model.waiting = kept;
                assert_eq!(gone, names(&out));
                gone.iter().for_each(|name| self.model.end(*name));
            }
            Step::TakeWritten => self.take_written(),
            Step::TakeWaiting => {
                let taken = std::mem::take(&mut self.model.waiting);
                assert_eq!(self.book.take_waiting(), taken.iter().map(|a| (a.name, a.name)).collect::<Vec<_>>());
                taken.iter().for_each(|asked| self.model.end(asked.name));
            }
        }
        self.check();
    }

    fn accept(&mut self, is_alone: bool, is_first: bool, wait: u64) {
        let (name, at) = (self.next_name, self.model.now + wait);
        self.next_name += 1;
        let asked = Asked { name, is_alone, at, is_dead: false };
        if is_first {
            self.book.accept_first(name, name, is_alone, at);
            self.model.waiting.insert(0, asked);
        } else {
            self.book.accept(name, name, is_alone, at);
            self.model.waiting.push(asked);
        }
    }

    fn shows(&mut self) -> bool {
        let shown = self.book.next_to_write().map(|(_, request, waiter)| (*request, *waiter));
        let expected = self.model.may_write().then(|| (self.model.waiting[0].name, self.model.waiting[0].name));
        assert_eq!(shown, expected);
        shown.is_some()
    }

    fn write(&mut self, is_one_way: bool) {
        if !self.shows() {
            return;
        }
        let (id, ..) = self.book.next_to_write().expect("it was shown");
        let asked = self.model.waiting.remove(0);
        let span = Span { start: self.written, end: self.written + 10 };
        self.written += 10;
        if is_one_way {
            let key = self.book.write_one_way(span);
            self.model.one_way.push((key, asked));
        } else {
            self.book.write(span);
            assert!(self.model.in_flight.iter().all(|(other, _)| *other != id), "id {id} is in flight twice");
            assert!(self.is_ordered || id < ID_COUNT);
            self.model.given.insert(id);
            self.model.in_flight.push((id, asked));
        }
    }

    fn answer(&mut self, to: To) {
        let index = match (self.is_ordered, to) {
            (true, To::Oldest) => (!self.model.in_flight.is_empty()).then_some(0),
            (true, To::Id(id)) => self.model.in_flight.first().filter(|(first, _)| *first == id).map(|_| 0),
            (false, To::Oldest) => None,
            (false, To::Id(id)) => self.model.in_flight.iter().position(|(other, _)| *other == id),
        };
        let expected = match index.map(|index| self.model.in_flight.remove(index)) {
            Some((_, asked)) if asked.is_dead => Answered::Tombstone,
            Some((_, asked)) => {
                self.model.end(asked.name);
                Answered::Waiter(asked.name)
            }
            None => match to {
                To::Id(id) if !self.is_ordered && self.model.given.contains(&id) => Answered::Forgotten,
                _ => Answered::Unknown,
            },
        };
        assert_eq!(self.book.answer(to), expected);
    }

    fn advance(&mut self, ticks: u64) {
        self.model.now += ticks;
        let now = self.model.now;
        let mut expired = Vec::new();
        self.book.expire(now, |_, Expired { waiter, was_written, is_place_free }| {
            expired.push((waiter, was_written, is_place_free));
        });
        let is_due = |asked: &Asked| asked.at <= now && !asked.is_dead;
        let mut expected: Vec<_> = Vec::new();
        self.model.waiting.retain(|asked| {
            if is_due(asked) {
                expected.push((asked.name, false, true));
            }
            !is_due(asked)
        });
        let is_ordered = self.is_ordered;
        self.model.in_flight.retain_mut(|(_, asked)| {
            let is_out = is_due(asked);
            if is_out {
                expected.push((asked.name, true, !is_ordered));
                asked.is_dead = true;
            }
            is_ordered || !is_out
        });
        for (_, asked) in self.model.one_way.iter_mut().filter(|(_, asked)| asked.at <= now && !asked.is_dead) {
            expected.push((asked.name, true, false));
            asked.is_dead = true;
        }
        expired.sort_unstable();
        expected.sort_unstable();
        assert_eq!(expired, expected);
        expired.iter().for_each(|(name, ..)| self.model.end(*name));
    }

    fn take_written(&mut self) {
        let written = self.book.take_written();
        assert!(written.is_sorted_by_key(|request| request.span.start), "the oldest comes first");
        let found: BTreeMap<u32, Option<u32>> = written.iter().map(|s| (s.request, s.waiter)).collect();
        let flight = self.model.in_flight.drain(..).map(|(_, asked)| asked);
        let all: Vec<Asked> = flight.chain(self.model.one_way.drain(..).map(|(_, asked)| asked)).collect();
        let expected = all.iter().map(|a| (a.name, (!a.is_dead).then_some(a.name))).collect();
        assert_eq!(found, expected);
        found.values().flatten().for_each(|name| self.model.end(*name));
        self.model.given.clear();
    }

    fn check(&mut self) {
        let model = &self.model;
        assert_eq!(self.book.len(), model.waiting.len() + model.in_flight.len() + model.one_way.len());
        assert_eq!(self.book.in_flight_count(), model.in_flight.len());
        assert_eq!(self.book.tombstone_count(), model.tombstones());
        assert_eq!(self.book.wheel.len(), self.book.len() - model.tombstones(), "each waiter has a timer");
        let oldest = model.in_flight.first().filter(|_| self.is_ordered).map(|(_, asked)| asked.name);
        assert_eq!(self.book.oldest().map(|(request, _)| *request), oldest);
        assert!(model.ended.values().all(|times| *times == 1), "ended twice: {:?}", model.ended);
        self.shows();
    }
}

fn names(asked: &[Asked]) -> Vec<u32> {
    asked.iter().map(|asked| asked.name).collect()
}

proptest! {
    #[test]
    fn the_book_agrees_with_a_list(is_ordered in any::<bool>(), steps in prop::collection::vec(step(), 1..150)) {
        let mut both = Both::new(is_ordered);
        for step in steps {
            both.run(step);
        }
        both.run(Step::TakeWritten);
        both.run(Step::TakeWaiting);
        prop_assert_eq!(both.model.ended.len() as u32, both.next_name - 1, "a request has not ended");
    }
}
