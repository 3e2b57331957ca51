//! From a body's bytes to events within their limits (design, section 1).
//!
//! Only what the event says by itself is checked here: shape, names, limits. Whether its channels are durable and its topic
//! has a text is asked later, of those who know.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tidings_types::{
    ChannelName, CollapseKey, Event, EventId, Json, ParamValue, PushPolicy, Subject, TopicName, event_limits as limits,
};

use crate::input::{self, Field, LATER, Schema, distinct, shown};
use crate::problem::{Invalid, Problem};

const SCHEMA: Schema = Schema {
    fields: &["id", "topic", "subjects", "params", "data", "channels", "push", "collapse_key", "ttl"],
    refused: &[
        ("to", LATER),
        ("text", LATER),
        ("receipt", LATER),
        ("filter", LATER),
        ("priority", LATER),
        ("urgency", LATER),
        ("at", LATER),
        ("present", LATER),
        ("payload", LATER),
    ],
};

/// The events of a body, and how it held them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    /// A list, answered by a list; else one object.
    pub(crate) is_list: bool,
}

impl Batch {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        let root = input::root(body)?;
        if !root.is_array() {
            return Ok(Self { events: vec![event(root)?], is_list: false });
        }
        let items = root.items(1..=limits::BATCH_COUNT_MAX, "events")?;
        let events = items.into_iter().map(event).collect::<Result<_, _>>()?;
        Ok(Self { events, is_list: true })
    }
}

fn event(field: Field<'_>) -> Result<Event, Invalid> {
    let mut object = field.object(&SCHEMA)?;
    Ok(Event {
        id: object.require("id", ": it makes a retry safe, since an id is accepted once")?.name(EventId::new)?,
        topic: object.require("topic", "")?.name(TopicName::new)?,
        subjects: subjects(object.require("subjects", "")?)?,
        params: object.take("params").map(params).transpose()?.unwrap_or_default(),
        data: object.take("data").map(data).transpose()?,
        channels: object.take("channels").map(channels).transpose()?.unwrap_or_default(),
        push: object.take("push").map_or(Ok(PushPolicy::default()), push)?,
        collapse_key: object.take("collapse_key").map(|key| key.name(CollapseKey::new)).transpose()?,
        ttl: object.take("ttl").map_or(Ok(limits::TTL_DEFAULT), ttl)?,
    })
}

fn subjects(field: Field<'_>) -> Result<Vec<Subject>, Invalid> {
    distinct(field.items(1..=limits::SUBJECT_COUNT_MAX, "subjects")?, |subject| subject.name(Subject::new))
}

fn channels(field: Field<'_>) -> Result<Vec<ChannelName>, Invalid> {
    // An empty list could be read as "nowhere"; without the field it is the first subject's channel.
    distinct(field.items(1..=limits::CHANNEL_COUNT_MAX, "channels")?, |channel| channel.name(ChannelName::new))
}

fn params(field: Field<'_>) -> Result<BTreeMap<String, ParamValue>, Invalid> {
    let path = field.path.clone();
    let mut params = BTreeMap::new();
    for (name, field) in field.entries(limits::PARAM_COUNT_MAX)? {
        let (max, bytes) = (limits::PARAM_NAME_BYTES_MAX, name.len());
        if !(1..=max).contains(&bytes) {
            let rule = format!("a name must have 1 to {max} bytes, got {bytes}");
            return Err(Invalid::new(&path, rule).limit(max).value(bytes));
        }
        params.insert(name, param(&field)?);
    }
    Ok(params)
}

fn param(field: &Field<'_>) -> Result<ParamValue, Invalid> {
    if field.is_text() {
        let text = field.text()?;
        let (max, bytes) = (limits::PARAM_TEXT_BYTES_MAX, text.len());
        if bytes > max {
            return Err(field
                .invalid(format_args!("must have at most {max} bytes, got {bytes}"))
                .limit(max)
                .value(bytes));
        }
        return Ok(ParamValue::Text(text));
    }
    let text = field.raw.get();
    if field.kind() != "a number" {
        return Err(field.invalid(format_args!("must be text or a number, got {}", field.kind())));
    }
    if text.contains(['.', 'e', 'E']) {
        // Not by serde_json, which may be off by the last bit.
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        return number.map(ParamValue::Decimal).ok_or_else(|| field.invalid("must be a number within ±1.7e308"));
    }
    text.parse().map(ParamValue::Integer).map_err(|_| {
        let rule =
            format_args!("must be a whole number from {} to {}, got {}", i64::MIN, i64::MAX, shown(text)).to_string();
        field.invalid(rule).value(shown(text))
    })
}

fn data(field: Field<'_>) -> Result<Json, Invalid> {
    let (max, bytes) = (limits::DATA_BYTES_MAX, field.raw.get().len());
    if bytes > max {
        return Err(field.invalid(format_args!("must have at most {max} bytes, got {bytes}")).limit(max).value(bytes));
    }
    Ok(Json::from_raw(field.raw))
}

fn push(field: Field<'_>) -> Result<PushPolicy, Invalid> {
    match field.text()?.as_str() {
        "always" => Ok(PushPolicy::Always),
        "never" => Ok(PushPolicy::Never),
        "unless_received" => Err(field.invalid(format_args!("\"unless_received\" {LATER}")).value("unless_received")),
        other => {
            let rule = format!("must be \"always\" or \"never\", got {:?}", shown(other));
            Err(field.invalid(rule).value(shown(other)))
        }
    }
}

