//! What an answer of a push service means (RFC 8030 and RFC 8292).
//!
//! | Answer | Verdict | Source |
//! |---|---|---|
//! | 200, 201, 202 | accepted | RFC 8030, 5 (201) and 5.1 (202) |
//! | 404, 410 | rejected: the subscription is gone | RFC 8030, 7.3 (404); services also send 410 |
//! | 400 `VapidPkHashMismatch` | rejected: the subscription was made with another key | Apple |
//! | 401, 403 | repeat with a new signature; see below | RFC 8292, 4.2 |
//! | 400 `IdleTimeout`, 408 | repeat: the request was too slow and was not accepted | Apple; RFC 9110, 15.5.9 |
//! | 406 | repeat: this notification waits as `Retry-After` says, one minute without it | Windows |
//! | 413 | rejected: the message is too large | RFC 8030, 7.2 |
//! | 429 with `Retry-After` | repeat: all notifications for this origin wait as it says | RFC 8030, 8.4 |
//! | 429 `TooManyRequests`, 429 without `Retry-After` | repeat: as for 406 | Apple; RFC 8030, 8.4 |
//! | other 4xx, other 2xx, 1xx and 3xx | rejected | |
//! | 5xx | repeat as `Retry-After` says | RFC 9110, 15.6 |
//!
//! A subscription is bound to the key with which it was made (RFC 8292, 4). If a new signature is refused too, either
//! the key is wrong for the whole origin, or this subscription belongs to another key. No operator can repair that in
//! time, so the driver then rejects instead of repeating. It never deletes the subscription, because with a wrong key in
//! the configuration all subscriptions would be deleted. Redirects are not followed: they could lead to any host.
//!
//! A 429 may be about one subscription that gets too much (RFC 8030, 8.4), and must not stop the other notifications of
//! the origin. Apple's `TooManyRequests` always means that. A 429 with `Retry-After` counts for the whole origin.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tidings_types::Timestamp;

use super::reason::Reason;
use crate::answer::{Advice, Verdict};
use crate::retry::retry_after;

/// How long a notification waits after a 406 or 429 without `Retry-After`.
const QUOTA_PAUSE: Duration = Duration::from_secs(60);

/// Apple's body of an error; bodies of other services have no such member.
#[derive(Deserialize, Default)]
struct Body<'a> {
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
}

/// Reads an answer; `body` is its beginning, at most [`crate::ANSWER_BYTES_MAX`] bytes.
pub fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
    let rejected = |reason: Reason, gone_at| Verdict::Rejected { reason: reason.into(), gone_at };
    let repeat = |reason: Reason, advice, otherwise| {
        let not_before = retry_after(headers, now).unwrap_or(otherwise);
        Verdict::Repeat { reason: reason.into(), advice, not_before }
    };
    match status.as_u16() {
        200..=202 => Verdict::Accepted, // RFC 8030, 5 and 5.1.
        // RFC 8030, 7.3: 404 for an expired subscription.
        404 | 410 => rejected(Reason::SubscriptionGone, Some(now)),
        400..=499 if has_reason(body, "VapidPkHashMismatch") => rejected(Reason::VapidKeyMismatch, None),
        // RFC 8292, 4.2: the signature is missing or not accepted.
        401 | 403 => repeat(Reason::VapidRefused, Advice::RenewCredential, Duration::ZERO),
        408 => repeat(Reason::ServiceError, Advice::Wait, Duration::ZERO),
        400 if has_reason(body, "IdleTimeout") => repeat(Reason::ServiceError, Advice::Wait, Duration::ZERO),
        413 => rejected(Reason::PayloadTooLarge, None), // RFC 8030, 7.2.
        406 => repeat(Reason::TooManyRequests, Advice::Wait, QUOTA_PAUSE),
        // RFC 8030, 8.4: a service may limit the rate, and should send Retry-After.
        429 => {
            let is_origins = retry_after(headers, now).is_some() && !has_reason(body, "TooManyRequests");
            let advice = if is_origins { Advice::PauseAll } else { Advice::Wait };
            repeat(Reason::TooManyRequests, advice, QUOTA_PAUSE)
        }
        400..=499 => rejected(Reason::BadRequest, None),
        500.. => repeat(Reason::ServiceError, Advice::Wait, Duration::ZERO),
        _ => rejected(Reason::Other, None),
    }
}

