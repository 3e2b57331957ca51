//! Which filters are taken, and what they match: by examples, in both formats, and beside a simple model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tags(tags: &[(&str, &str)]) -> Tags {
    tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>().into()
}

fn read(filter: &Value) -> Result<TagsFilter, FilterError> {
    let read = TagsFilter::read(&UnreadFilter::Json(Json::of(filter)));
    let message = TagsFilter::read(&UnreadFilter::Protobuf(message(filter)));
    assert_eq!(read.as_ref().err(), message.as_ref().err(), "JSON and Protobuf mean the same: {filter}");
    assert!(read == message);
    read
}

/// The filter as a message of Centrifugo's schema.
fn message(filter: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |number: u8, bytes: &[u8]| {
        out.push(number << 3 | 2);
        crate::protobuf::put_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    };
    for (number, name) in [(1, "op"), (2, "key"), (3, "cmp"), (4, "val")] {
        filter[name].as_str().into_iter().for_each(|text| put(number, text.as_bytes()));
    }
    let list = |name: &str| filter[name].as_array().cloned().unwrap_or_default();
    list("vals").iter().for_each(|value| put(5, value.as_str().unwrap().as_bytes()));
    list("nodes").iter().for_each(|node| put(6, &message(node)));
    out
}

fn leaf(key: &str, cmp: &str, val: &str) -> Value {
    json!({"key": key, "cmp": cmp, "val": val})
}

#[test]
fn a_leaf_compares_one_tag() {
    let goal = tags(&[("kind", "goal"), ("minute", "90.50"), ("empty", "")]);
    for (filter, expected) in [
        (leaf("kind", "eq", "goal"), true),
        (leaf("kind", "eq", "goa"), false),
        (leaf("team", "eq", "goal"), false),
        (leaf("kind", "neq", "goal"), false),
        (leaf("team", "neq", "goal"), true),
        (json!({"key": "kind", "cmp": "in", "vals": ["card", "goal"]}), true),
        (json!({"key": "kind", "cmp": "in", "vals": ["card"]}), false),
        (json!({"key": "kind", "cmp": "nin", "vals": ["card", "goal"]}), false),
        (json!({"key": "team", "cmp": "nin", "vals": ["card"]}), true),
        (json!({"key": "kind", "cmp": "ex"}), true),
        (json!({"key": "team", "cmp": "ex"}), false),
        (json!({"key": "empty", "cmp": "ex"}), true),
        (json!({"key": "team", "cmp": "nex"}), true),
        (leaf("kind", "sw", "go"), true),
        (leaf("kind", "sw", "al"), false),
        (leaf("kind", "ew", "al"), true),
        (leaf("kind", "ct", "oa"), true),
        (leaf("team", "ct", "oa"), false),
        (leaf("minute", "gt", "90.5"), false),
        (leaf("minute", "gte", "+090.5"), true),
        (leaf("minute", "gte", "100"), false),
        (leaf("minute", "lt", "90.51"), true),
        (leaf("minute", "lte", "-100"), false),
        (leaf("kind", "lt", "100"), false),
        (leaf("minute", "lt", "many"), false),
        (leaf("team", "lt", "100"), false),
    ] {
        assert_eq!(read(&filter).unwrap().matches(&goal), expected, "{filter}");
    }
}

#[test]
fn nodes_join_leaves() {
    let goal = tags(&[("kind", "goal")]);
    let (yes, no) = (leaf("kind", "eq", "goal"), leaf("kind", "eq", "card"));
    for (op, nodes, expected) in [
        ("and", vec![&yes, &yes], true),
        ("and", vec![&yes, &no], false),
        ("or", vec![&no, &yes], true),
        ("or", vec![&no], false),
        ("not", vec![&no], true),
        ("not", vec![&yes], false),
    ] {
        assert_eq!(read(&json!({"op": op, "nodes": nodes})).unwrap().matches(&goal), expected, "{op} {nodes:?}");
    }
}

#[test]
fn what_is_no_filter_is_refused() {
    let nested = |depth: usize| (1..depth).fold(leaf("a", "eq", "b"), |node, _| json!({"op": "not", "nodes": [node]}));
    let wide = |count: usize| json!({"op": "or", "nodes": vec![json!({"cmp": "ex"}); count - 1]});
    let list = |count: usize| json!({"key": "a", "cmp": "in", "vals": vec!["b"; count - 1]});
    for good in [nested(FILTER_DEPTH_MAX), wide(FILTER_COUNT_MAX), list(FILTER_COUNT_MAX)] {
        assert!(read(&good).is_ok(), "{good}");
    }
    for (bad, error) in [
        (nested(FILTER_DEPTH_MAX + 1), FilterError::TooDeep),
        (wide(FILTER_COUNT_MAX + 1), FilterError::TooMany),
        (list(FILTER_COUNT_MAX + 1), FilterError::TooMany),
        (leaf("a", "eq", &"b".repeat(FILTER_BYTES_MAX)), FilterError::TooLarge),
        (json!({"op": "xor", "nodes": [leaf("a", "eq", "b")]}), FilterError::Operation),
        (json!({"op": "and"}), FilterError::Operation),
        (json!({"op": "not", "nodes": [leaf("a", "eq", "b"), leaf("a", "eq", "b")]}), FilterError::Operation),
        (json!({}), FilterError::Comparison),
        (leaf("", "eq", "b"), FilterError::Comparison),
        (leaf("a", "eq", ""), FilterError::Comparison),
        (leaf("a", "is", "b"), FilterError::Comparison),
        (leaf("a", "in", "b"), FilterError::Comparison),
        (leaf("a", "ex", "b"), FilterError::Comparison),
        (json!({"key": "a", "cmp": "lt", "val": "1", "vals": ["2"]}), FilterError::Comparison),
    ] {
        assert_eq!(read(&bad).err(), Some(error), "{bad}");
    }
    for not_a_node in [json!([]), json!("eq"), json!({"vals": "b"}), json!({"nodes": [[]]})] {
        let unread = UnreadFilter::Json(Json::of(&not_a_node));
        assert!(TagsFilter::read(&unread).is_err(), "{not_a_node}");
    }
    assert_eq!(TagsFilter::read(&UnreadFilter::Protobuf(vec![0xFF])).err(), Some(FilterError::Malformed));
}

proptest! {
    #[test]
    fn decimals_are_ordered_like_numbers(a in -2_000_000i64..2_000_000, b in -2_000_000i64..2_000_000, zeros in 0usize..3) {
        // Thousandths, written with more zeros than needed.
        let write = |value: i64| {
            let sign = if value < 0 { "-" } else { "" };
            let (whole, part) = (value.abs() / 1000, value.abs() % 1000);
            format!("{sign}{}{whole}.{part:03}{}", "0".repeat(zeros), "0".repeat(zeros))
        };
        let (left, right) = (write(a), write(b));
        prop_assert_eq!(Decimal::read(&left).unwrap().order(Decimal::read(&right).unwrap()), a.cmp(&b));
    }

    #[test]
    fn any_bytes_are_a_filter_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let unread = UnreadFilter::Protobuf(bytes);
        let read = || TagsFilter::read(&unread);
        prop_assert_ne!(read().err(), Some(FilterError::TooLarge));
        if let (Ok(one), Ok(again)) = (read(), read()) {
            let is_match = one.matches(&Tags::default());
            prop_assert_eq!(one.and(again).matches(&Tags::default()), is_match);
        }
    }
}
