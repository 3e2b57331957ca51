//! Three nodes append to one broker that loses, delays and repeats requests, loses answers, and loses what it has said to be
//! taken. Each case is a seed: thousands of them run in a second.
//!
//! What must hold: each record that a writer was told is in the log is in it, once, at the place that it was told; no record
//! of which it was told that it never will be is in it; records of one term have one writer; and readers never complain.

use std::collections::{HashMap, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidings_cluster::entry::{Content, WriterId};
use tidings_cluster::{Appending, Read, Reader, Reply, Step, Writer, Written};
use tidings_store::LogPosition;

const NODE_COUNT: usize = 3;
const STEP_COUNT: usize = 400;
/// Requests that are on their way at once.
const LATE_COUNT_MAX: usize = 8;

type Put = (u64, Vec<u8>);

/// A broker that keeps its promise, and nothing else.
#[derive(Default)]
struct Broker {
    entries: Vec<Vec<u8>>,
    /// Requests that arrive later, or never.
    late: VecDeque<Put>,
    /// An entry that was proposed and is not agreed on. Others are refused because of it, and it may be lost.
    proposed: Option<Vec<u8>>,
}

impl Broker {
    fn arrive(&mut self, (after, bytes): Put, rng: &mut StdRng) -> Reply {
        self.settle(rng);
        if after != self.entries.len() as u64 || self.proposed.is_some() {
            return Reply::Taken;
        }
        if rng.random_ratio(1, 8) {
            self.proposed = Some(bytes);
            return Reply::Nothing; // Its leader is gone before the others have it, or not.
        }
        self.entries.push(bytes);
        Reply::Stored
    }

    /// What was proposed is agreed on, or lost, or neither yet.
    fn settle(&mut self, rng: &mut StdRng) {
        if rng.random_ratio(1, 2) {
            let proposed = self.proposed.take();
            self.entries.extend(proposed.filter(|_| rng.random_ratio(1, 2)));
        }
    }

    fn put(&mut self, put: Put, rng: &mut StdRng) -> Reply {
        while self.late.len() > LATE_COUNT_MAX || (!self.late.is_empty() && rng.random_ratio(1, 4)) {
            let at = rng.random_range(0..self.late.len());
            let late = self.late.remove(at).expect("it is within");
            self.arrive(late, rng); // Nobody waits for the answer any more.
        }
        let fate = rng.random_range(0..10);
        if fate < 2 {
            self.late.push_back(put.clone()); // A copy, or the only one.
        }
        match fate {
            0 | 2 => Reply::Nothing,
            3 => {
                self.arrive(put, rng);
                Reply::Nothing
            }
            _ => self.arrive(put, rng),
        }
    }

    fn look(&mut self, sequence: u64, rng: &mut StdRng) -> Reply {
        self.settle(rng);
        match rng.random_range(0..8) {
            0 => Reply::Nothing,
            _ => Reply::Found(self.entries.get(sequence as usize - 1).cloned()),
        }
    }
}

/// How a writer goes on. The right way, and two that must be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Right,
    /// After no answer it asks what is last, and appends behind that.
    Behind,
    /// What is taken counts as its own.
    Trusting,
}

struct Node {
    reader: Reader,
    writer: Option<Writer>,
    /// The entry under way, its step, and the record that it carries; `None`: it begins a term.
    under_way: Option<(Appending, Step, Option<u64>)>,
    life: u64,
}

#[derive(Default)]
struct Told {
    written: HashMap<u64, LogPosition>,
    never: Vec<u64>,
    next: u64,
    /// What a reader complained about.
    complaint: Option<String>,
}

impl Node {
    fn new(life: u64) -> Self {
        Self { reader: Reader::new(LogPosition::default()), writer: None, under_way: None, life }
    }

    /// Does one step: answers one request, or begins something.
    fn step(&mut self, broker: &mut Broker, told: &mut Told, way: Way, rng: &mut StdRng) {
        match self.under_way.take() {
            Some((appending, step, record)) => self.go_on(appending, step, record, broker, told, way, rng),
            None if self.writer.is_some() => self.begin(told),
            None => self.follow(broker, told, rng),
        }
    }

    fn begin(&mut self, told: &mut Told) {
        let writer = self.writer.as_ref().expect("it leads");
        let bytes = told.next.to_be_bytes();
        let appending = writer.begin(Content::Part { part: 0, count: 1, bytes: &bytes });
        self.under_way = Some((appending, Step::Put, Some(told.next)));
        told.next += 1;
    }

