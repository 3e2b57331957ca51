//! The core compared with a model (a list of messages), and examples.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Core, Page, Progress, Refusal, Work};
use crate::config::{Full, Loss};

const WAIT: Full = Full::Wait { at_most: Duration::ZERO };

fn page(core: &mut Core) -> Page {
    match core.next() {
        Some(Work::Page(page)) => page,
        other => panic!("{other:?} instead of a page"),
    }
}

/// Writes the next page and returns its text.
fn sent(core: &mut Core) -> String {
    let page = page(core);
    let text = String::from_utf8(page.as_bytes().to_vec()).unwrap();
    core.settle(page, Ok(()));
    text
}

/// Writes the next announcement and returns its count.
fn told(core: &mut Core) -> u64 {
    match core.next() {
        Some(Work::Announce(loss)) => {
            core.announced(loss);
            loss.count
        }
        other => panic!("{other:?} instead of an announcement"),
    }
}

fn offer(core: &mut Core, messages: &[&str]) {
    for message in messages {
        core.offer(message.as_bytes()).unwrap();
    }
}

#[test]
fn messages_fill_pages_and_a_large_one_has_its_own_page() {
    let mut core = Core::new(8, 100, 1000, Full::Reject, true);
    offer(&mut core, &["aaa", "bbb", "cc", "d", "larger than a page", "e", "", "ff"]);
    let pages: Vec<_> = std::iter::from_fn(|| core.has_work().then(|| sent(&mut core))).collect();
    assert_eq!(pages, ["aaabbbcc", "d", "larger than a page", "eff"]);
    assert_eq!((core.tally().total, core.tally().sent), (7, 7), "an empty message is ignored");
}

#[test]
fn eviction_makes_room_and_is_announced_before_later_messages() {
    let mut core = Core::new(4, 3, 1000, Full::EvictOldest, true);
    offer(&mut core, &["aa", "bb", "cc", "dd", "ee"]);
    assert_eq!(told(&mut core), 2);
    assert_eq!((sent(&mut core), sent(&mut core)), ("cc".to_owned() + "dd", "ee".to_owned()));
    assert!(core.next().is_none());
}

#[test]
fn a_dropped_new_message_is_announced_after_the_last_page() {
    let mut core = Core::new(4, 3, 1000, Full::DropNewest, true);
    offer(&mut core, &["aa", "bb", "cc", "lost", "lost"]);
    assert_eq!(sent(&mut core), "aabb");
    offer(&mut core, &["dd", "ee", "lost"]);
    assert_eq!(sent(&mut core), "ccdd");
    assert_eq!(told(&mut core), 2);
    assert_eq!(sent(&mut core), "ee");
    assert_eq!(told(&mut core), 1);
    assert!(core.next().is_none());
}

#[test]
fn a_message_that_never_fits_is_refused_and_evicts_nothing() {
    let mut core = Core::new(4, 3, 10, Full::EvictOldest, true);
    offer(&mut core, &["aa", "bb"]);
    assert_eq!(core.offer(&[b'x'; 11]), Err(Refusal::TooLarge { bytes_max: 10 }));
    core.set_sink_bytes(Some(6));
    assert_eq!(core.offer(&[b'x'; 7]), Err(Refusal::TooLarge { bytes_max: 6 }));
    assert_eq!((core.waiting_count(), core.tally().total), (2, 2));
}

#[test]
fn after_a_failure_the_loss_is_announced_first_but_only_with_other_work() {
    let mut core = Core::new(4, 10, 100, Full::EvictOldest, true);
    offer(&mut core, &["aa", "bb"]);
    let lost = page(&mut core);
    core.settle(lost, Err(ErrorKind::BrokenPipe));
    assert!(!core.has_work(), "an announcement alone is no reason to try again");
    offer(&mut core, &["cc"]);
    let expected = Loss { count: 2, is_torn: true };
    assert!(matches!(core.next(), Some(Work::Announce(loss)) if loss == expected));
    core.fail(ErrorKind::BrokenPipe);
    assert!(matches!(core.next(), Some(Work::Announce(loss)) if loss == expected), "the page waits");
    core.announced(expected);
    assert_eq!(sent(&mut core), "cc");
    assert_eq!((core.tally().announced, core.tally().dropped, core.tally().failures), (2, 2, 2));
}

