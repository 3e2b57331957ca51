//! Checks that the files of a crate do not use each other in a circle.
//!
//! A file uses another file if its code imports something from it (`use crate::a::B`, `use super::B`, `use child::B`) or
//! contains a path into it (`crate::a::b()`, `child::b()`). Without circles, the files of a crate can be read in an order in
//! which each file uses only files before it.
//!
//! There is no exception for a parent (`foo.rs`) and its children (`foo/bar.rs`). If a parent uses a child, the child uses
//! nothing that the parent defines. What both need goes into another file, often another child such as `foo/error.rs`:
//! errors, settings, limits, or data that one part makes and another part shows. Sometimes passing a plain value or a
//! closure replaces the import.
//!
//! Details:
//! - A `mod` line does not count as use. A `pub use` of a child's item does not count either, unless the parent's own code
//!   uses the name too.
//! - A name counts for the file that defines it, not for a file that re-exports it: `crate::B` means `crate::a::B` if the
//!   root says `pub use a::B`.
//! - Code for tests (`#[cfg(test)]`) and modules with `#[path]` are ignored.
//! - Calls of methods and paths in strings are not seen. So the methods of a type may be in several files above its own.

mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context as _, Result};

use super::source::Source;
use tokens::{Import, ModuleText, Names};

/// Imports that are followed for one name, at most. A name that is imported from a crate of the same name leads to itself.
const HOP_COUNT_MAX: usize = 16;

/// Complaints about circles in all crates among `sources`.
pub(super) fn check_circles(sources: &[Source]) -> Result<Vec<String>> {
    let texts: BTreeMap<&str, &str> =
        sources.iter().map(|source| (source.path.as_str(), source.text.as_str())).collect();
    let mut complaints = Vec::new();
    for root in texts.keys().filter(|path| is_root(path)) {
        let (folder, _) = root.rsplit_once('/').expect("a root lies in a folder");
        let arrows = Crate::read(folder, root, &texts)?.arrows();
        complaints.extend(circles(&arrows).iter().map(|circle| describe(folder, circle, &arrows)));
    }
    Ok(complaints)
}

/// Whether this file is the root of a crate: `crates/NAME/src/lib.rs`, `xtask/src/main.rs` and the like.
fn is_root(path: &str) -> bool {
    let Some(folder) = path.strip_suffix("/src/lib.rs").or_else(|| path.strip_suffix("/src/main.rs")) else {
        return false;
    };
    !folder.strip_prefix("crates/").unwrap_or(folder).contains('/')
}

/// The modules of a crate, by their path from the root.
struct Crate<'a> {
    modules: BTreeMap<Names, Module<'a>>,
}

struct Module<'a> {
    /// The file of the module. Inline modules share their parent's file.
    file: &'a str,
    text: ModuleText,
}

/// For each file the files that it uses, each with a path that shows it.
type Arrows<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

impl<'a> Crate<'a> {
    /// Reads all modules of a crate, from its root on.
    fn read(folder: &str, root: &'a str, texts: &BTreeMap<&'a str, &str>) -> Result<Self> {
        let mut this = Self { modules: BTreeMap::new() };
        this.read_file(Vec::new(), folder, root, texts)?;
        Ok(this)
    }

    /// Reads the module in `file`, whose children lie in `folder`.
    fn read_file(&mut self, path: Names, folder: &str, file: &'a str, texts: &BTreeMap<&'a str, &str>) -> Result<()> {
        let text = tokens::read(texts[file]).with_context(|| file.to_owned())?;
        self.add(path, folder, file, text, texts)
    }

    fn add(
        &mut self,
        path: Names,
        folder: &str,
        file: &'a str,
        mut text: ModuleText,
        texts: &BTreeMap<&'a str, &str>,
    ) -> Result<()> {
        for (name, child) in std::mem::take(&mut text.children) {
            let inner = format!("{folder}/{name}");
            let place = [path.as_slice(), &[name]].concat();
            let files = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
            match child {
                Some(child) => self.add(place, &inner, file, child, texts)?,
                None => {
                    if let Some((file, _)) = files.iter().find_map(|file| texts.get_key_value(file.as_str())) {
                        self.read_file(place, &inner, file, texts)?;
                    }
                }
            }
        }
        self.modules.insert(path, Module { file, text });
        Ok(())
    }

