//! Bounded buffers: what waits, waits here.