fn has_reason(body: &[u8], reason: &str) -> bool {
    let body: Body<'_> = serde_json::from_slice(body).unwrap_or_default();
    body.reason == reason
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::RETRY_AFTER;
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn answer(status: u16, retry_after: Option<&str>, body: &str) -> Verdict {
        let retry_after = retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_str(it).unwrap()));
        let headers = HeaderMap::from_iter(retry_after);
        classify(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), NOW)
    }

    #[test]
    fn the_table() {
        let rejected = |reason: Reason, gone_at| Verdict::Rejected { reason: reason.into(), gone_at };
        let repeat = |reason: Reason, advice, seconds| Verdict::Repeat {
            reason: reason.into(),
            advice,
            not_before: Duration::from_secs(seconds),
        };
        use Reason as R;
        let mozilla = r#"{"code":410,"errno":106,"error":"Gone","message":"x"}"#;
        for (status, retry_after, body, verdict) in [
            (201, None, "", Verdict::Accepted),
            (202, None, "", Verdict::Accepted),
            (200, None, "", Verdict::Accepted),
            (404, None, "", rejected(R::SubscriptionGone, Some(NOW))),
            (410, None, mozilla, rejected(R::SubscriptionGone, Some(NOW))),
            (400, None, r#"{"reason":"VapidPkHashMismatch"}"#, rejected(R::VapidKeyMismatch, None)),
            (400, None, r#"{"reason":"BadTtl"}"#, rejected(R::BadRequest, None)),
            (401, None, "", repeat(R::VapidRefused, Advice::RenewCredential, 0)),
            (403, None, r#"{"reason":"BadJwtToken"}"#, repeat(R::VapidRefused, Advice::RenewCredential, 0)),
            (400, None, r#"{"reason":"IdleTimeout"}"#, repeat(R::ServiceError, Advice::Wait, 0)),
            (405, None, "{", rejected(R::BadRequest, None)),
            (406, None, "", repeat(R::TooManyRequests, Advice::Wait, 60)),
            (406, Some("5"), "", repeat(R::TooManyRequests, Advice::Wait, 5)),
            (408, None, "", repeat(R::ServiceError, Advice::Wait, 0)),
            (413, None, "", rejected(R::PayloadTooLarge, None)),
            (429, None, "", repeat(R::TooManyRequests, Advice::Wait, 60)),
            (429, Some("soon"), "", repeat(R::TooManyRequests, Advice::Wait, 60)),
            (429, None, r#"{"reason":"TooManyRequests"}"#, repeat(R::TooManyRequests, Advice::Wait, 60)),
            (429, Some("5"), r#"{"reason":"TooManyRequests"}"#, repeat(R::TooManyRequests, Advice::Wait, 5)),
            (429, Some("99999"), "", repeat(R::TooManyRequests, Advice::PauseAll, 3600)),
            (429, Some("5"), "", repeat(R::TooManyRequests, Advice::PauseAll, 5)),
            (429, Some("Fri, 15 Jan 2027 08:00:07 GMT"), "", repeat(R::TooManyRequests, Advice::PauseAll, 7)),
            (500, None, "", repeat(R::ServiceError, Advice::Wait, 0)),
            (503, Some("30"), "", repeat(R::ServiceError, Advice::Wait, 30)),
            (301, None, "", rejected(R::Other, None)),
            (307, None, "", rejected(R::Other, None)),
            (204, None, "", rejected(R::Other, None)),
        ] {
            assert_eq!(answer(status, retry_after, body), verdict, "{status} {body}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_breaks_us_and_only_a_missing_subscription_costs_one(
            status in 100u16..1000, body in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            let verdict = classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &body, NOW);
            prop_assert_eq!(verdict == Verdict::Accepted, (200..=202).contains(&status));
            let is_gone = matches!(verdict, Verdict::Rejected { gone_at: Some(_), .. });
            prop_assert_eq!(is_gone, status == 404 || status == 410);
        }

        /// Any text as Apple's reason.
        #[test]
        fn no_word_breaks_us_and_none_costs_a_subscription(
            status in 100u16..1000, reason in r#"[A-Za-z]{0,20}|"|\\u0000|[\[{]{0,200}"#, quoted: bool
        ) {
            let body = if quoted { format!("{{\"reason\":\"{reason}\"}}") } else { format!("{{\"reason\":{reason}") };
            let verdict = classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes(), NOW);
            let is_gone = matches!(verdict, Verdict::Rejected { gone_at: Some(_), .. });
            prop_assert_eq!(is_gone, status == 404 || status == 410);
        }
    }
}
