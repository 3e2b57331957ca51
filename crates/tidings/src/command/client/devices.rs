//! `tidings devices`: what `/v1/devices` can do.

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiClient, parse, segment, table};
use crate::cli::{ApiServer, DevicesCommand, RegisterArgs};
use crate::command::CommandError;
use crate::command::output::line;

/// Does what is asked and prints the answer.
pub(crate) async fn run(command: DevicesCommand) -> Result<(), CommandError> {
    match command {
        DevicesCommand::List { after, limit, api } => list(after.as_deref(), limit, &api).await,
        DevicesCommand::Show { id, api } => show(&id, &api).await,
        DevicesCommand::Register(args) => register(&args).await,
        DevicesCommand::Remove { id, api } => {
            call(&api, Method::DELETE, &path(&id, ""), None, |_| Ok(format!("removed {id}"))).await
        }
        DevicesCommand::Subscribe { id, subject, topics, api } => {
            let body = json!({ "subscriptions": [{ "subject": subject, "topics": topics }] });
            call(&api, Method::POST, &path(&id, "/subscriptions"), Some(body), changed).await
        }
        DevicesCommand::Unsubscribe { id, subject, topic, api } => {
            let topic = topic.map(|topic| format!("&topic={}", segment(&topic))).unwrap_or_default();
            let query = format!("/subscriptions?subject={}{topic}", segment(&subject));
            call(&api, Method::DELETE, &path(&id, &query), None, changed).await
        }
        DevicesCommand::Rotate { id, api } => {
            call(&api, Method::POST, &path(&id, "/credential"), None, credential).await
        }
        DevicesCommand::Logout { id, api } => call(&api, Method::POST, &path(&id, "/logout"), None, credential).await,
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/v1/devices/{}{rest}", segment(id))
}

/// One request; prints the answer as it is with `--json`, else what `words` makes of it.
async fn call(
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

async fn list(after: Option<&str>, limit: u32, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct List {
        devices: Vec<Device>,
    }
    let after = after.map(|id| format!("&after={}", segment(id))).unwrap_or_default();
    call(api, Method::GET, &format!("/v1/devices?limit={limit}{after}"), None, |answer| {
        let devices = parse::<List>(answer)?.devices;
        let heads = HEADS.map(str::to_owned).to_vec();
        Ok(table(&std::iter::once(heads).chain(devices.into_iter().map(Device::row)).collect::<Vec<_>>()))
    })
    .await
}

async fn show(id: &str, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct Subscription {
        subject: String,
        topics: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Subscriptions {
        subscriptions: Vec<Subscription>,
    }
    let client = ApiClient::new(api)?;
    let device = client.get(&path(id, "")).await?;
    let subscriptions = client.get(&path(id, "/subscriptions")).await?;
    if api.json {
        let (mut whole, rest) = (parse::<Value>(&device)?, parse::<Value>(&subscriptions)?);
        whole["subscriptions"] = rest["subscriptions"].clone();
        return Ok(line(whole)?);
    }
    let facts = HEADS.map(str::to_lowercase).into_iter().zip(parse::<Device>(&device)?.row());
    line(table(&facts.map(|(head, fact)| vec![head, fact]).collect::<Vec<_>>()))?;
    let subscriptions = parse::<Subscriptions>(&subscriptions)?.subscriptions;
    let rows = subscriptions.into_iter().map(|Subscription { subject, topics }| vec![subject, topics.join(" ")]);
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(line("no subscriptions")?);
    }
    Ok(line(format!("\n{}", table(&rows)))?)
}

async fn register(args: &RegisterArgs) -> Result<(), CommandError> {
    let mut body = json!({
        "platform": args.platform,
        "environment": args.environment,
        "app": args.app,
        "token": args.token,
        "locale": args.locale,
    });
    for (name, value) in [("country", &args.country), ("user", &args.user)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    call(&args.api, Method::PUT, &path(&args.id, ""), Some(body), |answer| {
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
