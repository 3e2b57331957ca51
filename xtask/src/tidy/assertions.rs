//! Checks that each test asserts something.
//!
//! A test that only calls code passes whatever the code does, unless it panics. So a test holds a word of [`ASSERTING`], or
//! names a function of its own module that does so, at any depth. Helpers of other modules have names that begin with such
//! a word: `check_frame`, `until_closed`.
//!
//! Not asked: tests that must panic, ignored ones (they are the bodies of processes that other tests judge), and templates
//! in `macro_rules!`, which hold a `$`. What an assertion says, and whether it is reached, nobody checks.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::source::Source;

/// First words of names that assert: macros, methods that panic without an error, checks, and waits with a deadline.
const ASSERTING: [&str; 12] = [
    "assert",
    "debug_assert",
    "prop_assert",
    "panic",
    "unreachable",
    "unwrap_err",
    "expect_err",
    "check",
    "judge",
    "require",
    "until",
    "eventually",
];

/// Complaints about tests that assert nothing.
pub(super) fn check_tests(sources: &[Source]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let has_tests = |source: &&Source| {
        source.path.ends_with(".rs") && ["[test]", "::test"].iter().any(|it| source.text.contains(it))
    };
    for source in sources.iter().filter(has_tests) {
        let tokens = TokenStream::from_str(&source.text).map_err(|error| anyhow!("{}: {error}", source.path))?;
        Module::judge(tokens, &mut |name| {
            let line =
                source.text.lines().position(|line| line.contains(&format!("fn {name}("))).map_or(1, |at| at + 1);
            let instead = "assert what its name says, or call a helper whose name begins with `check`";
            complaints.push(format!("{}:{line}: the test {name} asserts nothing: {instead}", source.path));
        });
    }
    Ok(complaints)
}

/// The functions of a module, without those of modules in it.
#[derive(Default)]
struct Module {
    tests: Vec<Function>,
    /// All of a name: those of types may share it.
    helpers: BTreeMap<String, Vec<Function>>,
}

#[derive(Clone)]
struct Function {
    name: String,
    /// Every word of its body.
    words: Vec<String>,
}

impl Module {
    /// Tells `complain` of each test in the module and in those within it that asserts nothing.
    fn judge(tokens: TokenStream, complain: &mut impl FnMut(&str)) {
        let mut module = Self::default();
        module.read(&tokens.into_iter().collect::<Vec<_>>(), complain);
        let silent = module.tests.iter().filter(|test| !module.asserts(test, &mut Vec::new()));
        silent.for_each(|test| complain(&test.name));
    }

    fn read(&mut self, tokens: &[TokenTree], complain: &mut impl FnMut(&str)) {
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => match at.checked_sub(2).map(|before| &tokens[before]) {
                    Some(TokenTree::Ident(word)) if word == "mod" => Self::judge(group.stream(), complain),
                    _ => self.read(&group.stream().into_iter().collect::<Vec<_>>(), complain),
                },
                TokenTree::Ident(word) if word == "fn" => self.read_function(&tokens[..at], &tokens[at + 1..]),
                _ => {}
            }
        }
    }

    fn read_function(&mut self, before: &[TokenTree], tokens: &[TokenTree]) {
        let Some(TokenTree::Ident(name)) = tokens.first() else { return };
        let ends = |token: &&TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
        let body = tokens.iter().take_while(|token| !ends(token)).find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
            _ => None,
        });
        let Some(body) = body else { return };
        let mut words = Vec::new();
        let is_template = collect(body, &mut words);
        let function = Function { name: name.to_string(), words };
        let attributes = attributes(before);
        let has = |word: &str| attributes.iter().any(|it| it == word);
        if has("test") && !is_template && !has("ignore") && !has("should_panic") {
            self.tests.push(function.clone());
        }
        self.helpers.entry(function.name.clone()).or_default().push(function);
    }

    /// Whether the function asserts. `seen` are the names that were looked at on the way.
    fn asserts<'a>(&'a self, function: &'a Function, seen: &mut Vec<&'a str>) -> bool {
        function.words.iter().any(|word| {
            let is_asserting = ASSERTING
                .iter()
                .any(|first| word.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')));
            if is_asserting || seen.contains(&word.as_str()) {
                return is_asserting;
            }
            seen.push(word);
            self.helpers.get(word).is_some_and(|helpers| helpers.iter().any(|helper| self.asserts(helper, seen)))
        })
    }
}

