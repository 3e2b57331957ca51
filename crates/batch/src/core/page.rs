//! A page: whole messages, one after another, and the end of each.

/// Messages, copied one after another. The first messages may be evicted, which copies nothing.
#[derive(Debug, Default)]
pub(crate) struct Page {
    bytes: Vec<u8>,
    /// The end of each message in `bytes`, including evicted messages.
    ends: Vec<u32>,
    /// The number of evicted messages at the front.
    evicted_count: usize,
    /// Messages that were lost after the last one of this page and before the first one of the next page.
    pub(super) lost_behind: u64,
}

impl Page {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// The bytes for the sink.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start()..]
    }

    /// Messages that are not evicted.
    pub(super) fn count(&self) -> usize {
        self.ends.len() - self.evicted_count
    }

    /// Bytes that are not evicted.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start()
    }

    /// The size of the first message that is not evicted. There must be one.
    pub(super) fn first_len(&self) -> usize {
        self.ends[self.evicted_count] as usize - self.start()
    }

    /// The used bytes, including evicted messages.
    pub(super) fn used(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// Appends a message. The caller bounds the page to 32 bits.
    pub(super) fn append(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Evicts the first message and returns its size. There must be one.
    pub(super) fn evict_first(&mut self) -> usize {
        let start = self.start();
        self.evicted_count += 1;
        self.start() - start
    }

    /// Moves messages of together at most `bytes_max`, but at least one, from the front into the empty `other`.
    pub(super) fn split_front(&mut self, bytes_max: usize, other: &mut Self) {
        let start = self.start();
        let live = &self.ends[self.evicted_count..];
        let moved_count = live.partition_point(|end| *end as usize - start <= bytes_max).max(1);
        for _ in 0..moved_count {
            let (from, to) = (self.start(), self.ends[self.evicted_count] as usize);
            other.append(&self.bytes[from..to]);
            self.evicted_count += 1;
        }
    }

    /// Empties the page but keeps its memory, except for a large list of ends.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.ends.shrink_to(self.bytes.capacity() / 8);
        self.evicted_count = 0;
        self.lost_behind = 0;
    }

    fn start(&self) -> usize {
        self.evicted_count.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }
}
