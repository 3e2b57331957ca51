//! The lines as a database sees them: exact text, and measured values that are read back by a parser. The parser is
//! written from InfluxData's reference alone, and is stricter than every database where databases differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use proptest::prelude::*;
use tidings_types::Timestamp;

use super::{Exporter, Flushed, LineConfig};
use crate::metric::{Bounds, Metric};
use crate::registry::Registry;

static LEVEL: Metric = Metric::gauge("t_a_level").labels(&["of"]);
static STEPS: Metric = Metric::counter("t_a_steps_total").labels(&["of"]);
static STEPS_SECONDS: Metric = Metric::histogram("t_a_steps_seconds", Bounds::Latency).labels(&["of"]);
static COMPUTED_STEPS: Metric = Metric::counter("t_a_read_total").labels(&["of"]);

const NOW: Timestamp = Timestamp(1_700_000_000_123);

/// Measurement and tags.
type Series = (String, BTreeMap<String, String>);
type Fields = BTreeMap<String, Value>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Integer(i64),
    Float(f64),
}

/// Reads one line without its line break; panics on what one database or another would refuse or misread.
fn parse(line: &str) -> (Series, Fields, i64) {
    assert!(!line.chars().any(char::is_control), "control characters: {line:?}");
    let [series, fields, time] = split(line, ' ').try_into().expect(line);
    let mut parts = split(&series, ',').into_iter();
    let measurement = parts.next().filter(|name| !name.is_empty() && !name.starts_with('#')).expect(line);
    let mut tags = BTreeMap::new();
    for tag in parts {
        let [key, value] = split(&tag, '=').try_into().expect(line);
        assert!(!is_reserved(&key) && !value.is_empty(), "{line}");
        assert!(tags.last_key_value().is_none_or(|(last, _)| *last < unescape(&key)), "not sorted, or twice: {line}");
        tags.insert(unescape(&key), unescape(&value));
    }
    let mut read = Fields::new();
    for field in split(&fields, ',') {
        let [key, value] = split(&field, '=').try_into().expect(line);
        assert!(!is_reserved(&key), "{line}");
        assert!(read.insert(unescape(&key), parse_value(&value)).is_none(), "{key} twice: {line}");
    }
    ((unescape(&measurement), tags), read, time.parse().expect(line))
}

fn is_reserved(key: &str) -> bool {
    ["", "time", "_field", "_measurement"].contains(&key)
}

/// Splits at each `mark` that has no backslash before it. Backslashes must stand before a character that needs one.
fn split(text: &str, mark: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == mark {
            parts.push(String::new());
            continue;
        }
        let part = parts.last_mut().unwrap();
        part.push(char);
        if char == '\\' {
            part.push(chars.next().filter(|next| ",= ".contains(*next)).expect(text));
        }
    }
    parts
}

fn unescape(text: &str) -> String {
    text.replace('\\', "")
}