#[test]
fn a_smaller_page_size_applies_to_waiting_messages() {
    let mut core = Core::new(100, 100, 1000, Full::Reject, true);
    offer(&mut core, &["aaa", "bbb", "ccccc", "d"]);
    core.set_page_bytes(4);
    let pages: Vec<_> = std::iter::from_fn(|| core.has_work().then(|| sent(&mut core))).collect();
    assert_eq!(pages, ["aaa", "bbb", "ccccc", "d"]);
}

#[test]
fn a_page_is_due_when_a_linger_is_useless() {
    let due = |messages: &[&str], core: &mut Core| {
        offer(core, messages);
        core.is_due()
    };
    let new = || Core::new(4, 3, 100, Full::DropNewest, true);
    assert!(!due(&[], &mut new()));
    assert!(!due(&["aa"], &mut new()));
    assert!(due(&["aaaa"], &mut new()), "the page is exactly full");
    assert!(due(&["aa", "bbb"], &mut new()), "the next message did not fit");
    assert!(due(&["a", "a", "a"], &mut new()), "no more may wait");
    let mut core = new();
    offer(&mut core, &["a"]);
    core.mark();
    assert!(core.is_due(), "a flush waits for it");
    sent(&mut core);
    assert!(!due(&["b"], &mut core), "no flush waits for it");
}

#[test]
fn producers_are_woken_when_an_eighth_is_free_or_no_more_room_is_expected() {
    let mut core = Core::new(2, 16, 1000, WAIT, true);
    offer(&mut core, &["a"; 15]);
    assert!(!core.is_roomy(), "one of 16");
    sent(&mut core);
    assert!(core.is_roomy(), "three of 16");
    let mut core = Core::new(100, 1000, 16, WAIT, true);
    offer(&mut core, &["fifteen letters"]);
    assert!(core.is_roomy(), "a page that is not full may stay for a while");
    assert_eq!(core.offer(b"12"), Err(Refusal::Full));
    assert!(!core.is_roomy(), "it is due now because a flush waits");
    sent(&mut core);
    assert!(core.is_roomy());
}

#[test]
fn memory_is_reused() {
    let mut core = Core::new(64, 1000, 640, WAIT, true);
    let mut memory = Vec::new();
    for _ in 0..3 {
        while core.offer(b"message!").is_ok() {}
        while core.has_work() {
            sent(&mut core);
        }
        memory.push(core.memory_bytes());
    }
    assert!(memory[0] >= 640 && memory.iter().all(|bytes| *bytes == memory[0]), "{memory:?}");
}

#[test]
fn memory_of_large_messages_is_freed() {
    let mut core = Core::new(1000, 1000, 100_000, Full::Reject, true);
    while core.offer(&[0; 1900]).is_ok() {}
    while core.has_work() {
        sent(&mut core);
    }
    assert_eq!(core.memory_bytes(), 0);
}

/// What happens to a core.
#[derive(Debug, Clone)]
enum Op {
    Offer(usize),
    Lose,
    Next,
    Succeed,
    Fail,
    Abandon,
    Mark,
    PageBytes(usize),
    Capacity(usize, usize),
    SinkBytes(Option<usize>),
}

fn op(resizes: bool) -> BoxedStrategy<Op> {
    let common = prop_oneof![
        12 => (1_usize..30).prop_map(Op::Offer),
        1 => Just(Op::Lose),
        6 => Just(Op::Next),
        6 => Just(Op::Succeed),
        1 => Just(Op::Fail),
        1 => Just(Op::Abandon),
        1 => Just(Op::Mark),
    ];
    let sizes = prop_oneof![
        (0_usize..40).prop_map(Op::PageBytes),
        (0_usize..10, 0_usize..80).prop_map(|(count, bytes)| Op::Capacity(count, bytes)),
        proptest::option::of(1_usize..40).prop_map(Op::SinkBytes),
    ];
    if resizes { prop_oneof![20 => common, 2 => sizes].boxed() } else { common.boxed() }
}

/// Messages are numbered in the order in which they are offered.
struct Model {
    full: Full,
    page_bytes: usize,
    count_max: usize,
    bytes_max: usize,
    sink_bytes: usize,
    next: u64,
    waiting: VecDeque<(u64, Vec<u8>)>,
    in_flight: Vec<u64>,
    sent: u64,
    /// Lost and not announced.
    unannounced: BTreeSet<u64>,
    told: u64,
    refused: u64,
}

