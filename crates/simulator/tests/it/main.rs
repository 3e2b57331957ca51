//! The simulator as its clients meet it: over TLS and HTTP/2.

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
