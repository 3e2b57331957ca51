//! `bench msgpack`: JSON becomes MessagePack, and MessagePack becomes JSON, as the API does it with bodies and answers.
//!
//! Two inputs: a map of 128 bytes as MessagePack, for which figures of another library are published, and a corpus of
//! events. That library, msgpax, converts between MessagePack and terms in memory; we convert between MessagePack and
//! JSON text, which is more work: our JSON is also read or written. Beside it, serde_json reads the same JSON into a
//! [`Value`] and writes it again.
//!
//! What was converted there and back must be the same value, or the run fails.

use std::hint::black_box;

use serde_json::{Value, json};
use tidings_api::messagepack::{pack, unpack};
use tidings_server::command_error::{CommandError, failed, failed_by};

use super::report::{Finished, Goal, Report};
use crate::args::BenchMsgpackArgs;
use crate::checksum::Digest;
use crate::report::{column, progress, ratios};
use crate::statistic::times_per_second;

/// Ten times what msgpax does on one core (OTP 25).
const GOAL_PACKS: f64 = 10.0 * 394_000.0;
const GOAL_UNPACKS: f64 = 10.0 * 453_000.0;
const MAP_BYTES: usize = 128;
const EVENT_COUNT: usize = 1000;
const JSON_BYTES_MAX: usize = 1 << 20;

pub(super) async fn run(args: &BenchMsgpackArgs) -> Result<Finished, CommandError> {
    let runs = args.common.runs;
    let measured = tokio::task::spawn_blocking(move || measure_all(runs));
    measured.await.map_err(|error| failed_by("the measuring thread ended", &error))?
}

fn measure_all(runs: u32) -> Result<Finished, CommandError> {
    let mut report = Report::new("msgpack");
    let map = Input::new(&[map()])?;
    map.measure("map of 128 bytes", runs, [Some(GOAL_PACKS), Some(GOAL_UNPACKS)], &mut report)?;
    let corpus = Input::new(&(0..EVENT_COUNT).map(event).collect::<Vec<_>>())?;
    corpus.measure("event", runs, [None, None], &mut report)?;
    report.note(format!(
        "One thread. A pack reads JSON text and writes MessagePack; an unpack reads MessagePack and writes JSON text. msgpax, \
         whose 394 000 and 453 000 per second the goals are ten times of, converts terms in memory. Events: {EVENT_COUNT} \
         different ones."
    ));
    report.finish()
}

/// Messages in both forms.
struct Input {
    jsons: Vec<Vec<u8>>,
    packed: Vec<Vec<u8>>,
    values: Vec<Value>,
}

/// Messages per second in one run.
struct Rates {
    pack: f64,
    unpack: f64,
    read: f64,
    write: f64,
}

impl Input {
    /// Converts each value there and back, and compares.
    fn new(values: &[Value]) -> Result<Self, CommandError> {
        let mut input = Self { jsons: Vec::new(), packed: Vec::new(), values: values.to_vec() };
        for value in values {
            let json = serde_json::to_vec(value).map_err(|error| failed_by("cannot write JSON", &error))?;
            let packed = pack(&json).map_err(|error| failed_by("cannot pack", &error))?;
            let back = unpack(&packed, JSON_BYTES_MAX).map_err(|error| failed_by("cannot unpack", &error))?;
            if serde_json::from_slice::<Value>(&back).ok().as_ref() != Some(value) {
                return Err(failed(format!("MessagePack has changed {value}")));
            }
            input.jsons.push(json);
            input.packed.push(packed);
        }
        Ok(input)
    }

    fn measure(
        &self,
        name: &str,
        runs: u32,
        [packs, unpacks]: [Option<f64>; 2],
        report: &mut Report,
    ) -> Result<(), CommandError> {
        let mut rates = Vec::new();
        for run in 1..=runs {
            progress(format!("{name}, run {run} of {runs}"));
            rates.push(self.rates()?);
            report.answered(name, self.converted()?)?;
        }
        let (pack, unpack) = (column(&rates, |rate| rate.pack), column(&rates, |rate| rate.unpack));
        let (read, write) = (column(&rates, |rate| rate.read), column(&rates, |rate| rate.write));
        report.judge(format!("{name}: packs"), "1/s", pack.clone(), packs.map(Goal::AtLeast));
        report.judge(format!("{name}: unpacks"), "1/s", unpack.clone(), unpacks.map(Goal::AtLeast));
        report.measure(format!("{name}: JSON read by serde_json"), "1/s", read.clone());
        report.measure(format!("{name}: JSON written by serde_json"), "1/s", write.clone());
        report.measure(format!("{name}: packs, of JSON read"), "×", ratios(&pack, &read));
        report.measure(format!("{name}: unpacks, of JSON written"), "×", ratios(&unpack, &write));
        let mean = |texts: &[Vec<u8>]| texts.iter().map(Vec::len).sum::<usize>() as f64 / texts.len() as f64;
        report.measure(format!("{name}: as MessagePack"), "B", vec![mean(&self.packed)]);
        report.measure(format!("{name}: as JSON"), "B", vec![mean(&self.jsons)]);
        Ok(())
    }

