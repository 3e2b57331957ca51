//! `tidings feeds`: how feeds are, reading one now, and what a document would become.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::ops::ControlFlow;
use std::path::Path;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings_config::read_mapping;
use tidings_intake::{Found, Parser, WrongEntry};
use tidings_sender::Topics;
use tidings_server::output::line;
use tidings_types::FeedName;

use super::api::{ApiClient, parse, segment, table};
use crate::cli::{FeedsCommand, FeedsTestArgs};
use crate::command::{CommandError, load};

#[derive(Deserialize)]
struct Feeds {
    feeds: Vec<Feed>,
}

#[derive(Deserialize)]
struct Feed {
    name: String,
    kind: String,
    how: String,
    place: Option<String>,
    state: String,
    read_at: Option<String>,
    worked_at: Option<String>,
    next_at: Option<String>,
    etag: Option<String>,
    known: u64,
    failures: u64,
    error: Option<String>,
    last: Counts,
    total: Counts,
    errors: Vec<Wrong>,
}

#[derive(Deserialize)]
struct Counts {
    sent: u64,
    repeated: u64,
    skipped: u64,
    wrong: u64,
}

#[derive(Deserialize)]
struct Wrong {
    place: String,
    reason: String,
}

pub(crate) async fn run(command: FeedsCommand) -> Result<(), CommandError> {
    match command {
        FeedsCommand::List { api } => {
            let answer = ApiClient::new(&api)?.get("/v1/feeds").await?;
            if api.json {
                return Ok(line(answer.trim_end())?);
            }
            Ok(line(listed(parse(&answer)?))?)
        }
        FeedsCommand::Status { name, api } => {
            let answer = ApiClient::new(&api)?.get("/v1/feeds").await?;
            let Feeds { feeds } = parse(&answer)?;
            let mut chosen =
                feeds.into_iter().filter(|feed| name.as_ref().is_none_or(|name| *name == feed.name)).peekable();
            if let (Some(name), None) = (&name, chosen.peek()) {
                return Err(CommandError::Failed(format!("no feed is called {name}")));
            }
            if api.json {
                return Ok(line(answer.trim_end())?);
            }
            Ok(line(chosen.map(|feed| told(&feed)).collect::<Vec<_>>().join("\n\n"))?)
        }
        FeedsCommand::Poll { name, api } => {
            let path = format!("/v1/feeds/{}/poll", segment(&name));
            let answer = ApiClient::new(&api)?.ask(Method::POST, &path, None).await?;
            let feed: Feed = parse(&answer)?;
            line(if api.json { answer.trim_end().to_owned() } else { told(&feed) })?;
            match feed.error {
                Some(error) if feed.failures > 0 => Err(CommandError::Failed(error)),
                _ => Ok(()),
            }
        }
        FeedsCommand::Test(args) => test(&args),
    }
}

fn listed(Feeds { feeds }: Feeds) -> String {
    if feeds.is_empty() {
        return "no feed is configured".to_owned();
    }
    let heads = ["FEED", "KIND", "HOW", "STATE", "READ", "NEXT", "SENT", "WRONG"].map(str::to_owned).to_vec();
    let moment = |at: Option<String>| at.unwrap_or_else(|| "-".to_owned());
    let row = |feed: Feed| {
        let (sent, wrong) = (feed.total.sent.to_string(), feed.total.wrong.to_string());
        vec![feed.name, feed.kind, feed.how, feed.state, moment(feed.read_at), moment(feed.next_at), sent, wrong]
    };
    table(&std::iter::once(heads).chain(feeds.into_iter().map(row)).collect::<Vec<_>>())
}

fn told(feed: &Feed) -> String {
    let entries = |counts: &Counts| {
        let Counts { sent, repeated, skipped, wrong } = counts;
        format!("{sent} sent, {repeated} repeated, {skipped} skipped, {wrong} wrong")
    };
    let failures = (feed.failures > 0).then(|| format!("{} in a row", feed.failures));
    let lines = [
        ("place", feed.place.clone()),
        ("read", feed.read_at.clone()),
        ("worked", feed.worked_at.clone()),
        ("next", feed.next_at.clone()),
        ("etag", feed.etag.clone()),
        ("known", Some(format!("{} entries", feed.known))),
        ("last", Some(entries(&feed.last))),
        ("total", Some(entries(&feed.total))),
        ("failures", failures),
        ("error", feed.error.clone()),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| Some(vec![format!("  {name}"), value?]));
    let wrong =
        feed.errors.iter().map(|Wrong { place, reason }| vec!["  wrong".to_owned(), format!("{place}: {reason}")]);
    let head = format!("{}: {} {}, {}", feed.name, feed.how, feed.kind, feed.state);
    format!("{head}\n{}", table(&lines.chain(wrong).collect::<Vec<_>>()))
}

/// What became of an entry, for programs.
#[derive(Serialize)]
struct Shown<'a> {
    outcome: &'static str,
    place: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

