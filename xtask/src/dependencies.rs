//! Checks what comes into the tree, by the rules of `deny.toml`: licences, banned crates, crates in several versions, versions
//! that may be any, and sources. Also checks that parts which can be left out of a build take their dependencies with them.
//!
//! `cargo deny` (`cargo xtask deny`) reads the same file and looks closer: it reads the texts of licences, too. To build it takes
//! minutes. This check takes a second, because cargo itself says what is in the tree: `cargo tree` knows which optional
//! dependencies are really used, which `cargo metadata` and `Cargo.lock` do not.
//!
//! A key of `deny.toml` that this check does not know is an error, so that the two cannot mean different rules.

mod licence;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use toml::Table;

/// A crate that is in the default registry, from which all packages but our own are.
const AT_HOME: &str = "serde";

/// Builds, by their arguments of `cargo tree`, and what must not be in them.
const LEAN: [(&[&str], &[&str]); 4] = [
    (
        &["-p", "tidings", "--no-default-features"],
        &["async-nats", "tokio-postgres", "tidings-cluster", "tidings-bench"],
    ),
    (
        &["-p", "tidings", "--no-default-features", "--features", "cluster"],
        &["tokio-postgres", "tokio-postgres-rustls"],
    ),
    (&["-p", "tidings", "--no-default-features", "--features", "sources"], &["tidings-cluster"]),
    (
        &["-p", "tidings-fuzz", "--no-default-features", "--features", "libfuzzer"],
        &["axum", "fjall", "tidings-api", "tidings-hub", "tidings-store"],
    ),
];

/// The rules. Values that only `cargo deny` uses, and values that this check knows in one form only, are read to be checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
    #[expect(dead_code, reason = "read to be refused in another form")]
    sources: Sources,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
    all_features: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Licences {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
    #[expect(dead_code, reason = "only `cargo deny` reads the texts of licences")]
    confidence_threshold: f64,
    /// Whether crates of tests count, too.
    include_dev: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    allow: Vec<String>,
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bans {
    #[expect(dead_code, reason = "read to be refused in another form")]
    multiple_versions: Level,
    /// Whether crates of tests count, too.
    multiple_versions_include_dev: bool,
    #[expect(dead_code, reason = "read to be refused in another form")]
    wildcards: Level,
    /// Whether our own crates may have them among each other.
    allow_wildcard_paths: bool,
    deny: Vec<Named>,
    skip: Vec<Named>,
}

/// A crate, or one version of it (`name@version`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(dead_code, reason = "read to be refused in another form")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
}

/// The only level that this check knows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
}

/// A package in the tree.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    /// As its manifest says; empty if it says nothing.
    licence: String,
}

/// What is wrong with the dependencies of the repository at `root`, each with what would satisfy the rule.
///
/// # Errors
/// If cargo, `deny.toml` or `Cargo.lock` cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let rules = read_rules(&fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?)?;
    let packages = packages(root, &rules.graph)?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let ours = cargo(root, &["metadata", "--locked", "--no-deps", "--format-version", "1"])?;
    let mut complaints = licences(&rules.licenses, &packages);
    complaints.extend(banned(&rules.bans, &packages));
    complaints.extend(several_versions(&rules.bans, &packages));
    complaints.extend(any_versions(&ours)?);
    complaints.extend(sources(&lock)?);
    for (build, absent) in LEAN {
        let tree = cargo(root, &[&TREE, build, &["-e", "normal"]].concat())?;
        complaints.extend(left_in(build, absent, &read_tree(&tree)));
    }
    Ok(complaints)
}

fn read_rules(text: &str) -> Result<Rules> {
    let rules: Rules =
        toml::from_str(text).context("deny.toml has a rule that xtask/src/dependencies.rs does not know")?;
    let Rules { graph, licenses, bans, .. } = &rules;
    let switches =
        [graph.all_features, licenses.include_dev, bans.multiple_versions_include_dev, bans.allow_wildcard_paths];
    if switches.contains(&false) {
        bail!("deny.toml: xtask/src/dependencies.rs knows each switch as true only");
    }
    Ok(rules)
}

/// Prints each package in a line of its own: name, version, perhaps more; a tab; the licence.
const TREE: [&str; 6] = ["tree", "--locked", "--prefix", "none", "--format", "{p}\t{l}"];

/// Everything that a build, a test or a build script of any of our crates uses where the server runs.
fn packages(root: &Path, graph: &Graph) -> Result<BTreeSet<Package>> {
    let targets: Vec<&str> = graph.targets.iter().flat_map(|target| ["--target", target.as_str()]).collect();
    let words = [&TREE[..], &["--workspace", "--all-features", "-e", "normal,build,dev"], &targets].concat();
    Ok(read_tree(&cargo(root, &words)?))
}

fn cargo(root: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command.args(words).current_dir(root).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("cargo does not print text")
}

fn read_tree(text: &str) -> BTreeSet<Package> {
    let package = |line: &str| {
        let (package, licence) = line.split_once('\t')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
        // A package that was printed before has a mark at the end.
        Some(Package { name, version, licence: licence.trim_end_matches("(*)").trim().to_owned() })
    };
    text.lines().filter_map(package).collect()
}

