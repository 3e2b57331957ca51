//! The API as its callers see it: the router, a real store in a temporary folder, a real hub.

mod audience;
mod centrifugo;
mod devices;
mod events;
mod messagepack;
mod openapi;
mod operation;
mod reports;
mod support;