    fn arrows(&self) -> Arrows<'a> {
        let mut arrows = Arrows::new();
        for (from, module) in &self.modules {
            let known = arrows.entry(module.file).or_default();
            let imports = module.text.imports.iter().filter(|import| !self.only_hands_on(from, import));
            let imports = imports.map(|import| (&import.path, import.to_string()));
            let paths = module.text.paths.iter().map(|path| (path, path.join("::")));
            for (path, shown) in imports.chain(paths) {
                let to = self.owner(from, path, HOP_COUNT_MAX).map(|owner| self.modules[&owner].file);
                if let Some(to) = to.filter(|to| *to != module.file) {
                    known.entry(to).or_insert(shown);
                }
            }
        }
        arrows
    }

    /// Whether the import only re-exports an item of a child, so that the module itself does not use it.
    fn only_hands_on(&self, from: &Names, import: &Import) -> bool {
        let owner = self.owner(from, &import.path, HOP_COUNT_MAX).filter(|owner| owner.starts_with(from));
        let Some(owner) = owner.filter(|_| import.is_public) else { return false };
        let words = &self.modules[from].text.words;
        match &import.name {
            Some(name) => !words.contains(name),
            None => self.modules[&owner].text.items.is_disjoint(words),
        }
    }

    /// The module that defines what `path` means in the module `from`; `None` if it belongs to another crate.
    fn owner(&self, from: &Names, path: &[String], hops: usize) -> Option<Names> {
        let (first, behind) = path.split_first().filter(|_| hops > 0)?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Names::new(), behind),
            "self" => (from.clone(), behind),
            "super" => (from.clone(), path),
            child if self.child(from, child).is_some() => (from.clone(), path),
            imported => {
                let import =
                    self.modules[from].text.imports.iter().find(|import| import.name.as_deref() == Some(imported))?;
                return self.owner(from, &[&import.path, behind].concat(), hops - 1);
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            if name == "super" {
                at.pop();
            } else if let Some(child) = self.child(&at, name) {
                at = child;
            } else {
                return self.owner_of_name(at, rest, hops);
            }
            rest = behind;
        }
        Some(at)
    }

    fn child(&self, parent: &Names, name: &str) -> Option<Names> {
        let child = [parent.as_slice(), &[name.to_owned()]].concat();
        self.modules.contains_key(&child).then_some(child)
    }

    /// The module that defines a path that begins with a name of module `at`, if that name is not a child module.
    fn owner_of_name(&self, at: Names, path: &[String], hops: usize) -> Option<Names> {
        let (name, behind) = path.split_first()?;
        let ModuleText { items, imports, .. } = &self.modules[&at].text;
        if items.contains(name) {
            return Some(at);
        }
        if let Some(import) = imports.iter().find(|import| import.name.as_ref() == Some(name)) {
            return self.owner(&at, &[&import.path, behind].concat(), hops - 1);
        }
        let all = imports.iter().filter(|import| import.name.is_none());
        let mut owners = all.filter_map(|import| self.owner(&at, &import.path, hops - 1));
        Some(owners.find(|owner| self.modules[owner].text.items.contains(name)).unwrap_or(at))
    }
}

/// The largest sets of files that can all reach each other, in alphabetical order.
fn circles<'a>(arrows: &Arrows<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|&file| (file, reached_from(file, arrows))).collect();
    let mut circles = BTreeSet::new();
    for (&file, reachable) in &reached {
        if reachable.contains(file) {
            circles.insert(reachable.iter().copied().filter(|other| reached[other].contains(file)).collect());
        }
    }
    circles.into_iter().collect()
}

/// All files that can be reached from `file`; `file` itself too if it is in a circle.
fn reached_from<'a>(file: &'a str, arrows: &Arrows<'a>) -> BTreeSet<&'a str> {
    let (mut reached, mut waiting) = (BTreeSet::new(), vec![file]);
    while let Some(next) = waiting.pop() {
        waiting.extend(arrows[next].keys().copied().filter(|&to| reached.insert(to)));
    }
    reached
}

/// The shortest way from `file` back to `file`, which is its last element.
fn way_round<'a>(file: &'a str, arrows: &Arrows<'a>) -> Vec<&'a str> {
    let (mut came_from, mut waiting) = (BTreeMap::new(), VecDeque::from([file]));
    while let Some(at) = waiting.pop_front() {
        for &to in arrows[at].keys() {
            if !came_from.contains_key(to) {
                came_from.insert(to, at);
                waiting.push_back(to);
            }
        }
    }
    let mut way = vec![file];
    while let Some(&before) = came_from.get(way[way.len() - 1]).filter(|before| **before != file) {
        way.push(before);
    }
    way.reverse();
    way
}

/// The complaint about a circle: its shortest way round, with an import for each step.
fn describe(folder: &str, circle: &[&str], arrows: &Arrows<'_>) -> String {
    let name = |file: &str| file[folder.len() + 1..].to_owned();
    let ways = circle.iter().map(|file| way_round(file, arrows));
    let way = ways.min_by_key(Vec::len).expect("a circle has files");
    let first = way[way.len() - 1];
    let mut from = first;
    let mut steps = Vec::new();
    for to in &way {
        steps.push(format!("{} uses {} ({})", name(from), arrows[from][to], name(to)));
        from = to;
    }
    let more = match circle.len() - way.len() {
        0 => String::new(),
        more => format!(" ({more} more files are in circles with these)"),
    };
    format!("{first}: is in a circle: {}{more}: move what both sides need into another file", steps.join(", "))
}

#[cfg(test)]
mod tests;
