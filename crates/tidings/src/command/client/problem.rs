//! Refusals and warnings of a server, in words, with advice.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// The fields of a refusal (RFC 9457) that are shown.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    title: String,
    detail: String,
    #[serde(default)]
    field: Option<String>,
}

/// The text after the status of a refusal.
pub(super) fn words(status: StatusCode, answer: &str) -> String {
    let Ok(Problem { r#type, title, detail, field }) = serde_json::from_str(answer) else {
        let hint = match status {
            StatusCode::UNAUTHORIZED => ", is the API key right? (TIDINGS_API_KEY, --api-key-file)",
            StatusCode::FORBIDDEN => ", the key may not do this",
            _ => "",
        };
        return format!("{hint}: {}", answer.trim());
    };
    let advice = advice(r#type.rsplit(':').next().unwrap_or_default(), field.as_deref());
    let advice = advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
    format!(": {title}\n  {detail}{advice}")
}

/// Advice for each kind of refusal in docs/problems.md.
fn advice(kind: &str, field: Option<&str>) -> Option<String> {
    Some(match kind {
        "invalid" | "malformed-json" => match field {
            Some(field) => format!("Correct {field}, then send the request again."),
            None => "Correct the request, then send it again.".to_owned(),
        },
        other => match other {
            "strict" => "Correct that, or leave out --strict.",
            "unauthorized" => "Give another key: TIDINGS_API_KEY or --api-key-file.",
            "forbidden" => "Use another key, or add the scope to its entry in api.keys.",
            "audience-too-large" => "Narrow the audience, or use a key with a larger audience_max.",
            "conflict" => "Give the event another id, or send the content that it had first.",
            "unexpected-audience" => "Look at the audience with `tidings audience preview`.",
            "precondition-failed" => "Read it again, and repeat the change on its current state.",
            "too-large" => "Send less at a time, or raise http.body_bytes_max.",
            "rate-limited" | "overloaded" => "Try again in a moment.",
            "unavailable" => "Try again in a moment; if that does not help, look into the server's log and at /ready.",
            "damaged" | "internal" => "Look into the server's log.",
            _ => return None,
        }
        .to_owned(),
    })
}

/// The warnings of an answer about one item or several.
pub(super) fn warnings(answer: &str) -> Vec<String> {
    if !answer.contains("\"warnings\"") {
        return Vec::new(); // Most answers have none, and some are large.
    }
    let Ok(answer) = serde_json::from_str::<Value>(answer) else { return Vec::new() };
    let all = match &answer {
        Value::Array(all) => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    let told = all.iter().filter_map(|one| one.get("warnings")?.as_array()).flatten();
    told.filter_map(|warning| Some(warning.get("detail")?.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_words_with_what_to_do() {
        let problem = r#"{"type":"urn:tidings:problem:invalid","title":"The request breaks a rule","status":400,
            "detail":"params.team: must have at most 512 bytes, got 600","field":"params.team","limit":512,"value":600}"#;
        let expected = ": The request breaks a rule\n  params.team: must have at most 512 bytes, got 600\n  \
                        Correct params.team, then send the request again.";
        assert_eq!(words(StatusCode::BAD_REQUEST, problem), expected);
        let unknown = r#"{"type":"urn:tidings:problem:new-one","title":"T","detail":"D"}"#;
        assert_eq!(words(StatusCode::CONFLICT, unknown), ": T\n  D");
        assert_eq!(words(StatusCode::SERVICE_UNAVAILABLE, "full\n"), ": full");
    }

    #[test]
    fn warnings_of_all_events_are_told() {
        let two = r#"[{"id":"a","warnings":[{"type":"t","detail":"one"}]},{"id":"b"},
            {"id":"c","warnings":[{"type":"t","detail":"two"}]}]"#;
        assert_eq!(warnings(two), ["one", "two"]);
        assert_eq!(warnings(r#"{"id":"a","warnings":[{"type":"t","detail":"one"}]}"#), ["one"]);
        assert!(warnings(r#"{"id":"a"}"#).is_empty() && warnings("no \"warnings\" in JSON").is_empty());
    }
}