impl Model {
    fn bytes(&self) -> usize {
        self.waiting.iter().map(|(_, message)| message.len()).sum()
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.waiting.len() < self.count_max && self.bytes() + bytes <= self.bytes_max
    }

    fn offer(&mut self, message: Vec<u8>) -> Result<(), ()> {
        let number = self.next;
        self.next += 1;
        if message.len() > self.bytes_max.min(self.sink_bytes) {
            self.refused += 1;
            return Err(());
        }
        while !self.has_room(message.len()) {
            match self.full {
                Full::EvictOldest => drop(self.unannounced.insert(self.waiting.pop_front().unwrap().0)),
                Full::DropNewest => {
                    self.unannounced.insert(number);
                    return Ok(());
                }
                Full::Reject | Full::Wait { .. } => {
                    self.refused += 1;
                    return Err(());
                }
            }
        }
        self.waiting.push_back((number, message));
        Ok(())
    }

    /// A new sink may have a lower limit than the first waiting message.
    fn evict_too_large(&mut self) {
        while self.waiting.front().is_some_and(|(_, message)| message.len() > self.sink_bytes) {
            self.unannounced.insert(self.waiting.pop_front().unwrap().0);
        }
    }

    /// The core must return the next messages in order.
    fn take(&mut self, page: &Page, is_exact: bool) {
        let mut bytes = Vec::new();
        while bytes.len() < page.as_bytes().len() {
            let (number, message) = self.waiting.pop_front().expect("more bytes than were accepted");
            bytes.extend(message);
            self.in_flight.push(number);
        }
        assert_eq!(bytes, page.as_bytes());
        let page_bytes = self.page_bytes.min(self.sink_bytes);
        assert!(bytes.len() <= page_bytes || self.in_flight.len() == 1, "{} bytes in a page", bytes.len());
        assert!(bytes.len() <= self.sink_bytes);
        if is_exact {
            let first = self.in_flight[0];
            assert!(
                self.unannounced.first().is_none_or(|lost| *lost > first),
                "a page came before the announcement of an earlier loss"
            );
        }
    }
}

