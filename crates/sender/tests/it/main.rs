//! The sender with a real store, real lakes, and a provider that answers by script.

mod brakes;
mod delivery;
mod hold;
mod model;
mod places;
mod providers;
mod resume;
mod supersede;
mod telling;
mod topic;
mod totals;
mod waves;
mod why;
mod world;
