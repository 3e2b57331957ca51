//! Rules about text: module headers, no unfinished work, no ignored tests, no names of a machine, and decision records
//! numbered without gaps.
//!
//! The forbidden words are put together with `concat!`, so that this file has no complaint about itself.

use super::source::Source;

/// Words that must not be in code, and what to do instead.
const UNDONE: [(&str, &str); 4] = [
    (concat!("to", "do!("), "finish it or leave it out"),
    (concat!("unimple", "mented!("), "finish it or leave it out"),
    (concat!("TO", "DO"), "say what is missing in the module header, or open an issue"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
];

/// An ignored test. Only the body of a process that another test starts may be ignored, with this reason.
const IGNORED: &str = concat!("#[ig", "nore");
const CHILD_PROCESS: &str = "\"child process: ";

/// An error that is logged without its causes.
const BARE_ERRORS: [&str; 2] = [concat!("%er", "ror,"), concat!("%er", "ror)")];

/// Hosts of package registries. Nothing may name them, because a mirror may replace them.
const REGISTRY_HOSTS: [&str; 9] = [
    concat!("registry.", "npmjs.org"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi.", "org"),
    concat!("files.", "pythonhosted.org"),
    concat!("proxy.", "golang.org"),
    concat!("repo1.", "maven.org"),
    concat!("repo.maven.", "apache.org"),
    concat!("deb.", "debian.org"),
];

/// Beginnings of paths that exist only on one machine.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

pub(super) fn check_source(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_rust = source.path.ends_with(".rs");
    if is_rust && !source.text.trim_start().starts_with("//!") {
        complaints.push(format!("{}:1: has no `//!` header that says what the module is", source.path));
    }
    for (index, line) in source.text.lines().enumerate() {
        let mut complain = |what: String| complaints.push(format!("{}:{}: {what}", source.path, index + 1));
        if is_rust {
            for (word, instead) in UNDONE.iter().filter(|(word, _)| has_word(line, word)) {
                complain(format!("{word}: {instead}"));
            }
        }
        if is_rust && BARE_ERRORS.iter().any(|bare| line.contains(bare)) {
            complain("logs an error without its causes: use `error = chain(&error)`".to_owned());
        }
        if is_rust && line.contains(IGNORED) && !line.contains(CHILD_PROCESS) {
            complain(format!("{IGNORED}]: a slow suite is a step of `cargo xtask test`, not an ignored test"));
        }
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            complain(format!("names the registry host {host}"));
        }
        for path in MACHINE_PATHS.iter().filter(|path| has_path(line, path)) {
            complain(format!("names a path of one machine ({path}…)"));
        }
    }
    complaints
}

/// Whether `line` contains `word`, but not as the end of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Whether `line` contains an absolute path that begins with `path`, and not within another path or address.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~/}*".contains(c)))
}

/// Checks decision records: `docs/decisions/NNNN-title.md`, numbered from 0001 without gap or repeat.
pub(super) fn check_decisions(sources: &[Source]) -> Vec<String> {
    const FOLDER: &str = "docs/decisions/";
    let mut names: Vec<&str> = sources.iter().filter_map(|source| source.path.strip_prefix(FOLDER)).collect();
    names.retain(|name| *name != "README.md");
    names.sort_unstable();
    let mut complaints = Vec::new();
    let mut next = 1;
    for name in names {
        let number = name.split_once('-').filter(|(digits, title)| digits.len() == 4 && title.ends_with(".md"));
        match number.and_then(|(digits, _)| digits.parse::<u32>().ok()) {
            Some(number) => {
                if number != next {
                    complaints.push(format!("{FOLDER}{name}: the next number is {next:04}"));
                }
                next = number + 1;
            }
            None => complaints.push(format!("{FOLDER}{name}: is not called NNNN-title.md")),
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::source::{Source, source};
    use super::{BARE_ERRORS, MACHINE_PATHS, REGISTRY_HOSTS, UNDONE, check_decisions, check_source};

    fn complaints(path: &str, text: &str) -> usize {
        check_source(&source(path, text)).len()
    }

    #[test]
    fn every_module_has_a_header() {
        assert_eq!(complaints("a.rs", "//! What it is.\nfn main() {}"), 0);
        assert_eq!(complaints("a.rs", "\n// What it is.\nfn main() {}"), 1);
        assert_eq!(complaints("a.rs", ""), 1);
        assert_eq!(complaints("a.md", "# Title"), 0);
    }

    #[test]
    fn forbidden_words_are_found_in_code_as_whole_words() {
        for (word, _) in UNDONE {
            assert_eq!(complaints("a.rs", &format!("//! A.\n    {word} x")), 1, "{word}");
            assert_eq!(complaints("a.md", word), 0, "{word}");
        }
        assert_eq!(complaints("a.rs", concat!("//! A.\nMAS", "TO", "DO")), 0);
    }

    #[test]
    fn an_error_must_be_logged_with_its_causes() {
        for bare in BARE_ERRORS {
            assert_eq!(complaints("a.rs", &format!("//! A.\nwarn!({bare} \"Cannot read\");")), 1);
        }
        assert_eq!(complaints("a.rs", "//! A.\nwarn!(error = chain(&error), \"Cannot read\");"), 0);
    }

    #[test]
    fn hosts_and_machine_paths_are_found_in_every_file() {
        for host in REGISTRY_HOSTS {
            assert_eq!(complaints("a.json", &format!("\"https://{host}/x\"")), 1, "{host}");
        }
        for path in MACHINE_PATHS {
            for around in ["", "\"", "= ", "(", "file:"] {
                assert_eq!(complaints("a.toml", &format!("{around}{path}x")), 1, "{around}{path}");
            }
            for around in ["https://example.org", "./a", "~", "${x}"] {
                assert_eq!(complaints("a.toml", &format!("{around}{path}x")), 0, "{around}{path}");
            }
        }
    }

    #[test]
    fn a_complaint_names_the_line() {
        let text = format!("//! A.\n\n{}", UNDONE[1].0);
        assert!(check_source(&source("x/a.rs", &text))[0].starts_with("x/a.rs:3: "));
    }

    fn decisions(names: &[&str]) -> Vec<String> {
        let sources: Vec<Source> = names.iter().map(|name| source(&format!("docs/decisions/{name}"), "")).collect();
        check_decisions(&sources)
    }

    #[test]
    fn decisions_are_numbered_without_gaps() {
        assert_eq!(decisions(&["0002-b.md", "README.md", "0001-a.md"]), [""; 0]);
        assert_eq!(decisions(&["0001-a.md", "0003-c.md"]), ["docs/decisions/0003-c.md: the next number is 0002"]);
        assert_eq!(decisions(&["0001-a.md", "0001-b.md"]), ["docs/decisions/0001-b.md: the next number is 0002"]);
        assert_eq!(decisions(&["1-a.md"]), ["docs/decisions/1-a.md: is not called NNNN-title.md"]);
        assert_eq!(decisions(&["0001-a.txt"]).len(), 1);
    }
}
