//! Checks a value against the schemas in `docs`. It knows only the few words of JSON Schema that these schemas use.
//!
//! A checker of our own proves little, so the conformance tests let `ajv` read the same schemas. This one is fast
//! enough to check thousands of payloads.

use serde_json::Value;
use tidings_types::Provider;

/// The schema of the payloads for a provider.
fn schema(provider: Provider) -> Value {
    let text = match provider {
        Provider::Apns => include_str!("../../../../../docs/payload.schema.json"),
        Provider::Fcm => include_str!("../../../../../docs/payload.fcm.schema.json"),
        Provider::WebPush => include_str!("../../../../../docs/payload.webpush.schema.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// The ways in which `value` breaks the provider's schema.
pub(super) fn complaints(provider: Provider, value: &Value) -> Vec<String> {
    let (schema, mut complaints) = (schema(provider), Vec::new());
    check(&schema, &schema, value, "", &mut complaints);
    complaints
}

fn check(root: &Value, schema: &Value, value: &Value, path: &str, complaints: &mut Vec<String>) {
    let Value::Object(words) = schema else { panic!("{path}: a schema of ours is an object") };
    for (word, rule) in words {
        let holds = match word.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let target = rule.as_str().and_then(|name| root.pointer(name.strip_prefix('#')?));
                check(root, target.expect("it is in this file"), value, path, complaints);
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
                check(root, schema, value, path, &mut found);
                found.is_empty()
            }),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(root, rule, item, path, complaints);
                }
                true
            }
            "properties" => {
                for (name, schema) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, schema, member, &format!("{path}/{name}"), complaints);
                    }
                }
                true
            }
            "additionalProperties" => {
                let members = value.as_object().into_iter().flatten();
                let mut others = members.filter(|(name, _)| !has(&words["properties"], *name)).peekable();
                let there_are = others.peek().is_some();
                if rule == false {
                    !there_are
                } else {
                    for (name, member) in others {
                        check(root, rule, member, &format!("{path}/{name}"), complaints);
                    }
                    true
                }
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
    let of = |provider, text: &str| complaints(provider, &serde_json::from_str(text).unwrap());
    let good = [
        (Provider::Apns, r#"{"aps":{"alert":{"title":"a","body":"b"}},"tidings":{"event":"e"}}"#),
        (Provider::Fcm, r#"{"android":{},"data":{"tidings.event":"e","x":"y"},"notification":{"title":"a"}}"#),
        (Provider::WebPush, r#"{"title":"a","tidings":{"event":"e"}}"#),
    ];
    for (provider, good) in good {
        assert_eq!(of(provider, good), Vec::<String>::new());
    }
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
        assert_ne!(of(Provider::Apns, bad), Vec::<String>::new(), "{bad}");
    }
    for bad in [
        r#"{"data":{"tidings.event":"e"}}"#,
        r#"{"android":{},"data":{}}"#,
        r#"{"android":{"priority":"high"},"data":{"tidings.event":"e"}}"#,
        r#"{"android":{},"data":{"tidings.event":"e","x":1}}"#,
        r#"{"android":{},"data":{"tidings.event":"e","tidings.offset":"1"}}"#,
        r#"{"android":{},"data":{"tidings.event":"e"},"notification":{"title":1}}"#,
        r#"{"android":{},"data":{"tidings.event":"e"},"token":"x"}"#,
    ] {
        assert_ne!(of(Provider::Fcm, bad), Vec::<String>::new(), "{bad}");
    }
    for bad in [
        r#"{"tidings":{"event":"e"}}"#,
        r#"{"title":1,"tidings":{"event":"e"}}"#,
        r#"{"title":"a"}"#,
        r#"{"title":"a","app_badge":-1,"tidings":{"event":"e"}}"#,
        r#"{"title":"a","tidings":{"event":"e","epoch":"x"}}"#,
    ] {
        assert_ne!(of(Provider::WebPush, bad), Vec::<String>::new(), "{bad}");
    }
}