    /// What the messages become.
    fn converted(&self) -> Result<Digest, CommandError> {
        let mut digest = Digest::default();
        for (json, packed) in self.jsons.iter().zip(&self.packed) {
            digest.add(&pack(json).map_err(|error| failed_by("cannot pack", &error))?);
            digest.add(&unpack(packed, JSON_BYTES_MAX).map_err(|error| failed_by("cannot unpack", &error))?);
        }
        Ok(digest)
    }

    fn rates(&self) -> Result<Rates, CommandError> {
        let each = self.jsons.len();
        let rates = Rates {
            pack: each_per_second(&self.jsons, |json| pack(json).is_ok()),
            unpack: each_per_second(&self.packed, |packed| unpack(packed, JSON_BYTES_MAX).is_ok()),
            read: each_per_second(&self.jsons, |json| serde_json::from_slice::<Value>(json).is_ok()),
            write: each_per_second(&self.values, |value| serde_json::to_vec(value).is_ok()),
        };
        match rates {
            Rates { pack, unpack, read, write } if pack * unpack * read * write > 0.0 => Ok(rates),
            _ => Err(failed(format!("one of {each} messages was not converted"))),
        }
    }
}

/// How many of the inputs are converted in a second; 0 if one is not.
fn each_per_second<T>(inputs: &[T], convert: impl Fn(&T) -> bool) -> f64 {
    let mut is_sound = true;
    let rounds = times_per_second(|| is_sound &= inputs.iter().all(|input| black_box(convert(black_box(input)))));
    if is_sound { rounds * inputs.len() as f64 } else { 0.0 }
}

/// A map of exactly [`MAP_BYTES`] as MessagePack.
fn map() -> Value {
    let with = |player: String| {
        json!({
            "match": 2_210_271, "minute": 27, "penalty": false, "home": "Vega", "away": "Orion", "x": 90.1,
            "type": "goal", "score": [1, 0], "at": "2026-11-24T20:26:56Z", "player": player,
        })
    };
    let short = pack(with(String::new()).to_string().as_bytes()).map_or(0, |packed| packed.len());
    with("p".repeat(MAP_BYTES.saturating_sub(short)))
}

/// An event as `POST /v1/events` takes it. Four in ten carry texts, one in ten a long list of users.
fn event(number: usize) -> Value {
    let mut event = json!({
        "id": format!("match-{}-goal-{number}", number / 10), "topic": "goal", "ttl": "30m", "priority": "high",
        "subjects": [format!("match:{}", number / 10), format!("team:{}", number % 40)],
        "params": { "team": "Vega", "goals": number % 7, "minute": number % 90 },
        "data": { "match": number / 10, "at": "2026-11-24T20:26:56Z", "x": 90.25, "y": f64::from(number as u32) / 8.0 },
    });
    if number % 5 < 2 {
        event["text"] = json!({
            "en": { "title": "Goal!", "body": format!("Vega scores in minute {}", number % 90) },
            "sv": { "title": "Mål!", "body": format!("Vega gör mål i minut {}", number % 90) },
            "uk": { "title": "Гол!", "body": format!("Вега забиває на {} хвилині", number % 90) },
        });
    }
    if number % 10 == 9 {
        event["to"] = json!({ "users": (0..50).map(|user| format!("user-{number}-{user}")).collect::<Vec<_>>() });
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_as_many_bytes_as_its_name_says() {
        let input = Input::new(&[map()]).unwrap();
        assert_eq!(input.packed[0].len(), MAP_BYTES);
    }

    #[test]
    fn events_survive_both_conversions_and_all_that_is_measured_runs() {
        let input = Input::new(&(0..20).map(event).collect::<Vec<_>>()).unwrap();
        assert_eq!((input.jsons.len(), input.packed.len()), (20, 20));
        let again = Input::new(&(0..20).map(event).collect::<Vec<_>>()).unwrap();
        let other = Input::new(&(1..21).map(event).collect::<Vec<_>>()).unwrap();
        assert_eq!(input.converted().unwrap(), again.converted().unwrap());
        assert_ne!(input.converted().unwrap(), other.converted().unwrap());
        let rates = input.rates().unwrap();
        assert!([rates.pack, rates.unpack, rates.read, rates.write].iter().all(|rate| rate.is_finite() && *rate > 0.0));
    }

    #[test]
    fn what_is_not_converted_makes_no_rate() {
        let input = Input { jsons: vec![b"{".to_vec()], packed: vec![vec![0xc1]], values: vec![Value::Null] };
        assert!(input.rates().is_err());
    }
}
