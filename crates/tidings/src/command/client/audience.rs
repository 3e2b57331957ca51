//! `tidings audience`: the size of an event's audience, by kind of device, with the time that pushing would take; and
//! the devices that each part of a selector matches.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{ApiClient, duration, parse, table};
use crate::cli::{ApiServer, AudienceCommand, PreviewAudienceArgs};
use crate::command::CommandError;
use tidings_server::output::line;

/// Counts that are shown of each list; `--json` prints all.
const SHOWN_COUNT: usize = 10;

#[derive(Deserialize)]
struct Counted {
    total: u64,
    by_platform: BTreeMap<String, u64>,
    by_locale: BTreeMap<String, u64>,
    by_country: BTreeMap<String, u64>,
    by_app: BTreeMap<String, u64>,
    #[serde(default)]
    estimate: Vec<Estimate>,
}

#[derive(Deserialize)]
struct Estimate {
    provider: String,
    pool: String,
    devices: u64,
    #[serde(default)]
    minutes: Option<f64>,
    #[serde(default)]
    limited_by: Option<String>,
}

impl Estimate {
    fn row(&self) -> Vec<String> {
        let takes = self.minutes.map_or("speed not known yet".to_owned(), |minutes| {
            format!("about {}", duration(Duration::from_secs_f64((minutes * 60.0).clamp(0.0, 1e9))))
        });
        let why = match self.limited_by.as_deref() {
            Some("quota") => ", limited by the provider's quota",
            Some("connections") => ", limited by connections and round trip",
            _ => "",
        };
        let takes = takes + why;
        vec![self.provider.clone(), self.pool.clone(), self.devices.to_string(), takes]
    }
}

#[derive(Deserialize)]
struct Explained {
    devices: u64,
    unmuted: u64,
    of: u64,
    tree: Part,
}

#[derive(Deserialize)]
struct Part {
    text: String,
    devices: u64,
    #[serde(default)]
    parts: Vec<Self>,
}

pub(crate) async fn run(command: AudienceCommand) -> Result<(), CommandError> {
    match command {
        AudienceCommand::Preview(args) => preview(args).await,
        AudienceCommand::Explain { selector, api } => explain(&selector, &api).await,
    }
}

async fn explain(selector: &str, api: &ApiServer) -> Result<(), CommandError> {
    let body = json!({ "selector": selector }).to_string();
    let answer = ApiClient::new(api)?.post("/v1/audience/explain", body.into()).await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    Ok(line(tree(&parse(&answer)?))?)
}

/// One line per part, each with its number of devices.
fn tree(explained: &Explained) -> String {
    fn add(part: &Part, lead: &str, branch: &str, rows: &mut Vec<Vec<String>>) {
        rows.push(vec![format!("{lead}{branch}{}", part.text), part.devices.to_string()]);
        let lead = match branch {
            "├ " => format!("{lead}│ "),
            "└ " => format!("{lead}  "),
            _ => lead.to_owned(),
        };
        for (index, inner) in part.parts.iter().enumerate() {
            let branch = if index + 1 == part.parts.len() { "└ " } else { "├ " };
            add(inner, &lead, branch, rows);
        }
    }
    let Explained { devices, unmuted, of, tree } = explained;
    let mut rows = Vec::new();
    add(tree, "", "", &mut rows);
    let muted = match devices - unmuted {
        0 => String::new(),
        muted => format!("; {muted} of these have muted everything and would get nothing"),
    };
    format!("{}\n\n{devices} of {of} devices{muted}", table(&rows))
}

async fn preview(args: PreviewAudienceArgs) -> Result<(), CommandError> {
    let answer = ApiClient::new(&args.api)?.post("/v1/audience/preview", body(&args).to_string().into()).await?;
    if args.api.json {
        return Ok(line(answer.trim_end())?);
    }
    Ok(line(words(&parse(&answer)?))?)
}

