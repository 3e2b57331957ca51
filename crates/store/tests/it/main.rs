//! The store from outside: what is acknowledged is there, whatever happens in between.

mod backup;
mod brakes;
mod checkpoint;
mod conditions;
mod counts;
mod crash;
mod devices;
mod expiry;
mod feeds;
mod full_disk;
mod imports;
mod journal;
mod known;
mod later;
mod lost_files;
mod model;
mod mutes;
mod open;
mod panics;
mod selectors;
mod support;
mod users;