/// Seconds, as a number or as text with a unit.
fn ttl(field: Field<'_>) -> Result<Duration, Invalid> {
    let text = if field.is_text() { field.text()? } else { field.raw.get().to_owned() };
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let unit_seconds = match (field.is_text(), unit) {
        (false, "") | (true, "s") => Some(1),
        (true, "m") => Some(60),
        (true, "h") => Some(3600),
        (true, "d") => Some(86_400),
        _ => None,
    };
    let max = limits::TTL_MAX.as_secs();
    let seconds = unit_seconds.and_then(|unit| digits.parse::<u64>().ok()?.checked_mul(unit));
    seconds.filter(|seconds| (1..=max).contains(seconds)).map(Duration::from_secs).ok_or_else(|| {
        let got = Value::from(shown(&text));
        let rule = format!(
            "must be 1 to {max} seconds, as a number or as text such as \"90s\", \"15m\", \"4h\", \"2d\", got {got}"
        );
        field.invalid(rule).limit(max as usize).value(got)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = r#"{"id":"g-1","topic":"goal","subjects":["team:42"]"#;

    fn read(rest: &str) -> Result<Event, String> {
        let read = Batch::read(format!("{PLAIN}{rest}}}").as_bytes());
        read.map(|batch| batch.events[0].clone()).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn an_event_with_everything_is_read() {
        let event = read(
            r#","params":{"n":3,"x":1.5,"who":"Å"},"data":{"a": [1,
2]},"channels":["team:1","match:2"],"push":"never","collapse_key":"m-2","ttl":"90s""#,
        );
        let event = event.unwrap();
        assert_eq!(event.params["n"], ParamValue::Integer(3));
        assert_eq!(event.params["x"], ParamValue::Decimal(1.5));
        assert_eq!(event.params["who"], ParamValue::Text("Å".to_owned()));
        assert_eq!(event.data.unwrap().as_str(), "{\"a\": [1, 2]}");
        assert_eq!((event.push, event.ttl), (PushPolicy::Never, Duration::from_secs(90)));
        assert_eq!((event.channels.len(), event.collapse_key.unwrap().as_str()), (2, "m-2"));
    }

    #[test]
    fn what_is_left_out_or_null_has_its_default() {
        let nulls = r#","params":null,"data":null,"channels":null,"push":null,"collapse_key":null,"ttl":null"#;
        assert_eq!(read("").unwrap(), read(nulls).unwrap());
        assert_eq!(read("").unwrap().ttl, limits::TTL_DEFAULT);
        assert_eq!(read("").unwrap().push, PushPolicy::Always);
    }

    #[test]
    fn a_time_to_live_is_seconds_or_has_a_unit() {
        let ttl = |text: &str| read(&format!(",\"ttl\":{text}")).map(|event| event.ttl.as_secs());
        for (text, seconds) in [("1", 1), ("\"15m\"", 900), ("\"4h\"", 14_400), ("\"28d\"", 2_419_200)] {
            assert_eq!(ttl(text), Ok(seconds), "{text}");
        }
        for text in ["0", "-1", "1.5", "1e3", "2419201", "\"29d\"", "\"90\"", "\"s\"", "\"\"", "\"1w\"", "[]", "true"] {
            assert!(ttl(text).is_err(), "{text}");
        }
        assert!(ttl("\"18446744073709551615d\"").is_err(), "does not overflow");
    }

    proptest! {
        /// Whatever comes, it is read or refused, and what is read is within the limits.
        #[test]
        fn foreign_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Batch::read(&body);
        }

        /// The same with text that comes close to being an event.
        #[test]
        fn nearly_right_bodies_never_panic(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"id\"", "\"topic\"", "\"subjects\"", "\"params\"", "\"ttl\"", "\"push\"",
                "\"goal\"", "\"team:1\"", "\"\\ud800\"", "null", "1", "-1", "1e999", "true", " ", "\"9d\"", "\"é\"",
            ]), 0..24),
        ) {
            let _ = Batch::read(pieces.concat().as_bytes());
        }

        /// What serde writes of an event is the event again: producers may send what they stored.
        #[test]
        fn our_own_spelling_of_an_event_is_read_back(
            n in any::<i64>(),
            x in -1e300_f64..1e300,
            text in ".{0,64}",
            ttl in 1_u64..=2_419_200,
            subjects in prop::collection::btree_set("[a-z]{1,4}:[!-~]{1,8}", 1..=16),
        ) {
            let event = Event {
                id: EventId::new("g-1").unwrap(),
                topic: TopicName::new("goal").unwrap(),
                subjects: subjects.iter().map(|subject| Subject::new(subject).unwrap()).collect(),
                params: BTreeMap::from([
                    ("n".to_owned(), ParamValue::Integer(n)),
                    ("x".to_owned(), ParamValue::Decimal(x)),
                    ("text".to_owned(), ParamValue::Text(text)),
                ]),
                data: None,
                channels: Vec::new(),
                push: PushPolicy::Never,
                collapse_key: None,
                ttl: Duration::from_secs(ttl),
            };
            let batch = Batch::read(&serde_json::to_vec(&event).unwrap()).unwrap();
            prop_assert_eq!(&batch.events[0].params, &event.params);
            prop_assert!(batch.events[0] == event);
        }
    }
}