fn parse_value(text: &str) -> Value {
    if let Some(digits) = text.strip_suffix('i') {
        return Value::Integer(digits.parse().expect(text));
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = |part: &str| all_digits(part.strip_prefix('-').unwrap_or(part));
    assert!(unsigned(whole) && all_digits(fraction) && unsigned(exponent), "{text} is no float");
    Value::Float(text.parse().expect(text))
}

fn exporter(registry: &Registry, tags: &[(&str, &str)], line_bytes_max: usize) -> Exporter {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Exporter::new(registry, LineConfig { prefix: "t", tags, line_bytes_max })
}

/// One flush: its text.
fn text(exporter: &mut Exporter) -> String {
    let mut text = String::new();
    let flushed = exporter.flush(NOW, |line| text.push_str(std::str::from_utf8(line).unwrap()));
    assert_eq!(flushed, Flushed { line_count: text.lines().count() as u64, oversize_count: 0 });
    text
}

/// One flush as a database keeps it: lines of the same series and time are one point.
fn points(exporter: &mut Exporter) -> BTreeMap<Series, Fields> {
    let mut points = BTreeMap::<Series, Fields>::new();
    for line in text(exporter).lines() {
        let (series, fields, time) = parse(line);
        assert_eq!(time, 1_700_000_000_123_000_000);
        let point = points.entry(series).or_default();
        for (key, value) in fields {
            assert!(point.insert(key, value).is_none(), "twice: {line}");
        }
    }
    points
}

/// The only value of `field` in a flush, whatever its series.
fn value_of(points: &BTreeMap<Series, Fields>, field: &str) -> Option<Value> {
    points.values().find_map(|fields| fields.get(field).copied())
}

#[test]
fn the_text_is_exactly_this() {
    static REQUESTS: Metric = Metric::counter("t_api_requests_total").labels(&["reason", "empty"]);
    static IDLE: Metric = Metric::counter("t_api_idle_total");
    static WATER: Metric = Metric::gauge("t_api_level");
    static SHARE: Metric = Metric::gauge("process_share").labels(&["host"]);
    static NOTHING: Metric = Metric::gauge("t_api_nothing");
    static UP: Metric = Metric::gauge("up").labels(&["time"]);
    static WAIT: Metric = Metric::histogram("t_api_wait_seconds", Bounds::Latency);
    let registry = Registry::new();
    registry.counter(&REQUESTS, &["", ""]).add(3);
    registry.counter(&REQUESTS, &["no, a=b \"c\"\n\\", ""]).inc();
    let _idle = registry.counter(&IDLE, &[]);
    registry.gauge(&WATER, &[]).set(-4);
    registry.computed(&SHARE, &["own"], Arc::new(|| 0.25));
    registry.computed(&NOTHING, &[], Arc::new(|| f64::NAN));
    registry.computed(&UP, &["é"], Arc::new(|| 1e300));
    let histogram = registry.histogram(&WAIT, &[]);
    histogram.record_n(Duration::from_micros(1500), 99);
    histogram.record(Duration::from_hours(48));
    let mut exporter = exporter(&registry, &[("host", "a b")], 1000);
    let expected = r#"process,host=own share=0.25 1700000000123000000
t_api,host=a\ b level=-4i,wait_seconds_count=100i,wait_seconds_sum=86400.1485,wait_seconds_mean=864.001485,wait_seconds_p50=0.0015,wait_seconds_p90=0.0015,wait_seconds_p99=0.0015,wait_seconds_p999=86400.0,wait_seconds_max=86400.0,wait_seconds_clamped=1i 1700000000123000000
t_api,host=a\ b requests=3i 1700000000123000000
t_api,host=a\ b,reason=no\,\ a\=b\ "c"_/ requests=1i 1700000000123000000
up,host=a\ b,time_=é value=1e300 1700000000123000000
"#;
    assert_eq!(text(&mut exporter), expected);
    histogram.record(Duration::from_micros(20));
    let expected = r"process,host=own share=0.25 1700000000123000000
t_api,host=a\ b level=-4i,wait_seconds_count=1i,wait_seconds_sum=2e-5,wait_seconds_mean=2e-5,wait_seconds_p50=2e-5,wait_seconds_p90=2e-5,wait_seconds_p99=2e-5,wait_seconds_p999=2e-5,wait_seconds_max=2e-5 1700000000123000000
up,host=a\ b,time_=é value=1e300 1700000000123000000
";
    assert_eq!(text(&mut exporter), expected);
}

#[test]
fn more_than_an_integer_field_holds_is_told_over_several_points_also_when_the_counter_wraps() {
    let registry = Registry::new();
    let counter = registry.counter(&STEPS, &[""]);
    let mut exporter = exporter(&registry, &[], 1000);
    let mut told = || value_of(&points(&mut exporter), "steps");
    counter.add(u64::MAX);
    assert_eq!(told(), Some(Value::Integer(i64::MAX)));
    assert_eq!(told(), Some(Value::Integer(i64::MAX)));
    assert_eq!(told(), Some(Value::Integer(1)));
    counter.add(5);
    assert_eq!((told(), told()), (Some(Value::Integer(5)), None));
}

#[test]
fn a_computed_counter_that_begins_again_is_counted_from_zero_and_one_that_is_no_number_waits() {
    let registry = Registry::new();
    let value = Arc::new(AtomicU64::new(0));
    let read = value.clone();
    let computed = Arc::new(move || f64::from_bits(read.load(Relaxed)));
    registry.computed(&COMPUTED_STEPS, &[""], computed);
    let mut exporter = exporter(&registry, &[], 1000);
    let mut told = |now: f64| {
        value.store(now.to_bits(), Relaxed);
        value_of(&points(&mut exporter), "read")
    };
    let steps = [(10.0, Some(10.0)), (10.0, None), (f64::NAN, None), (12.5, Some(2.5)), (4.0, Some(4.0)), (0.0, None)];
    for (now, expected) in steps {
        assert_eq!(told(now), expected.map(Value::Float), "{now}");
    }
    assert_eq!(told(f64::INFINITY), None);
    assert_eq!(told(1.0), Some(Value::Float(1.0)));
}

/// If the rounded sum of the written values were greater than the true value, the counter would seem to begin again.
#[test]
fn a_computed_counter_is_not_told_twice_because_of_rounding() {
    let registry = Registry::new();
    let value = Arc::new(AtomicU64::new(0));
    let computed = || {
        let read = value.clone();
        Arc::new(move || f64::from_bits(read.load(Relaxed)))
    };
    let _counted = registry.counter(&STEPS, &[""]);
    let mut exporter = exporter(&registry, &[], 1000);
    points(&mut exporter); // From here on that family has integers.
    registry.computed(&COMPUTED_STEPS, &[""], computed());
    registry.computed(&STEPS, &["late"], computed());
    let mut told = |now: f64| {
        value.store(now.to_bits(), Relaxed);
        let points = points(&mut exporter);
        (value_of(&points, "read"), value_of(&points, "steps"))
    };
    let mut sums = (0.0, 0);
    for now in [0.6, 0.7, 5.603897, 53.958457, 53.958457, 54.0] {
        let (read, whole) = told(now);
        if let Some(Value::Float(growth)) = read {
            sums.0 += growth;
        }
        if let Some(Value::Integer(growth)) = whole {
            sums.1 += growth;
        }
        assert!((sums.0 - now).abs() < 1e-6, "{} instead of {now}", sums.0);
        assert_eq!(sums.1, now as i64);
    }
}

#[test]
fn a_field_keeps_its_type() {
    static OTHER_LEVEL: Metric = Metric::gauge("t_b_level").labels(&["of"]);
    let registry = Registry::new();
    registry.gauge(&LEVEL, &["set"]).set(1);
    registry.computed(&OTHER_LEVEL, &["computed"], Arc::new(|| 2.0));
    registry.gauge(&OTHER_LEVEL, &["set"]).set(1);
    let mut exporter = exporter(&registry, &[], 1000);
    let before = points(&mut exporter);
    registry.computed(&LEVEL, &["computed"], Arc::new(|| 2.6));
    let after = points(&mut exporter);
    let of = |points: &BTreeMap<Series, Fields>, measurement: &str| -> Vec<Value> {
        points.iter().filter(|(series, _)| series.0 == measurement).map(|(_, fields)| fields["level"]).collect()
    };
    assert_eq!(of(&before, "t_b"), [Value::Float(2.0), Value::Float(1.0)]);
    assert_eq!(of(&after, "t_a"), [Value::Integer(3), Value::Integer(1)]);
}

#[test]
fn what_fits_no_line_is_left_out_and_counted() {
    let registry = Registry::new();
    registry.gauge(&LEVEL, &[&"x".repeat(100)]).set(1);
    registry.gauge(&LEVEL, &[""]).set(2);
    let line = "t_a level=2i 1700000000123000000\n";
    for (line_bytes_max, told) in [(60, line), (line.len(), line), (line.len() - 1, "")] {
        let mut text = String::new();
        let mut exporter = exporter(&registry, &[], line_bytes_max);
        let flushed = exporter.flush(NOW, |line| text.push_str(std::str::from_utf8(line).unwrap()));
        let line_count = told.lines().count() as u64;
        assert_eq!(flushed, Flushed { line_count, oversize_count: 2 - line_count }, "{line_bytes_max}");
        assert_eq!(text, told);
    }
}

/// Nothing is told twice or not at all while others count.
#[test]
fn growth_adds_up_while_threads_count() {
    let registry = Registry::new();
    let counter = registry.counter(&STEPS, &[""]);
    let histogram = registry.histogram(&STEPS_SECONDS, &[""]);
    let mut exporter = exporter(&registry, &[], 1000);
    let running = AtomicBool::new(true);
    let mut sums = (0, 0);
    let mut tell = |sums: &mut (i64, i64)| {
        let points = points(&mut exporter);
        for (sum, field) in [(&mut sums.0, "steps"), (&mut sums.1, "steps_seconds_count")] {
            if let Some(Value::Integer(growth)) = value_of(&points, field) {
                *sum += growth;
            }
        }
    };
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for micros in 0..20_000 {
                        counter.inc();
                        histogram.record_micros(micros);
                    }
                })
            })
            .collect();
        let telling = scope.spawn(|| {
            while running.load(Relaxed) {
                tell(&mut sums);
            }
        });
        counting.into_iter().for_each(|thread| thread.join().unwrap());
        running.store(false, Relaxed);
        telling.join().unwrap();
    });
    tell(&mut sums);
    assert_eq!(sums, (60_000, 60_000));
}

