//! `tidings devices`: commands for `/v1/devices`.

use std::path::Path;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{ApiClient, parse, segment, table};
use super::bulk;
use crate::cli::{ApiServer, DevicesCommand, RegisterArgs};
use crate::command::CommandError;
use crate::command::publish::read_stdin;
use tidings_config::read_file;
use tidings_server::output::line;

pub(crate) async fn run(command: DevicesCommand) -> Result<(), CommandError> {
    match command {
        DevicesCommand::List { user, after, limit, api } => list(user.as_deref(), after.as_deref(), limit, &api).await,
        DevicesCommand::Find { platform, token_file, api } => find(&platform, &token_file, &api).await,
        DevicesCommand::Show { id, api } => show(&id, &api).await,
        DevicesCommand::Register(args) => register(&args).await,
        DevicesCommand::Remove { id, api } => {
            call(&api, Method::DELETE, &path(&id, ""), None, |_| Ok(format!("removed {id}"))).await
        }
        DevicesCommand::Subscribe { id, subject, topics, strict, api } => {
            let body = json!({ "subscriptions": [{ "subject": subject, "topics": topics }] });
            let path = path(&id, "/subscriptions") + strictly(strict);
            call(&api, Method::POST, &path, Some(body), changed).await
        }
        DevicesCommand::Unsubscribe { id, subject, topic, api } => {
            let topic = topic.map(|topic| format!("&topic={}", segment(&topic))).unwrap_or_default();
            let query = format!("/subscriptions?subject={}{topic}", segment(&subject));
            call(&api, Method::DELETE, &path(&id, &query), None, changed).await
        }
        DevicesCommand::Mute { id, subject, until, r#for: length, api } => {
            let body = json!({ "until": until, "for": length });
            call(&api, Method::PUT, &mute_path(&id, subject.as_deref()), Some(body), |answer| {
                Ok(parse::<Mute>(answer)?.words())
            })
            .await
        }
        DevicesCommand::Unmute { id, subject, api } => {
            let path = mute_path(&id, subject.as_deref());
            call(&api, Method::DELETE, &path, None, |_| Ok(format!("unmuted {id}"))).await
        }
        DevicesCommand::Mutes { id, api } => call(&api, Method::GET, &path(&id, "/mutes"), None, mutes).await,
        DevicesCommand::Import(args) => bulk::import(&args).await,
        DevicesCommand::Export(args) => bulk::export(&args).await,
        DevicesCommand::Rotate { id, api } => {
            call(&api, Method::POST, &path(&id, "/credential"), None, credential).await
        }
        DevicesCommand::Logout { id, api } => call(&api, Method::POST, &path(&id, "/logout"), None, credential).await,
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/v1/devices/{}{rest}", segment(id))
}

/// The query that turns a warning into a refusal.
fn strictly(strict: bool) -> &'static str {
    if strict { "?strict=true" } else { "" }
}

fn mute_path(id: &str, subject: Option<&str>) -> String {
    path(id, &format!("/mutes/{}", segment(subject.unwrap_or("everything"))))
}

/// Sends one request. Prints the answer unchanged with `--json`, else the text that `words` makes of it.
pub(super) async fn call(
    api: &ApiServer,
    method: Method,
    path: &str,
    body: Option<Value>,
    words: impl FnOnce(&str) -> Result<String, CommandError>,
) -> Result<(), CommandError> {
    let answer = ApiClient::new(api)?.ask(method, path, body.map(|body| body.to_string().into())).await?;
    if api.json {
        let answer = if answer.is_empty() { "{}" } else { answer.trim_end() };
        return Ok(line(answer)?);
    }
    Ok(line(words(&answer)?)?)
}

#[derive(Deserialize)]
struct Device {
    id: String,
    platform: String,
    #[serde(default)]
    environment: String,
    app: String,
    locale: String,
    #[serde(default)]
    country: Option<String>,
    #[serde(default)]
    user: Option<String>,
}

impl Device {
    fn row(self) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let Self { id, platform, environment, app, locale, country, user } = self;
        vec![id, platform, environment, app, locale, or_none(country), or_none(user)]
    }
}