/// Runs the operations on both, then writes everything.
fn check(full: Full, page_bytes: usize, count_max: usize, bytes_max: usize, ops: Vec<Op>, resizes: bool) {
    let mut core = Core::new(page_bytes, count_max, bytes_max, full, true);
    let mut model = Model {
        full,
        page_bytes,
        count_max,
        bytes_max,
        sink_bytes: usize::MAX,
        next: 0,
        waiting: VecDeque::new(),
        in_flight: Vec::new(),
        sent: 0,
        unannounced: BTreeSet::new(),
        told: 0,
        refused: 0,
    };
    // A loss after a page is announced after the whole page, even if the page is split or its first messages are evicted.
    let may_shift = resizes || (full == Full::EvictOldest && ops.iter().any(|op| matches!(op, Op::Lose)));
    let mut work = None;
    let mut marks = Vec::new();
    let end = std::iter::repeat_n([Op::Next, Op::Succeed], ops.len() * 3 + 4).flatten();
    for op in ops.into_iter().chain(end) {
        match op {
            Op::Offer(bytes) => {
                let message = vec![(model.next % 251) as u8; bytes];
                let result = core.offer(&message);
                assert_eq!(result.is_ok(), model.offer(message).is_ok(), "{result:?}");
                if result.is_err() {
                    core.refuse();
                }
            }
            Op::Lose => {
                core.lose();
                model.unannounced.insert(model.next);
                model.next += 1;
            }
            Op::Next if work.is_none() => {
                work = core.next();
                model.evict_too_large();
                match &work {
                    Some(Work::Page(page)) => model.take(page, !may_shift),
                    Some(Work::Announce(loss)) => assert!(loss.count > 0),
                    None => assert!(model.waiting.is_empty()),
                }
            }
            Op::Succeed => match work.take() {
                Some(Work::Page(page)) => {
                    core.settle(page, Ok(()));
                    model.sent += model.in_flight.drain(..).count() as u64;
                }
                Some(Work::Announce(loss)) => {
                    core.announced(loss);
                    model.told += loss.count;
                    for _ in 0..loss.count {
                        model.unannounced.pop_first().expect("more was announced than lost");
                    }
                }
                None => {}
            },
            Op::Fail => match work.take() {
                Some(Work::Page(page)) => {
                    core.settle(page, Err(ErrorKind::BrokenPipe));
                    model.unannounced.extend(model.in_flight.drain(..));
                }
                Some(Work::Announce(_)) => core.fail(ErrorKind::BrokenPipe),
                None => {}
            },
            Op::Abandon => {
                work = None;
                core.abandon();
                model.unannounced.extend(model.in_flight.drain(..));
            }
            Op::Mark => marks.push((core.mark(), model.next)),
            Op::PageBytes(bytes) => {
                core.set_page_bytes(bytes);
                model.page_bytes = bytes.max(1);
            }
            Op::Capacity(count, bytes) => {
                core.set_capacity(count, bytes);
                (model.count_max, model.bytes_max) = (count.max(1), bytes.max(1));
            }
            Op::SinkBytes(bytes) if work.is_none() => {
                core.set_sink_bytes(bytes);
                model.sink_bytes = bytes.unwrap_or(usize::MAX);
            }
            Op::Next | Op::SinkBytes(_) => {}
        }
        let tally = core.tally();
        let (waiting, in_flight) = (core.waiting_count(), core.in_flight_count());
        assert_eq!((waiting, in_flight), (model.waiting.len(), model.in_flight.len()));
        assert_eq!(tally.total, tally.sent + tally.dropped + tally.refused + (waiting + in_flight) as u64);
        assert_eq!(
            (tally.total, tally.sent, tally.refused, tally.announced),
            (model.next, model.sent, model.refused, model.told)
        );
        for (mark, number) in &marks {
            let is_held =
                model.waiting.iter().map(|(number, _)| number).chain(&model.in_flight).any(|held| held < number);
            assert!(
                !(is_held && core.progress(*mark) == Progress::Done),
                "a flush is done, but the message is still held"
            );
        }
    }
    assert_eq!((core.waiting_count(), core.in_flight_count()), (0, 0), "everything can be written");
    if core.failure().is_none() {
        assert_eq!(core.tally().announced, core.tally().dropped, "every loss is announced");
        assert!(marks.iter().all(|(mark, _)| core.progress(*mark) != Progress::Waiting));
    }
}

fn full() -> impl Strategy<Value = Full> {
    prop_oneof![Just(Full::EvictOldest), Just(Full::DropNewest), Just(Full::Reject), Just(WAIT)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_message_is_sent_in_order_or_counted(
        full in full(), page_bytes in 1_usize..60, count_max in 1_usize..12, bytes_max in 1_usize..150,
        ops in vec(op(false), 0..120),
    ) {
        check(full, page_bytes, count_max, bytes_max, ops, false);
    }

    #[test]
    fn every_message_is_sent_in_order_or_counted_when_sizes_change(
        full in full(), page_bytes in 1_usize..60, count_max in 1_usize..12, bytes_max in 1_usize..150,
        ops in vec(op(true), 0..120),
    ) {
        check(full, page_bytes, count_max, bytes_max, ops, true);
    }

    /// The bounds are those in the header of the core.
    #[test]
    fn memory_stays_within_bounds(
        sizes in vec(1_usize..200, 0..600), takes in vec(0_u8..8, 600), page_bytes in 64_usize..256, bytes_max in 64_usize..4096,
    ) {
        let mut core = Core::new(page_bytes, 500, bytes_max, Full::EvictOldest, true);
        for (bytes, take) in sizes.into_iter().zip(takes) {
            let _ = core.offer(&vec![0; bytes]);
            if take == 0 && core.has_work() {
                match core.next() {
                    Some(Work::Page(page)) => core.settle(page, Ok(())),
                    Some(Work::Announce(loss)) => core.announced(loss),
                    None => {}
                }
            }
            // The list of ends of a page has some spare room, less than doubles it.
            let bound = 2 * bytes_max + 8 * 500 + (bytes_max / page_bytes + 2) * (page_bytes * 3 / 2) + 2 * page_bytes;
            prop_assert!(core.memory_bytes() <= bound, "{} of {bound}", core.memory_bytes());
        }
    }
}
