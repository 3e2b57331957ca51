//! How much memory the bounds of a configuration allow, in named terms.
//!
//! Each crate that holds memory says in its own `memory_terms` what its bounds allow. There are two sums: the memory when every
//! count is reached (connections, channels, devices), and the memory while also every buffer is full, because every peer is
//! slow. Empty buffers cost nothing. Each term is a count times bytes. A setting or a constant limits the count; a setting or a
//! constant gives the bytes, and each constant says where it comes from.

use std::fmt;

use serde::Serialize;

/// When the memory of a term is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// While the count is reached.
    Standing,
    /// The same, computed from a typical size that no setting limits.
    Estimate,
    /// Only while the buffer is full.
    Peak,
}

/// One term of the sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Term {
    /// What the memory is for.
    pub name: &'static str,
    /// The count.
    pub count: u64,
    /// Bytes of one.
    pub bytes_each: u64,
    /// When it is needed.
    pub basis: Basis,
    /// The settings that decide it, or `fixed`.
    pub settings: &'static str,
}

impl Term {
    /// Memory that is needed while the count is reached.
    pub fn standing(name: &'static str, count: usize, bytes_each: usize, settings: &'static str) -> Self {
        Self { name, count: count as u64, bytes_each: bytes_each as u64, basis: Basis::Standing, settings }
    }

    /// The same, from a typical size.
    pub fn estimate(name: &'static str, count: usize, bytes_each: usize, settings: &'static str) -> Self {
        Self { basis: Basis::Estimate, ..Self::standing(name, count, bytes_each, settings) }
    }

    /// Memory that is needed only while a buffer is full.
    pub fn peak(name: &'static str, count: usize, bytes_each: usize, settings: &'static str) -> Self {
        Self { basis: Basis::Peak, ..Self::standing(name, count, bytes_each, settings) }
    }

    /// Count times bytes.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.bytes_each)
    }
}

/// The sum and its terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemorySum {
    /// In the order in which an event passes them.
    pub terms: Vec<Term>,
}

impl MemorySum {
    /// The sum of all terms.
    pub fn bytes(&self) -> u64 {
        self.terms.iter().fold(0, |sum, term| sum.saturating_add(term.bytes()))
    }

    /// The sum without the terms of full buffers.
    pub fn standing_bytes(&self) -> u64 {
        let standing = self.terms.iter().filter(|term| term.basis != Basis::Peak);
        standing.fold(0, |sum, term| sum.saturating_add(term.bytes()))
    }
}

/// A table with one term per line.
impl fmt::Display for MemorySum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for term in &self.terms {
            let basis = match term.basis {
                Basis::Standing => "standing",
                Basis::Estimate => "estimate",
                Basis::Peak => "peak",
            };
            let (each, total) = (Rounded(term.bytes_each).to_string(), Rounded(term.bytes()).to_string());
            let sum = format!("{:<21}{:>9} x {each:>9} = {total:>9}", term.name, term.count);
            writeln!(f, "{sum}  {basis:<9} {}", term.settings)?;
        }
        writeln!(f, "{:<44}{:>10}", "together, every count reached", Rounded(self.standing_bytes()).to_string())?;
        write!(f, "{:<44}{:>10}", "and every buffer full at once", Rounded(self.bytes()).to_string())
    }
}

/// Bytes with one decimal.
struct Rounded(u64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
            .into_iter()
            .find(|(_, unit)| self.0 >= *unit)
        {
            Some((name, unit)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}