const HEADS: [&str; 7] = ["ID", "PLATFORM", "ENVIRONMENT", "APP", "LOCALE", "COUNTRY", "USER"];

async fn list(user: Option<&str>, after: Option<&str>, limit: u32, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct List {
        devices: Vec<Device>,
    }
    let after = after.map(|id| format!("&after={}", segment(id))).unwrap_or_default();
    let all = user.map_or("/v1/devices".to_owned(), |user| format!("/v1/users/{}/devices", segment(user)));
    call(api, Method::GET, &format!("{all}?limit={limit}{after}"), None, |answer| {
        let devices = parse::<List>(answer)?.devices;
        let heads = HEADS.map(str::to_owned).to_vec();
        Ok(table(&std::iter::once(heads).chain(devices.into_iter().map(Device::row)).collect::<Vec<_>>()))
    })
    .await
}

/// Looks a token up. Errors name neither the token nor the reason why it cannot be parsed.
async fn find(platform: &str, file: &Path, api: &ApiServer) -> Result<(), CommandError> {
    let text = if file.as_os_str() == "-" {
        read_stdin()?
    } else {
        read_file(file).map_err(|source| CommandError::File { action: "read", path: file.to_owned(), source })?
    };
    let body = if platform == "web" {
        let what = |error| CommandError::Usage(format!("the subscription is not JSON: {error}"));
        let subscription: Value = serde_json::from_str(&text).map_err(what)?;
        json!({ "platform": platform, "web_push": subscription })
    } else {
        json!({ "platform": platform, "token": text.trim() })
    };
    call(api, Method::POST, "/v1/tokens/lookup", Some(body), |answer| {
        let facts = HEADS.map(str::to_lowercase).into_iter().zip(parse::<Device>(answer)?.row());
        Ok(table(&facts.map(|(head, fact)| vec![head, fact]).collect::<Vec<_>>()))
    })
    .await
}

#[derive(Deserialize)]
struct Mute {
    scope: String,
    #[serde(default)]
    until: Option<String>,
}

impl Mute {
    fn words(self) -> String {
        let Self { scope, until } = self;
        until.map_or_else(|| format!("muted {scope}"), |until| format!("muted {scope} until {until}"))
    }
}

fn mutes(answer: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct Mutes {
        mutes: Vec<Mute>,
    }
    Ok(words_of(parse::<Mutes>(answer)?.mutes))
}

fn words_of(mutes: Vec<Mute>) -> String {
    let row = |Mute { scope, until }| vec![scope, until.unwrap_or_else(|| "–".to_owned())];
    let rows: Vec<_> = mutes.into_iter().map(row).collect();
    if rows.is_empty() {
        return "nothing muted".to_owned();
    }
    table(&[vec![vec!["SCOPE".to_owned(), "UNTIL".to_owned()]], rows].concat())
}

async fn show(id: &str, api: &ApiServer) -> Result<(), CommandError> {
    call(api, Method::GET, &path(id, ""), None, shown).await
}

