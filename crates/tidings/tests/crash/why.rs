//! What the server says of pairs of device and event, against the ledger and the model.
//!
//! A server that was killed has forgotten what devices went through before. So half of the pairs are of events of its last
//! life, of which it must know; of the others it may say that it does not know, and then it must say why.

use std::net::SocketAddr;

use hyper::Method;
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use serde_json::Value;
use tidings_trial::caller::Caller;

use crate::deliveries::{Deliveries, Pair, Wrongs};
use crate::model::{Claim, World};
use crate::{API_KEY, device_id, event_id};

const PAIR_COUNT: usize = 1000;

/// Pairs of device and pushed event, half of them of events from `life_events` on if there are any.
pub(crate) fn pairs(world: &World, life_events: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Pair> {
    let pushed: Vec<u32> = (0..).zip(&world.events).filter_map(|(event, state)| state.push.then_some(event)).collect();
    let of_life: Vec<u32> = pushed.iter().copied().filter(|event| *event as usize >= life_events).collect();
    let mut pair = |index: usize| {
        let events = if index.is_multiple_of(2) && !of_life.is_empty() { &of_life } else { &pushed };
        let event = events[rng.random_range(0..events.len())];
        (rng.random_range(0..world.devices.len() as u32), event)
    };
    (0..PAIR_COUNT).map(&mut pair).collect()
}

/// Asks the server; the answer of a device that is not registered is none.
pub(crate) async fn ask(server: SocketAddr, pairs: Vec<Pair>) -> Vec<(Pair, Option<Value>)> {
    let mut caller = Caller::new(server, API_KEY);
    let mut answers = Vec::with_capacity(pairs.len());
    for (device, event) in pairs {
        let path = format!("/v1/events/{}/devices/{}", event_id(event), device_id(device));
        let answer = caller.call(Method::GET, &path, None).await.unwrap_or_else(|error| panic!("GET {path}: {error}"));
        assert!(
            matches!(answer.status, 200 | 404),
            "GET {path}: {} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        answers.push(((device, event), (answer.status == 200).then(|| answer.json())));
    }
    answers
}

pub(crate) fn check(
    answers: &[(Pair, Option<Value>)],
    world: &World,
    deliveries: &Deliveries,
    life_events: usize,
) -> Wrongs {
    let (mut wrongs, mut known, mut accepted) = (Wrongs::default(), 0, 0);
    for (pair, answer) in answers {
        let (device, event) = *pair;
        let (claim, is_delivered) = (world.claim(device, event), deliveries.of(*pair).is_some());
        let Some(answer) = answer else {
            wrongs.require(claim == Claim::No, || format!("device {device} is owed event {event} and is not known"));
            continue;
        };
        let verdict = answer["verdict"].as_str().unwrap_or_default();
        let is_right = match verdict {
            "accepted" => is_delivered && claim != Claim::No,
            // A job that was killed before its first checkpoint selects anew.
            "not_selected" if (event as usize) < life_events => {
                claim == Claim::Maybe || claim == Claim::No && !is_delivered
            }
            "not_selected" => !is_delivered && claim != Claim::Owed,
            // It may have been accepted, too: in an earlier life, or before a reset.
            "rejected" | "suppressed" => claim != Claim::No,
            "not_known" => (event as usize) < life_events && answer["unknown"][0].is_string(),
            _ => false,
        };
        wrongs.require(is_right, || {
            format!(
                "device {device}, event {event}: {claim:?}, delivered: {is_delivered}, but the server says {answer}"
            )
        });
        known += usize::from(verdict != "not_known");
        accepted += usize::from(verdict == "accepted");
    }
    println!("why         {} pairs asked for, {known} known, {accepted} of them accepted", answers.len());
    wrongs.require(world.events.len() <= life_events || known > 0, || "nothing is known of any pair".to_owned());
    wrongs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Of a device that nobody has registered: nothing is owed.
    #[test]
    fn a_wrong_answer_is_noticed() {
        let mut world = World::with_devices(1);
        let event = world.send_event(0, vec![0], true);
        let deliveries = Deliveries::default();
        for (verdict, is_right) in
            [("accepted", false), ("not_selected", true), ("rejected", false), ("waiting", false), ("not_known", true)]
        {
            let answer = json!({"verdict": verdict, "unknown": ["a restart"]});
            let answers = [((0, event), Some(answer))];
            assert_eq!(check(&answers, &world, &deliveries, 1).is_empty(), is_right, "{verdict}");
        }
        let silent = [((0, event), Some(json!({"verdict": "not_known", "unknown": []})))];
        assert!(!check(&silent, &world, &deliveries, 1).is_empty(), "it does not say why");
        let known = [((0, event), Some(json!({"verdict": "not_known", "unknown": ["a restart"]})))];
        assert!(!check(&known, &world, &deliveries, 0).is_empty(), "the event is of this life");
    }
}
