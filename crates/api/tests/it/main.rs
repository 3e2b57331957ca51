//! The API as its callers see it: the router, a real store in a temporary folder, a real hub.

mod audience;
mod brakes;
mod centrifugo;
mod devices;
mod events;
mod later;
mod messagepack;
mod openapi;
mod operation;
mod reports;
mod support;
