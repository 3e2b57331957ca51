//! The subscribers of a channel, by loop.

use crate::sum::Share;

/// The index of an edge loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoopId(pub(crate) usize);

/// The loops that have subscribers of a channel, each once.
#[derive(Debug)]
pub(super) struct Readers {
    loops: Vec<Reader>,
    /// The subscribers of all loops.
    count: Share,
}

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) loop_id: LoopId,
    pub(super) subscriber_count: usize,
    /// No subscriber of the loop needs a frame before this one.
    pub(super) next: u64,
    pub(super) dirty: bool,
    /// The loop has taken all frames before this one.
    pub(super) fetched: u64,
    /// Many of its subscribers are far behind.
    pub(super) are_late: bool,
}

impl Readers {
    /// None yet. They count in `count`.
    pub(super) const fn none(count: Share) -> Self {
        Self { loops: Vec::new(), count }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.loops.is_empty()
    }

    /// The subscribers of all loops.
    pub(super) const fn subscriber_count(&self) -> usize {
        self.count.amount()
    }

    pub(super) fn of(&mut self, loop_id: LoopId) -> Option<&mut Reader> {
        self.loops.iter_mut().find(|reader| reader.loop_id == loop_id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reader> {
        self.loops.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reader> {
        self.loops.iter_mut()
    }

    /// The first frame that a subscriber may need.
    pub(super) fn next(&self) -> Option<u64> {
        self.loops.iter().map(|reader| reader.next).min()
    }

    /// A subscriber comes, which needs no frame before `next`.
    pub(super) fn enter(&mut self, loop_id: LoopId, next: u64) {
        match self.of(loop_id) {
            Some(reader) => reader.subscriber_count += 1,
            None => {
                let (fetched, dirty, are_late) = (next, false, false);
                self.loops.push(Reader { loop_id, subscriber_count: 1, next, dirty, fetched, are_late });
            }
        }
        self.count.set(self.count.amount() + 1);
    }

    /// A subscriber leaves. Returns whether it was there.
    pub(super) fn leave(&mut self, loop_id: LoopId) -> bool {
        let Some(index) = self.loops.iter().position(|reader| reader.loop_id == loop_id) else { return false };
        self.loops[index].subscriber_count -= 1;
        if self.loops[index].subscriber_count == 0 {
            self.loops.swap_remove(index);
        }
        self.count.set(self.count.amount() - 1);
        true
    }
}
