//! The table of all metrics: the one place where names, labels and meanings are written.
//!
//! A constant is called like its metric, in capital letters, without `tidings_` and without the name of its module:
//! [`edge::COMMANDS_TOTAL`] is `tidings_edge_commands_total`. `docs/metrics.md` is made from this table. The test
//! `the_page_has_this_table` compares the two.
//!
//! This is the only part of the crate that knows what the server consists of.

pub mod api;
pub mod audit;
pub mod cluster;
pub mod edge;
pub mod gateway;
pub mod hooks;
pub mod http;
pub mod hub;
pub mod influx;
pub mod intake;
pub mod process;
pub mod sender;
pub mod server;
pub mod store;
pub mod traces;
pub mod webhook;

use crate::metric::{Group, Metric};

/// All groups, in the order of the page.
pub static GROUPS: [&Group; 16] = [
    &sender::GROUP,
    &gateway::GROUP,
    &edge::GROUP,
    &hub::GROUP,
    &store::GROUP,
    &api::GROUP,
    &http::GROUP,
    &intake::GROUP,
    &webhook::GROUP,
    &hooks::GROUP,
    &influx::GROUP,
    &audit::GROUP,
    &traces::GROUP,
    &cluster::GROUP,
    &server::GROUP,
    &process::GROUP,
];

/// Every metric of the server, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    GROUPS.iter().flat_map(|group| group.metrics).copied()
}

#[cfg(test)]
mod tests;
