//! Answers of hooks, good and bad. What they mean is tested with the session.

use proptest::prelude::*;

use super::*;

#[test]
fn an_answer_in_another_form_is_none() {
    let deep = format!(r#"{{"result":{{"data":{}{}}}}}"#, "[".repeat(200), "]".repeat(200));
    let deep_inside = BASE64_STANDARD.encode("[".repeat(200) + &"]".repeat(200));
    for answer in [
        "",
        "null",
        "[]",
        "[null,null,null]",
        "{",
        r#"{"result":1}"#,
        r#"{"error":{"code":-1}}"#,
        r#"{"error":{"code":"1"}}"#,
        r#"{"disconnect":4500}"#,
        r#"{"result":{"b64data":"?"}}"#,
        r#"{"result":{"b64data":"Ww=="}}"#,
        &format!(r#"{{"result":{{"b64data":"{deep_inside}"}}}}"#),
        &deep,
    ] {
        assert!(HookAnswer::read(answer.as_bytes()).is_none(), "{answer}");
    }
    for answer in [" {}", r#"{"result":null,"error":null,"disconnect":null}"#, r#"{"new":1}"#] {
        assert!(matches!(HookAnswer::read(answer.as_bytes()), Some(HookAnswer::Result(None))), "{answer}");
    }
}

#[test]
fn nothing_of_an_answer_shows_in_debug() {
    for answer in [r#"{"result":{"data":"hush"}}"#, r#"{"error":{"code":400,"message":"hush"}}"#] {
        let shown = format!("{:?}", HookAnswer::read(answer.as_bytes()).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
    }
}

proptest! {
    /// Whatever bytes come: what is not an object of JSON is no answer.
    #[test]
    fn only_an_object_of_json_is_an_answer(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[ \\[]{0,2}\\{(\"(result|error|disconnect|data|code)\":(\\{\\}|null|[0-9]{1,5}|\"x\"),?){0,3}\\}?\\]?".prop_map(String::into_bytes),
        ],
    ) {
        let is_object = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok_and(|value| value.is_object());
        prop_assert!(is_object || HookAnswer::read(&bytes).is_none());
    }
}