fn licences(rules: &Licences, packages: &BTreeSet<Package>) -> Vec<String> {
    let mut complaints = Vec::new();
    for Package { name, version, licence } in packages {
        let exceptions = rules.exceptions.iter().filter(|exception| exception.name == *name);
        let excepted: Vec<&String> = exceptions.flat_map(|exception| &exception.allow).collect();
        let is_allowed = |licence: &str| rules.allow.iter().chain(excepted.iter().copied()).any(|one| one == licence);
        match licence::is_met(licence, is_allowed) {
            Some(true) => {}
            Some(false) => complaints.push(format!(
                "deny.toml: {name} {version} has the licence {licence}: allow it there, or use another crate"
            )),
            None => {
                complaints.push(format!("deny.toml: {name} {version} has no licence that can be read, but {licence:?}"))
            }
        }
    }
    let is_there = |name: &String| packages.iter().any(|package| package.name == *name);
    let idle = rules.exceptions.iter().filter(|exception| !is_there(&exception.name));
    complaints.extend(idle.map(|exception| format!("deny.toml: the exception for {} is not needed", exception.name)));
    complaints
}

fn banned(rules: &Bans, packages: &BTreeSet<Package>) -> Vec<String> {
    let of = |package: &Package| rules.deny.iter().find(|banned| banned.name == package.name);
    let complaint = |package: &Package| {
        let Named { name, reason } = of(package)?;
        Some(format!("Cargo.lock: {name} {} is in the tree, and deny.toml bans it: {reason}", package.version))
    };
    packages.iter().filter_map(complaint).collect()
}

/// Crates of which there is more than one version besides those that are skipped, and versions that are skipped for nothing.
fn several_versions(rules: &Bans, packages: &BTreeSet<Package>) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let (mut complaints, mut left) = (Vec::new(), versions.clone());
    for Named { name: skipped, .. } in &rules.skip {
        let Some((name, version)) = skipped.split_once('@') else {
            complaints.push(format!("deny.toml: skip {skipped} must name a version: NAME@VERSION"));
            continue;
        };
        let is_one_of_several = versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(&version));
        if !is_one_of_several {
            complaints.push(format!("deny.toml: skip {skipped} is not needed: take it out"));
        }
        if let Some(left) = left.get_mut(name) {
            left.retain(|other| *other != version);
        }
    }
    for (name, left) in left.into_iter().filter(|(_, left)| left.len() > 1) {
        let all = left.join(", ");
        complaints.push(format!(
            "Cargo.lock: {name} is in the tree as {all}: make it one version, or skip all but one in deny.toml with the reason"
        ));
    }
    complaints
}

/// Our dependencies on any version of a crate. A registry takes no crate that has one.
fn any_versions(metadata: &str) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Ours>,
    }
    #[derive(Deserialize)]
    struct Ours {
        name: String,
        dependencies: Vec<Dependency>,
    }
    #[derive(Deserialize)]
    struct Dependency {
        name: String,
        req: String,
        path: Option<String>,
    }
    let metadata: Metadata = serde_json::from_str(metadata).context("cargo metadata has another form")?;
    let any = |ours: Ours| {
        let any = ours.dependencies.into_iter().filter(|it| it.req == "*" && it.path.is_none());
        any.map(move |it| format!("Cargo.toml: {} takes any version of {}: name one", ours.name, it.name))
    };
    Ok(metadata.packages.into_iter().flat_map(any).collect())
}

/// Packages that are neither ours nor from the registry.
fn sources(lock: &str) -> Result<Vec<String>> {
    let lock: Table = lock.parse().context("Cargo.lock is not TOML")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let of = |package: &toml::Value, key| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let home = packages.iter().find(|package| of(package, "name").as_deref() == Some(AT_HOME));
    let home = home.and_then(|package| of(package, "source")).filter(|source| source.starts_with("registry+"));
    let home = home.with_context(|| format!("Cargo.lock has no {AT_HOME} from a registry"))?;
    let foreign = packages.iter().filter_map(|package| {
        let source = of(package, "source").filter(|source| *source != home)?;
        let name = of(package, "name").unwrap_or_default();
        Some(format!("Cargo.lock: {name} is from {source}: only packages of the default registry may be used"))
    });
    Ok(foreign.collect())
}