    fn follow(&mut self, broker: &mut Broker, told: &mut Told, rng: &mut StdRng) {
        let sequence = self.reader.position().sequence + 1;
        match broker.look(sequence, rng) {
            Reply::Found(Some(bytes)) => {
                told.complaint = self.reader.take(sequence, &bytes).err().map(|lost| lost.to_string());
            }
            Reply::Found(None) if rng.random_ratio(1, 10) => {
                let position = self.reader.position();
                let writer = Writer::new(WriterId(self.life), position.term + 1, position);
                self.under_way = Some((writer.begin(Content::Term), Step::Put, None));
                self.writer = Some(writer);
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step of the model needs all of it")]
    fn go_on(
        &mut self,
        mut appending: Appending,
        step: Step,
        record: Option<u64>,
        broker: &mut Broker,
        told: &mut Told,
        way: Way,
        rng: &mut StdRng,
    ) {
        let reply = match step {
            Step::Put => broker.put((appending.after, appending.bytes.clone()), rng),
            Step::Look => broker.look(appending.after + 1, rng),
            Step::End(_) => unreachable!("it is told at once"),
        };
        let reply = match (way, reply) {
            (Way::Behind, Reply::Nothing) => {
                appending.after = broker.entries.len() as u64;
                Reply::Nothing
            }
            (Way::Trusting, Reply::Taken) => Reply::Stored,
            (_, reply) => reply,
        };
        let writer = self.writer.as_mut().expect("something is under way");
        match writer.next(&appending, reply) {
            Step::End(Written::At(position)) => {
                record.map(|record| told.written.insert(record, position));
            }
            Step::End(Written::Fenced { .. }) => {
                told.never.extend(record);
                self.writer = None; // The reader stands where the term began, and reads on from there.
            }
            step => self.under_way = Some((appending, step, record)),
        }
    }
}

/// What is wrong with the log after a run with this seed.
fn run(seed: u64, way: Way) -> Result<usize, String> {
    let rng = &mut StdRng::seed_from_u64(seed);
    let (mut broker, mut told) = (Broker::default(), Told::default());
    let mut nodes: Vec<_> = (1..=NODE_COUNT as u64).map(Node::new).collect();
    for life in 10..10 + STEP_COUNT {
        let node = rng.random_range(0..NODE_COUNT);
        if rng.random_ratio(1, 100) {
            nodes[node] = Node::new(life as u64); // Killed and started again: what was under way is neither told nor forgotten.
        }
        nodes[node].step(&mut broker, &mut told, way, rng);
        if let Some(complaint) = told.complaint {
            return Err(complaint);
        }
    }
    check(&broker, &told)
}

fn check(broker: &Broker, told: &Told) -> Result<usize, String> {
    let mut reader = Reader::new(LogPosition::default());
    let (mut found, mut writers) = (HashMap::new(), HashMap::new());
    for (sequence, bytes) in (1..).zip(&broker.entries) {
        let read = reader.take(sequence, bytes).map_err(|error| error.to_string())?;
        let entry = tidings_cluster::entry::Entry::decode(bytes).expect("it was just read");
        if *writers.entry(entry.term).or_insert(entry.writer) != entry.writer {
            return Err(format!("term {} has two writers", entry.term));
        }
        let Read::Record(record) = read else { continue };
        let number = u64::from_be_bytes(record.bytes.try_into().expect("a number"));
        if found.insert(number, record.position).is_some() {
            return Err(format!("record {number} is there twice"));
        }
    }
    for (record, position) in &told.written {
        if found.get(record) != Some(position) {
            return Err(format!("record {record} is at {:?}, not at {position:?}", found.get(record)));
        }
    }
    match told.never.iter().find(|record| found.contains_key(record)) {
        Some(record) => Err(format!("record {record} is there, and never should be")),
        None => Ok(told.written.len()),
    }
}

#[test]
fn whatever_the_broker_does_the_log_has_what_was_told() {
    let mut written = 0;
    for seed in 0..3_000 {
        written += run(seed, Way::Right).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(written > 100_000, "{written} records: the model must get somewhere");
}

#[test]
fn a_writer_that_appends_behind_what_is_last_or_trusts_is_found_out() {
    for way in [Way::Behind, Way::Trusting] {
        let wrong = (0..3_000).find_map(|seed| run(seed, way).err());
        assert!(wrong.is_some(), "{way:?} was not found out");
    }
}
