//! Values under small numbers, which are reused when they are free.
//!
//! The values are in pages of [`PAGE_LEN`], so growth moves none and leaves at most one page partly unused. A freed
//! number takes 4 bytes; pages are never freed.

use std::ops::{Index, IndexMut};

const PAGE_LEN: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Slots<T> {
    pages: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T: Default> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self[number] = value;
            return number;
        }
        let number = u32::try_from(self.end()).expect("2^32 names or sets are more than memory holds");
        match self.pages.last_mut().filter(|page| page.len() < PAGE_LEN) {
            Some(page) => page.push(value),
            None => {
                let mut page = Vec::with_capacity(PAGE_LEN);
                page.push(value);
                self.pages.push(page);
            }
        }
        number
    }

    /// Frees the number; until it is reused its value is the default.
    pub(crate) fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(&mut self[number])
    }

    /// Above all numbers ever given.
    pub(crate) fn end(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE_LEN + last.len())
    }

    /// With their numbers, from `start` on; those that are free as the default.
    pub(crate) fn iter_from(&self, start: usize) -> impl Iterator<Item = (u32, &T)> {
        let pages = self.pages.get(start / PAGE_LEN..).unwrap_or_default();
        (start as u32..).zip(pages.iter().flatten().skip(start % PAGE_LEN))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * PAGE_LEN * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE_LEN][number as usize % PAGE_LEN]
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE_LEN][number as usize % PAGE_LEN]
    }
}
