//! Numbers and texts packed into bytes, for rows and files.
//!
//! A number is a varint: seven bits per byte, the lowest first; the highest bit is set in all bytes except the last (as in
//! LEB128). Bytes and texts follow their length. [`Unpack`] reads any bytes: the result is a packed value or `None`.

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes with their length in front.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The bytes that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Unpack<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << (7 * place)) >> (7 * place) != bits {
                return None; // More than 64 bits.
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                return (place == 0 || byte != 0).then_some(value); // Each number has only one encoding.
            }
        }
        None
    }

    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    /// Bytes with their length in front.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.varint()?).ok()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_read_back_and_have_only_one_encoding() {
        for value in (0..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits]).chain([u64::MAX]) {
            let mut packed = Vec::new();
            put_varint(&mut packed, value);
            let mut unpack = Unpack(&packed);
            assert_eq!((unpack.varint(), unpack.is_empty()), (Some(value), true));
            assert_eq!(Unpack(&packed[..packed.len() - 1]).varint(), None, "{value} cut off");
        }
        assert_eq!(Unpack(&[0x80, 0]).varint(), None, "a longer zero");
        assert_eq!(Unpack(&[0xff; 11]).varint(), None);
        assert_eq!(Unpack(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(), None, "65 bits");
        assert_eq!(Unpack(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint_u32(), None, "33 bits");
    }

    #[test]
    fn a_length_beyond_the_end_is_none() {
        let mut packed = Vec::new();
        put_varint(&mut packed, u64::MAX);
        assert_eq!(Unpack(&packed).bytes(), None);
    }

    proptest! {
        #[test]
        fn bytes_that_can_be_read_are_as_we_write_them(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let mut unpack = Unpack(&bytes);
            if let Some(value) = unpack.varint() {
                let mut packed = Vec::new();
                put_varint(&mut packed, value);
                prop_assert_eq!(&packed[..], &bytes[..bytes.len() - unpack.0.len()]);
            }
        }
    }
}
