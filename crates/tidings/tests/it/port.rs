//! A port for a server that is started later, or again.

use std::net::TcpListener;

/// A port that nobody has. It is below the ports that the kernel gives to whoever asks for any, so nobody else gets it before
/// the server takes it.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::random_range(10_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
