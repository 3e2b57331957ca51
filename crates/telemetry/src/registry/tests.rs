//! The registry as a scraper sees it: exact text, and any text read back by a parser written from the format alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{LABEL_VALUE_BYTES_MAX, REFUSED, Registry, SERIES_COUNT_MAX};
use crate::metric::{Bounds, Metric};
use crate::prometheus::Exposition;

static COUNTER: Metric = Metric::counter("c_total").help("C.");
static OF: Metric = Metric::counter("of_total").labels(&["a"]).help("Of.");
static GAUGE: Metric = Metric::gauge("g").help("G.");
static COMPUTED: Metric = Metric::gauge("f").help("F.");
static HISTOGRAM: Metric = Metric::histogram("h_seconds", Bounds::Latency).help("H.");

/// The families of an exposition: name to (help, type, samples by name and labels).
type Families = BTreeMap<String, (String, String, BTreeMap<(String, Vec<(String, String)>), f64>)>;

/// Reads the text format strictly: each family's lines together, help and type first, no sample twice.
fn parse(text: &str) -> Families {
    let mut families = Families::new();
    let mut lines = text.strip_suffix('\n').expect("the last line ends").split('\n').peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").expect(line).split_once(' ').expect(line);
        let kind_line = lines.next().expect("a type follows");
        let kind = kind_line.strip_prefix(&format!("# TYPE {name} ")).expect(kind_line);
        let mut samples = BTreeMap::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = parse_sample(line);
            let endings: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(endings.iter().any(|ending| series.0 == format!("{name}{ending}")), "{line} under {name}");
            assert!(samples.insert(series, value).is_none(), "twice: {line}");
        }
        let family = (unescape(help, false), kind.to_owned(), samples);
        assert!(families.insert(name.to_owned(), family).is_none(), "family {name} comes twice");
    }
    families
}

fn parse_sample(line: &str) -> ((String, Vec<(String, String)>), f64) {
    let name_end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if rest.starts_with('{') {
        while !rest.starts_with('}') {
            let (label, after) = rest[1..].split_once("=\"").expect(line);
            let mut escaped = false;
            let end = after
                .find(|c| {
                    let closes = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    closes
                })
                .expect("a value ends");
            labels.push((label.to_owned(), unescape(&after[..end], true)));
            rest = &after[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect(line);
    ((name.to_owned(), labels), value.parse().expect(line))
}

fn unescape(text: &str, quotes: bool) -> String {
    let mut chars = text.chars();
    let mut out = String::new();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('\\') => '\\',
                Some('"') if quotes => '"',
                other => panic!("escape {other:?}"),
            },
            c => c,
        });
    }
    out
}

fn value_of(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = labels.iter().map(|(label, value)| (label.to_string(), value.to_string())).collect();
    let key = (name.to_owned(), labels);
    parse(text).values().find_map(|(_, _, samples)| samples.get(&key).copied())
}

