//! Nodes that share a lease, over a register that does not answer, loses answers and has no leader for a while; and nodes
//! that stop, stand still and go on. Each case is a seed, in a time of its own.
//!
//! What must hold: of two nodes at most one may do what cannot be undone; a holder that works is not deposed by a register
//! that was away; and when all works, somebody has the lease.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidings_cluster::lease::{Answer, Ask, BEAT, Holder, Lease, PATIENCE, Readiness, SILENCE, VALID};

const NODE_COUNT: usize = 3;
const MILLISECOND: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Register {
    revision: u64,
    holder: Option<Holder>,
    /// It answers nobody until then.
    away_until: Duration,
}

impl Register {
    fn answer(&mut self, ask: Ask, node: &Node) -> Answer {
        match ask {
            Ask::Look => Answer::Has(self.revision, self.holder.clone()),
            Ask::Take(revision) | Ask::Release(revision) if revision != self.revision => Answer::Refused,
            Ask::Take(_) | Ask::Release(_) => {
                let released = matches!(ask, Ask::Release(_));
                let (name, process, sequence) = (node.name.clone(), node.process, node.sequence);
                self.revision += 1;
                self.holder =
                    Some(Holder { node: name, process, address: None, secret: None, sequence, released, to: None });
                Answer::Done(self.revision)
            }
        }
    }
}

struct Node {
    name: String,
    process: u64,
    lease: Lease,
    sequence: u64,
    can_read: bool,
    /// It does not take the lease.
    gives_back: bool,
    next: Duration,
    /// What it has asked, when, and what it will hear when.
    asked: Option<(Ask, Duration, Answer, Duration)>,
}

impl Node {
    fn new(name: usize, process: u64, now: Duration) -> Self {
        let name = format!("n{name}");
        let lease = Lease::new(name.clone(), process);
        Self { name, process, lease, sequence: 7, can_read: true, gives_back: false, next: now, asked: None }
    }

    fn step(&mut self, register: &mut Register, now: Duration, rng: &mut StdRng) {
        if let Some((ask, sent, answer, _)) = self.asked.take_if(|(.., heard)| *heard <= now) {
            let at_once = self.lease.hear(sent, now, ask, answer);
            self.next = if at_once { now } else { now + BEAT };
        }
        if self.asked.is_some() || now < self.next {
            return;
        }
        let readiness = if self.can_read { Readiness::Read(self.sequence) } else { Readiness::No };
        let ask = self.lease.ask(now, readiness);
        let is_lost = register.away_until > now || rng.random_ratio(1, 50);
        let mut answer = if is_lost { Answer::Nothing } else { register.answer(ask, self) };
        if rng.random_ratio(1, 50) {
            answer = Answer::Nothing; // It was done, and nobody is told.
        }
        let takes = if answer == Answer::Nothing { 1000 } else { rng.random_range(1..30) };
        self.asked = Some((ask, now, answer, now + takes * MILLISECOND));
    }

    fn give_back(&mut self, gives_back: bool) {
        self.gives_back = gives_back;
        self.lease.give_back(gives_back);
    }

    fn may_act(&self, now: Duration) -> bool {
        self.lease.until().is_some_and(|until| now < until)
    }
}

/// What is wrong with a run of five minutes; otherwise, how often the lease went to another node.
fn run(seed: u64) -> Result<usize, String> {
    let rng = &mut StdRng::seed_from_u64(seed);
    let mut register = Register::default();
    let mut nodes: Vec<_> = (0..NODE_COUNT).map(|node| Node::new(node, node as u64 + 1, Duration::ZERO)).collect();
    let mut frozen_until = [Duration::ZERO; NODE_COUNT];
    let (mut moves, mut former, mut nobody_since) = (0, None, Duration::ZERO);
    for tick in 0..60_000_u32 {
        let now = tick * 5 * MILLISECOND;
        disturb(&mut register, &mut nodes, &mut frozen_until, now, rng);
        for (node, frozen) in nodes.iter_mut().zip(frozen_until) {
            if frozen <= now {
                node.step(&mut register, now, rng);
            }
        }
        // A node that stands still does nothing. When it goes on, it looks at the clock first.
        let awake = nodes.iter().zip(frozen_until).filter(|(node, frozen)| *frozen <= now && node.may_act(now));
        let acting: Vec<_> = awake.map(|(node, _)| node.process).collect();
        match acting[..] {
            [] => {}
            [one] => {
                moves += usize::from(former.is_some_and(|former| former != one));
                (former, nobody_since) = (Some(one), now);
            }
            _ => return Err(format!("{acting:?} act at the same time, at {now:?}")),
        }
        let is_hard = nodes.iter().any(|node| !node.can_read || node.gives_back)
            || frozen_until.iter().any(|frozen| now < *frozen);
        if is_hard || now < register.away_until {
            nobody_since = now;
        }
        if now - nobody_since > 6 * SILENCE {
            return Err(format!("nobody acts since {nobody_since:?}, at {now:?}"));
        }
    }
    Ok(moves)
}

