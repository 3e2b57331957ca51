//! Takes the attributes of a tag apart, without memory for each tag.
//!
//! It knows the plain form only: white space, a name, `=`, a value in quotes, and no name twice. Nearly every tag has it.
//! What is wrong with another tag, quick-xml says.

use memchr::memchr;

/// Where the names and values of a tag's attributes are.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<[usize; 4]>);

impl Attributes {
    /// Takes a tag apart, behind its name. Answers whether its attributes have the plain form.
    pub(crate) fn scan(&mut self, tag: &str) -> bool {
        self.0.clear();
        let (bytes, mut at) = (tag.as_bytes(), 0);
        loop {
            let name = at + count(&bytes[at..], |byte| byte.is_ascii_whitespace());
            if name == bytes.len() {
                return true;
            }
            let name_end = name + count(&bytes[name..], is_of_name);
            let (Some(b'='), Some(quote @ (b'"' | b'\''))) = (bytes.get(name_end), bytes.get(name_end + 1)) else {
                return false;
            };
            let value = name_end + 2;
            let Some(length) = memchr(*quote, &bytes[value..]) else { return false };
            let is_known = |known: &[usize; 4]| bytes[known[0]..known[1]] == bytes[name..name_end];
            if name == at || name == name_end || self.0.iter().any(is_known) {
                return false;
            }
            self.0.push([name, name_end, value, value + length]);
            at = value + length + 1;
        }
    }

    /// Names and values of the tag that was scanned last.
    pub(crate) fn of<'t>(&self, tag: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.0.iter().map(|[name, name_end, value, value_end]| (&tag[*name..*name_end], &tag[*value..*value_end]))
    }
}

fn count(bytes: &[u8], is_it: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is_it(*byte)).unwrap_or(bytes.len())
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | 0x80..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quick_xml::events::BytesStart;

    use super::*;

    proptest! {
        /// Whatever is of the plain form, quick-xml takes apart in the same way.
        #[test]
        fn the_plain_form_is_read_as_quick_xml_reads_it(
            parts in prop::collection::vec(
                prop::sample::select(vec![" ", "\n", "a", "b:c", "é", "=", "\"", "'", "=\"x\"", "='y z'", " d=\"&amp;\"", "/", "1", "<"]),
                0..14,
            ),
        ) {
            let content = format!("tag {}", parts.concat());
            let tag = BytesStart::from_content(content.as_str(), 3);
            let raw = tag.attributes_raw();
            let mut ours = Attributes::default();
            if ours.scan(raw) {
                let theirs: Result<Vec<_>, _> = tag.attributes().with_checks(true).collect();
                let theirs = theirs.map_err(|error| TestCaseError::fail(format!("{content:?}: {error}")))?;
                let theirs: Vec<(&str, &str)> = theirs.iter().map(|it| (it.key.as_ref(), &*it.value)).collect();
                prop_assert_eq!(ours.of(raw).collect::<Vec<_>>(), theirs, "{}", content);
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_quick_xml() {
        let mut attributes = Attributes::default();
        assert!(attributes.scan("") && attributes.scan(" "));
        assert!(attributes.scan(" a=\"1\"\n b='2\"' "));
        assert_eq!(attributes.of(" a=\"1\"\n b='2\"' ").collect::<Vec<_>>(), [("a", "1"), ("b", "2\"")]);
        for tag in
            [" a", " a=", " a=1", " a=\"1", " a = \"1\"", " a=\"1\"b=\"2\"", " a=\"1\" a=\"1\"", " =\"1\"", "a=\"1\""]
        {
            assert!(!attributes.scan(tag), "{tag}");
        }
    }
}
