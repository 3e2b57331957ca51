//! A text with named placeholders. It is split into segments once, so that filling it in takes one pass.
//!
//! `%{name}` is a placeholder, `%%` is a percent sign, and any other `%` is refused. This is the useful part of Ruby's
//! format strings. It is stricter than the check of `ruby-format` by `msgfmt -c`.

use std::collections::{BTreeMap, BTreeSet};

use tidings_types::ParamValue;
use tidings_types::event_limits::PARAM_NAME_BYTES_MAX;

use crate::error::{PlaceholderError, RenderError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Placeholder(String),
}

impl Text {
    pub(crate) fn parse(text: &str) -> Result<Self, PlaceholderError> {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            let error = PlaceholderError { at: text.len() - after.len() - 1 };
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            let (name, after) = after.strip_prefix('{').and_then(|after| after.split_once('}')).ok_or(error.clone())?;
            if !is_name(name) {
                return Err(error);
            }
            if !literal.is_empty() {
                segments.push(Segment::Literal(std::mem::take(&mut literal)));
            }
            segments.push(Segment::Placeholder(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal));
        }
        Ok(Self { segments })
    }

    pub(crate) fn placeholders(&self) -> BTreeSet<&str> {
        self.segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Placeholder(name) => Some(name.as_str()),
                Segment::Literal(_) => None,
            })
            .collect()
    }

    /// The text itself, if it has no placeholder.
    pub(crate) fn literal(&self) -> Option<&str> {
        match self.segments.as_slice() {
            [Segment::Literal(literal)] => Some(literal),
            _ => None,
        }
    }

    /// Fills in the parameters; `put` appends a value.
    pub(crate) fn fill(
        &self,
        params: &BTreeMap<String, ParamValue>,
        put: impl Fn(&mut String, &ParamValue),
    ) -> Result<String, RenderError> {
        let mut out = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => out.push_str(literal),
                Segment::Placeholder(name) => {
                    let value = params.get(name).ok_or_else(|| RenderError::MissingParam { name: name.clone() })?;
                    put(&mut out, value);
                }
            }
        }
        Ok(out)
    }
}

/// Whether this can be the name of a placeholder.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=PARAM_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_a_doubled_percent_sign_becomes_one() {
        let text = Text::parse("%{a}%{b}: 100%% %%{a} %{a}").unwrap();
        let params = ["a", "b"].map(|name| (name.to_owned(), ParamValue::Text(format!("x%{{b}}%%{name}"))));
        let put = |out: &mut String, value: &ParamValue| match value {
            ParamValue::Text(text) => out.push_str(text),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text.fill(&params.into(), put).unwrap(),
            "x%{b}%%ax%{b}%%b: 100% %{a} x%{b}%%a",
            "a value is not a template"
        );
        assert_eq!(text.placeholders().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_lone_percent_sign_is_refused_with_its_position() {
        let long = format!("%{{{}}}", "x".repeat(65));
        for (text, at) in [
            ("100 %", 4),
            ("%d", 0),
            ("a %{b", 2),
            ("%{}", 0),
            ("%%%", 2),
            ("é%{a b}", 2),
            ("%{a-b}", 0),
            ("%<a>d", 0),
            (&long, 0),
        ] {
            assert_eq!(Text::parse(text), Err(PlaceholderError { at }), "{text}");
        }
    }
}
