//! `tidings preview`: the text of a notification, before anything is sent.
//!
//! It uses the server's texts, translations and rendering code. Only the positions of the event's publications are
//! missing.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidings_sender::{TopicError, Topics};
use tidings_types::{Event, Locale, ParamValue, Platform, TimeZone};

use super::publish::{parameter, read_stdin};
use super::{CommandError, load};
use crate::cli::PreviewArgs;
use tidings_config::read_file;
use tidings_server::output::{Kind, line, remark};

#[derive(Serialize)]
struct Shown {
    title: String,
    body: String,
    bytes: usize,
}

pub(crate) async fn run(args: PreviewArgs) -> Result<(), CommandError> {
    let topics = tidings_server::topics(&load(&args.file)?.config).map_err(tidings_server::ServeError::from)?;
    let mut event = event(&args)?;
    let platform = Platform::ALL.iter().copied().find(|platform| platform.as_str() == args.platform);
    let platform = platform.ok_or_else(|| {
        CommandError::Usage(format!("the platform must be ios, android or web, got {:?}", args.platform))
    })?;
    let missing = fill(&topics, &mut event)?;
    if !missing.is_empty() {
        let names = missing.join(", ");
        let one = &missing[0];
        let text =
            format!("these parameters are not set and are shown as placeholders: {names}; set them with --set {one}=…");
        remark(Kind::Warning, text);
    }
    if let Some((name, values)) = topics.unselected(&event) {
        remark(Kind::Note, format!("{name} chooses the text: {}; this is the text without a value", values.join(", ")));
    }
    let locales = match &args.locale {
        Some(locale) => vec![Locale::new(locale).map_err(|error| CommandError::Usage(error.to_string()))?],
        None => topics.locales(&event),
    };
    let zone = args.zone.as_deref().map(TimeZone::new).transpose();
    let zone = zone.map_err(|error| CommandError::Usage(error.to_string()))?;
    let payload = |locale: &Locale| {
        let payload = topics.preview(&event, platform, locale, zone.as_ref());
        payload.map_err(|error| CommandError::Usage(error.to_string()))
    };
    if let (true, [locale]) = (args.raw, &locales[..]) {
        return Ok(line(String::from_utf8_lossy(&payload(locale)?))?);
    }
    let mut shown = BTreeMap::new();
    for locale in &locales {
        let payload = payload(locale)?;
        shown.insert(locale.to_string(), texts(platform, &payload)?);
    }
    if args.json {
        return Ok(line(serde_json::to_string(&shown).expect("texts and a number"))?);
    }
    for (locale, Shown { title, body, bytes }) in &shown {
        line(format!("{locale}  ({bytes} bytes)\n  {title}\n  {body}"))?;
    }
    Ok(())
}

/// Sets each missing parameter to its placeholder, `%{name}`, or to 2 if it chooses a plural form. Returns the names.
pub(crate) fn fill(topics: &Topics, event: &mut Event) -> Result<Vec<String>, CommandError> {
    let mut missing = Vec::new();
    loop {
        let (name, value) = match topics.check(event) {
            Ok(()) => return Ok(missing),
            Err(TopicError::MissingParam { name }) => {
                missing.push(name.clone());
                let value = placeholder(&name);
                (name, value)
            }
            Err(TopicError::CountNotInteger { name }) if event.params.get(&name) == Some(&placeholder(&name)) => {
                (name, ParamValue::Integer(2))
            }
            Err(error) => return Err(CommandError::Usage(error.to_string())),
        };
        event.params.insert(name, value); // Each round fills one of the few parameters of the texts.
    }
}

fn placeholder(name: &str) -> ParamValue {
    ParamValue::Text(format!("%{{{name}}}"))
}

/// Title and body from the payload that would be sent.
fn texts(platform: Platform, payload: &[u8]) -> Result<Shown, CommandError> {
    let value: Value = serde_json::from_slice(payload).map_err(|error| CommandError::Failed(error.to_string()))?;
    let alert = match platform {
        Platform::Ios => &value["aps"]["alert"],
        Platform::Android => &value["notification"],
        Platform::Web => &value,
    };
    let text = |name: &str| alert[name].as_str().unwrap_or_default().to_owned();
    Ok(Shown { title: text("title"), body: text("body"), bytes: payload.len() })
}

/// The event that the arguments describe, read as the API reads it.
fn event(args: &PreviewArgs) -> Result<Event, CommandError> {
    let mut fields = match args.event.as_deref() {
        None => json!({}),
        Some(path) => {
            let text = if path.as_os_str() == "-" {
                read_stdin()?
            } else {
                read_file(path).map_err(|source| CommandError::File {
                    action: "read",
                    path: path.to_owned(),
                    source,
                })?
            };
            serde_json::from_str(&text)
                .map_err(|error| CommandError::Usage(format!("the event is not JSON: {error}")))?
        }
    };
    let Value::Object(object) = &mut fields else {
        return Err(CommandError::Usage("the event must be a JSON object".to_owned()));
    };
    object.insert("topic".to_owned(), json!(args.topic));
    object.entry("id").or_insert_with(|| json!("preview"));
    if !args.subject.is_empty() {
        object.insert("subjects".to_owned(), json!(args.subject));
    }
    object.entry("subjects").or_insert_with(|| json!(["preview:1"]));
    if !args.set.is_empty() {
        let params = object.entry("params").or_insert_with(|| json!({}));
        for (name, value) in &args.set {
            params[name.as_str()] = parameter(value);
        }
    }
    let raw: Box<RawValue> = serde_json::value::to_raw_value(&fields).expect("it was JSON");
    tidings_api::read_event(raw.get().as_bytes()).map_err(|error| CommandError::Usage(error.to_string()))
}