fn disturb(register: &mut Register, nodes: &mut [Node], frozen: &mut [Duration], now: Duration, rng: &mut StdRng) {
    let node = rng.random_range(0..NODE_COUNT);
    match rng.random_range(0..20_000) {
        0 => {
            // Killed and started again, with what it has read.
            let sequence = nodes[node].sequence;
            nodes[node] = Node { sequence, ..Node::new(node, rng.random(), now) };
        }
        1 => frozen[node] = now + rng.random_range(100..9_000) * MILLISECOND,
        2 => register.away_until = now + rng.random_range(100..10_000) * MILLISECOND,
        3 => nodes[node].give_back(true),
        // It cannot read the log for a while, or it can again.
        10 => nodes[node].can_read = false,
        11..=14 => nodes[node].can_read = true,
        // Something is written, which the others read later.
        15..=200 => {
            let last = nodes.iter().map(|node| node.sequence).max().unwrap_or_default();
            let writer = nodes.iter_mut().find(|node| node.may_act(now));
            writer.into_iter().for_each(|node| node.sequence = last + 1);
        }
        201..=600 => {
            let last = nodes.iter().map(|node| node.sequence).max().unwrap_or_default();
            nodes[node].sequence = if nodes[node].can_read { last } else { nodes[node].sequence };
        }
        4..=9 => nodes.iter_mut().for_each(|node| node.give_back(false)),
        _ => {}
    }
}

#[test]
fn at_most_one_node_acts_and_soon_one_does() {
    let mut moves = 0;
    for seed in 0..100 {
        moves += run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(moves > 200, "{moves} moves: the model must get somewhere");
}

/// Two nodes over a register that works; the first one has the lease.
fn pair(register: &mut Register) -> [Node; 2] {
    let rng = &mut StdRng::seed_from_u64(1);
    let mut nodes = [0, 1].map(|node| Node::new(node, node as u64 + 1, Duration::ZERO));
    exchange(&mut nodes[0], register, Duration::ZERO, rng);
    exchange(&mut nodes[1], register, Duration::ZERO, rng);
    assert!(nodes[0].lease.is_held() && !nodes[1].lease.is_held());
    nodes
}

/// Asks until it rests, without any time passing.
fn exchange(node: &mut Node, register: &mut Register, now: Duration, _: &mut StdRng) {
    loop {
        let ask = node.lease.ask(now, Readiness::Read(node.sequence));
        let answer = if now < register.away_until { Answer::Nothing } else { register.answer(ask, node) };
        if !node.lease.hear(now, now, ask, answer) {
            return;
        }
    }
}

#[test]
fn a_holder_is_not_deposed_because_the_register_was_away() {
    let (mut register, rng) = (Register::default(), &mut StdRng::seed_from_u64(1));
    let [mut holder, mut other] = pair(&mut register);
    register.away_until = Duration::from_secs(9);
    for tick in 1..30 {
        // The other one is always a little earlier.
        exchange(&mut other, &mut register, tick * BEAT, rng);
        exchange(&mut holder, &mut register, tick * BEAT + MILLISECOND, rng);
    }
    assert!(holder.lease.is_held() && !other.lease.is_held());
    assert_eq!(holder.lease.until(), Some(29 * BEAT + MILLISECOND + VALID));
}

#[test]
fn a_lease_goes_to_who_has_read_enough_and_at_once_if_it_is_given_back() {
    let (mut register, rng) = (Register::default(), &mut StdRng::seed_from_u64(1));
    let [mut holder, mut other] = pair(&mut register);
    holder.sequence = 9;
    exchange(&mut holder, &mut register, BEAT, rng);
    (2..20).for_each(|tick| exchange(&mut other, &mut register, tick * BEAT, rng));
    assert!(!other.lease.is_held(), "it has read 7 of 9");
    other.sequence = 9;
    exchange(&mut other, &mut register, 20 * BEAT, rng);
    assert!(other.lease.is_held(), "silent for long");
    exchange(&mut holder, &mut register, 20 * BEAT, rng);
    assert!(!holder.lease.is_held());

    other.lease.give_back(true);
    exchange(&mut other, &mut register, 21 * BEAT, rng);
    exchange(&mut holder, &mut register, 21 * BEAT, rng);
    assert!(holder.lease.is_held() && !other.lease.is_held());
    assert_eq!(other.lease.until(), None);
}

#[test]
fn a_holder_that_cannot_read_the_log_gives_the_lease_back() {
    let (mut register, rng) = (Register::default(), &mut StdRng::seed_from_u64(1));
    let [mut holder, mut other] = pair(&mut register);
    let ask = holder.lease.ask(BEAT, Readiness::No);
    assert!(holder.lease.until().is_none(), "another node may have it before it hears the answer");
    let answer = register.answer(ask, &holder);
    holder.lease.hear(BEAT, BEAT, ask, answer);
    assert!(!holder.lease.is_held() && holder.lease.until().is_none());
    exchange(&mut other, &mut register, BEAT, rng);
    assert!(other.lease.is_held());
}

/// Somebody has deleted the lease, so the register has no holder and a revision that is not told.
#[test]
fn a_node_that_is_refused_again_and_again_does_not_ask_without_a_rest() {
    let mut lease = Lease::new("a".to_owned(), 1);
    let mut at_once_count = 0;
    for _ in 0..100 {
        let ask = lease.ask(BEAT, Readiness::Read(0));
        let answer = if ask == Ask::Look { Answer::Has(0, None) } else { Answer::Refused };
        at_once_count += usize::from(lease.hear(BEAT, BEAT, ask, answer));
    }
    assert!(at_once_count < 60, "{at_once_count} of 100 without a rest");
}

#[test]
fn a_holder_that_cannot_renew_gives_up() {
    let (mut register, rng) = (Register::default(), &mut StdRng::seed_from_u64(1));
    let [mut holder, _] = pair(&mut register);
    register.away_until = Duration::MAX;
    exchange(&mut holder, &mut register, PATIENCE - MILLISECOND, rng);
    assert!(holder.lease.is_held());
    exchange(&mut holder, &mut register, PATIENCE, rng);
    assert!(!holder.lease.is_held());
}
