//! The pool against peers that behave, and peers that do not.
//!
//! `time`, `calls`, `chaos` and `property` run on tokio's paused clock over in-memory pipes: a day of back-off takes no
//! time, and "at its deadline" can be checked to the millisecond. `sockets`, `udp` and `redis` use real ones.

mod calls;
mod chaos;
mod line;
mod property;
mod redis;
mod sockets;
mod time;
mod udp;
