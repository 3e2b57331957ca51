//! The format in which a client and the server write their messages.

/// JSON or Protobuf. A client chooses its format when it connects, for the whole connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
