//! The Centrifugo client protocol: JSON codec, WebSocket framing, the session of commands.
