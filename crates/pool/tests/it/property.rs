//! With any behaviour of peers and callers, every call ends exactly once, within its deadline, with its own answer or none,
//! and the counters add up.

use std::time::Duration;

use proptest::prelude::*;
use tidings_pool::{Pool, PoolConfig, Reconnect, Strategy as Choice};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::line::*;

/// What a peer does with one line.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Answer,
    AnswerAfter(u64),
    AnswerInPieces,
    AnswerLast,
    Interim,
    Garbage,
    Half,
    Twice,
    Close,
    Silence,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        20 => Just(Deed::Answer),
        4 => (0u64..300).prop_map(Deed::AnswerAfter),
        2 => Just(Deed::AnswerInPieces),
        1 => Just(Deed::AnswerLast),
        1 => Just(Deed::Interim),
        1 => Just(Deed::Garbage),
        1 => Just(Deed::Half),
        1 => Just(Deed::Twice),
        1 => Just(Deed::Close),
        1 => Just(Deed::Silence),
    ]
}

/// One call: when and how it is made, its timeout, and whether the caller drops it.
#[derive(Debug, Clone)]
struct Plan {
    start_ms: u64,
    timeout_ms: u64,
    is_alone: bool,
    is_repeatable: bool,
    is_one_way: bool,
    drops_after_ms: Option<u64>,
    is_cast: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let flags = (prop::bool::weighted(0.1), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    (0u64..2000, 1u64..500, flags, prop::option::weighted(0.1, 0u64..300)).prop_map(
        |(start_ms, timeout_ms, (is_alone, is_repeatable, is_one_way, is_cast), drops_after_ms)| Plan {
            start_ms,
            timeout_ms,
            is_alone,
            is_repeatable,
            is_one_way,
            drops_after_ms,
            is_cast,
        },
    )
}

fn settings() -> impl Strategy<Value = PoolConfig> {
    let choice = prop_oneof![Just(Choice::Random), Just(Choice::RoundRobin), Just(Choice::LeastLoadedOfTwo)];
    (1usize..4, choice, 1usize..20, 1usize..20, 1usize..20, 0u32..3).prop_map(
        |(connection_count, strategy, backlog, in_flight, tombstones, repeats)| PoolConfig {
            strategy,
            backlog_max: backlog.max(in_flight),
            in_flight_max: in_flight,
            tombstone_max: tombstones,
            repeat_max: repeats,
            reconnect: Reconnect { min: Duration::from_millis(5), max: Duration::from_millis(200) },
            silence_max: Duration::from_millis(400),
            ..config(connection_count)
        },
    )
}

async fn peer(mut talk: Peer, deeds: Vec<Deed>) {
    let mut deeds = deeds.into_iter().cycle();
    while let Some(line) = talk.hear().await {
        match deeds.next().expect("a cycle") {
            _ if line.starts_with("oneway") || line == "bye" => {}
            Deed::Answer => talk.say(&line).await,
            Deed::AnswerAfter(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                talk.say(&line).await;
            }
            Deed::AnswerInPieces => {
                let text = format!("{line}\n");
                let (front, back) = text.as_bytes().split_at(text.len() / 2);
                talk.say_bytes(front).await;
                tokio::time::sleep(Duration::from_millis(3)).await;
                talk.say_bytes(back).await;
            }
            Deed::AnswerLast => return talk.say(&format!("last {line}")).await,
            Deed::Interim => talk.say(&format!("# wait\n{line}")).await,
            Deed::Garbage => talk.say("! garbage").await,
            Deed::Half => return talk.say_bytes(line.as_bytes()).await,
            Deed::Twice => talk.say(&format!("{line}\n{line}")).await,
            Deed::Close => return,
            Deed::Silence => tokio::time::sleep(Duration::from_millis(700)).await,
        }
    }
}

/// Whether an answer belongs to this request. After a doubled answer, an ordered protocol is out of step until the
/// connection ends: its answers then belong to earlier requests of the connection.
fn is_own(answer: &str, text: &str, doubles: bool) -> bool {
    doubles || answer == text || answer == "gone"
}

async fn run(settings: PoolConfig, lives: Vec<Vec<Deed>>, plans: Vec<Plan>) {
    let (gate, mut peers, _) = Gate::new();
    let doubles = lives.iter().flatten().any(|deed| matches!(deed, Deed::Twice));
    let pool = Pool::start(settings, Line::default(), gate).unwrap();
    let mut service = JoinSet::new();
    service.spawn(async move {
        let mut lives = lives.into_iter().cycle();
        let mut talks = JoinSet::new();
        while let Some(talk) = peers.recv().await {
            talks.spawn(peer(talk, lives.next().expect("a cycle")));
        }
    });
    let (tx, mut rx) = mpsc::channel(plans.len());
    let mut callers = JoinSet::new();
    for (n, plan) in plans.iter().cloned().enumerate() {
        let (pool, tx) = (pool.clone(), tx.clone());
        callers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(plan.start_ms)).await;
            let text = format!("{}{n}", if plan.is_one_way { "oneway" } else { "r" });
            let request = Ask {
                text: text.clone(),
                is_alone: plan.is_alone,
                is_repeatable: plan.is_repeatable,
                is_one_way: plan.is_one_way,
            };
            let timeout = Duration::from_millis(plan.timeout_ms);
            if plan.is_cast {
                return usize::from(pool.cast(request, timeout, n as u64, &tx).is_ok());
            }
            let begun = Instant::now();
            let call = pool.call(request, timeout);
            let patience = plan.drops_after_ms.map_or(MINUTE, Duration::from_millis);
            let Ok(result) = tokio::time::timeout(patience, call).await else { return 0 };
            let took = begun.elapsed();
            assert!(took <= timeout + Duration::from_millis(3), "{took:?} instead of {timeout:?}: {result:?}");
            if let Ok(answer) = result {
                assert!(is_own(&answer, &text, doubles), "{text} was answered {answer}");
            }
            0
        });
    }
    let cast = callers.join_all().await.iter().sum::<usize>();
    let deadline = Instant::now() + SECOND;
    let mut tags = Vec::new();
    for _ in 0..cast {
        let answer = tokio::time::timeout_at(deadline, rx.recv()).await.expect("an answer to every cast").unwrap();
        tags.push(answer.tag);
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), cast, "a cast was answered twice");
    let counters = pool.counters();
    check(counters);
    pool.drain(MINUTE).await;
    let counters = pool.counters();
    check(counters);
    assert_eq!((counters.held, counters.in_flight, counters.tombstones, counters.connected), (0, 0, 0, 0));
    assert_eq!(counters.accepted + counters.backlog + counters.unavailable, plans.len() as u64);
    assert!(rx.try_recv().is_err(), "there is a further answer");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_call_ends_once_within_its_deadline_and_the_counters_add_up(
        settings in settings(),
        mut lives in prop::collection::vec(prop::collection::vec(deed(), 1..20), 1..5),
        doubles in prop::bool::weighted(0.2),
        plans in prop::collection::vec(plan(), 1..60),
    ) {
        if !doubles {
            // They put an ordered connection out of step, so answers cannot be checked.
            lives.iter_mut().flatten().filter(|deed| matches!(deed, Deed::Twice)).for_each(|deed| *deed = Deed::Answer);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(settings, lives, plans));
    }
}
