//! The mappings that come with the program: `crates/feed/mappings`.

macro_rules! mappings {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../mappings/", $name, ".toml")))),*] };
}

/// Name and TOML.
pub(crate) const MAPPINGS: [(&str, &str); 5] =
    mappings!["news", "cap", "match-events-xml", "match-results-xml", "match-events-json"];