#[test]
fn the_text_is_exactly_this() {
    static DROPS: Metric = Metric::counter("t_drops_total").labels(&["reason", "a"]).help("Dropped.\nSay \\ why.");
    static LEVEL: Metric = Metric::gauge("t_level").help("How full.");
    static RATIO: Metric = Metric::gauge("t_ratio").labels(&["of"]).help("A share.");
    static WAIT: Metric = Metric::histogram("t_wait_seconds", Bounds::Latency).labels(&["lane"]).help("Time waited.");
    let registry = Registry::new();
    registry.counter(&DROPS, &["a \"full\"\\\nqueue", "é"]).add(3);
    registry.counter(&DROPS, &["", ""]).inc();
    registry.gauge(&LEVEL, &[]).set(-4);
    registry.computed(&RATIO, &["all"], Arc::new(|| 0.25));
    registry.computed(&RATIO, &["nothing"], Arc::new(|| f64::INFINITY));
    let histogram = registry.histogram(&WAIT, &["1"]);
    histogram.record_n(Duration::from_micros(1500), 99);
    histogram.record(Duration::from_secs(7200));
    let expected = r#"# HELP t_drops_total Dropped.\nSay \\ why.
# TYPE t_drops_total counter
t_drops_total{a="",reason=""} 1
t_drops_total{a="é",reason="a \"full\"\\\nqueue"} 3
# HELP t_level How full.
# TYPE t_level gauge
t_level -4
# HELP t_ratio A share.
# TYPE t_ratio gauge
t_ratio{of="all"} 0.25
t_ratio{of="nothing"} +Inf
# HELP t_wait_seconds Time waited.
# TYPE t_wait_seconds histogram
t_wait_seconds_bucket{lane="1",le="0.0001"} 0
t_wait_seconds_bucket{lane="1",le="0.00025"} 0
t_wait_seconds_bucket{lane="1",le="0.0005"} 0
t_wait_seconds_bucket{lane="1",le="0.001"} 0
t_wait_seconds_bucket{lane="1",le="0.0025"} 99
t_wait_seconds_bucket{lane="1",le="0.005"} 99
t_wait_seconds_bucket{lane="1",le="0.01"} 99
t_wait_seconds_bucket{lane="1",le="0.025"} 99
t_wait_seconds_bucket{lane="1",le="0.05"} 99
t_wait_seconds_bucket{lane="1",le="0.1"} 99
t_wait_seconds_bucket{lane="1",le="0.25"} 99
t_wait_seconds_bucket{lane="1",le="0.5"} 99
t_wait_seconds_bucket{lane="1",le="1.0"} 99
t_wait_seconds_bucket{lane="1",le="2.5"} 99
t_wait_seconds_bucket{lane="1",le="5.0"} 99
t_wait_seconds_bucket{lane="1",le="10.0"} 99
t_wait_seconds_bucket{lane="1",le="30.0"} 99
t_wait_seconds_bucket{lane="1",le="60.0"} 99
t_wait_seconds_bucket{lane="1",le="+Inf"} 100
t_wait_seconds_sum{lane="1"} 7200.1485
t_wait_seconds_count{lane="1"} 100
# HELP tidings_telemetry_series_refused_total Series that are not exported because there are 4096 already.
# TYPE tidings_telemetry_series_refused_total counter
tidings_telemetry_series_refused_total 0
"#;
    assert_eq!(registry.prometheus(), expected);
}

#[test]
fn the_same_metric_and_labels_give_the_same_instrument_from_any_clone() {
    static TWO: Metric = Metric::counter("two_total").labels(&["b", "a"]);
    let registry = Registry::new();
    registry.counter(&TWO, &["1", "2"]).inc();
    registry.clone().counter(&TWO, &["1", "2"]).inc();
    assert_eq!(registry.counter(&TWO, &["1", "2"]).value(), 2);
    assert_eq!(registry.counter(&TWO, &["2", "1"]).value(), 0);
    registry.histogram(&HISTOGRAM, &[]).record_micros(1);
    assert_eq!(registry.histogram(&HISTOGRAM, &[]).snapshot().count(), 1);
    registry.gauge(&GAUGE, &[]).set(5);
    assert_eq!(registry.gauge(&GAUGE, &[]).value(), 5);
}

#[test]
fn a_newer_function_replaces_the_older_and_may_use_the_registry() {
    let registry = Registry::new();
    registry.computed(&GAUGE, &[], Arc::new(|| 1.0));
    let inner = registry.clone();
    registry.computed(&GAUGE, &[], Arc::new(move || inner.counter(&COUNTER, &[]).value() as f64 + 2.0));
    assert_eq!(value_of(&registry.prometheus(), "g", &[]), Some(2.0));
}

#[test]
fn of_a_child_what_is_counted_stays_and_what_is_a_level_goes_with_it() {
    let registry = Registry::new();
    registry.gauge(&COMPUTED, &[]).set(9);
    let begin = |level| {
        let child = registry.child();
        child.counter(&COUNTER, &[]).inc();
        child.histogram(&HISTOGRAM, &[]).record_micros(1);
        child.gauge(&GAUGE, &[]).set(level);
        child
    };
    let values = || ["c_total", "h_seconds_count", "g", "f"].map(|name| value_of(&registry.prometheus(), name, &[]));
    let first = begin(5);
    assert_eq!(values(), [Some(1.0), Some(1.0), Some(5.0), Some(9.0)]);
    assert_eq!(registry.sum(&GAUGE, &[]), 5.0);
    drop(first);
    assert_eq!(values(), [Some(1.0), Some(1.0), None, Some(9.0)]);
    let _second = begin(7);
    assert_eq!(values(), [Some(2.0), Some(2.0), Some(7.0), Some(9.0)]);
}