/// Names of series and label values with every difficult character.
fn nasty() -> impl Strategy<Value = String> {
    let chars = prop_oneof![
        prop::sample::select(", =\\\"'\n\r\t#{}\u{0}\u{7f}\u{85}\u{a0}\u{2028}é𝄞i1.-".chars().collect::<Vec<_>>()),
        any::<char>(),
    ];
    prop::collection::vec(chars, 0..12).prop_map(String::from_iter)
}

/// The written form of a tag value with characters that not every parser takes.
fn as_told(value: &str) -> String {
    value
        .chars()
        .map(|char| {
            if char == '\\' {
                '/'
            } else if char.is_control() {
                '_'
            } else {
                char
            }
        })
        .collect()
}

#[derive(Debug, Clone)]
enum Step {
    Count(usize, u64),
    Set(usize, i64),
    Record(usize, u64),
    Flush,
}

const LABEL_COUNT: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let series = 0..LABEL_COUNT;
    prop_oneof![
        (series.clone(), prop_oneof![0..10_u64, 0..u64::MAX / 64]).prop_map(|(of, count)| Step::Count(of, count)),
        (series.clone(), any::<i64>()).prop_map(|(of, value)| Step::Set(of, value)),
        (series, 0..10_000_000_u64).prop_map(|(of, micros)| Step::Record(of, micros)),
        Just(Step::Flush),
    ]
}

