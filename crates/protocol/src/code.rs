//! The numbers of the protocol with their standard texts.

use std::borrow::Cow;

/// Why a command was not done. Answered to the client; the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.message())]
#[repr(u16)]
pub enum ErrorCode {
    /// Our fault; may succeed when tried again.
    Internal = 100,
    /// Who asks has not proved who it is.
    Unauthorized = 101,
    /// The channel's namespace is not configured.
    UnknownChannel = 102,
    /// Not allowed.
    PermissionDenied = 103,
    /// No such RPC method.
    MethodNotFound = 104,
    /// The connection has this channel already.
    AlreadySubscribed = 105,
    /// The connection has as many channels as it may.
    LimitExceeded = 106,
    /// The request contradicts itself or the protocol, harmlessly.
    BadRequest = 107,
    /// Turned off here.
    NotAvailable = 108,
    /// The token was good once; a new one is needed.
    TokenExpired = 109,
    /// What the token allows has ended.
    Expired = 110,
    /// Asked too often.
    TooManyRequests = 111,
    /// The position lies outside the channel's history.
    UnrecoverablePosition = 112,
}

impl ErrorCode {
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

/// Why we hang up. On a WebSocket it is the close frame's code and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    /// The number, 3000 to 4999.
    pub code: u16,
    /// The text; a close frame carries its first 123 bytes.
    pub reason: Cow<'static, str>,
}

impl Disconnect {
    /// The server stops; clients come back elsewhere.
    pub const SHUTDOWN: Self = Self::standard(3001, "shutdown");
    /// Our fault.
    pub const INTERNAL: Self = Self::standard(3004, "internal server error");
    /// The connection token ran out and was not refreshed.
    pub const EXPIRED: Self = Self::standard(3005, "connection expired");
    /// The token of a server-side subscription ran out.
    pub const SUBSCRIPTION_EXPIRED: Self = Self::standard(3006, "subscription expired");
    /// The client reads slower than its channels speak.
    pub const SLOW: Self = Self::standard(3008, "slow");
    /// Writing to the client failed or took too long.
    pub const WRITE_ERROR: Self = Self::standard(3009, "write error");
    /// The client's position and the stream disagree.
    pub const INSUFFICIENT_STATE: Self = Self::standard(3010, "insufficient state");
    /// The operator wants the client to connect anew.
    pub const FORCE_RECONNECT: Self = Self::standard(3011, "force reconnect");
    /// A ping was not answered in time.
    pub const NO_PONG: Self = Self::standard(3012, "no pong");
    /// Asked too often.
    pub const TOO_MANY_REQUESTS: Self = Self::standard(3013, "too many requests");
    /// The client shall forget token and positions.
    pub const STATE_INVALIDATED: Self = Self::standard(3014, "state invalidated");
    /// A token is forged, malformed or another's.
    pub const INVALID_TOKEN: Self = Self::standard(3500, "invalid token");
    /// The client does not follow the protocol.
    pub const BAD_REQUEST: Self = Self::standard(3501, "bad request");
    /// No connect command in time.
    pub const STALE: Self = Self::standard(3502, "stale");
    /// The operator wants the client gone.
    pub const FORCE_DISCONNECT: Self = Self::standard(3503, "force disconnect");
    /// Too many connections, of this user or in all.
    pub const CONNECTION_LIMIT: Self = Self::standard(3504, "connection limit");
    /// Too many server-side channels.
    pub const CHANNEL_LIMIT: Self = Self::standard(3505, "channel limit");
    /// A payload cannot be carried by the client's format.
    pub const INAPPROPRIATE_PROTOCOL: Self = Self::standard(3506, "inappropriate protocol");
    /// Not allowed to connect.
    pub const PERMISSION_DENIED: Self = Self::standard(3507, "permission denied");
    /// The client relies on something that is turned off here.
    pub const NOT_AVAILABLE: Self = Self::standard(3508, "not available");
    /// Too many commands failed.
    pub const TOO_MANY_ERRORS: Self = Self::standard(3509, "too many errors");

    const fn standard(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// Whether clients come back by themselves; the number alone says it.
    pub const fn reconnect(&self) -> bool {
        !matches!(self.code, 3500..=3999 | 4500..=4999)
    }
}

/// Why the server ended a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe {
    /// The number, 2000 to 2999.
    pub code: u16,
    /// The text.
    pub reason: Cow<'static, str>,
}

impl Unsubscribe {
    /// The application asked for it.
    pub const SERVER: Self = Self::standard(2000, "server unsubscribe");
    /// The client's position and the stream disagree.
    pub const INSUFFICIENT_STATE: Self = Self::standard(2500, "insufficient state");
    /// The subscription token ran out and was not refreshed.
    pub const EXPIRED: Self = Self::standard(2501, "subscription expired");
    /// The client shall forget its position.
    pub const STATE_INVALIDATED: Self = Self::standard(2502, "state invalidated");

    const fn standard(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// Whether clients subscribe again by themselves; the number alone says it.
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
