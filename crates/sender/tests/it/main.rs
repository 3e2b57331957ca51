//! The sender with a real store, real lakes, and a provider that answers by script.

mod delivery;
mod hold;
mod model;
mod resume;
mod telling;
mod topic;
mod world;
