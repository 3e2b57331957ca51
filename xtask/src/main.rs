//! All automation of this repository.

fn main() {}