#[test]
fn over_the_bound_an_instrument_works_but_is_only_counted_as_refused() {
    let registry = Registry::new();
    for index in 0..SERIES_COUNT_MAX {
        registry.counter(&OF, &[&index.to_string()]).inc();
    }
    let late = registry.counter(&OF, &["late"]);
    late.inc();
    assert_eq!(late.value(), 1);
    registry.computed(&COMPUTED, &[], Arc::new(|| 1.0));
    registry.counter(&OF, &["7"]).inc();
    let text = registry.prometheus();
    assert_eq!(parse(&text)["of_total"].2.len(), SERIES_COUNT_MAX);
    assert_eq!(value_of(&text, "of_total", &[("a", "7")]), Some(2.0), "known series go on");
    assert_eq!(value_of(&text, "f", &[]), None);
    assert_eq!(value_of(&text, REFUSED.name, &[]), Some(2.0));
}

#[test]
fn open_metrics_is_exactly_this() {
    static DROPS: Metric = Metric::counter("t_drops_total").help("Say \"why\" \\.");
    static READ: Metric = Metric::counter("t_read_bytes_total").help("Read.");
    static WAIT: Metric = Metric::histogram("t_wait_seconds", Bounds::Long).labels(&["lane"]).help("Time waited.");
    let trace = "00-00000000000000000000000000000abc-b7ad6b7169203331-01".parse().unwrap();
    let registry = Registry::new();
    registry.counter(&DROPS, &[]).add(3);
    registry.counter(&READ, &[]).inc();
    registry.histogram(&WAIT, &["1"]).record(Duration::from_millis(1));
    registry.histogram(&WAIT, &["1"]).record_in(Duration::from_millis(1500), 1, Some(&trace));
    let text = registry.exposed(Exposition::OpenMetrics);
    let (heads, samples): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
    let expected = [
        r#"# HELP t_drops Say \"why\" \\."#,
        "# TYPE t_drops counter",
        "# HELP t_read_bytes Read.",
        "# TYPE t_read_bytes counter",
        "# UNIT t_read_bytes bytes",
        "# HELP t_wait_seconds Time waited.",
        "# TYPE t_wait_seconds histogram",
        "# UNIT t_wait_seconds seconds",
        "# HELP tidings_telemetry_series_refused Series that are not exported because there are 4096 already.",
        "# TYPE tidings_telemetry_series_refused counter",
        "# EOF",
    ];
    assert_eq!(heads, expected);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (with_example, without): (Vec<_>, Vec<_>) = samples.into_iter().partition(|line| line.contains(" # "));
    let [bucket] = with_example.try_into().expect("one example");
    let (bucket, example) = bucket.split_once(" # ").unwrap();
    assert_eq!(bucket, "t_wait_seconds_bucket{lane=\"1\",le=\"2.5\"} 2");
    let at = example.strip_prefix("{trace_id=\"00000000000000000000000000000abc\"} 1.5 ").expect(example);
    assert!((at.parse::<f64>().unwrap() - crate::unix_now().as_millis() as f64 / 1e3).abs() < 60.0, "{at}");
    for line in ["t_drops_total 3", "t_read_bytes_total 1", "t_wait_seconds_bucket{lane=\"1\",le=\"1.0\"} 1"] {
        assert!(without.contains(&line), "{line} is not in {without:?}");
    }
}

#[test]
fn mistakes_of_the_programmer_panic_and_leave_the_registry_usable() {
    static NAMESAKE: Metric = Metric::counter("c_total").help("Another one.");
    let registry = Registry::new();
    registry.counter(&COUNTER, &[]).inc();
    registry.computed(&COMPUTED, &[], Arc::new(|| 0.0));
    type Mistake = (&'static str, fn(&Registry));
    let mistakes: [Mistake; 9] = [
        ("a counter as a gauge", |r| drop(r.gauge(&COUNTER, &[]))),
        ("a gauge as a histogram", |r| drop(r.histogram(&GAUGE, &[]))),
        ("a histogram as a counter", |r| drop(r.counter(&HISTOGRAM, &[]))),
        ("a computed histogram", |r| r.computed(&HISTOGRAM, &[], Arc::new(|| 0.0))),
        ("counted, then computed", |r| r.computed(&COUNTER, &[], Arc::new(|| 0.0))),
        ("computed, then set", |r| drop(r.gauge(&COMPUTED, &[]))),
        ("too few labels", |r| drop(r.counter(&OF, &[]))),
        ("another metric of that name", |r| drop(r.counter(&NAMESAKE, &[]))),
        ("the registry's own", |r| drop(r.counter(REFUSED, &[]))),
    ];
    for (mistake, make) in mistakes {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| make(&registry)));
        assert!(made.is_err(), "{mistake} was accepted");
    }
    assert_eq!(value_of(&registry.prometheus(), "c_total", &[]), Some(1.0));
}

