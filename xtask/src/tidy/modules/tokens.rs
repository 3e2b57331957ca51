//! Reads from the tokens of a Rust file which modules it declares, imports and names in paths.
//!
//! Paths are found everywhere, also in the arguments of macros and in `macro_rules!`. Code that is compiled only for tests
//! (`#[cfg(test)]`, `#[cfg(all(test, …))]`) is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A path of names, such as `["crate", "fanout", "Fanout"]`.
pub(super) type Names = Vec<String>;

/// What the text of a module shows.
#[derive(Debug, Default)]
pub(super) struct ModuleText {
    /// The modules that it declares: inline with their text, or `None` for a separate file.
    pub(super) children: BTreeMap<String, Option<ModuleText>>,
    /// The names that it defines: types, functions, constants and the like.
    pub(super) items: BTreeSet<String>,
    /// Every word of its code, except for imports.
    pub(super) words: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Paths of two names or more in the code.
    pub(super) paths: Vec<Names>,
}

/// A name that a `use` imports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) path: Names,
    /// The imported name; `None` for everything in `path`.
    pub(super) name: Option<String>,
    /// Whether it is a re-export.
    pub(super) is_public: bool,
}

impl Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path.join("::"), if self.name.is_none() { "::*" } else { "" })
    }
}

/// Reads a file.
pub(super) fn read(text: &str) -> Result<ModuleText> {
    let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("is not Rust: {error}"))?;
    let mut module = ModuleText::default();
    module.read(&tokens.into_iter().collect::<Vec<_>>());
    Ok(module)
}

impl ModuleText {
    fn read(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' && is_for_tests(&tokens[at..]) => {
                    item_len(&tokens[at..])
                }
                TokenTree::Group(group) => {
                    self.read(&group.stream().into_iter().collect::<Vec<_>>());
                    1
                }
                TokenTree::Ident(_) if !is_path_mark(&tokens[..at]) => self.read_word(&tokens[..at], &tokens[at..]),
                _ => 1,
            };
        }
    }

    /// Reads an item or a path that begins with a word. Returns the number of tokens read.
    fn read_word(&mut self, before: &[TokenTree], tokens: &[TokenTree]) -> usize {
        let word = tokens[0].to_string();
        let next = tokens.get(1).and_then(ident);
        match (word.as_str(), next) {
            ("use", _) if !is_punct(tokens.get(1), '<') => {
                let is_public = before.last().is_some_and(|token| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
                    token => ident(token).is_some_and(|word| word == "pub"),
                });
                1 + self.read_use(&tokens[1..], &[], is_public)
            }
            // `pub(in a::b)` names a module, but does not use it.
            ("pub", None) if tokens.get(1).is_some_and(is_place) => 2,
            ("mod", Some(name)) => match tokens.get(2) {
                Some(TokenTree::Group(text)) => {
                    let mut child = Self::default();
                    child.read(&text.stream().into_iter().collect::<Vec<_>>());
                    self.children.insert(name, Some(child));
                    3
                }
                _ => {
                    self.children.insert(name, None);
                    2
                }
            },
            ("struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" | "macro_rules", _) => {
                let name = tokens[1..].iter().take(2).filter_map(ident).find(|name| name != "mut");
                self.items.extend(name);
                1
            }
            _ => {
                let path = names(tokens);
                let len = 3 * path.len() - 2;
                self.words.insert(path[0].clone());
                if path.len() > 1 {
                    self.paths.push(path);
                }
                len
            }
        }
    }

    /// Reads the tree of a `use` below `prefix`. Returns the number of tokens read.
    fn read_use(&mut self, tokens: &[TokenTree], prefix: &[String], is_public: bool) -> usize {
        let global = if is_path_mark(&tokens[..tokens.len().min(2)]) { 2 } else { 0 };
        let mut path = names(&tokens[global..]);
        let mut at = global + (3 * path.len()).saturating_sub(2);
        path.splice(0..0, prefix.iter().cloned());
        if is_path_mark(&tokens[..tokens.len().min(at + 2)]) && at > global {
            at += 2;
        }
        match tokens.get(at) {
            Some(TokenTree::Group(group)) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                for tree in inner.split(|token| is_punct(Some(token), ',')).filter(|tree| !tree.is_empty()) {
                    self.read_use(tree, &path, is_public);
                }
                at + 1
            }
            token if is_punct(token, '*') => {
                self.imports.push(Import { path, name: None, is_public });
                at + 1
            }
            token => {
                let renamed = token.and_then(ident).filter(|word| word == "as").and_then(|_| tokens.get(at + 1));
                if path.last().is_some_and(|name| name == "self") && path.len() > 1 {
                    path.pop();
                }
                let name = renamed.and_then(ident).or_else(|| path.last().cloned());
                self.imports.push(Import { path, name, is_public });
                at + if renamed.is_some() { 2 } else { 0 }
            }
        }
    }
}

/// The names of the path at the beginning of `tokens`. Each name but the last takes three tokens.
fn names(tokens: &[TokenTree]) -> Names {
    let mut names = Names::new();
    let mut rest = tokens;
    while let Some(name) = rest.first().and_then(ident) {
        names.push(name);
        if rest.len() < 4 || !is_path_mark(&rest[..3]) || ident(&rest[3]).is_none() {
            break;
        }
        rest = &rest[3..];
    }
    names
}

/// Whether the last two of `tokens` are `::`.
fn is_path_mark(tokens: &[TokenTree]) -> bool {
    let [.., TokenTree::Punct(first), TokenTree::Punct(second)] = tokens else { return false };
    (first.as_char(), first.spacing(), second.as_char()) == (':', Spacing::Joint, ':')
}

fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Whether `token` is `(in …)`.
fn is_place(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    group.stream().into_iter().next().is_some_and(|first| ident(&first).is_some_and(|word| word == "in"))
}

fn ident(token: &TokenTree) -> Option<String> {
    let TokenTree::Ident(ident) = token else { return None };
    let text = ident.to_string();
    Some(text.strip_prefix("r#").map_or(text.clone(), str::to_owned))
}

/// Whether `tokens` begin with an attribute for test code.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(1) else { return false };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    let parts = text.strip_prefix("cfg(").map(|rest| rest.strip_prefix("all(").unwrap_or(rest));
    parts.is_some_and(|parts| parts.split([',', ')']).any(|part| part == "test"))
}

/// The number of tokens of an item with attributes: up to its `;`, its body in braces, or the `,` of a field.
fn item_len(tokens: &[TokenTree]) -> usize {
    const ITEMS: [&str; 11] =
        ["fn", "impl", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro_rules"];
    let (mut is_item, mut is_use) = (false, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) => {
                is_use |= word == "use";
                is_item |= ITEMS.iter().any(|item| word == item);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return at + 1,
            TokenTree::Punct(mark) if mark.as_char() == ';' => return at + 1,
            TokenTree::Punct(mark) if mark.as_char() == ',' && !is_item && !is_use => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
