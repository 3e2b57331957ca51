//! The pool with correct and with faulty peers.
//!
//! `time`, `calls`, `chaos` and `property` run on tokio's paused clock over in-memory pipes. So a day of back-off takes no
//! time, and deadlines can be checked to the millisecond. `sockets`, `udp` and `redis` use real clocks and sockets.

mod calls;
mod chaos;
mod line;
mod property;
mod redis;
mod sockets;
mod time;
mod udp;
