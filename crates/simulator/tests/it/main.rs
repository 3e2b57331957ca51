//! The simulators as their clients see them: over TLS, HTTP/2 and HTTP/1.1.

mod certificates;
mod client;
mod control;
mod faults;
mod fcm;
mod foreign;
mod limits;
mod property;
mod requests;
mod web_push;