/// A device with its subscriptions and mutes.
fn shown(answer: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct Subscription {
        subject: String,
        topics: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Whole {
        #[serde(flatten)]
        device: Device,
        #[serde(default)]
        push_permission: String,
        #[serde(default)]
        time_zone: Option<String>,
        #[serde(default)]
        token: Option<String>,
        subscriptions: Vec<Subscription>,
        mutes: Vec<Mute>,
    }
    let Whole { device, push_permission, time_zone, token, subscriptions, mutes } = parse(answer)?;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let heads = HEADS.map(str::to_lowercase).into_iter();
    let more = [("permission", push_permission), ("time zone", or_none(time_zone)), ("token", or_none(token))];
    let facts = heads.zip(device.row()).chain(more.map(|(head, fact)| (head.to_owned(), fact)));
    let facts = table(&facts.map(|(head, fact)| vec![head, fact]).collect::<Vec<_>>());
    let rows = subscriptions.into_iter().map(|Subscription { subject, topics }| vec![subject, topics.join(" ")]);
    let rows: Vec<_> = rows.collect();
    let subscriptions = if rows.is_empty() { "no subscriptions".to_owned() } else { table(&rows) };
    Ok(format!("{facts}\n\n{subscriptions}\n\n{}", words_of(mutes)))
}

/// The device that the flags describe. The server checks it.
fn new_device(args: &RegisterArgs) -> Result<Value, CommandError> {
    let platform = args.platform.as_deref().unwrap_or(if args.web_push.is_some() { "web" } else { "ios" });
    let mut body = json!({
        "platform": platform,
        "environment": args.environment,
        "app": args.app,
        "locale": args.locale,
    });
    for (name, value) in [
        ("token", &args.token),
        ("country", &args.country),
        ("time_zone", &args.time_zone),
        ("push_permission", &args.push_permission),
        ("user", &args.user),
    ] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    if let Some(proven) = args.proven {
        body["proven"] = json!(proven);
    }
    if let Some(text) = &args.web_push {
        let text = if text == "-" { read_stdin()? } else { text.clone() };
        // The error does not show the value: with a subscription somebody may be able to push.
        let what = |error| CommandError::Usage(format!("the subscription is not JSON: {error}"));
        body["web_push"] = serde_json::from_str(&text).map_err(what)?;
    }
    Ok(body)
}

async fn register(args: &RegisterArgs) -> Result<(), CommandError> {
    let body = new_device(args)?;
    call(&args.api, Method::PUT, &path(&args.id, strictly(args.strict)), Some(body), |answer| {
        let answer: Value = parse(answer)?;
        Ok(match answer["credential"].as_str() {
            Some(credential) => format!("registered {}\ncredential {credential}", args.id),
            None => format!("updated {}", args.id),
        })
    })
    .await
}

fn changed(answer: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct Changed {
        added: u64,
        removed: u64,
    }
    let Changed { added, removed } = parse(answer)?;
    Ok(format!("{added} added, {removed} removed"))
}

fn credential(answer: &str) -> Result<String, CommandError> {
    #[derive(Deserialize)]
    struct Made {
        credential: String,
    }
    Ok(format!("credential {}", parse::<Made>(answer)?.credential))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn body(words: &[&str]) -> Result<Value, String> {
        let all = ["tidings", "devices", "register", "d-1", "--app", "a", "--locale", "en"].iter().chain(words);
        let command = Cli::try_parse_from(all).map_err(|error| error.to_string())?.command;
        let Command::Devices(DevicesCommand::Register(args)) = command else { panic!("it says register") };
        new_device(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_device_has_a_token_or_a_subscription() {
        let phone = body(&["--token", "0f8e", "--user", "42"]).unwrap();
        let plain =
            |platform: &str| json!({"platform": platform, "environment": "production", "app": "a", "locale": "en"});
        let with = |platform: &str, name: &str, value: Value| {
            let mut body = plain(platform);
            body[name] = value;
            body
        };
        let mut expected = with("ios", "token", json!("0f8e"));
        expected["user"] = json!("42");
        assert_eq!(phone, expected);
        expected["proven"] = json!(true);
        assert_eq!(body(&["--token", "0f8e", "--user", "42", "--proven", "true"]).unwrap(), expected);
        let android = body(&["--token", "dPx0:x", "--platform", "android"]);
        assert_eq!(android, Ok(with("android", "token", json!("dPx0:x"))));
        let browser = body(&["--web-push", r#"{"endpoint": "https://push.example/x"}"#]);
        assert_eq!(browser, Ok(with("web", "web_push", json!({"endpoint": "https://push.example/x"}))));
        let wrong = body(&["--web-push", "https://push.example/x"]).unwrap_err();
        assert!(wrong.starts_with("the subscription is not JSON") && !wrong.contains("push.example"), "{wrong}");
        let mut silent = plain("ios");
        (silent["push_permission"], silent["time_zone"]) = (json!("denied"), json!("Europe/Warsaw"));
        let words = ["--push-permission", "denied", "--time-zone", "Europe/Warsaw"];
        assert_eq!(body(&words), Ok(silent), "who is not pushed needs no address");
        assert!(body(&["--push-permission", "perhaps", "--token", "0f8e"]).is_err());
        assert!(body(&[]).is_err() && body(&["--token", "0f8e", "--web-push", "{}"]).is_err());
    }
}
