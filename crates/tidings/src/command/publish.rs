//! `tidings publish`: one event, a list of events, or a publication into a channel, over the server's API.

use std::io::Read as _;

use bytes::Bytes;
use serde::Deserialize;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidings_types::{ChannelName, CollapseKey, EventId, Subject, TopicName};
use uuid::Uuid;

use super::CommandError;
use super::client::ApiClient;
use crate::cli::PublishArgs;
use tidings_server::output::line;

/// The largest body that is read from standard input. The server has its own limit.
const INPUT_BYTES_MAX: u64 = 64 << 20;

pub(crate) async fn run(args: PublishArgs) -> Result<(), CommandError> {
    let (path, body) = request(&args)?;
    let path = if args.strict { format!("{path}?strict=true") } else { path.to_owned() };
    let answer = ApiClient::new(&args.api)?.post(&path, body).await?;
    report(&args, &answer)
}

/// A publication; its data is sent unchanged.
#[derive(Serialize)]
struct ChannelBody<'a> {
    channel: &'a ChannelName,
    data: &'a RawValue,
}

/// The path and the body of the request.
fn request(args: &PublishArgs) -> Result<(&'static str, Bytes), CommandError> {
    let Some(text) = &args.json_text else { return Ok(("/v1/events", event_of_flags(args)?.into())) };
    let text = if text == "-" { read_stdin()? } else { text.clone() };
    let value: Box<RawValue> =
        serde_json::from_str(&text).map_err(|error| CommandError::Usage(format!("the input is not JSON: {error}")))?;
    let Some(channel) = &args.channel else { return Ok(("/v1/events", text.into())) };
    let channel = ChannelName::new(channel).map_err(|error| CommandError::Usage(error.to_string()))?;
    let body = ChannelBody { channel: &channel, data: &value };
    Ok(("/api/publish", serde_json::to_string(&body).expect("a name and JSON text are JSON").into()))
}

pub(super) fn read_stdin() -> Result<String, CommandError> {
    let mut text = String::new();
    std::io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(CommandError::Usage(format!("the input is larger than {INPUT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The event that the flags describe, checked before it is sent.
fn event_of_flags(args: &PublishArgs) -> Result<String, CommandError> {
    let usage = |error: tidings_types::NameError| CommandError::Usage(error.to_string());
    let id = args.id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
    let subjects = args.subject.iter().map(|subject| Subject::new(subject).map_err(usage));
    let params = args.param.iter().map(|(name, value)| (name.clone(), parameter(value)));
    let mut event = json!({
        "id": EventId::new(&id).map_err(usage)?,
        "topic": TopicName::new(args.topic.as_deref().unwrap_or_default()).map_err(usage)?,
        "subjects": subjects.collect::<Result<Vec<_>, _>>()?,
        "params": params.collect::<serde_json::Map<_, _>>(),
    });
    if let Some(key) = &args.collapse_key {
        event["collapse_key"] = json!(CollapseKey::new(key).map_err(usage)?);
    }
    if let Some(ttl) = args.ttl {
        event["ttl"] = json!(ttl.as_secs());
    }
    for (name, word) in [("priority", &args.priority), ("urgency", &args.urgency)] {
        if let Some(word) = word {
            event[name] = json!(word);
        }
    }
    if let Some(at) = args.at {
        event["at"] = json!(at);
    }
    for (name, count) in [("min", args.expect_min), ("max", args.expect_max)] {
        if let Some(count) = count {
            event["expect_audience"][name] = json!(count);
        }
    }
    if args.dry_run {
        event["dry_run"] = json!(true);
    }
    Ok(event.to_string())
}

/// A number if the text is a whole number as JSON spells it (not `007`), a typed value if it is a JSON object, else text.
pub(super) fn parameter(text: &str) -> serde_json::Value {
    match (text.parse::<i64>(), serde_json::from_str::<serde_json::Value>(text)) {
        (Ok(number), _) if number.to_string() == text => number.into(),
        (_, Ok(value)) if value.is_object() => value,
        _ => text.into(),
    }
}

/// The API's answer: one accepted event, several, or the result of a publication.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Published { result: Place },
    Refused { error: Refusal },
    Accepted(Accepted),
    AllAccepted(Vec<Accepted>),
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
struct Refusal {
    code: u32,
    message: String,
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
    #[serde(flatten)]
    to: AcceptedTo,
    #[serde(default)]
    repeated: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AcceptedTo {
    Journal { position: u64 },
    Later { at: String },
}

impl Accepted {
    fn words(&self) -> String {
        let Self { id, to, repeated } = self;
        match (to, repeated) {
            (AcceptedTo::Journal { position }, false) => format!("accepted {id} at position {position}"),
            (AcceptedTo::Later { at }, false) => format!("accepted {id} for {at}"),
            (AcceptedTo::Journal { position }, true) => {
                format!("already known: {id} at position {position}; nothing is sent again")
            }
            (AcceptedTo::Later { at }, true) => format!("already known: {id} for {at}; nothing is sent again"),
        }
    }
}

fn report(args: &PublishArgs, text: &str) -> Result<(), CommandError> {
    let answer = serde_json::from_str(text);
    if let Ok(Answer::Refused { error: Refusal { code, message } }) = &answer {
        return Err(CommandError::Failed(format!("the server refused the publication: {code} {message}")));
    }
    if args.api.json {
        return Ok(line(text.trim_end())?);
    }
    let accepted = |event: &Accepted| line(event.words());
    match &answer {
        Ok(Answer::Accepted(event)) => accepted(event)?,
        Ok(Answer::AllAccepted(events)) => events.iter().try_for_each(accepted)?,
        Ok(Answer::Published { result: Place { offset: 0 } }) => line("published")?,
        Ok(Answer::Published { result: Place { offset } }) => line(format!("published at offset {offset}"))?,
        _ => line(text.trim_end())?,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
