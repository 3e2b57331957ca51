//! The error and disconnect codes of the protocol, with their standard texts. Which disconnect is used when, and its
//! limit, is in `docs/clients.md`, "How a connection ends".

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Why a command failed. The client gets it as the answer; the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.message())]
#[repr(u16)]
pub enum ErrorCode {
    /// An error of the server; a retry may succeed.
    Internal = 100,
    /// The client has not proved who it is.
    Unauthorized = 101,
    /// The channel's namespace is not configured.
    UnknownChannel = 102,
    /// The client is not allowed to do this.
    PermissionDenied = 103,
    /// No such RPC method.
    MethodNotFound = 104,
    /// The connection is already subscribed to this channel.
    AlreadySubscribed = 105,
    /// A limit is reached, such as the channels of a connection.
    LimitExceeded = 106,
    /// The request contradicts itself or the protocol, but does no harm.
    BadRequest = 107,
    /// Not available in this server.
    NotAvailable = 108,
    /// The token has expired; the client needs a new one.
    TokenExpired = 109,
    /// The permission that the token gave has ended.
    Expired = 110,
    /// The client asks too often.
    TooManyRequests = 111,
    /// The position lies outside the channel's history.
    UnrecoverablePosition = 112,
}

impl ErrorCode {
    /// All of them, by number.
    pub const ALL: [Self; 13] = [
        Self::Internal,
        Self::Unauthorized,
        Self::UnknownChannel,
        Self::PermissionDenied,
        Self::MethodNotFound,
        Self::AlreadySubscribed,
        Self::LimitExceeded,
        Self::BadRequest,
        Self::NotAvailable,
        Self::TokenExpired,
        Self::Expired,
        Self::TooManyRequests,
        Self::UnrecoverablePosition,
    ];

    /// The number.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The standard text.
    pub fn message(self) -> &'static str {
        match self {
            Self::Internal => "internal server error",
            Self::Unauthorized => "unauthorized",
            Self::UnknownChannel => "unknown channel",
            Self::PermissionDenied => "permission denied",
            Self::MethodNotFound => "method not found",
            Self::AlreadySubscribed => "already subscribed",
            Self::LimitExceeded => "limit exceeded",
            Self::BadRequest => "bad request",
            Self::NotAvailable => "not available",
            Self::TokenExpired => "token expired",
            Self::Expired => "expired",
            Self::TooManyRequests => "too many requests",
            Self::UnrecoverablePosition => "unrecoverable position",
        }
    }

    /// Whether the same request may succeed later.
    pub fn temporary(self) -> bool {
        matches!(self, Self::Internal | Self::TooManyRequests)
    }
}

/// Why the server closes a connection. On a WebSocket it is the code and the reason of the close frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disconnect {
    /// The number, 3000 to 4999.
    pub code: u16,
    /// The text; a close frame carries its first 123 bytes.
    pub reason: Cow<'static, str>,
}

impl Disconnect {
    /// The server stops; clients reconnect and resume.
    pub const SHUTDOWN: Self = Self::standard(3001, "shutdown");
    /// An error of the server.
    pub const INTERNAL: Self = Self::standard(3004, "internal server error");
    /// The connection token has expired and was not refreshed.
    pub const EXPIRED: Self = Self::standard(3005, "connection expired");
    /// The token of a server-side subscription has expired.
    pub const SUBSCRIPTION_EXPIRED: Self = Self::standard(3006, "subscription expired");
    /// The client reads more slowly than its channels publish.
    pub const SLOW: Self = Self::standard(3008, "slow");
    /// The client's position and the channel disagree.
    pub const INSUFFICIENT_STATE: Self = Self::standard(3010, "insufficient state");
    /// A ping was not answered in time.
    pub const NO_PONG: Self = Self::standard(3012, "no pong");
    /// The client asks too often.
    pub const TOO_MANY_REQUESTS: Self = Self::standard(3013, "too many requests");
    /// A token is forged, malformed, or belongs to somebody else.
    pub const INVALID_TOKEN: Self = Self::standard(3500, "invalid token");
    /// The client does not follow the protocol.
    pub const BAD_REQUEST: Self = Self::standard(3501, "bad request");
    /// No connect command in time.
    pub const STALE: Self = Self::standard(3502, "stale");
    /// The operator does not want the client to return.
    pub const FORCE_DISCONNECT: Self = Self::standard(3503, "force disconnect");
    /// Too many connections: of this user, or of all.
    pub const CONNECTION_LIMIT: Self = Self::standard(3504, "connection limit");
    /// Too many server-side channels.
    pub const CHANNEL_LIMIT: Self = Self::standard(3505, "channel limit");
    /// The client is not allowed to connect.
    pub const PERMISSION_DENIED: Self = Self::standard(3507, "permission denied");
    /// The client needs something that is not available in this server.
    pub const NOT_AVAILABLE: Self = Self::standard(3508, "not available");

    const fn standard(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// What a client gets instead of an error as the answer to `connect`, if its transport has no answers.
    pub const fn instead_of(error_code: u32) -> Self {
        match error_code {
            103 => Self::PERMISSION_DENIED,
            109 | 110 => Self::EXPIRED,
            111 => Self::TOO_MANY_REQUESTS,
            _ => Self::INTERNAL,
        }
    }

    /// Whether clients reconnect by themselves; they decide this by the code alone.
    pub const fn reconnect(&self) -> bool {
        !matches!(self.code, 3500..=3999 | 4500..=4999)
    }
}

/// Why the server ended a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsubscribe {
    /// The number, 2000 to 2999.
    pub code: u16,
    /// The text.
    pub reason: Cow<'static, str>,
}

impl Unsubscribe {
    /// The application asked for it.
    pub const SERVER: Self = Self::standard(2000, "server unsubscribe");
    /// The client's position and the channel disagree.
    pub const INSUFFICIENT_STATE: Self = Self::standard(2500, "insufficient state");
    /// The subscription token has expired and was not refreshed.
    pub const EXPIRED: Self = Self::standard(2501, "subscription expired");

    const fn standard(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// Whether clients subscribe again by themselves; they decide this by the code alone.
    pub const fn resubscribe(&self) -> bool {
        self.code >= 2500
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_says_whether_the_client_returns() {
        for (code, returns) in [
            (3000, true),
            (3499, true),
            (3500, false),
            (3999, false),
            (4000, true),
            (4499, true),
            (4500, false),
            (4999, false),
        ] {
            assert_eq!(Disconnect { code, reason: "".into() }.reconnect(), returns, "{code}");
        }
        assert!(!Unsubscribe::SERVER.resubscribe() && Unsubscribe::EXPIRED.resubscribe());
    }
}