#[test]
fn a_long_label_value_is_cut_at_a_characters_edge() {
    let registry = Registry::new();
    let value = format!("{}é", "x".repeat(LABEL_VALUE_BYTES_MAX - 1));
    registry.counter(&OF, &[&value]).inc();
    let kept = "x".repeat(LABEL_VALUE_BYTES_MAX - 1);
    assert_eq!(value_of(&registry.prometheus(), "of_total", &[("a", &kept)]), Some(1.0));
}

/// Scrapes during work never lose or invent a count, and the last one has all.
#[test]
fn scraping_while_counting_is_consistent() {
    let registry = Registry::new();
    let (threads, rounds) = (4_u64, 2_000_u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let registry = registry.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    registry.counter(&OF, &[&(thread % 2).to_string()]).inc();
                    registry.histogram(&HISTOGRAM, &[]).record_micros(round);
                }
            });
        }
        let mut last = 0.0;
        for _ in 0..20 {
            let now = value_of(&registry.prometheus(), "h_seconds_count", &[]).unwrap_or(0.0);
            assert!((last..=(threads * rounds) as f64).contains(&now), "{last} then {now}");
            last = now;
        }
    });
    let text = registry.prometheus();
    assert_eq!(value_of(&text, "of_total", &[("a", "0")]), Some((2 * rounds) as f64));
    assert_eq!(value_of(&text, "h_seconds_count", &[]), Some((threads * rounds) as f64));
}

fn leaked(metric: Metric) -> &'static Metric {
    Box::leak(Box::new(metric))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever help and label values hold, the independent parser reads back what was put in.
    #[test]
    fn any_text_reads_back(
        help in "[ -~\\\\\n\"éあ]{0,20}",
        counters in prop::collection::btree_map("[\\\\\n\"{}=, a-cé]{0,12}", any::<u32>(), 1..8),
        gauge in any::<i32>(),
        computed in any::<f64>(),
        micros in prop::collection::vec(0..10_000_000_u64, 0..20),
    ) {
        let told = leaked(Metric::counter("c_total").labels(&["v", "w"]).help(help.clone().leak()));
        let registry = Registry::new();
        for (value, &count) in &counters {
            registry.counter(told, &[value, ""]).add(u64::from(count));
        }
        registry.gauge(&GAUGE, &[]).set(i64::from(gauge));
        registry.computed(&COMPUTED, &[], Arc::new(move || computed));
        let histogram = registry.histogram(&HISTOGRAM, &[]);
        micros.iter().for_each(|&micros| histogram.record_micros(micros));

        let families = parse(&registry.prometheus());
        let (read_help, kind, samples) = &families["c_total"];
        prop_assert_eq!(read_help, &help);
        prop_assert_eq!(kind, "counter");
        prop_assert_eq!(samples.len(), counters.len());
        for (value, &count) in &counters {
            let labels = vec![("v".to_owned(), value.clone()), ("w".to_owned(), String::new())];
            prop_assert_eq!(samples.get(&("c_total".to_owned(), labels)), Some(&f64::from(count)));
        }
        let alone = |name: &str| (name.to_owned(), Vec::new());
        prop_assert_eq!(families["g"].2[&alone("g")], f64::from(gauge));
        let read = families["f"].2[&alone("f")];
        prop_assert!(read == computed || (read.is_nan() && computed.is_nan()));
        prop_assert_eq!(families["h_seconds"].2[&alone("h_seconds_count")], micros.len() as f64);
        let sum = micros.iter().sum::<u64>() as f64 / 1e6;
        prop_assert!((families["h_seconds"].2[&alone("h_seconds_sum")] - sum).abs() < 1e-9);
    }
}
