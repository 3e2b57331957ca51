//! The API as its callers see it: the router, a real store in a temporary folder, a real hub.

mod apps;
mod audience;
mod audit;
mod backup;
mod brakes;
mod centrifugo;
mod conditions;
mod devices;
mod events;
mod exports;
mod feeds;
mod imports;
mod later;
mod messagepack;
mod mutes;
mod openapi;
mod operation;
mod panics;
mod reports;
mod selectors;
mod support;
mod traces;
mod users;
mod warnings;
mod why;
