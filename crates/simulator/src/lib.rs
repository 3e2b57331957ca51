//! Simulated push providers with faults, and their ledger.