/// Collects the words of the tokens. Returns whether there is a `$` among them.
fn collect(tokens: TokenStream, words: &mut Vec<String>) -> bool {
    tokens.into_iter().fold(false, |is_template, token| match token {
        TokenTree::Ident(word) => {
            words.push(word.to_string());
            is_template
        }
        TokenTree::Group(group) => collect(group.stream(), words) || is_template,
        TokenTree::Punct(mark) => mark.as_char() == '$' || is_template,
        TokenTree::Literal(_) => is_template,
    })
}

/// The words of the attributes at the end of `tokens`, without their arguments: of `cfg(test)` only `cfg`.
fn attributes(tokens: &[TokenTree]) -> Vec<String> {
    let mut words = Vec::new();
    for token in tokens.iter().rev() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                words.extend(group.stream().into_iter().map(|token| token.to_string()));
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            TokenTree::Punct(mark) if mark.as_char() == ';' => break,
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::source::source;
    use super::*;

    #[track_caller]
    fn check(text: &str, silent: &[&str]) {
        let complaints = check_tests(&[source("a.rs", text)]).unwrap();
        let names: Vec<_> = complaints.iter().map(|it| it.split(' ').nth(3).unwrap()).collect();
        assert_eq!(names, silent, "{text}");
    }

    #[test]
    fn a_test_without_an_assertion_is_found_with_its_line() {
        let text = "\n#[test]\nfn a() { run().unwrap(); }";
        let complaint = check_tests(&[source("x/a.rs", text)]).unwrap().remove(0);
        assert!(complaint.starts_with("x/a.rs:3: the test a asserts nothing"), "{complaint}");
        check("#[tokio::test(flavor = \"multi_thread\")]\nasync fn a() { run().await }", &["a"]);
        check("proptest! { #[test] fn a(x in 0..9) { run(x); } }", &["a"]);
        check("mod tests { #[test] #[expect(x)] fn a() {} }", &["a"]);
        check("#[test] fn a() { checked_add(1); panics(); \"assert!(x)\"; }", &["a"]);
    }

    #[test]
    fn words_that_assert_are_found_at_any_depth() {
        for word in
            ["assert!(x)", "prop_assert_eq!(x, y)", "x.unwrap_err()", "check_frame(x)", "until(x).await", "a.check()"]
        {
            check(&format!("#[test] fn a() {{ for x in y {{ z(|| {word}); }} }}"), &[]);
        }
        check("#[test] fn a() { b() } fn b() { all.for_each(c) } fn c() { assert!(x) }", &[]);
        check("#[test] fn a() { b() } fn b() { a(); b() }", &["a"]);
        check("proptest! { #[test] fn a() { B::new() } } impl B { fn new() { panic!() } }", &[]);
    }

    #[test]
    fn only_functions_of_the_same_module_count() {
        check("fn b() { assert!(x) } mod tests { #[test] fn a() { b() } }", &["a"]);
        check("fn a() { run() } trait T { fn b(); }", &[]);
    }

    #[test]
    fn some_need_none() {
        check("#[test] #[should_panic] fn a() { run() }", &[]);
        check("#[test] #[ignore = \"child process: x\"] fn a() { run() }", &[]);
        check("macro_rules! m { ($n:ident) => { #[test] fn a() { $n() } }; }", &[]);
        check("#[test] fn a() { assert!(x); } #[ignore = \"child process: x\"] fn b() {} #[test] fn c() {}", &["c"]);
        check("impl A { #[cfg(test)] fn len(&self) -> usize { self.0 } }", &[]);
    }
}
