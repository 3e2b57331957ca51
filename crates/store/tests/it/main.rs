//! The store from outside: what is acknowledged is there, whatever happens in between.

mod brakes;
mod counts;
mod crash;
mod devices;
mod full_disk;
mod journal;
mod known;
mod later;
mod model;
mod open;
mod support;
