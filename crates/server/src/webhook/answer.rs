//! What an answer means. The body does not count.
//!
//! A status of 2xx means that the report was taken. Everything else is a failure and is tried again, as in the Standard
//! Webhooks specification: during a roll-out a receiver may answer 404, and during a change of secrets 401. Redirects
//! are not followed, because they could send signed reports to any address. Only 410 means "send no more reports".

use std::time::{Duration, UNIX_EPOCH};

use axum::http::{HeaderMap, StatusCode, header};
use tidings_http1::SendError;
use tidings_types::Timestamp;

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    /// The receiver has left.
    Gone,
    /// The receiver is overloaded, and asks for this pause.
    Busy {
        retry_after: Duration,
    },
    /// The request was not sent: no connection is up, or none is free.
    Unsent,
    /// Anything else, also no answer at all.
    Failed {
        retry_after: Option<Duration>,
    },
}

impl Answer {
    /// The answer to an attempt, also if there was none.
    pub(super) fn of<T>(result: &Result<(T, Self), SendError>) -> Self {
        match result {
            Ok((_, answer)) => *answer,
            Err(SendError::Unavailable | SendError::Backlog { .. }) => Self::Unsent,
            Err(_) => Self::Failed { retry_after: None },
        }
    }

    pub(super) fn new(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Self {
        let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now));
        match (status, retry_after) {
            _ if status.is_success() => Self::Taken,
            (StatusCode::GONE, _) => Self::Gone,
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(retry_after)) => {
                Self::Busy { retry_after }
            }
            _ => Self::Failed { retry_after },
        }
    }
}

/// Seconds, or a date (RFC 9110, 10.2.3). Any other value counts as absent.
fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_millis(now.as_millis())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06 08:49:37.
    const NOW: Timestamp = Timestamp(784_111_777_000);

    fn answer(status: u16, retry_after: Option<&'static str>) -> Answer {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
        }
        Answer::new(StatusCode::from_u16(status).unwrap(), &headers, NOW)
    }

    #[test]
    fn only_2xx_is_taken_and_only_410_is_the_end() {
        for status in 200..300 {
            assert_eq!(answer(status, Some("5")), Answer::Taken, "{status}");
        }
        for status in (100..200).chain(300..1000).filter(|&status| status != 410) {
            assert_eq!(answer(status, None), Answer::Failed { retry_after: None }, "{status}");
        }
        assert_eq!(answer(410, Some("5")), Answer::Gone);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let seconds = |count| Some(Duration::from_secs(count));
        let cases = [
            ("120", seconds(120)),
            (" 7 ", seconds(7)),
            ("0", seconds(0)),
            ("99999999999999999999999999", seconds(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", seconds(0)),
            ("-5", None),
            ("", None),
            ("soon", None),
            ("1.5", None),
        ];
        for (value, expected) in cases {
            assert_eq!(answer(500, Some(value)), Answer::Failed { retry_after: expected }, "{value:?}");
        }
        for status in [429, 503] {
            assert_eq!(answer(status, Some("9")), Answer::Busy { retry_after: Duration::from_secs(9) });
            assert_eq!(answer(status, None), Answer::Failed { retry_after: None });
        }
    }
}
