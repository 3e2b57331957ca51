//! Checks which crate depends on which (the arrows of ARCHITECTURE.md), that the page names every crate, and that every crate
//! that holds memory says how much.
//!
//! A crate is in one row and may depend only on crates in lower rows. Cores must also not depend on crates that do I/O. The
//! simulator, the client and the kit of the campaigns represent the outside world: tests of any row may use them, products only
//! from the top.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use toml::Table;

use super::source::Source;

/// The rows, from the top; `cores` and `mechanisms` are one row.
const ROWS: [&[&str]; 8] = [
    &["tidings"],
    &["demo", "bench"],
    &["server", "trial"],
    &["config"],
    &["edge", "api", "console", "sender", "gateway", "intake", "client", "cluster", "simulator"],
    &["hub", "store", "jobs", "http1", "audit"],
    &[
        "protocol",
        "stream",
        "audience",
        "push",
        "gettext",
        "feed", // cores
        "batch",
        "heap",
        "pool",
        "telemetry", // mechanisms
    ],
    &["types", "buffer"],
];
const CORES: [&str; 7] = ["protocol", "stream", "audience", "jobs", "push", "gettext", "feed"];
/// Crates that a core would need to do I/O, read a clock or start a task.
const NOT_FOR_CORES: [&str; 9] =
    ["tokio", "tokio-rustls", "tokio-util", "hyper", "hyper-util", "axum", "h2", "fjall", "socket2"];
/// Crates that tests of any row may use.
const FOR_TESTS: [&str; 3] = ["client", "simulator", "trial"];

/// The rows of crates that hold memory while the server runs.
const HOLDERS: std::ops::Range<usize> = 4..6;
/// Those of them that hold none of their own: two are not in the server, `jobs` is held by `sender`, `http1` by whoever calls.
const NO_HOLDERS: [&str; 4] = ["client", "simulator", "jobs", "http1"];
/// What a holder has: a function that says what it may take, for the memory sum.
const MEMORY_TERMS: &str = "fn memory_terms(";

/// Checks that every crate that holds memory has its terms of the memory sum.
pub(super) fn check_memory(sources: &[Source]) -> Vec<String> {
    let has_terms = |folder: &str| {
        let of_crate = format!("crates/{folder}/src/");
        sources.iter().any(|source| source.path.starts_with(&of_crate) && source.text.contains(MEMORY_TERMS))
    };
    let holders =
        ROWS[HOLDERS].iter().flat_map(|row| row.iter().copied()).filter(|folder| !NO_HOLDERS.contains(folder));
    let silent = holders.filter(|folder| !has_terms(folder));
    let complaint = |folder| format!("crates/{folder}: has no `{MEMORY_TERMS}`: say what it may hold in memory");
    silent.map(complaint).collect()
}

pub(super) fn check_arrows(sources: &[Source]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for source in sources {
        let Some(folder) = crate_of_manifest(&source.path) else { continue };
        let manifest: Table = source.text.parse().with_context(|| format!("{} is not TOML", source.path))?;
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
        let expected = if folder == "tidings" { folder.to_owned() } else { format!("tidings-{folder}") };
        if name != Some(&expected) {
            complaints.push(format!("{}: the package in this folder is called {expected}", source.path));
        }
        let Some(row) = row_of(folder) else {
            complaints.push(format!("{}: {folder} is in no row of xtask's table", source.path));
            continue;
        };
        for (section, dependency) in dependencies(&manifest) {
            let for_tests = section == "dev-dependencies";
            if let Some(why) = forbidden(folder, row, &dependency, for_tests) {
                complaints.push(format!("{}: {section}: {folder} must not know {dependency}: {why}", source.path));
            }
        }
    }
    Ok(complaints)
}

/// Why crate `folder` in `row` must not depend on `dependency`; `None` if it may.
fn forbidden(folder: &str, row: usize, dependency: &str, for_tests: bool) -> Option<&'static str> {
    if !for_tests && CORES.contains(&folder) && NOT_FOR_CORES.contains(&dependency) {
        return Some("a core does no I/O");
    }
    let theirs = dependency.strip_prefix("tidings-")?;
    if for_tests && FOR_TESTS.contains(&theirs) {
        return None;
    }
    match row_of(theirs) {
        Some(below) if below > row => None,
        Some(_) => Some("an arrow only points to a lower row"),
        None => Some("it is in no row of xtask's table"),
    }
}

fn row_of(folder: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&folder))
}

/// The folder name, if `path` is the manifest of a crate.
fn crate_of_manifest(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml").filter(|folder| !folder.contains('/'))
}

/// Each dependency with its section, those for some platforms too, under the package's real name.
fn dependencies(manifest: &Table) -> Vec<(&'static str, String)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter();
    let places = targets.flat_map(Table::values).filter_map(toml::Value::as_table).chain([manifest]);
    let mut found = Vec::new();
    for place in places {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (key, value) in place.get(section).and_then(toml::Value::as_table).into_iter().flatten() {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                found.push((section, renamed.unwrap_or(key).to_owned()));
            }
        }
    }
    found
}

