//! What the server tells operators of itself (`/v1/system`).

use tidings_api::{MemoryTerm, Readiness, System};
use tidings_telemetry::memory::{Basis, MemorySum, Term};

/// Answers the API's questions about this process.
pub(super) struct Oneself {
    readiness: Box<dyn Fn() -> Readiness + Send + Sync>,
    memory: Vec<MemoryTerm>,
}

impl Oneself {
    pub(super) fn new(memory: &MemorySum, readiness: impl Fn() -> Readiness + Send + Sync + 'static) -> Self {
        let term = |term: &Term| MemoryTerm {
            name: term.name,
            bytes: term.bytes(),
            is_peak: term.basis == Basis::Peak,
            settings: term.settings,
        };
        Self { readiness: Box::new(readiness), memory: memory.terms.iter().map(term).collect() }
    }
}

impl System for Oneself {
    fn readiness(&self) -> Readiness {
        (self.readiness)()
    }

    fn memory(&self) -> Vec<MemoryTerm> {
        self.memory.clone()
    }
}