/// The last line.
#[derive(Serialize, Default)]
struct Sum {
    entries: u64,
    sent: u64,
    skipped: u64,
    wrong: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Shows what the entries of a document would become, without a server.
fn test(args: &FeedsTestArgs) -> Result<(), CommandError> {
    let (parser, topics) = parser(args)?;
    let mut document: Box<dyn BufRead> = if args.document == Path::new("-") {
        Box::new(stdin().lock())
    } else {
        let failed = |source| CommandError::File { action: "read", path: args.document.clone(), source };
        Box::new(BufReader::new(File::open(&args.document).map_err(failed)?))
    };
    let (mut sum, mut written) = (Sum::default(), Ok(()));
    let read = (parser.0)(&mut document, None, &mut |found| {
        let found = checked(found, topics.as_ref());
        sum.entries += 1;
        *match &found {
            Found::Entry { .. } => &mut sum.sent,
            Found::Skipped { .. } => &mut sum.skipped,
            Found::Wrong(_) => &mut sum.wrong,
        } += 1;
        written = show(&found, args.json);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    sum.error = read.err().map(|error| error.to_string());
    let Sum { entries, sent, skipped, wrong, .. } = sum;
    let words = format!("{entries} entries: {sent} would be sent, {skipped} skipped, {wrong} wrong");
    line(if args.json { serde_json::to_string(&sum).expect("numbers and a text") } else { words })?;
    match sum.error {
        Some(error) => Err(CommandError::Failed(format!("the document cannot be read further: {error}"))),
        None if wrong > 0 => Err(CommandError::Failed(format!("entries that are wrong: {wrong}"))),
        None => Ok(()),
    }
}

/// The mapping that the arguments name; the topics too, if the configuration is read.
fn parser(args: &FeedsTestArgs) -> Result<(Parser, Option<Topics>), CommandError> {
    let usage = |error: String| CommandError::Usage(error);
    if let Some(mapping) = &args.mapping {
        let name = FeedName::new("test").expect("four letters");
        return Ok((Parser::new(name, read_mapping(mapping).map_err(usage)?), None));
    }
    let config = load(&args.file)?.config;
    let name = args.feed.as_deref().unwrap_or_default();
    let found = config.feeds.iter().find(|(known, _)| known.as_str() == name);
    let (name, feed) = found.ok_or_else(|| usage(format!("no feed is called {name:?} in the configuration")))?;
    let topics = tidings_server::topics(&config)?;
    Ok((Parser::new(name.clone(), feed.read_mapping().map_err(usage)?), Some(topics)))
}

/// An event that would be refused is wrong.
fn checked(found: Found, topics: Option<&Topics>) -> Found {
    let Found::Entry { json, at, .. } = &found else { return found };
    let refused = match tidings_api::read_event(json.as_bytes()) {
        Ok(event) => topics.and_then(|topics| topics.check(&event).err()).map(|error| error.to_string()),
        Err(error) => Some(error),
    };
    match refused {
        Some(reason) => Found::Wrong(WrongEntry { at: at.clone(), reason }),
        None => found,
    }
}

fn show(found: &Found, is_json: bool) -> std::io::Result<()> {
    let shown = match found {
        Found::Entry { json, at, .. } => {
            Shown { outcome: "sent", place: at, reason: None, event: serde_json::from_str(json).ok() }
        }
        Found::Skipped { at, reason } => Shown { outcome: "skipped", place: at, reason: Some(reason), event: None },
        Found::Wrong(WrongEntry { at, reason }) => {
            Shown { outcome: "wrong", place: at, reason: Some(reason), event: None }
        }
    };
    if is_json {
        return line(serde_json::to_string(&shown).expect("texts"));
    }
    let text = shown.event.map(RawValue::get).or(shown.reason).unwrap_or_default();
    line(format!("{:<8} {}: {text}", shown.outcome, shown.place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: &str = r#"{"feeds":[{"name":"news","kind":"rss","how":"polled","place":"https://a.example/news.xml",
        "state":"failing","read_at":"2026-11-24T03:00:00.000Z","known":3,"failures":2,"error":"a.example answered 503",
        "last":{"sent":1,"repeated":2,"skipped":0,"wrong":1},"total":{"sent":3,"repeated":4,"skipped":0,"wrong":1},
        "errors":[{"place":"line 7, byte 80","reason":"params.minute: is missing"}]}]}"#;

    #[test]
    fn feeds_are_told_in_words() {
        let feeds = || serde_json::from_str::<Feeds>(NEWS).unwrap();
        let lines = "FEED  KIND  HOW     STATE    READ                      NEXT  SENT  WRONG\n\
                     news  rss   polled  failing  2026-11-24T03:00:00.000Z  -     3     1";
        assert_eq!(listed(feeds()), lines);
        assert_eq!(listed(Feeds { feeds: Vec::new() }), "no feed is configured");
        let told = told(&feeds().feeds[0]);
        for part in
            ["news: polled rss, failing\n", "  failures  2 in a row\n", "  wrong     line 7, byte 80: params.minute"]
        {
            assert!(told.contains(part), "{told}");
        }
    }
}
