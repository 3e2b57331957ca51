//! Why a request does not become a connection: what the client is told, and how it is counted.

use http::StatusCode;

/// Why a request does not become a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Not a WebSocket request.
    #[error(
        "this address serves WebSocket only: send the headers Upgrade: websocket, Connection: Upgrade and Sec-WebSocket-Key"
    )]
    NotWebSocket,
    /// A version other than 13.
    #[error("the header Sec-WebSocket-Version must be 13")]
    Version,
    /// The client wants Protobuf, and the server sends no pings.
    #[error("Protobuf needs pings, and this server sends none: some SDKs reconnect for ever without them")]
    NoPings,
    /// The page's origin is not admitted.
    #[error("the Origin header names a site that is not in client.allowed_origins")]
    Origin,
    /// A request for a stream without the client's first message.
    #[error("the query has no cf_connect, with which the client connects")]
    NoConnect,
    /// The socket cannot be taken out of the HTTP server.
    #[error("this connection cannot carry a stream")]
    NotStreamable,
    /// The client's network has as many connections as allowed.
    #[error("your address already has client.address_connection_count_max connections: close some, or try again later")]
    Address,
    /// There is no room for another connection.
    #[error("the server already has client.connection_count_max connections: try again later")]
    Full,
}

impl HandshakeError {
    pub(crate) const ALL: [Self; 8] = [
        Self::NotWebSocket,
        Self::Version,
        Self::NoPings,
        Self::Origin,
        Self::NoConnect,
        Self::NotStreamable,
        Self::Address,
        Self::Full,
    ];

    /// Its name in metrics.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotWebSocket => "not_websocket",
            Self::Version => "version",
            Self::NoPings => "no_pings",
            Self::Origin => "origin",
            Self::NoConnect => "no_connect",
            Self::NotStreamable => "not_streamable",
            Self::Address => "address",
            Self::Full => "full",
        }
    }

    /// The HTTP status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotWebSocket | Self::NoPings | Self::NoConnect => StatusCode::BAD_REQUEST,
            Self::NotStreamable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Address => StatusCode::TOO_MANY_REQUESTS,
            Self::Full => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
