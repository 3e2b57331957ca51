//! The API as its callers see it: the router, a real store in a temporary folder, a real hub.

mod centrifugo;
mod devices;
mod events;
mod operation;
mod support;
