//! Writes the canonical form of a PO file. It is what `msgcat --no-wrap` writes, without reordering.

use std::fmt::Write as _;

use super::entry::{Entry, FORM_KEYWORDS};

pub(crate) fn entries(entries: &[Entry]) -> String {
    let mut out = String::new();
    for (index, each) in entries.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        entry(&mut out, each);
    }
    out
}

fn entry(out: &mut String, entry: &Entry) {
    comments(out, "#", &entry.comments);
    comments(out, "#.", &entry.extracted);
    comments(out, "#:", &entry.references);
    if !entry.flags.is_empty() {
        let flags: Vec<_> = entry.flags.iter().map(String::as_str).collect();
        comments(out, "#,", &[flags.join(", ")]);
    }
    let mark = if entry.obsolete { "#~| " } else { "#| " };
    keyword(out, mark, "msgctxt", entry.previous.msgctxt.as_deref());
    keyword(out, mark, "msgid", entry.previous.msgid.as_deref());
    keyword(out, mark, "msgid_plural", entry.previous.msgid_plural.as_deref());
    let mark = if entry.obsolete { "#~ " } else { "" };
    keyword(out, mark, "msgctxt", entry.msgctxt.as_deref());
    keyword(out, mark, "msgid", Some(&entry.msgid));
    keyword(out, mark, "msgid_plural", entry.msgid_plural.as_deref());
    for (form, text) in entry.msgstr.iter().enumerate() {
        let name = if entry.msgid_plural.is_some() { FORM_KEYWORDS[form] } else { "msgstr" };
        keyword(out, mark, name, Some(text));
    }
}

fn comments(out: &mut String, mark: &str, lines: &[String]) {
    for line in lines {
        out.push_str(mark);
        if !line.is_empty() {
            out.push(' ');
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// A text of several lines is written as an empty string and one string per line.
fn keyword(out: &mut String, mark: &str, name: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    out.push_str(mark);
    out.push_str(name);
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    if lines.len() != 1 {
        lines.insert(0, "");
    }
    for (index, line) in lines.iter().enumerate() {
        out.push_str(if index == 0 { " \"" } else { mark });
        if index > 0 {
            out.push('"');
        }
        line.chars().for_each(|character| escape(out, character));
        out.push_str("\"\n");
    }
}

fn escape(out: &mut String, character: char) {
    match character {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0b' => out.push_str("\\v"),
        '\x0c' => out.push_str("\\f"),
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        // Always three digits, so that a digit after them is not read as part of the code.
        _ if character.is_ascii_control() => {
            let _ = write!(out, "\\{:03o}", u32::from(character));
        }
        _ => out.push(character),
    }
}
