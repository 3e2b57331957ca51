//! `tidings preview`: the text of a notification, before anything is sent.
//!
//! It uses the server's texts, translations and rendering code. Only the positions of the event's publications are
//! missing. With `--screen` it draws what devices show of it (`tidings_server::screen`).

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
use tidings_server::screen::{Notice, VIEWS, device_name, framed};

/// What stands where a device shows the name of the app, which only the device knows.
const APP: &str = "App";

#[derive(Serialize)]
struct Shown {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtitle: Option<String>,
    body: String,
    bytes: usize,
    /// By view, if they were asked for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    views: BTreeMap<&'static str, ShownView>,
}

/// What a view shows, in lines.
#[derive(Serialize)]
struct ShownView {
    title: Vec<String>,
    subtitle: Vec<String>,
    body: Vec<String>,
    is_cut: bool,
}

pub(crate) async fn run(args: PreviewArgs) -> Result<(), CommandError> {
    let topics = tidings_server::topics(&load(&args.file)?.config).map_err(tidings_server::ServeError::from)?;
    let mut event = event(&args)?;
    let platforms = platforms(&args)?;
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
    let payload = |platform: Platform, locale: &Locale| {
        let payload = topics.preview(&event, platform, locale, zone.as_ref());
        payload.map_err(|error| CommandError::Usage(error.to_string()))
    };
    if let (true, [platform], [locale]) = (args.raw, &platforms[..], &locales[..]) {
        return Ok(line(String::from_utf8_lossy(&payload(*platform, locale)?))?);
    }
    let mut shown: BTreeMap<String, BTreeMap<&str, Shown>> = BTreeMap::new();
    for locale in &locales {
        for platform in &platforms {
            let payload = payload(*platform, locale)?;
            let notice = Notice::read(*platform, &payload).unwrap_or(Notice::NONE);
            if args.screen && !args.json {
                draw(*platform, locale, &notice)?;
            }
            let one = of_notice(*platform, notice, payload.len(), args.screen);
            shown.entry(locale.to_string()).or_default().insert(platform.as_str(), one);
        }
    }
    match (args.json, args.screen) {
        (true, true) => line(serde_json::to_string(&shown).expect("texts and numbers"))?,
        (true, false) => {
            let texts = shown.iter().filter_map(|(locale, shown)| Some((locale, shown.values().next()?)));
            line(serde_json::to_string(&texts.collect::<BTreeMap<_, _>>()).expect("texts and a number"))?;
        }
        (false, true) => {}
        (false, false) => {
            for (locale, shown) in &shown {
                for Shown { title, body, bytes, .. } in shown.values() {
                    line(format!("{locale}  ({bytes} bytes)\n  {title}\n  {body}"))?;
                }
            }
        }
    }
    Ok(())
}

/// The kinds of devices that are asked for. Without a wish it is one of Apple's, or for screens each of them.
fn platforms(args: &PreviewArgs) -> Result<Vec<Platform>, CommandError> {
    let name = match args.platform.as_deref() {
        None if args.screen => return Ok(Platform::ALL.to_vec()),
        None => return Ok(vec![Platform::Ios]),
        Some("browser") => Platform::Web.as_str(),
        Some(name) => name,
    };
    let platform = Platform::ALL.iter().copied().find(|platform| platform.as_str() == name);
    let told = || CommandError::Usage(format!("the platform must be ios, android or browser, got {name:?}"));
    Ok(vec![platform.ok_or_else(told)?])
}

/// Draws the views of a platform. Views that show the same share a box.
fn draw(platform: Platform, locale: &Locale, notice: &Notice) -> std::io::Result<()> {
    let mut boxes: Vec<(String, Vec<String>)> = Vec::new();
    for view in VIEWS.iter().filter(|view| view.platform == platform) {
        let rows = view.rows(notice, APP);
        match boxes.last_mut() {
            Some((names, known)) if *known == rows => *names += &format!(", {}", view.name),
            _ => boxes.push((view.name.to_owned(), rows)),
        }
    }
    for (names, rows) in boxes {
        let heading = format!("{} · {locale} · {names}", device_name(platform));
        framed(&heading, rows, str::to_owned).iter().try_for_each(line)?;
    }
    Ok(())
}

fn of_notice(platform: Platform, notice: Notice, bytes: usize, with_views: bool) -> Shown {
    let views = VIEWS.iter().filter(|view| with_views && view.platform == platform);
    let views = views.map(|view| {
        let [title, subtitle, body] = view.cut(&notice);
        let is_cut = [&title, &subtitle, &body].iter().any(|text| text.is_cut);
        let shown = ShownView { title: title.lines, subtitle: subtitle.lines, body: body.lines, is_cut };
        (view.name, shown)
    });
    let views = views.collect();
    let Notice { title, subtitle, body } = notice;
    Shown { title, subtitle, body, bytes, views }
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
