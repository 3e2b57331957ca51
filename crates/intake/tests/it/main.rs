//! Feeds as their providers, files and senders see them: a real store, real HTTP, and a door that the test watches.

mod files;
#[cfg(feature = "sources")]
mod hostile;
mod polling;
mod receiving;
mod support;
