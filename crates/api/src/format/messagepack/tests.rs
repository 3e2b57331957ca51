//! MessagePack by the bytes of its specification, against another codec, and whatever bytes come.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const MAX: usize = 1 << 20;

fn json_of(packed: &[u8]) -> Result<String, String> {
    unpack(packed, MAX).map(|json| String::from_utf8(json).unwrap()).map_err(|error| error.to_string())
}

/// Every kind of header that JSON has a word for, by the bytes that the specification names.
#[test]
fn each_kind_of_value_is_read() {
    let (text8, text16, text32) = ("x".repeat(40), "x".repeat(300), "x".repeat(70_000));
    let with = |head: &[u8], text: &str| [head, text.as_bytes()].concat();
    for (packed, expected) in [
        (vec![0xc0], "null".to_owned()),
        (vec![0xc2], "false".to_owned()),
        (vec![0xc3], "true".to_owned()),
        (vec![0x7f], "127".to_owned()),
        (vec![0xe0], "-32".to_owned()),
        (vec![0xcc, 0xff], "255".to_owned()),
        (vec![0xcd, 0xff, 0xff], "65535".to_owned()),
        (vec![0xce, 0xff, 0xff, 0xff, 0xff], "4294967295".to_owned()),
        (vec![0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], u64::MAX.to_string()),
        (vec![0xd0, 0x80], "-128".to_owned()),
        (vec![0xd1, 0x80, 0x00], "-32768".to_owned()),
        (vec![0xd2, 0x80, 0x00, 0x00, 0x00], "-2147483648".to_owned()),
        (vec![0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN.to_string()),
        (with(&[0xca], "")[..].iter().copied().chain(1.1_f32.to_be_bytes()).collect(), "1.1".to_owned()),
        ([&[0xcb][..], &3.0_f64.to_be_bytes()].concat(), "3.0".to_owned()),
        ([&[0xcb][..], &(-0.0_f64).to_be_bytes()].concat(), "-0.0".to_owned()),
        ([&[0xcb][..], &5e-324_f64.to_be_bytes()].concat(), "5e-324".to_owned()),
        (with(&[0xa2], "\"\u{1}"), "\"\\\"\\u0001\"".to_owned()),
        (with(&[0xd9, 40], &text8), format!("\"{text8}\"")),
        (with(&[0xda, 1, 44], &text16), format!("\"{text16}\"")),
        (with(&[0xdb, 0, 1, 0x11, 0x70], &text32), format!("\"{text32}\"")),
        (vec![0x90], "[]".to_owned()),
        (vec![0x92, 1, 0x91, 2], "[1,[2]]".to_owned()),
        (vec![0xdc, 0, 1, 0xc0], "[null]".to_owned()),
        (vec![0xdd, 0, 0, 0, 1, 0xc0], "[null]".to_owned()),
        (vec![0x80], "{}".to_owned()),
        (vec![0x82, 0xa1, b'a', 1, 0xa1, b'a', 2], "{\"a\":1,\"a\":2}".to_owned()),
        (vec![0xde, 0, 1, 0xa0, 0x80], "{\"\":{}}".to_owned()),
        (vec![0xdf, 0, 0, 0, 1, 0xd9, 1, b'b', 3], "{\"b\":3}".to_owned()),
    ] {
        assert_eq!(json_of(&packed), Ok(expected), "{packed:x?}");
    }
}

#[test]
fn what_json_cannot_say_is_refused_where_it_stands() {
    let float = |bits: u64| [&[0x91, 0xcb][..], &bits.to_be_bytes()].concat();
    for (packed, expected) in [
        (vec![], "at byte 0: it ends in the middle of a value"),
        (vec![0x92, 1], "at byte 2: it ends in the middle of a value"),
        (vec![0xcd, 1], "at byte 2: it ends in the middle of a value"),
        (vec![0xa3, b'a', b'b'], "at byte 3: it ends in the middle of a value"),
        (vec![0xc0, 0xc0], "at byte 1: there are bytes behind the value"),
        (vec![0x91, 0xc1], "at byte 1: the byte c1, which MessagePack does not use"),
        (vec![0x91, 0xc4, 1, 7], "at byte 1: binary data, which JSON does not have"),
        (vec![0xc5, 0, 0], "at byte 0: binary data, which JSON does not have"),
        (vec![0xc6, 0, 0, 0, 0], "at byte 0: binary data, which JSON does not have"),
        (
            vec![0x91, 0xd6, 0xff, 0, 0, 0, 0],
            "at byte 1: an extension type, which JSON does not have; a time is text or a number",
        ),
        (vec![0xc7, 0, 1], "at byte 0: an extension type, which JSON does not have; a time is text or a number"),
        (vec![0x91, 0xa2, 0xc3, 0x28], "at byte 1: text that is not UTF-8"),
        (vec![0x81, 1, 1], "at byte 1: a key that is not text"),
        (vec![0x81, 0xc4, 1, b'a', 1], "at byte 1: a key that is not text"),
        (vec![0x81, 0xc0, 1], "at byte 1: a key that is not text"),
        (float(f64::NAN.to_bits()), "at byte 1: NaN or an infinite number, which JSON does not have"),
        (float(f64::INFINITY.to_bits()), "at byte 1: NaN or an infinite number, which JSON does not have"),
        (vec![0xca, 0xff, 0x80, 0, 0], "at byte 0: NaN or an infinite number, which JSON does not have"),
    ] {
        assert_eq!(json_of(&packed), Err(expected.to_owned()), "{packed:x?}");
    }
}

/// Nothing is reserved or repeated because a header says so.
#[test]
fn a_header_that_promises_more_than_there_is_costs_nothing() {
    for head in [0xdb, 0xdd, 0xdf] {
        let hostile = [head, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(json_of(&hostile), Err("at byte 5: it ends in the middle of a value".to_owned()));
    }
    // Each list promises more than memory has, in each other.
    let nested = [0xdd, 0xff, 0xff, 0xff, 0xff].repeat(100);
    assert_eq!(json_of(&nested), Err("at byte 500: it ends in the middle of a value".to_owned()));
}

#[test]
fn nesting_and_size_have_bounds() {
    let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    assert!(json_of(&nested(JSON_DEPTH_MAX)).is_ok());
    assert_eq!(json_of(&nested(JSON_DEPTH_MAX + 1)), Err("at byte 101: more than 100 levels deep".to_owned()));
    assert!(json_of(&vec![0x91; MAX]).is_err(), "as deep as a body is long");
    let maps = [[0x81, 0xa1, b'a'].repeat(JSON_DEPTH_MAX + 1), vec![0xc0]].concat();
    assert!(json_of(&maps).unwrap_err().ends_with("more than 100 levels deep"));
    // 13 bytes as JSON.
    let packed = [0x92, 0xc2, 0xc2];
    assert!(unpack(&packed, 13).is_ok());
    assert_eq!(unpack(&packed, 12), Err(UnpackError::TooLarge { limit: 12 }));
    assert_eq!(JSON_DEPTH_MAX, 100, "the error says so");
}

/// What is neither JSON nor of so few levels that it can be read is no panic.
#[test]
fn what_cannot_be_packed_is_an_error() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(pack(nested(120).as_bytes()).is_ok());
    for json in [nested(200), nested(100_000), "{".to_owned(), String::new(), "\"\\ud800\"".to_owned()] {
        assert!(matches!(pack(json.as_bytes()), Err(PackError::Json(_))), "{} bytes", json.len());
    }
}

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-40_i64..300).prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        Just(json!(-0.0)),
    ];
    let text = prop_oneof![".{0,40}", "[\\x00-\\x1f\"\\\\]{0,8}", "x{250,320}"];
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, text.prop_map(Value::from)];
    leaf.prop_recursive(6, 200, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::hash_map(".{0,40}", inner, 0..20)
                .prop_map(|entries| entries.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    /// Whatever somebody else's encoder makes of a JSON value is read as that value, and what is made here is what that
    /// encoder's decoder reads.
    #[test]
    fn every_json_value_goes_both_ways(value in value()) {
        let text = serde_json::to_vec(&value).unwrap();
        let foreign = rmp_serde::to_vec(&value).unwrap();
        prop_assert_eq!(String::from_utf8(unpack(&foreign, MAX).unwrap()).unwrap(), String::from_utf8(text.clone()).unwrap());
        let ours = pack(&text).unwrap();
        prop_assert_eq!(rmp_serde::from_slice::<Value>(&ours).unwrap(), value);
        prop_assert_eq!(unpack(&ours, MAX).unwrap(), text);
    }

    /// A float keeps its last bit, a short one its shortest decimal.
    #[test]
    fn floats_keep_their_value(long in any::<f64>(), short in any::<f32>()) {
        let read = |packed: Vec<u8>| json_of(&packed).ok();
        let long_read = read([&[0xcb][..], &long.to_be_bytes()].concat());
        prop_assert_eq!(long_read.map(|text| text.parse::<f64>().unwrap().to_bits()), long.is_finite().then(|| long.to_bits()));
        let short_read = read([&[0xca][..], &short.to_be_bytes()].concat());
        prop_assert_eq!(short_read.map(|text| text.parse::<f32>().unwrap().to_bits()), short.is_finite().then(|| short.to_bits()));
    }

    /// Whatever comes is refused, or is JSON no more than six times as large.
    #[test]
    fn foreign_bytes_never_panic_or_grow(packed in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(json) = unpack(&packed, MAX) {
            prop_assert!(serde_json::from_slice::<&serde_json::value::RawValue>(&json).is_ok());
            prop_assert!(json.len() <= 6 * packed.len() && json.capacity() <= 12 * packed.len().max(8));
        }
    }

    /// The same for bytes that are nearly right: cut, changed, or with something behind.
    #[test]
    fn broken_bodies_never_panic(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>(), limit in 0..200_usize) {
        let packed = rmp_serde::to_vec(&value).unwrap();
        let at = at.index(packed.len());
        prop_assert!(unpack(&packed[..at], MAX).is_err(), "cut");
        let mut changed = packed.clone();
        changed[at] = byte;
        let read = unpack(&changed, MAX);
        prop_assert!(read.is_err() || serde_json::from_slice::<&serde_json::value::RawValue>(&read.unwrap()).is_ok());
        let more = [packed.clone(), vec![byte]].concat();
        prop_assert!(unpack(&more, MAX).is_err(), "followed by something");
        let text = serde_json::to_vec(&value).unwrap();
        let within = unpack(&packed, limit);
        prop_assert_eq!(within, if text.len() <= limit { Ok(text) } else { Err(UnpackError::TooLarge { limit }) });
    }
}
