//! A decoder of Fossil deltas, written from the description of the format alone; tests of several crates use it.

const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Applies a delta; `None`: it is malformed or for another payload.
pub(crate) fn apply(old: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    fn number(delta: &mut &[u8]) -> Option<(usize, u8)> {
        let mut value = 0;
        loop {
            let (&byte, rest) = delta.split_first()?;
            *delta = rest;
            match DIGITS.find(char::from(byte)) {
                Some(digit) => value = value * 64 + digit,
                None => return Some((value, byte)),
            }
        }
    }
    let (length, b'\n') = number(&mut delta)? else { return None };
    let mut new = Vec::new();
    loop {
        match number(&mut delta)? {
            (count, b'@') => {
                let (offset, b',') = number(&mut delta)? else { return None };
                new.extend_from_slice(old.get(offset..offset + count)?);
            }
            (count, b':') => {
                let (literal, rest) = delta.split_at_checked(count)?;
                new.extend_from_slice(literal);
                delta = rest;
            }
            (sum, b';') => {
                let words = new.chunks(4).map(|chunk| {
                    let at = |index: usize| u64::from(chunk.get(index).copied().unwrap_or(0));
                    at(0) << 24 | at(1) << 16 | at(2) << 8 | at(3)
                });
                let expected = words.sum::<u64>() % (1 << 32);
                return (delta.is_empty() && new.len() == length && sum as u64 == expected).then_some(new);
            }
            _ => return None,
        }
    }
}
