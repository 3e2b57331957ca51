//! Names kept once, each with a small number for as long as it is in use.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The number of a name while it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NameNumber(pub(crate) u32);

/// Names in use with their numbers; a number is given again only after its name is no longer used.
#[derive(Debug)]
pub(crate) struct Names<N> {
    numbers: HashMap<N, NameNumber>,
    /// How many sets use the name with this number.
    uses: Vec<u32>,
    free: Vec<NameNumber>,
}

impl<N> Default for Names<N> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), uses: Vec::new(), free: Vec::new() }
    }
}

impl<N: Clone + Eq + Hash> Names<N> {
    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&self, name: &Q) -> Option<NameNumber>
    where
        N: Borrow<Q>,
    {
        self.numbers.get(name).copied()
    }

    /// The number of `name`, a new one when it is not in use yet. The caller states its use with [`Names::retain`].
    pub(crate) fn number(&mut self, name: &N) -> NameNumber {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.uses.push(0);
            let last = u32::try_from(self.uses.len() - 1).expect("2^32 names are more than memory holds");
            NameNumber(last)
        });
        self.numbers.insert(name.clone(), number);
        number
    }

    /// One more set uses the name.
    pub(crate) fn retain(&mut self, number: NameNumber) {
        self.uses[number.0 as usize] += 1;
    }

    /// One set less uses the name; the last one takes the name along.
    pub(crate) fn release(&mut self, name: &N, number: NameNumber) {
        let uses = &mut self.uses[number.0 as usize];
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(name);
            self.free.push(number);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Memory taken, without the text of the names.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let Self { numbers, uses, free } = self;
        crate::index::map_bytes(numbers)
            + size_of::<u32>() * uses.capacity()
            + size_of::<NameNumber>() * free.capacity()
    }
}
