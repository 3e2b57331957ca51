//! Memory for short byte strings, without the overhead and the gaps of the allocator.
//!
//! Strings of about the same length are side by side in pages. Lengths are rounded up to 4 bytes, above 64 to an eighth
//! of a power of two. Each string has its owner's number before it, 4 bytes. A freed place is filled with the last
//! string of its kind, and the caller learns which one moved. So there are no holes, and only a part of one page for
//! each length is unused.

/// The longest string.
pub(crate) const POOLED_BYTES_MAX: usize = 1024;

const PAGE_BYTES: usize = 16 * 1024;
const UNIT_BYTES: usize = 4;
const OWNER_BYTES: usize = size_of::<u32>();

/// Where a string is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    class: u16,
    bytes: u16,
    slot: u32,
}

/// The string of `owner` is now in `slot` of its class.
pub(crate) struct Moved {
    pub(crate) owner: u32,
    slot: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By room in units.
    classes: Vec<Class>,
}

#[derive(Debug, Default)]
struct Class {
    pages: Vec<Vec<u8>>,
    count: u32,
}

impl Place {
    pub(crate) fn move_to(&mut self, Moved { slot, .. }: Moved) {
        self.slot = slot;
    }

    /// Whether so many bytes can be there instead.
    pub(crate) fn fits(self, bytes: usize) -> bool {
        self.class == class_of(bytes)
    }
}

impl Pool {
    pub(crate) fn bytes_at(&self, place: Place) -> &[u8] {
        let (page, at) = place.within_class();
        &self.classes[usize::from(place.class)].pages[page][at + OWNER_BYTES..][..usize::from(place.bytes)]
    }

    pub(crate) fn insert(&mut self, owner: u32, bytes: &[u8]) -> Place {
        let class_index = class_of(bytes.len());
        if self.classes.len() <= usize::from(class_index) {
            self.classes.resize_with(usize::from(class_index) + 1, Class::default);
        }
        let class = &mut self.classes[usize::from(class_index)];
        let place = Place { class: class_index, bytes: bytes.len() as u16, slot: class.count };
        let (page, at) = place.within_class();
        if class.pages.len() == page {
            class.pages.push(vec![0; place.slots_per_page() * place.slot_bytes()]);
        }
        class.count += 1;
        class.pages[page][at..][..OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
        class.pages[page][at + OWNER_BYTES..][..bytes.len()].copy_from_slice(bytes);
        place
    }

    /// Other bytes for a place they fit in.
    pub(crate) fn replace(&mut self, place: &mut Place, bytes: &[u8]) {
        place.bytes = bytes.len() as u16;
        let (page, at) = place.within_class();
        let page = &mut self.classes[usize::from(place.class)].pages[page];
        page[at + OWNER_BYTES..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Frees a place. The one that takes it is told: its owner must know.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Moved> {
        let class = &mut self.classes[usize::from(place.class)];
        class.count -= 1;
        let last = Place { slot: class.count, ..place };
        let (last_page, last_at) = last.within_class();
        let moved = (last.slot != place.slot).then(|| {
            let (page, at) = place.within_class();
            let mut slot = [0; OWNER_BYTES + POOLED_BYTES_MAX];
            let slot = &mut slot[..place.slot_bytes()];
            slot.copy_from_slice(&class.pages[last_page][last_at..][..place.slot_bytes()]);
            class.pages[page][at..][..place.slot_bytes()].copy_from_slice(slot);
            let owner = slot.first_chunk().expect("a slot is longer than the number of its owner");
            Moved { owner: u32::from_le_bytes(*owner), slot: place.slot }
        });
        if last_at == 0 {
            class.pages.pop();
        }
        moved
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let pages: usize = self.classes.iter().flat_map(|class| &class.pages).map(Vec::capacity).sum();
        pages + self.classes.len() * size_of::<Class>()
    }

    /// How many strings there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.classes.iter().map(|class| class.count as usize).sum()
    }

    /// Whose string it is.
    #[cfg(test)]
    pub(crate) fn owner(&self, place: Place) -> u32 {
        let (page, at) = place.within_class();
        let owner = self.classes[usize::from(place.class)].pages[page][at..].first_chunk().unwrap();
        u32::from_le_bytes(*owner)
    }
}

impl Place {
    fn slot_bytes(self) -> usize {
        OWNER_BYTES + usize::from(self.class) * UNIT_BYTES
    }

    fn slots_per_page(self) -> usize {
        PAGE_BYTES / self.slot_bytes()
    }

    /// Its page, and where in it the slot begins.
    fn within_class(self) -> (usize, usize) {
        let slot = self.slot as usize;
        (slot / self.slots_per_page(), slot % self.slots_per_page() * self.slot_bytes())
    }
}

/// The room for so many bytes, in units.
fn class_of(bytes: usize) -> u16 {
    debug_assert!((1..=POOLED_BYTES_MAX).contains(&bytes));
    let step = (bytes.next_power_of_two() / 16).max(UNIT_BYTES);
    (bytes.next_multiple_of(step) / UNIT_BYTES) as u16
}
