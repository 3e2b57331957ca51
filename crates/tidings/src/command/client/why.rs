//! `tidings why`: why a device got an event, or why not, step by step; or the last events of a device.

use serde::Deserialize;
use tidings_server::output::line;

use super::api::{ApiClient, parse, segment, table};
use crate::cli::{ApiServer, WhyArgs};
use crate::command::CommandError;

#[derive(Deserialize)]
struct Why {
    device: String,
    event: String,
    verdict: String,
    #[serde(default)]
    reason: String,
    summary: String,
    #[serde(default)]
    locale: Option<String>,
    steps: Vec<Step>,
    because: Vec<String>,
    unknown: Vec<String>,
}

#[derive(Deserialize)]
struct Step {
    at: String,
    #[serde(default)]
    until: Option<String>,
    text: String,
}

pub(crate) async fn run(
    WhyArgs { event, device, user, events_of, before, limit, api }: WhyArgs,
) -> Result<(), CommandError> {
    if let Some(device) = events_of {
        return events(&device, before, limit, &api).await;
    }
    let event = segment(&event.unwrap_or_default());
    match (device, user) {
        (Some(device), _) => {
            let answer = ApiClient::new(&api)?.get(&format!("/v1/events/{event}/devices/{}", segment(&device))).await?;
            let shown = if api.json { answer.trim_end().to_owned() } else { words(&parse(&answer)?) };
            Ok(line(shown)?)
        }
        (None, user) => of_user(&event, &segment(&user.unwrap_or_default()), &api).await,
    }
}

/// All devices of a user; page by page, so that each page is printed when it is there.
async fn of_user(event: &str, user: &str, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct Page {
        devices: Vec<Why>,
        #[serde(default)]
        next: Option<String>,
    }
    let (client, mut after, mut is_first) = (ApiClient::new(api)?, String::new(), true);
    loop {
        let answer = client.get(&format!("/v1/events/{event}/users/{user}{after}")).await?;
        let Page { devices, next } = parse(&answer)?;
        if api.json {
            line(answer.trim_end())?;
        }
        for why in devices.iter().filter(|_| !api.json) {
            line(format!("{}{}", if is_first { "" } else { "\n" }, words(why)))?;
            is_first = false;
        }
        match next {
            Some(next) => after = format!("?after={}", segment(&next)),
            None if is_first && !api.json => return Ok(line("The user has no devices.")?),
            None => return Ok(()),
        }
    }
}

async fn events(device: &str, before: Option<u64>, limit: u32, api: &ApiServer) -> Result<(), CommandError> {
    #[derive(Deserialize)]
    struct Event {
        event: String,
        accepted_at: String,
        verdict: String,
        #[serde(default)]
        reason: String,
        summary: String,
    }
    #[derive(Deserialize)]
    struct Events {
        events: Vec<Event>,
        #[serde(default)]
        next: Option<u64>,
    }
    let before = before.map(|position| format!("&before={position}")).unwrap_or_default();
    let path = format!("/v1/devices/{}/events?limit={limit}{before}", segment(device));
    let answer = ApiClient::new(api)?.get(&path).await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    let Events { events, next } = parse(&answer)?;
    if events.is_empty() && next.is_none() {
        return Ok(line(
            "No event of this device is known. They are kept for sender.why_ttl, and not over a restart.",
        )?);
    }
    let mut rows = vec![["ACCEPTED", "EVENT", "VERDICT", "MEANS"].map(str::to_owned).to_vec()];
    rows.extend(events.into_iter().map(|Event { event, accepted_at, verdict, reason, summary }| {
        vec![accepted_at, event, verdict_words(&verdict, &reason), summary]
    }));
    line(table(&rows))?;
    if let Some(next) = next {
        line(format!("There may be more: --before {next}"))?;
    }
    Ok(())
}

fn verdict_words(verdict: &str, reason: &str) -> String {
    if reason.is_empty() { verdict.to_owned() } else { format!("{verdict} ({reason})") }
}

fn words(why: &Why) -> String {
    let Why { device, event, verdict, reason, summary, locale, steps, because, unknown } = why;
    let mut text = format!("{device} and {event}: {}\n{summary}\n", verdict_words(verdict, reason));
    if let Some(locale) = locale.as_ref().filter(|locale| *locale != "source") {
        text += &format!("Its text was in the language {locale}.\n");
    }
    let rows: Vec<Vec<String>> = steps.iter().map(|step| vec![moment(step), step.text.clone()]).collect();
    text += &format!("\n{}\n", table(&rows));
    for (title, lines) in [("\nWhy it was in the audience, or not:", because), ("\nNot known:", unknown)] {
        if !lines.is_empty() {
            text += &format!("{title}\n");
            lines.iter().for_each(|said| text += &format!("- {said}\n"));
        }
    }
    text.trim_end().to_owned()
}

/// The time of a step; with `…` before the end of a span.
fn moment(Step { at, until, .. }: &Step) -> String {
    // The date is the same, or nearly so: the time of day is enough.
    let end = until.as_deref().map(|until| until.split_once('T').map_or(until, |(_, time)| time));
    end.map_or_else(|| at.clone(), |end| format!("{at} … {end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_words() {
        let answer = r#"{"event":"goal-1","topic":"goal","device":"phone-1","app":"a","verdict":"rejected","reason":"Unregistered",
            "summary":"The provider refused the notification for good.","locale":"pl","selected":true,
            "steps":[{"step":"event_accepted","at":"2026-11-27T12:00:00.100Z","text":"The event was accepted."},
                     {"step":"rejected","at":"2026-11-27T12:00:00.200Z","until":"2026-11-27T12:00:00.250Z","text":"No."}],
            "because":["It is subscribed."],"unknown":[]}"#;
        let told = words(&serde_json::from_str(answer).unwrap());
        let expected = "phone-1 and goal-1: rejected (Unregistered)\n\
            The provider refused the notification for good.\n\
            Its text was in the language pl.\n\
            \n\
            2026-11-27T12:00:00.100Z                  The event was accepted.\n\
            2026-11-27T12:00:00.200Z … 12:00:00.250Z  No.\n\
            \n\
            Why it was in the audience, or not:\n\
            - It is subscribed.";
        assert_eq!(told, expected);
    }
}
