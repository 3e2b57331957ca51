//! The sender with a real store, real lakes, and a provider that answers by script.

mod delivery;
mod model;
mod resume;
mod topic;
mod world;
