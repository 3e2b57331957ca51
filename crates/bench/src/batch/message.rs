//! The messages, and the check of what came out.

use tidings_server::command_error::{CommandError, failed};

use crate::checksum::Digest;

/// Where a message has its number, behind the producer's digit and a space.
const NUMBER: std::ops::Range<usize> = 2..14;

/// Makes one producer's messages, all of the same length, in place: this costs next to nothing.
pub(super) struct Messages {
    text: Vec<u8>,
}

impl Messages {
    /// `producer` is one digit.
    pub(super) fn new(producer: usize, bytes: usize) -> Self {
        let mut text = vec![b'.'; bytes];
        text[0] = b'0' + producer as u8;
        text[1] = b' ';
        text[NUMBER].fill(b'0');
        text[NUMBER.end] = b' ';
        text[bytes - 1] = b'\n';
        Self { text }
    }

    /// The next message. The first one has the number 1.
    #[inline]
    pub(super) fn next(&mut self) -> &[u8] {
        for digit in self.text[NUMBER].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
        &self.text
    }
}

/// The counts of what came out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) count: u64,
    /// Losses that lines between the messages announce.
    pub(super) announced: u64,
}

/// Checks all lines: each is a whole message, in its producer's order, or announces losses. Also returns the digest of the
/// messages.
pub(super) fn check(all: &[u8], bytes: usize) -> Result<(Came, Digest), CommandError> {
    let (mut came, mut digest) = (Came::default(), Digest::default());
    let mut last = [0_u64; 10];
    for line in all.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line)).unwrap_or(line);
        if let Some((producer, number)) = message(line, bytes) {
            if number <= last[producer] {
                return Err(failed(format!("message {number} of producer {producer} came after {}", last[producer])));
            }
            last[producer] = number;
            came.count += 1;
            digest.add(line);
        } else if let Some(lost) = announcement(line) {
            came.announced += lost;
        } else {
            return Err(failed(format!(
                "this line is neither a message nor an announcement: {:?}",
                String::from_utf8_lossy(line)
            )));
        }
    }
    Ok((came, digest))
}

fn message(line: &[u8], bytes: usize) -> Option<(usize, u64)> {
    let producer = line.first().filter(|byte| byte.is_ascii_digit())? - b'0';
    let number = std::str::from_utf8(line.get(NUMBER)?).ok()?.parse().ok()?;
    let is_whole = line.len() + 1 == bytes && line[NUMBER.end + 1..].iter().all(|&byte| byte == b'.');
    is_whole.then_some((producer.into(), number))
}

/// The number in a line that announces losses.
fn announcement(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    text.contains("lost").then_some(())?;
    text.split(|letter: char| !letter.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(numbers: &[u64]) -> Vec<u8> {
        let mut messages = Messages::new(3, 25);
        let all: Vec<_> = (0..100).map(|_| messages.next().to_vec()).collect();
        numbers.iter().flat_map(|&number| all[number as usize - 1].clone()).collect()
    }

    #[test]
    fn messages_count_up() {
        assert_eq!(text(&[1, 100]), b"3 000000000001 .........\n3 000000000100 .........\n");
    }

    #[test]
    fn messages_and_announced_losses_are_counted() {
        let (came, digest) = check(&[text(&[1]), b"2 messages lost\n".to_vec(), text(&[4, 99])].concat(), 25).unwrap();
        assert_eq!(came, Came { count: 3, announced: 2 });
        assert_eq!(digest, check(&text(&[1, 4, 99]), 25).unwrap().1);
        assert_ne!(digest, check(&text(&[1, 4, 98]), 25).unwrap().1);
        assert_eq!(check(b"", 25).unwrap(), (Came::default(), Digest::default()));
    }

    #[test]
    fn a_doubled_cut_or_foreign_line_is_an_error() {
        check(&text(&[1, 1]), 25).unwrap_err();
        check(&text(&[2, 1]), 25).unwrap_err();
        check(&text(&[1, 2])[..40], 25).unwrap_err();
        check(b"hello\n", 25).unwrap_err();
    }
}
