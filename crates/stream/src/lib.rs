//! One channel's log: offsets, epochs, history, recovery.
