//! `tidings jobs pause`, `resume` and `brakes`: pausing and resuming pushes.

use hyper::Method;
use serde::Deserialize;
use tidings_types::BrakeScope;

use super::api::{ApiClient, parse, segment, table};
use crate::cli::ApiServer;
use crate::command::CommandError;
use tidings_server::output::line;

#[derive(Deserialize)]
struct Brake {
    scope: String,
    paused_at: String,
}

#[derive(Deserialize)]
struct Brakes {
    brakes: Vec<Brake>,
}

fn path(scope: &BrakeScope) -> String {
    format!("/v1/brakes/{}", segment(&scope.to_string()))
}

pub(super) async fn pause(scope: &BrakeScope, api: &ApiServer) -> Result<(), CommandError> {
    let answer = ApiClient::new(api)?.ask(Method::PUT, &path(scope), None).await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    let Brake { scope, paused_at } = parse(&answer)?;
    Ok(line(format!("paused {scope} since {paused_at}"))?)
}

pub(super) async fn resume(scope: &BrakeScope, api: &ApiServer) -> Result<(), CommandError> {
    ApiClient::new(api)?.ask(Method::DELETE, &path(scope), None).await?;
    Ok(line(if api.json { "{}".to_owned() } else { format!("resumed {scope}") })?)
}

pub(super) async fn list(api: &ApiServer) -> Result<(), CommandError> {
    let answer = ApiClient::new(api)?.get("/v1/brakes").await?;
    if api.json {
        return Ok(line(answer.trim_end())?);
    }
    Ok(line(words(parse(&answer)?))?)
}

fn words(Brakes { brakes }: Brakes) -> String {
    if brakes.is_empty() {
        return "nothing is paused".to_owned();
    }
    let heads = ["PAUSED", "SINCE"].map(str::to_owned).to_vec();
    let rows = brakes.into_iter().map(|Brake { scope, paused_at }| vec![scope, paused_at]);
    table(&std::iter::once(heads).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brakes_are_told_in_words() {
        let told = |answer: &str| words(serde_json::from_str(answer).unwrap());
        assert_eq!(told(r#"{"brakes":[]}"#), "nothing is paused");
        let two = r#"{"brakes":[{"scope":"everything","paused_at":"2026-07-15T18:04:05.000Z"},
            {"scope":"topic:goal","paused_at":"2026-07-15T18:05:05.000Z"}]}"#;
        let expected = "PAUSED      SINCE\neverything  2026-07-15T18:04:05.000Z\ntopic:goal  2026-07-15T18:05:05.000Z";
        assert_eq!(told(two), expected);
    }

    #[test]
    fn a_scope_stays_one_part_of_the_path() {
        assert_eq!(path(&"app:com.example/a%b".parse().unwrap()), "/v1/brakes/app%3Acom.example%2Fa%25b");
    }
}