/// What a build has though it should not.
fn left_in(build: &[&str], absent: &[&str], packages: &BTreeSet<Package>) -> Vec<String> {
    let found = packages.iter().filter(|package| absent.contains(&package.name.as_str()));
    let complaint =
        |package: &Package| format!("Cargo.toml: {} is linked by `cargo build {}`", package.name, build.join(" "));
    found.map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{
        LEAN, Package, any_versions, banned, left_in, licences, packages, read_rules, read_tree, several_versions,
        sources,
    };

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        all-features = true
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ allow = ["NCSA"], crate = "fuzzer" }]
        confidence-threshold = 0.9
        include-dev = true
        [bans]
        multiple-versions = "deny"
        multiple-versions-include-dev = true
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{ crate = "ring", reason = "one is enough" }]
        skip = [{ crate = "syn@2.0.1", reason = "macros of others" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    fn tree(text: &str) -> BTreeSet<Package> {
        read_tree(&text.replace('|', "\t"))
    }

    #[test]
    fn the_tree_is_read_with_each_package_once() {
        let read = tree(
            "own v0.0.0 (/a/b)|MIT\nsyn v2.0.1|MIT OR Apache-2.0 (*)\nsyn v2.0.1|MIT OR Apache-2.0\nm v1.0.0 (proc-macro)|",
        );
        let package = |name: &str, version: &str, licence: &str| {
            let [name, version, licence] = [name, version, licence].map(str::to_owned);
            Package { name, version, licence }
        };
        let expected =
            [package("m", "1.0.0", ""), package("own", "0.0.0", "MIT"), package("syn", "2.0.1", "MIT OR Apache-2.0")];
        assert_eq!(read.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_licence_is_allowed_for_all_or_for_one_crate() {
        let rules = read_rules(RULES).unwrap();
        let of = |text: &str| licences(&rules.licenses, &tree(text));
        assert_eq!(of("a v1.0.0|MIT OR GPL-3.0\nfuzzer v1.0.0|MIT AND NCSA"), [""; 0]);
        let wrong = of("a v1.0.0|MIT AND GPL-3.0\nb v1.0.0|\nc v1.0.0|NCSA");
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].contains("a 1.0.0 has the licence MIT AND GPL-3.0"), "{wrong:?}");
        assert!(
            wrong[1].contains("b 1.0.0 has no licence") && wrong[2].contains("c 1.0.0 has the licence NCSA"),
            "{wrong:?}"
        );
        assert_eq!(wrong[3], "deny.toml: the exception for fuzzer is not needed");
    }

    #[test]
    fn banned_crates_second_versions_and_idle_skips_are_found() {
        let rules = read_rules(RULES).unwrap().bans;
        assert_eq!(several_versions(&rules, &tree("syn v2.0.1|MIT\nsyn v3.0.0|MIT")), [""; 0]);
        let three = several_versions(&rules, &tree("syn v2.0.1|MIT\nsyn v3.0.0|MIT\nsyn v4.0.0|MIT"));
        assert!(three.len() == 1 && three[0].contains("syn is in the tree as 3.0.0, 4.0.0"), "{three:?}");
        for idle in ["syn v2.0.1|MIT", "syn v2.0.2|MIT\nsyn v3.0.0|MIT"] {
            let found = several_versions(&rules, &tree(idle));
            assert!(found[0].contains("skip syn@2.0.1 is not needed"), "{found:?}");
        }
        let loose = read_rules(&RULES.replace("syn@2.0.1", "syn")).unwrap().bans;
        assert!(several_versions(&loose, &tree(""))[0].contains("must name a version"));
        let banned = banned(&rules, &tree("ring v0.1.0|MIT\nstring v1.0.0|MIT"));
        assert_eq!(banned, ["Cargo.lock: ring 0.1.0 is in the tree, and deny.toml bans it: one is enough"]);
    }

    #[test]
    fn rules_that_this_check_does_not_know_are_an_error() {
        let changes = [
            ("multiple-versions = \"deny\"", "multiple-versions = \"warn\""),
            ("wildcards = \"deny\"", "wildcards = \"deny\"\nhighlight = \"all\""),
            ("all-features = true", "all-features = false"),
            ("unknown-git = \"deny\"", "unknown-git = \"allow\""),
        ];
        for (from, to) in changes {
            assert!(read_rules(&RULES.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn any_versions_and_other_sources_are_found() {
        let metadata = r#"{"packages": [{"name": "own", "dependencies": [
            {"name": "a", "req": "*", "path": null},
            {"name": "b", "req": "*", "path": "/c"},
            {"name": "d", "req": "^1", "path": null}]}]}"#;
        assert_eq!(any_versions(metadata).unwrap(), ["Cargo.toml: own takes any version of a: name one"]);
        let package = |name: &str, source: &str| format!("[[package]]\nname = {name:?}\nsource = {source:?}\n");
        let home = package("serde", "registry+https://example.com/index");
        let others = package("a", "registry+https://example.com/index") + &package("b", "git+https://example.com/b#1");
        let foreign = sources(&(home + &others + "[[package]]\nname = \"own\"")).unwrap();
        assert!(sources(&others).is_err(), "nobody knows which registry is the default one");
        assert!(foreign.len() == 1 && foreign[0].contains("b is from git+https://example.com/b"), "{foreign:?}");
    }

    /// Else a renamed crate would be absent for ever.
    #[test]
    fn what_a_lean_build_lacks_is_in_the_whole_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let rules = read_rules(&std::fs::read_to_string(root.join("deny.toml")).unwrap()).unwrap();
        let all = packages(root, &rules.graph).unwrap();
        for (build, absent) in LEAN {
            for name in absent {
                assert!(!left_in(build, &[name], &all).is_empty(), "{name}");
            }
        }
    }
}
