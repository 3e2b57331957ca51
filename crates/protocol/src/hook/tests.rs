//! Answers of hooks, good and bad. What they mean is tested with the session.

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

proptest::proptest! {
    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = HookAnswer::read(&bytes);
    }
}
