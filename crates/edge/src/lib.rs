//! Client connections: WebSocket.
