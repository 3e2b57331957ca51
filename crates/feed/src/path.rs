//! Paths: where a value is in a document.
//!
//! ```text
//! path      = [ "/" ] step *( "/" step ) | "."
//! step      = name *( "[" test "]" ) | "@" name
//! test      = [ "!" ] path [ ( "=" | "!=" | "^=" ) "'" text "'" ]
//! ```
//!
//! A path begins at the entry; with a first `/` it begins at the document and reads what is around the entries. `a | b` is
//! the first of several paths that has a value. `.` is the entry itself, where it is a text. A name in quotes
//! (`'a/b'`) may have any character. In JSON an array is not a step: each of its elements has the array's name.

use std::fmt;

/// Paths of which the first with a value is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) is_absolute: bool,
    pub(crate) steps: Vec<Step>,
    /// The attribute at the end.
    pub(crate) attribute: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) tests: Vec<Test>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) path: Path,
    pub(crate) how: How,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Exists,
    Absent,
    Equals,
    Differs,
    BeginsWith,
}

/// Steps of a path, tests of a step, paths between `|`.
const COUNT_MAX: usize = 32;

impl Path {
    /// The paths between `|`.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let mut scanner = Scanner(text);
        let mut paths = vec![scanner.path(0)?];
        while scanner.eat("|") {
            paths.push(scanner.path(0)?);
            if paths.len() > COUNT_MAX {
                return Err(format!("has more than {COUNT_MAX} paths"));
            }
        }
        match scanner.0 {
            "" => Ok(paths),
            rest => Err(format!("cannot be read from {rest:?} on")),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = if self.is_absolute { "/" } else { "" };
        for step in &self.steps {
            write!(f, "{separator}{}", step.name)?;
            separator = "/";
        }
        match &self.attribute {
            Some(attribute) => write!(f, "{separator}@{attribute}"),
            None if self.steps.is_empty() => f.write_str("."),
            None => Ok(()),
        }
    }
}

struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn eat(&mut self, what: &str) -> bool {
        self.0 = self.0.trim_start();
        match self.0.strip_prefix(what) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn path(&mut self, nesting: usize) -> Result<Path, String> {
        let mut path = Path { is_absolute: self.eat("/"), steps: Vec::new(), attribute: None };
        if !path.is_absolute && self.eat(".") || path.is_absolute && self.0.is_empty() {
            return Ok(path);
        }
        loop {
            if self.eat("@") {
                path.attribute = Some(self.name()?);
                return Ok(path);
            }
            let mut step = Step { name: self.name()?, tests: Vec::new() };
            while self.eat("[") {
                if nesting > 0 {
                    return Err("has a test within a test".to_owned());
                }
                step.tests.push(self.test(nesting + 1)?);
            }
            path.steps.push(step);
            if path.steps.len() > COUNT_MAX {
                return Err(format!("has more than {COUNT_MAX} steps"));
            }
            if !self.eat("/") {
                return Ok(path);
            }
        }
    }

    fn test(&mut self, nesting: usize) -> Result<Test, String> {
        let is_absent = self.eat("!");
        let path = self.path(nesting)?;
        if path.is_absolute {
            return Err("has a test that does not begin at its element".to_owned());
        }
        let how = [("=", How::Equals), ("!=", How::Differs), ("^=", How::BeginsWith)];
        let how = how.into_iter().find(|(sign, _)| self.eat(sign)).map(|(_, how)| how);
        let test = match (how, is_absent) {
            (None, true) => Test { path, how: How::Absent, text: String::new() },
            (None, false) => Test { path, how: How::Exists, text: String::new() },
            (Some(_), true) => return Err("has `!` and a comparison in one test: write `!=`".to_owned()),
            (Some(how), false) => Test { path, how, text: self.quoted()? },
        };
        if self.eat("]") { Ok(test) } else { Err("lacks a `]`".to_owned()) }
    }

    fn quoted(&mut self) -> Result<String, String> {
        let quote = self.0.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let quote = quote.ok_or_else(|| format!("needs a text in quotes at {:?}", self.0))?;
        let (text, rest) = self.0[1..].split_once(quote).ok_or("has a quote that does not end")?;
        self.0 = rest.trim_start();
        Ok(text.to_owned())
    }

    fn name(&mut self) -> Result<String, String> {
        if self.0.starts_with(['\'', '"']) {
            return self.quoted();
        }
        let end = self.0.find(|letter: char| "/@[]|=!^'\"{}".contains(letter) || letter.is_whitespace());
        let (name, rest): (&'a str, _) = self.0.split_at(end.unwrap_or(self.0.len()));
        if name.is_empty() {
            return Err(match rest {
                "" => "ends where a name is expected".to_owned(),
                rest => format!("needs a name at {rest:?}"),
            });
        }
        self.0 = rest.trim_start();
        Ok(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_steps_tests_and_an_attribute() {
        let paths = Path::parse_all("Q[@id='56'][!x/y]/@value | /a/'b c' | .").unwrap();
        let shown: Vec<String> = paths.iter().map(Path::to_string).collect();
        assert_eq!(shown, ["Q/@value", "/a/b c", "."]);
        let tests = &paths[0].steps[0].tests;
        assert_eq!((tests[0].how, tests[0].text.as_str()), (How::Equals, "56"));
        assert_eq!((tests[1].how, tests[1].path.to_string().as_str()), (How::Absent, "x/y"));
    }

    #[test]
    fn what_is_no_path_is_told() {
        for (text, said) in [
            ("", "ends where a name"),
            ("a/", "ends where a name"),
            ("a//b", "needs a name"),
            ("a[b", "lacks a `]`"),
            ("a[b='c]", "does not end"),
            ("a[!b='c']", "write `!=`"),
            ("a[b[c]]", "a test within a test"),
            ("a b", "cannot be read from"),
            ("a[/b]", "begin at its element"),
        ] {
            let error = Path::parse_all(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
