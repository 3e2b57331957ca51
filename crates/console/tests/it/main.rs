//! The console over an API that tells fixed answers and records what it is asked: who is let in, what pages look like, what
//! forms do. The console over the real server is tested in `crates/tidings` and, in a browser, in `conformance/js`.

mod forms;
mod login;
mod pages;
mod told;