fn body(args: &PreviewAudienceArgs) -> Value {
    let lists = |lists: [(&str, &Vec<String>); 4]| {
        let stated = lists.into_iter().filter(|(_, list)| !list.is_empty());
        stated.map(|(name, list)| (name.to_owned(), json!(list))).collect::<Map<_, _>>()
    };
    let none = Vec::new();
    let mut body = json!({ "topic": args.topic, "subjects": args.subject });
    let mut to = lists([("users", &args.to_user), ("devices", &args.to_device), ("", &none), ("", &none)]);
    let filter = lists([
        ("countries", &args.country),
        ("locales", &args.locale),
        ("platforms", &args.platform),
        ("apps", &args.app),
    ]);
    to.extend(args.to.as_ref().map(|selector| ("selector".to_owned(), json!(selector))));
    for (name, part) in [("to", to), ("filter", filter)] {
        if !part.is_empty() {
            body[name] = part.into();
        }
    }
    body
}

fn words(counted: &Counted) -> String {
    let Counted { total, by_platform, by_locale, by_country, by_app, estimate } = counted;
    let mut rows = vec![vec!["devices".to_owned(), String::new(), total.to_string()]];
    for (kind, counts) in [("platform", by_platform), ("locale", by_locale), ("country", by_country), ("app", by_app)] {
        let mut counts: Vec<(&String, u64)> = counts.iter().map(|(name, count)| (name, *count)).collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let rest: u64 = counts.iter().skip(SHOWN_COUNT).map(|(_, count)| count).sum();
        rows.extend(
            counts
                .iter()
                .take(SHOWN_COUNT)
                .map(|(name, count)| vec![kind.to_owned(), (*name).clone(), count.to_string()]),
        );
        if rest > 0 {
            rows.push(vec![kind.to_owned(), "others".to_owned(), rest.to_string()]);
        }
    }
    rows.extend(estimate.iter().map(Estimate::row));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn flags_make_the_question() {
        let words = "tidings audience preview goal --subject team:1 --subject match:2 --locale pt --country BR --to-user 42 --to all";
        let Command::Audience(AudienceCommand::Preview(args)) = Cli::try_parse_from(words.split(' ')).unwrap().command
        else {
            panic!("command")
        };
        let expected = json!({
            "topic": "goal", "subjects": ["team:1", "match:2"],
            "to": {"users": ["42"], "selector": "all"}, "filter": {"countries": ["BR"], "locales": ["pt"]},
        });
        assert_eq!(body(&args), expected);
    }

    #[test]
    fn a_selector_is_shown_as_a_tree() {
        let part = |text: &str, devices, parts| Part { text: text.to_owned(), devices, parts };
        let any = part("or", 7, vec![part("locale = sv", 4, vec![]), part("locale = nb", 3, vec![])]);
        let all = part("and", 5, vec![any, part("goal on team:42", 90, vec![])]);
        let explained = Explained { devices: 5, unmuted: 4, of: 100, tree: all };
        let lines = [
            "and                5",
            "├ or               7",
            "│ ├ locale = sv    4",
            "│ └ locale = nb    3",
            "└ goal on team:42  90",
            "",
            "5 of 100 devices; 1 of these have muted everything and would get nothing",
        ];
        assert_eq!(tree(&explained), lines.join("\n"));
    }

    #[test]
    fn the_largest_counts_are_shown_and_the_rest_is_summed() {
        let by_locale = (0..12).map(|index| (format!("l{index:02}"), 100 - index)).collect();
        let none = BTreeMap::new();
        let estimate = serde_json::from_value(json!([
            {"provider": "apns", "pool": "main", "devices": 1000, "minutes": 1.5, "limited_by": "connections"},
            {"provider": "fcm", "pool": "new", "devices": 134},
        ]))
        .unwrap();
        let counted = Counted {
            total: 1134,
            by_platform: none.clone(),
            by_locale,
            by_country: none.clone(),
            by_app: none,
            estimate,
        };
        let text = words(&counted);
        assert!(text.starts_with("devices          1134\nlocale   l00     100\n"), "{text}");
        let end = "locale   others  179\napns     main    1000  about 1m30s, limited by connections and round trip\nfcm      new     134   speed not known yet";
        assert!(text.ends_with(end), "{text}");
    }
}
