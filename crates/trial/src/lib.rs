//! The kit of the campaigns: what they start, drive, watch and judge the real program with.
//!
//! `README.md` of this crate says how to write a campaign. A part is a module:
//! - [`launcher`] is one server, [`brokers`] are NATS servers, [`fleet`] is a cluster of servers on them; [`process`] and [`ports`]
//!   are below these;
//! - [`proxy`] is a wire that can be slowed, held up and cut;
//! - [`caller`] is a back end that keeps its connection and can insist; [`raw`] is one request as bytes; [`token`] signs what
//!   clients claim;
//! - [`watcher`] is a client that records what it gets, and resumes;
//! - [`ledger`] posts events, and knows what was acknowledged; [`judge`] says what is wrong with what is there;
//! - [`wait`] waits for a condition.
//!
//! Everything here but [`process`], [`ports`] and [`caller::Caller::call`] panics when something is not as it should be: it is for
//! tests. It knows the program only from outside, by its command line and its protocols.

pub mod brokers;
pub mod caller;
pub mod fleet;
pub mod judge;
pub mod launcher;
pub mod ledger;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod token;
pub mod wait;
pub mod watcher;