proptest! {
    /// For all label values and wherever lines are cut, each point is read back as it was measured.
    #[test]
    fn every_line_is_read_back_as_it_was_measured(
        values in prop::collection::btree_set((nasty(), nasty()), 1..6),
        tag in nasty(),
        numbers in prop::collection::vec((any::<i64>(), any::<f64>(), 0..i64::MAX as u64), 6),
        line_bytes_max in 400..2000_usize,
    ) {
        static SET: Metric = Metric::gauge("t_a_set").labels(&["one", "other"]);
        static COMPUTED: Metric = Metric::gauge("t_a_computed").labels(&["one", "other"]);
        static COUNTED: Metric = Metric::counter("t_a_counted_total").labels(&["one", "other"]);
        let registry = Registry::new();
        let mut expected = BTreeMap::<Series, Fields>::new();
        for ((one, other), (set, computed, counted)) in values.iter().zip(numbers) {
            registry.gauge(&SET, &[one, other]).set(set);
            registry.computed(&COMPUTED, &[one, other], Arc::new(move || computed));
            registry.counter(&COUNTED, &[one, other]).add(counted);
            let all = [("own", &tag), ("one", one), ("other", other)];
            let tags = all.iter().filter(|(_, value)| !value.is_empty());
            let tags = tags.map(|(name, value)| ((*name).to_owned(), as_told(value))).collect();
            let mut fields = Fields::from([("set".to_owned(), Value::Integer(set))]);
            if counted > 0 {
                fields.insert("counted".to_owned(), Value::Integer(counted as i64));
            }
            if computed.is_finite() {
                fields.insert("computed".to_owned(), Value::Float(computed));
            }
            // Two series that differ only in replaced characters cannot be told apart.
            prop_assume!(expected.insert(("t_a".to_owned(), tags), fields).is_none());
        }
        let mut exporter = exporter(&registry, &[("own", &tag)], line_bytes_max);
        let mut told = String::new();
        let flushed = exporter.flush(NOW, |line| {
            assert!(line.len() <= line_bytes_max && line.ends_with(b"\n"), "{} of {line_bytes_max}", line.len());
            told.push_str(std::str::from_utf8(line).unwrap());
        });
        prop_assert_eq!(flushed.oversize_count, 0);
        let mut read = BTreeMap::<Series, Fields>::new();
        for line in told.strip_suffix('\n').unwrap().split('\n') {
            let (series, fields, _) = parse(line);
            read.entry(series).or_default().extend(fields);
        }
        read.retain(|(measurement, _), _| measurement == "t_a"); // Not the registry's own.
        prop_assert_eq!(read, expected);
    }

    /// Whenever flushes happen, the written increases add up to the counter, and the last written value is the gauge.
    #[test]
    fn growth_adds_up_whenever_it_is_told(steps in prop::collection::vec(step(), 0..60)) {
        let registry = Registry::new();
        let of = |index: usize| index.to_string();
        let counter = |index| registry.counter(&STEPS, &[&of(index)]);
        let histogram = |index| registry.histogram(&STEPS_SECONDS, &[&of(index)]);
        let mut exporter = exporter(&registry, &[], 400);
        let (mut sums, mut lately) = (BTreeMap::<(String, String), f64>::new(), vec![Vec::new(); LABEL_COUNT]);
        let mut exact = [0_u64; LABEL_COUNT];
        for step in steps.into_iter().chain([Step::Flush]) {
            match step {
                Step::Count(index, count) => counter(index).add(count),
                Step::Set(index, value) => registry.gauge(&LEVEL, &[&of(index)]).set(value),
                Step::Record(index, micros) => {
                    histogram(index).record_micros(micros);
                    lately[index].push(micros);
                }
                Step::Flush => {
                    for ((_, tags), fields) in points(&mut exporter) {
                        let Some(of) = tags.get("of") else { continue };
                        let recorded = std::mem::take(&mut lately[of.parse::<usize>().unwrap()]);
                        check_recorded(&fields, recorded)?;
                        for (key, value) in fields {
                            match value {
                                Value::Integer(value) if key == "steps" => {
                                    exact[of.parse::<usize>().unwrap()] += u64::try_from(value).unwrap();
                                }
                                Value::Integer(value) => *sums.entry((of.clone(), key)).or_default() += value as f64,
                                Value::Float(value) => *sums.entry((of.clone(), key)).or_default() += value,
                            }
                        }
                    }
                }
            }
        }
        for (index, told) in exact.into_iter().enumerate() {
            prop_assert_eq!(told, counter(index).value());
            let all = histogram(index).snapshot();
            let sum = |key: &str| sums.get(&(of(index), format!("steps_seconds_{key}"))).copied().unwrap_or_default();
            prop_assert_eq!(sum("count"), all.count() as f64);
            prop_assert!((sum("sum") - all.sum().as_secs_f64()).abs() < 1e-6);
        }
    }
}

/// The fields of a histogram cover what was recorded since the flush before.
fn check_recorded(fields: &Fields, mut micros: Vec<u64>) -> Result<(), TestCaseError> {
    micros.sort_unstable();
    let Some(longest) = micros.last() else {
        prop_assert_eq!(fields.get("steps_seconds_count"), None);
        return Ok(());
    };
    prop_assert_eq!(fields["steps_seconds_count"], Value::Integer(micros.len() as i64));
    let median = micros[(micros.len() - 1) / 2];
    for (key, exact) in [("max", *longest), ("p999", *longest), ("p50", median)] {
        let Value::Float(told) = fields[&format!("steps_seconds_{key}")] else { panic!("{key} is an integer") };
        let (told, exact) = (told * 1e6, exact as f64);
        prop_assert!((told - exact).abs() <= exact / 1000.0 + 1.0, "{} is told as {}, is {}", key, told, exact);
    }
    Ok(())
}
