//! The errors of Centrifugo's server API, and their counters.

use axum::http::StatusCode;
use tidings_telemetry::{Counter, Registry, metrics};

/// An error in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} {}", self.code(), self.message())]
pub(crate) enum ApiError {
    Internal,
    UnknownChannel,
    PermissionDenied,
    NotFound,
    BadRequest,
    TooManyChannels,
    AnswerTooLarge,
    TooManyLargeAnswers,
    TooManyConnections,
    NotAvailable,
    NoRoom,
    UnrecoverablePosition,
}

impl ApiError {
    pub(crate) const ALL: [Self; 12] = [
        Self::Internal,
        Self::UnknownChannel,
        Self::PermissionDenied,
        Self::NotFound,
        Self::BadRequest,
        Self::TooManyChannels,
        Self::AnswerTooLarge,
        Self::TooManyLargeAnswers,
        Self::TooManyConnections,
        Self::NotAvailable,
        Self::NoRoom,
        Self::UnrecoverablePosition,
    ];

    pub(super) const fn code(self) -> u16 {
        match self {
            Self::Internal | Self::TooManyLargeAnswers => 100,
            Self::UnknownChannel => 102,
            Self::PermissionDenied => 103,
            Self::NotFound => 104,
            Self::BadRequest | Self::TooManyChannels | Self::AnswerTooLarge | Self::TooManyConnections => 107,
            Self::NotAvailable => 108,
            Self::NoRoom => 111,
            Self::UnrecoverablePosition => 112,
        }
    }

    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Internal => "internal server error",
            Self::UnknownChannel => "unknown channel",
            Self::PermissionDenied => "permission denied",
            Self::NotFound => "not found",
            Self::BadRequest => "bad request",
            // Centrifugo has no such limits, and so no texts for them.
            Self::TooManyChannels => "bad request: a broadcast has at most 1000 channels",
            Self::AnswerTooLarge => {
                "bad request: the results of a request have at most 8 MiB: read less with limit and since, or fewer \
                 channels at once; this command was not done"
            }
            Self::TooManyLargeAnswers => "internal server error: too many large answers at a time, try again",
            Self::TooManyConnections => "bad request: the user has more than 1000 connections",
            Self::NotAvailable => "not available",
            Self::NoRoom => {
                "too many requests: there are as many channels or waiting writes as allowed, try again later"
            }
            Self::UnrecoverablePosition => "unrecoverable position",
        }
    }

    /// The status in transport error mode.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Internal | Self::TooManyLargeAnswers => StatusCode::INTERNAL_SERVER_ERROR,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::UnknownChannel | Self::NotFound => StatusCode::NOT_FOUND,
            Self::BadRequest
            | Self::TooManyChannels
            | Self::AnswerTooLarge
            | Self::TooManyConnections
            | Self::NotAvailable => StatusCode::BAD_REQUEST,
            Self::NoRoom => StatusCode::TOO_MANY_REQUESTS,
            Self::UnrecoverablePosition => StatusCode::RANGE_NOT_SATISFIABLE,
        }
    }

    pub(super) fn json(self) -> String {
        format!(r#"{{"code":{},"message":"{}"}}"#, self.code(), self.message())
    }
}

/// Errors by code: their HTTP status is 200, so the metric of requests does not show them.
#[derive(Debug)]
pub(crate) struct CentrifugoMetrics([Counter; ApiError::ALL.len()]);

impl CentrifugoMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let of =
            |error: ApiError| registry.counter(&metrics::api::CENTRIFUGO_ERRORS_TOTAL, &[&error.code().to_string()]);
        Self(ApiError::ALL.map(of))
    }

    pub(super) fn count(&self, error: ApiError) {
        let index = ApiError::ALL.iter().position(|known| *known == error).expect("ALL has every error");
        self.0[index].inc();
    }
}
