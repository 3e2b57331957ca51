//! Tests with small invented crates, with and without circles.

use super::super::source::{Source, source};
use super::*;

/// Complaints about a crate of these files: each has its path below `crates/a/src`, and its text.
fn complaints(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files.iter().map(|(path, text)| source(&format!("crates/a/src/{path}"), text)).collect();
    check_circles(&sources).unwrap()
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let rest = ": move what both sides need into another file";
    let expected: Vec<String> = expected.iter().map(|circle| format!("crates/a/src/{circle}{rest}")).collect();
    assert_eq!(complaints(files), expected);
}

const ROOT: (&str, &str) = ("lib.rs", "mod b; mod c; mod d;");

#[test]
fn files_in_a_line_are_not_a_circle() {
    check(&[ROOT, ("b.rs", "use crate::c::C; use crate::d;"), ("c.rs", "use super::d::{self, D};"), ("d.rs", "")], &[]);
    check(&[("lib.rs", "mod b; use b::B;"), ("b.rs", "use std::fmt; use other::lib;")], &[]);
}

#[test]
fn two_files_are_a_circle() {
    let expected = "b.rs: is in a circle: b.rs uses crate::c::C (c.rs), c.rs uses super::b::B (b.rs)";
    check(&[ROOT, ("b.rs", "use crate::{c::C, d::*};"), ("c.rs", "use super::b::B;"), ("d.rs", "")], &[expected]);
}

#[test]
fn the_complaint_about_a_circle_has_its_shortest_way() {
    let (b, c) = (("b.rs", "use crate::c::C;"), ("c.rs", "fn f() { crate::d::f(0) }"));
    let three = "b.rs: is in a circle: b.rs uses crate::c::C (c.rs), c.rs uses crate::d::f (d.rs), \
                 d.rs uses crate::b::* (b.rs)";
    check(&[ROOT, b, c, ("d.rs", "use crate::b::*;")], &[three]);
    let two = "c.rs: is in a circle: c.rs uses crate::d::f (d.rs), d.rs uses crate::c (c.rs) \
               (1 more files are in circles with these)";
    check(&[ROOT, b, c, ("d.rs", "use crate::b::*; use crate::c;")], &[two]);
}

#[test]
fn a_re_export_by_a_parent_is_not_use() {
    let child = ("b/e.rs", "use super::Above; pub struct E; pub struct F;");
    check(&[("lib.rs", "mod b; pub use b::E;"), ("b.rs", "mod e; pub use e::{E, F as G}; struct Above;"), child], &[]);
    let expected = "b.rs: is in a circle: b.rs uses e::E (b/e.rs), b/e.rs uses super::Above (b.rs)";
    for uses in ["pub use e::E; struct Above(E);", "use e::E; struct Above;", "struct Above; fn f() { e::E; }"] {
        let found = complaints(&[("lib.rs", "mod b;"), ("b.rs", &format!("mod e; {uses}")), child]);
        assert_eq!(found, [format!("crates/a/src/{expected}: move what both sides need into another file")], "{uses}");
    }
    let glob = expected.replace("e::E ", "e::* ");
    check(&[("lib.rs", "mod b;"), ("b.rs", "mod e; pub use e::*; struct Above(E);"), child], &[&glob]);
    check(&[("lib.rs", "mod b;"), ("b.rs", "mod e; pub use e::*; struct Above;"), child], &[]);
}

#[test]
fn a_name_counts_for_the_file_that_defines_it() {
    // `crate::C` is not a use of the root, which uses `b`.
    let b = ("b.rs", "use crate::{C, D}; fn f() { super::C; } pub struct B;");
    check(
        &[
            ("lib.rs", "mod b; mod c; mod d; pub use c::*; pub use d::X as D; use b::B; struct Z(B);"),
            b,
            ("c.rs", "struct C;"),
            ("d.rs", ""),
        ],
        &[],
    );
    let expected = "b.rs: is in a circle: b.rs uses crate::Z (lib.rs), lib.rs uses b::B (b.rs)";
    check(&[("lib.rs", "mod b; struct Z; use b::B;"), ("b.rs", "use crate::Z;")], &[expected]);
    // `face::f` is a use of the file that defines `f`, not only of the file that re-exports it.
    let expected = "b.rs: is in a circle: b.rs uses face::f (face/c.rs), face/c.rs uses crate::b::B (b.rs)";
    let (face, c) = (("face.rs", "mod c; pub use c::f;"), ("face/c.rs", "use crate::b::B; fn f() {}"));
    check(&[("lib.rs", "mod b; mod face;"), ("b.rs", "use crate::face; fn g() { face::f() }"), face, c], &[expected]);
}

#[test]
fn imports_of_tests_are_ignored() {
    let c = ("c.rs", "use crate::b::B;");
    let b = "struct B { #[cfg(test)] f: crate::c::C, g: u8 } #[cfg(test)] use crate::c::{C}; #[cfg(all(test, feature = \"x\"))] \
             fn f<A, B>() { crate::c::f() } #[cfg(test)] mod tests { use crate::c::C; } #[cfg(test)] mod more;";
    check(&[ROOT, ("b.rs", b), ("b/more.rs", "use crate::c::C;"), c, ("d.rs", "")], &[]);
    for b in [
        "#[cfg(feature = \"test\")] use crate::c::C;",
        "#[cfg(not(test))] use crate::c::C;",
        "#[cfg(test)] fn f() {} use crate::c::C;",
    ] {
        assert_eq!(complaints(&[ROOT, ("b.rs", b), c, ("d.rs", "")]).len(), 1, "{b}");
    }
}

#[test]
fn paths_are_found_everywhere_in_code() {
    let c = ("c.rs", "use crate::b::B;");
    let found = [
        "fn f(c: &crate::c::C) {}",
        "struct B(pub (crate::c::C, u8));",
        "impl From<super::c::C> for B {}",
        "fn f() { select! { _ = x => crate::c::f(), } }",
        "macro_rules! m { ($x:expr) => { $crate::c::f($x) } }",
        "mod inner { fn f() { super::super::c::f() } }",
        "fn f() { use crate::c as other; }",
    ];
    for b in found {
        assert_eq!(complaints(&[ROOT, ("b.rs", b), c, ("d.rs", "")]).len(), 1, "{b}");
    }
    let not = [
        "//! `crate::c::C`\n/// [`crate::c::C`]\nfn f() { \"crate::c::C\"; }",
        "pub(in crate::c) fn f() {}",
        "fn f() { a::crate_::c(); <T as X>::c::d(); x.c(); } // crate::c::f()",
        "use ::c::C;",
    ];
    for b in not {
        assert_eq!(complaints(&[ROOT, ("b.rs", b), c, ("d.rs", "")]), [""; 0], "{b}");
    }
}

#[test]
fn every_crate_is_checked_separately() {
    for folder in ["crates/a/src", "xtask/src", "fuzz/src"] {
        for root in ["lib.rs", "main.rs"] {
            let file = |name: &str, text: &str| source(&format!("{folder}/{name}"), text);
            let sources =
                [file(root, "mod b; mod c;"), file("b.rs", "use crate::c::C;"), file("c/mod.rs", "use crate::b::B;")];
            assert_eq!(check_circles(&sources).unwrap().len(), 1, "{folder}/{root}");
            assert_eq!(check_circles(&sources[1..]).unwrap(), [""; 0]);
        }
    }
    assert!(check_circles(&[source("xtask/src/main.rs", "fn f( {}")]).is_err(), "not Rust");
}
