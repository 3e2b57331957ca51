//! JSON Merge Patch (RFC 7396) over JSON text.
//!
//! Only objects that the patch changes are parsed, one level at a time. Every other value keeps its text, so that numbers
//! keep all their digits and arrays are never parsed. If members have the same name, the last one counts. Members of a parsed
//! object are written in the order of their names.
//!
//! Bound: at most [`DEPTH_MAX`] nested objects in the patch, which bounds the recursion.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

/// How many objects of a patch may be nested.
pub(super) const DEPTH_MAX: usize = 64;

/// A JSON value: text, or a parsed object.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Node<'a> {
    Leaf(&'a RawValue),
    Object(Members<'a>),
}

/// The members of an object.
pub(super) type Members<'a> = BTreeMap<String, Node<'a>>;

/// A patch cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergeError {
    /// More than [`DEPTH_MAX`] nested objects.
    TooDeep,
    /// A name with half a surrogate pair: valid JSON, but not text.
    Unreadable,
}

impl<'a> Node<'a> {
    /// The members if it is an object.
    pub(super) fn into_members(self) -> Result<Option<Members<'a>>, MergeError> {
        match self {
            Self::Object(members) => Ok(Some(members)),
            Self::Leaf(value) => {
                let leaves =
                    |members: BTreeMap<_, _>| members.into_iter().map(|(name, value)| (name, Self::Leaf(value)));
                Ok(members(value)?.map(|members| leaves(members).collect()))
            }
        }
    }
}

/// The members of `value` if it is an object.
pub(super) fn members(value: &RawValue) -> Result<Option<BTreeMap<String, &RawValue>>, MergeError> {
    if !value.get().starts_with('{') {
        return Ok(None);
    }
    serde_json::from_str(value.get()).map(Some).map_err(|_| MergeError::Unreadable)
}

/// `MergePatch(Target, Patch)` for a patch that is an object (RFC 7396, 2).
pub(super) fn apply<'a>(target: &mut Members<'a>, patch: BTreeMap<String, &'a RawValue>) -> Result<(), MergeError> {
    apply_at(target, patch, 1)
}

fn apply_at<'a>(
    target: &mut Members<'a>,
    patch: BTreeMap<String, &'a RawValue>,
    depth: usize,
) -> Result<(), MergeError> {
    if depth > DEPTH_MAX {
        return Err(MergeError::TooDeep);
    }
    for (name, value) in patch {
        let old = target.remove(&name);
        let new = match members(value)? {
            None if value.get() == "null" => continue,
            None => Node::Leaf(value),
            Some(patch) => {
                // A value that is not an object is replaced by an empty object, so that nulls in a new object are removed too.
                let mut object = old.map(Node::into_members).transpose()?.flatten().unwrap_or_default();
                apply_at(&mut object, patch, depth + 1)?;
                Node::Object(object)
            }
        };
        target.insert(name, new);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn merged(target: &str, patch: &str) -> Result<String, MergeError> {
        let (target, patch): (&RawValue, &RawValue) =
            (serde_json::from_str(target).unwrap(), serde_json::from_str(patch).unwrap());
        let Some(patch) = members(patch)? else { return Ok(patch.get().to_owned()) };
        let mut object = Node::Leaf(target).into_members()?.unwrap_or_default();
        apply(&mut object, patch)?;
        Ok(serde_json::to_string(&Node::Object(object)).unwrap())
    }

    /// All of appendix A: original, patch, result.
    #[test]
    fn the_test_cases_of_the_rfc() {
        for (original, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(original, patch).unwrap(), result, "{patch} over {original}");
        }
    }

    #[test]
    fn what_is_not_touched_stays_as_it_was_written() {
        let target = r#"{"data":{"big":123456789012345678901234567890,"x":[1.0,  1e400]},"a":{"b":1}}"#;
        assert_eq!(
            merged(target, r#"{ "a" : {"c":0.10} }"#).unwrap(),
            r#"{"a":{"b":1,"c":0.10},"data":{"big":123456789012345678901234567890,"x":[1.0,  1e400]}}"#
        );
        assert_eq!(merged(r#"{"a":{"x":1},"a":{"y":2}}"#, r#"{"a":{"z":3}}"#).unwrap(), r#"{"a":{"y":2,"z":3}}"#);
        // In a patch, too, the last of a name counts, however it is spelt.
        assert_eq!(merged(r#"{"a":{"x":1}}"#, r#"{"a":null,"\u0061":{"y":2}}"#).unwrap(), r#"{"a":{"x":1,"y":2}}"#);
        assert_eq!(merged(r#"{"\u0061":{"x":1}}"#, r#"{"a":{"x":-1e-999}}"#).unwrap(), r#"{"a":{"x":-1e-999}}"#);
    }

    #[test]
    fn deep_and_unreadable_patches_are_refused() {
        let deep = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert!(merged("{}", &deep(DEPTH_MAX)).is_ok());
        assert_eq!(merged("{}", &deep(DEPTH_MAX + 1)), Err(MergeError::TooDeep));
        let arrays = format!(r#"{{"a":{}1{}}}"#, "[".repeat(2000), "]".repeat(2000));
        assert_eq!(merged("{}", &arrays).unwrap(), arrays, "arrays are not walked");
        assert_eq!(merged("{}", r#"{"\ud800":1}"#), Err(MergeError::Unreadable));
        assert_eq!(merged(r#"{"a":{"\ud800":1}}"#, r#"{"a":{"b":1}}"#), Err(MergeError::Unreadable));
        assert!(merged(r#"{"a":{"\ud800":1}}"#, r#"{"b":1}"#).is_ok());
    }

    /// The RFC's own pseudo-code, word for word.
    fn model(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = match target {
            Value::Object(target) => target,
            _ => Map::new(),
        };
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                let old = target.remove(name).unwrap_or(Value::Null);
                target.insert(name.clone(), model(old, value));
            }
        }
        Value::Object(target)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c\"\\\\é]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab\"]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[ab\"]", value(), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn it_does_what_the_pseudo_code_does(
            target in prop_oneof![value(), object()],
            patch in prop_oneof![1 => value(), 4 => object()],
        ) {
            let found = merged(&target.to_string(), &patch.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), model(target, &patch));
        }
    }

    #[test]
    fn the_model_is_no_fool() {
        assert_eq!(model(json!({"a": {"b": 1}}), &json!({"a": {"b": null, "c": 2}})), json!({"a": {"c": 2}}));
    }
}
