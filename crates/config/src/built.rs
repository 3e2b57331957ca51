//! What the program was built with. Settings of a part that it lacks are read as in any other build, and then refused: a
//! setting that does nothing must not look as if it did.

use super::field::bare_or_quoted;
use super::sections::Config;

/// The parts that a program may lack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Built {
    /// The feature `cluster`.
    pub(super) cluster: bool,
    /// The feature `sources`.
    pub(super) sources: bool,
}

impl Built {
    /// This program.
    pub(super) const THIS: Self = Self { cluster: cfg!(feature = "cluster"), sources: cfg!(feature = "sources") };

    /// The settings of parts that are lacking, each with what to say of it.
    pub(super) fn refused(self, config: &Config) -> Vec<(String, String)> {
        let mut refused = Vec::new();
        if !self.cluster && !config.cluster.servers.is_empty() {
            refused.push(("cluster.servers".to_owned(), lack("cluster", "is not one of several servers")));
        }
        if !self.sources {
            let outbox = config.outbox.keys().map(|name| format!("outbox.{}", bare_or_quoted(name)));
            let streams = config.jetstream.keys().map(|name| format!("jetstream.{}", bare_or_quoted(name)));
            let told = lack("sources", "takes no events from PostgreSQL and NATS");
            refused.extend(outbox.chain(streams).map(|path| (path, told.clone())));
        }
        refused
    }
}

fn lack(feature: &str, so: &str) -> String {
    format!(
        "this program was built without the feature `{feature}`, so it {so}: leave this out, or build the program with \
         `cargo build --release -p tidings --features {feature}`"
    )
}
