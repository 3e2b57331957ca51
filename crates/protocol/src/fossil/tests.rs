//! Deltas judged by a decoder that is written from the description of the format alone.

use proptest::prelude::*;

use super::*;

#[path = "../../tests/it/undelta.rs"]
mod undelta;

use undelta::apply;

#[test]
fn a_changed_value_costs_little() {
    let old = r#"{"match":77,"home":"Sweden","away":"Germany","score":[1,0],"minute":41,"scorer":"Asllani"}"#;
    let new = old.replace("41", "42");
    let delta = delta(old, &new).unwrap();
    assert!(delta.len() < 45, "{} bytes: {delta}", delta.len());
    assert_eq!(apply(old.as_bytes(), delta.as_bytes()).unwrap(), new.as_bytes());
}

#[test]
fn what_saves_too_little_is_no_delta() {
    let text = "0123456789abcdefghijklmnopqrstuvwxyz".repeat(4);
    for (old, new) in [
        ("", &*text),
        (&*text, ""),
        ("0123456789abcde", "0123456789abcde"),
        (&*text, &*text.chars().rev().collect::<String>()),
        (&*"x".repeat(DELTA_BYTES_MAX + 1), &*"x".repeat(DELTA_BYTES_MAX + 1)),
    ] {
        assert_eq!(delta(old, new), None);
    }
    assert!(delta(&"x".repeat(DELTA_BYTES_MAX), &"x".repeat(DELTA_BYTES_MAX)).is_some());
}

/// The bytes of a character that both payloads begin or end with are literal, not copied.
#[test]
fn no_literal_cuts_a_character() {
    let (old, new) = ("é".repeat(40) + "ĉ" + &"è".repeat(40), "é".repeat(40) + "è".repeat(41).as_str() + "é");
    let delta = delta(&old, &new).unwrap();
    assert_eq!(apply(old.as_bytes(), delta.as_bytes()).unwrap(), new.as_bytes());
}

/// Pieces of a few texts in a random order: much is equal, at other places.
fn payload() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{\"home\":\"Sweden\",\"away\":\"Germany\"}".to_owned()),
        Just("Łódź żółć, größer, 東京都, 🏆🏆🏆🏆🏆🏆".to_owned()),
        Just("a".repeat(100)),
        "[0-9]{1,20}",
        "\\PC{1,8}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_delta_makes_the_new_payload_of_the_old_one(old in payload(), new in payload()) {
        if let Some(delta) = delta(&old, &new) {
            prop_assert_eq!(apply(old.as_bytes(), delta.as_bytes()), Some(new.as_bytes().to_vec()));
            prop_assert!(delta.len() * 5 < new.len() * 4);
        }
    }

    #[test]
    fn one_change_in_a_long_payload_is_a_delta(
        old in "\\PC{600,700}", at in any::<prop::sample::Index>(), piece in "\\PC{0,8}",
    ) {
        let at = old.char_indices().map(|(at, _)| at).nth(at.index(old.chars().count())).unwrap();
        let new = format!("{}{piece}{}", &old[..at], &old[at..]);
        let delta = delta(&old, &new).expect("almost all is equal");
        prop_assert!(delta.len() < 120, "{}", delta.len());
        prop_assert_eq!(apply(old.as_bytes(), delta.as_bytes()), Some(new.into_bytes()));
    }
}