/// Checks that ARCHITECTURE.md names every crate, as `crates/NAME` or `tidings-NAME`, and no other crate.
pub(super) fn check_architecture(sources: &[Source]) -> Vec<String> {
    const PAGE: &str = "ARCHITECTURE.md";
    let folders: BTreeSet<&str> = sources.iter().filter_map(|source| crate_of_manifest(&source.path)).collect();
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        return vec![format!("{PAGE}: is missing")];
    };
    let named: BTreeSet<&str> =
        ["crates/", "`tidings-"].into_iter().flat_map(|mark| names_after(&page.text, mark)).collect();
    let missing = folders.difference(&named).map(|name| format!("{PAGE}: does not name crates/{name}"));
    let invented = named.difference(&folders).map(|name| format!("{PAGE}: names crates/{name}, which does not exist"));
    missing.chain(invented).collect()
}

/// The names directly behind each `mark`.
fn names_after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(mark).filter_map(move |(at, _)| {
        let rest = &text[at + mark.len()..];
        let end =
            rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::{Source, source};
    use super::{CORES, HOLDERS, NO_HOLDERS, ROWS, check_architecture, check_arrows, check_memory};

    fn arrows(folder: &str, rest: &str) -> Vec<String> {
        let prefix = if folder == "tidings" { "" } else { "tidings-" };
        let manifest = format!("[package]\nname = \"{prefix}{folder}\"\n{rest}");
        check_arrows(&[source(&format!("crates/{folder}/Cargo.toml"), &manifest)]).unwrap()
    }

    #[test]
    fn arrows_point_down() {
        let down =
            "[dependencies]\ntidings-hub.workspace = true\ntidings-types = { path = \"../types\" }\ntokio = \"1\"";
        assert_eq!(arrows("edge", down), [""; 0]);
        for (folder, to) in [("hub", "edge"), ("edge", "gateway"), ("types", "buffer"), ("stream", "telemetry")] {
            let complaints = arrows(folder, &format!("[dependencies]\ntidings-{to}.workspace = true"));
            assert_eq!(complaints.len(), 1, "{folder} to {to}: {complaints:?}");
            assert!(complaints[0].contains(&format!("{folder} must not know tidings-{to}")), "{complaints:?}");
        }
    }

    #[test]
    fn forbidden_dependencies_are_found_in_every_section() {
        let hidden = [
            "[build-dependencies]\ntidings-edge.workspace = true",
            "[dev-dependencies]\ntidings-edge.workspace = true",
            "[target.'cfg(unix)'.dependencies]\ntidings-edge.workspace = true",
            "[dependencies]\nother = { package = \"tidings-edge\", path = \"../edge\" }",
            "[dependencies]\ntidings-unheard.workspace = true",
            "[dependencies]\ntidings-simulator.workspace = true",
        ];
        for manifest in hidden {
            assert_eq!(arrows("hub", manifest).len(), 1, "{manifest}");
        }
        assert_eq!(arrows("gateway", "[dev-dependencies]\ntidings-simulator.workspace = true"), [""; 0]);
    }

    #[test]
    fn only_tests_of_cores_may_do_io() {
        for core in CORES {
            assert_eq!(arrows(core, "[dependencies]\ntokio.workspace = true").len(), 1, "{core}");
            assert_eq!(arrows(core, "[dev-dependencies]\ntokio.workspace = true"), [""; 0]);
        }
        assert_eq!(arrows("telemetry", "[dependencies]\ntokio.workspace = true"), [""; 0]);
    }

    #[test]
    fn a_crate_is_in_one_row_and_has_its_folder_s_name() {
        assert_eq!(arrows("newcomer", "").len(), 1);
        let misnamed = source("crates/hub/Cargo.toml", "[package]\nname = \"tidings-bub\"");
        assert_eq!(check_arrows(&[misnamed]).unwrap().len(), 1);
        let mut all = ROWS.concat();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }

    #[test]
    fn a_holder_without_terms_is_found() {
        let all = ROWS[HOLDERS].concat();
        let terms = |folder: &&str| source(&format!("crates/{folder}/src/a.rs"), "pub fn memory_terms() {}");
        let but_hub: Vec<Source> = all.iter().filter(|folder| **folder != "hub").map(terms).collect();
        let hub = [source("crates/hub/src/lib.rs", "fn terms() {}")];
        let found = check_memory(&[&but_hub[..], &hub].concat());
        assert_eq!(found, ["crates/hub: has no `fn memory_terms(`: say what it may hold in memory"]);
        let holders: Vec<Source> = all.iter().filter(|folder| !NO_HOLDERS.contains(folder)).map(terms).collect();
        assert_eq!(check_memory(&holders), [""; 0]);
    }

    fn architecture(page: &str) -> Vec<String> {
        let mut sources: Vec<Source> =
            ["hub", "http1"].map(|name| source(&format!("crates/{name}/Cargo.toml"), "")).into();
        sources.push(source("ARCHITECTURE.md", page));
        check_architecture(&sources)
    }

    #[test]
    fn the_page_names_exactly_the_existing_crates() {
        assert_eq!(architecture("`crates/hub/src` and `tidings-http1`, not tidings-wide."), [""; 0]);
        assert_eq!(architecture("crates/hub"), ["ARCHITECTURE.md: does not name crates/http1"]);
        let invented = architecture("crates/hub, crates/http1, `tidings-gone`");
        assert_eq!(invented, ["ARCHITECTURE.md: names crates/gone, which does not exist"]);
        assert_eq!(check_architecture(&[]), ["ARCHITECTURE.md: is missing"]);
    }
}
