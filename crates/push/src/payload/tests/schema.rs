//! Checks a value against `docs/payload.schema.json`: the few words of JSON Schema that it uses, and no others.
//!
//! A judge of our own would prove little; the conformance tests let `ajv` read the same schema. This one is here to
//! see thousands of payloads.

use std::sync::LazyLock;

use serde_json::Value;

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../../docs/payload.schema.json")).unwrap());

/// What the schema says against `value`.
pub(super) fn complaints(value: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    check(&SCHEMA, value, "", &mut complaints);
    complaints
}

fn check(schema: &Value, value: &Value, path: &str, complaints: &mut Vec<String>) {
    let Value::Object(words) = schema else { panic!("{path}: a schema of ours is an object") };
    for (word, rule) in words {
        let holds = match word.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let target = rule.as_str().and_then(|name| SCHEMA.pointer(name.strip_prefix('#')?));
                check(target.expect("it is in this file"), value, path, complaints);
                true
            }
            "type" => rule.as_str() == Some(kind(value)) || rule == "number" && value.is_number(),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
            "required" => rule.as_array().unwrap().iter().all(|name| has(value, name)),
            "dependentRequired" => rule.as_object().unwrap().iter().all(|(name, needed)| {
                value.get(name).is_none() || needed.as_array().unwrap().iter().all(|name| has(value, name))
            }),
            "anyOf" => rule.as_array().unwrap().iter().any(|schema| {
                let mut found = Vec::new();
                check(schema, value, path, &mut found);
                found.is_empty()
            }),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(rule, item, path, complaints);
                }
                true
            }
            "properties" => {
                for (name, schema) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(schema, member, &format!("{path}/{name}"), complaints);
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(rule, false, "{path}: nothing else is used");
                value.as_object().is_none_or(|members| members.keys().all(|name| has(&words["properties"], name)))
            }
            other => panic!("{path}: {other} is not checked here"),
        };
        if !holds {
            complaints.push(format!("{path}: {word}: {rule}"));
        }
    }
}

fn has(value: &Value, name: impl NameOf) -> bool {
    value.get(name.name()).is_some()
}

/// A name as a schema spells it in a list, or as a key.
trait NameOf {
    fn name(&self) -> &str;
}

impl NameOf for &Value {
    fn name(&self) -> &str {
        self.as_str().unwrap()
    }
}

impl NameOf for &String {
    fn name(&self) -> &str {
        self
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn it_sees_what_is_wrong() {
    let good = r#"{"aps":{"alert":{"title":"a","body":"b"}},"tidings":{"event":"e"}}"#;
    assert_eq!(complaints(&serde_json::from_str(good).unwrap()), Vec::<String>::new());
    for bad in [
        r#"{"aps":{"alert":"a"}}"#,
        r#"{"aps":{},"tidings":{"event":"e"}}"#,
        r#"{"aps":{"alert":1},"tidings":{"event":"e"}}"#,
        r#"{"aps":{"badge":-1},"tidings":{"event":"e"}}"#,
        r#"{"aps":{"alert":"a","sound":{"critical":0,"name":"x","volume":1}},"tidings":{"event":"e"}}"#,
        r#"{"aps":{"alert":"a"},"tidings":{"event":"e","channel":"c"}}"#,
        r#"{"aps":{"alert":"a"},"tidings":{"event":"e","x":1}}"#,
        r#"{"aps":{"alert":"a"},"tidings":{"event":"e","channel":"c","epoch":"a","offset":0}}"#,
    ] {
        assert_ne!(complaints(&serde_json::from_str(bad).unwrap()), Vec::<String>::new(), "{bad}");
    }
}
