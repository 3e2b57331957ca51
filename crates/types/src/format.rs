//! How the server writes its messages: the format, and the transport that carries them.

use serde::{Deserialize, Serialize};

/// JSON or Protobuf. A client chooses its format when it connects, for the whole connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Format {
    /// Lines of text.
    Json,
    /// Binary messages, each behind its length.
    Protobuf,
}

impl Format {
    /// Every format, in the order of `format as usize`.
    pub const ALL: [Self; 2] = [Self::Json, Self::Protobuf];
}

/// What carries the messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// A WebSocket, in both directions.
    WebSocket,
    /// Server-sent events; the client's commands come as requests of their own.
    Sse,
    /// The endless body of an HTTP response; the client's commands come as requests of their own.
    HttpStream,
    /// A WebSocket on which the client says nothing after its first message.
    UniWebSocket,
    /// Server-sent events, and nothing from the client.
    UniSse,
    /// The endless body of an HTTP response, and nothing from the client.
    UniHttpStream,
}

impl Transport {
    /// What Centrifugo calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
            Self::HttpStream => "http_stream",
            Self::UniWebSocket => "uni_websocket",
            Self::UniSse => "uni_sse",
            Self::UniHttpStream => "uni_http_stream",
        }
    }

    /// Whether the client cannot answer: it gets pushes, and no replies.
    pub const fn is_unidirectional(self) -> bool {
        matches!(self, Self::UniWebSocket | Self::UniSse | Self::UniHttpStream)
    }
}

/// What the messages of a connection look like, byte for byte: two connections of one variant can share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// What carries the messages.
    pub transport: Transport,
    /// How the messages are written.
    pub format: Format,
}

impl Variant {
    /// Every variant that exists: server-sent events and unidirectional transports are in JSON only.
    pub const ALL: [Self; 8] = [
        Self::websocket(Format::Json),
        Self::websocket(Format::Protobuf),
        Self::json(Transport::Sse),
        Self::json(Transport::HttpStream),
        Self { transport: Transport::HttpStream, format: Format::Protobuf },
        Self::json(Transport::UniWebSocket),
        Self::json(Transport::UniSse),
        Self::json(Transport::UniHttpStream),
    ];

    /// A WebSocket in both directions.
    pub const fn websocket(format: Format) -> Self {
        Self { transport: Transport::WebSocket, format }
    }

    const fn json(transport: Transport) -> Self {
        Self { transport, format: Format::Json }
    }
}

/// What the pushes of a subscription look like, byte for byte: two subscriptions of one form can share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushForm {
    /// What the messages of the connection look like.
    pub variant: Variant,
    /// The channel is named by its number.
    pub is_numbered: bool,
    /// The data may be told as the difference to the publication before.
    pub has_deltas: bool,
    /// The language of the texts of events; `None` in a channel without texts.
    pub language: Option<Language>,
}

/// One of the languages in which the texts of events are written for readers: its place in the server's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Language(pub u8);

impl From<Variant> for PushForm {
    /// The channel has its name, all data is whole, and there are no texts.
    fn from(variant: Variant) -> Self {
        Self { variant, is_numbered: false, has_deltas: false, language: None }
    }
}
