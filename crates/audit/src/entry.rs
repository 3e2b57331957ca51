//! One line of the audit log.
//!
//! Texts are cut to [`TEXT_BYTES_MAX`], and control characters are replaced, so a line can be shown on a terminal.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tidings_telemetry::rfc3339::Rfc3339;
use tidings_types::Timestamp;

/// The most bytes of a text.
const TEXT_BYTES_MAX: usize = 200;
/// The most ids of an entry.
const ID_COUNT_MAX: usize = 16;

/// The action of a line that reports lost lines; `count` says how many.
pub const LOST: &str = "audit.lost";

/// What kind of name `who` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The name of an API key.
    Key,
    /// A user of the console.
    Console,
    /// The server itself.
    System,
}

/// An attempt to change something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it ended.
    pub at: Rfc3339,
    /// What kind of name `who` is.
    pub by: By,
    /// Who tried it.
    pub who: String,
    /// From where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// What was tried: a stable word, such as `event.publish`.
    pub action: Cow<'static, str>,
    /// What was touched: ids of events, devices, users; scopes; channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// How many further ids there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_ids: u64,
    /// Whom it is for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How many devices it is for, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<u64>,
    /// The HTTP status of the answer. 499: the caller has left before the answer.
    pub result: u16,
    /// How many attempts this line stands for, if it is more than one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// The trace of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Entry {
    /// An attempt without details, and without a result yet.
    pub fn new(by: By, who: &str, action: &'static str) -> Self {
        Self {
            at: Rfc3339(Timestamp(0)),
            by,
            who: clipped(who),
            address: None,
            action: action.into(),
            ids: Vec::new(),
            more_ids: 0,
            to: None,
            devices: None,
            result: 0,
            count: 1,
            trace: None,
        }
    }

    /// An action of the server itself.
    pub fn of_system(action: &'static str, is_done: bool) -> Self {
        Self { result: if is_done { 200 } else { 500 }, ..Self::new(By::System, "system", action) }
    }

    /// Names something that was touched. Of many ids, the first 16 are kept and the others counted.
    pub fn touch(&mut self, id: &str) {
        if self.ids.len() < ID_COUNT_MAX { self.ids.push(clipped(id)) } else { self.more_ids += 1 }
    }

    /// Says in words whom it is for; the first words count.
    pub fn address_to(&mut self, words: &str) {
        self.to.get_or_insert_with(|| clipped(words));
    }

    /// As a line.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("its keys are text");
        line.push(b'\n');
        line
    }
}

/// The text, at most [`TEXT_BYTES_MAX`] bytes of it, without control characters.
fn clipped(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    let mut clipped: String =
        text[..end].chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if end < text.len() {
        clipped.push('…');
    }
    clipped
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_only_what_is_known_and_is_read_back() {
        let mut entry = Entry { result: 201, ..Entry::new(By::Key, "ops", "brake.set") };
        entry.touch("topic:goal");
        let line = String::from_utf8(entry.line()).unwrap();
        assert_eq!(
            line,
            "{\"at\":\"1970-01-01T00:00:00.000Z\",\"by\":\"key\",\"who\":\"ops\",\"action\":\"brake.set\",\
             \"ids\":[\"topic:goal\"],\"result\":201}\n"
        );
        assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
    }

    #[test]
    fn texts_are_cut_and_cannot_change_a_terminal() {
        let mut entry = Entry::new(By::Console, "a\u{1b}[2Jb", "user.erase");
        assert_eq!(entry.who, "a\u{fffd}[2Jb");
        entry.address_to(&"ä".repeat(150));
        assert_eq!(entry.to.as_deref(), Some(format!("{}…", "ä".repeat(100)).as_str()));
        (0..20).for_each(|id| entry.touch(&id.to_string()));
        assert_eq!((entry.ids.len(), entry.more_ids), (16, 4));
    }
}
