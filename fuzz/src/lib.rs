//! Every parser of remote bytes, the session as a list of operations, and every route of the HTTP API, as functions of any
//! bytes.
//!
//! A target takes any input and returns, or panics: because the code under it does, or because a promise it makes does
//! not hold. [`TARGETS`] is the list of them; `corpus/NAME` holds the inputs of each, small ones that reach far and every
//! one that ever found something. Two ways lead here:
//!
//! - `cargo test -p tidings-fuzz` gives each target its corpus. It needs nothing but the compiler.
//! - `cargo xtask fuzz` lets libFuzzer look for more (`main.rs`), guided by what the code does with an input.
//!
//! The package is part of the workspace, so that what is fuzzed is built from the `Cargo.lock` that is shipped, and with
//! the pinned compiler: libFuzzer needs its coverage instrumentation, which every Rust has, and no nightly. Address
//! sanitizer, which needs one, is left out: there is no `unsafe` here for it to watch.
//!
//! The targets that need the API have the feature `api`, which is on unless it is turned off: with it come a store, a router
//! and everything below them: 245 crates to be built with instrumentation instead of 184. `cargo xtask fuzz` builds the others alone.
//!
//! An input that was found: copy it into `corpus/NAME` and run the test, which names it; mend; leave it there.
//!
//! Not here: configuration and rows, which are ours and not remote (the shards of the index's checkpoint are too, and are here since
//! they are read at every start); the control requests of the simulator, which is no part of
//! `serve`; HTTP on the server's side and TLS, which are libraries.

#[cfg(feature = "api")]
mod api;
mod audience;
mod feed;
mod gettext;
mod http1;
mod protocol;
mod push;
#[cfg(feature = "api")]
mod routes;
mod session;
mod types;

/// A function of any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, of those that this build has.
pub const TARGETS: &[(&str, Target)] = &[
    ("answer", push::answer),
    ("catalogue", gettext::catalogue),
    #[cfg(feature = "api")]
    ("device", api::device),
    ("emulation", protocol::emulation),
    ("endpoint", push::endpoint),
    #[cfg(feature = "api")]
    ("event", api::event),
    ("feed-mapping", feed::mapping),
    ("feed-xml", feed::xml),
    ("filter", protocol::filter),
    ("frame", protocol::frame),
    ("http1_request", http1::request),
    ("http1_response", http1::response),
    ("introduction", protocol::introduction),
    ("index_shard", audience::shard),
    ("json", types::json),
    ("merging", gettext::merging),
    ("name", types::name),
    ("payload", push::payload),
    ("plural", gettext::plural),
    ("protobuf", protocol::protobuf),
    #[cfg(feature = "api")]
    ("routes", routes::routes),
    ("selector", types::selector),
    ("session", session::session),
    ("template", gettext::template),
    ("token", protocol::token),
    ("websocket", protocol::websocket),
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(other, _)| *other == name).map(|(_, target)| *target)
}
