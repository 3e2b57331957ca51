//! Ports for processes that are started later, or again and again.
//!
//! They are below those that the system gives to outgoing connections, so that none of these takes a port while its process
//! is dead. No port is handed out twice by this process before all others were.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// The port that was handed out last; 0: none.
static LAST: Mutex<u16> = Mutex::new(0);

/// A port that nobody uses at the moment.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if *last == 0 {
        *last = rand::random_range(PORTS); // Another process begins elsewhere.
    }
    for _ in PORTS {
        *last = if *last + 1 < PORTS.end { *last + 1 } else { PORTS.start };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, *last)).is_ok() {
            return *last;
        }
    }
    panic!("all ports of {PORTS:?} are taken");
}

/// The same as an address of this machine.
pub fn free_addr() -> SocketAddr {
    local(free_port())
}

/// This port on this machine.
pub fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice() {
        let mut ports: Vec<u16> = (0..20).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
