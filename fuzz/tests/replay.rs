//! Each target with its corpus: what reaches far, and all that ever found something.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use tidings_fuzz::TARGETS;

/// Larger ones say no more and are slower to read for whoever has to mend something.
const INPUT_BYTES_MAX: u64 = 4096;

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[test]
fn every_target_survives_its_corpus() {
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        let mut count = 0;
        for file in fs::read_dir(corpus().join(name)).unwrap() {
            let path = file.unwrap().path();
            let input = fs::read(&path).unwrap();
            count += 1;
            if catch_unwind(|| target(&input)).is_err() {
                broken.push(path);
            }
        }
        assert!(count > 0, "{name} has no corpus");
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_corpus_belongs_to_a_target_and_its_inputs_are_small() {
    let folders: BTreeSet<String> =
        fs::read_dir(corpus()).unwrap().map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, names);
    for name in names {
        for file in fs::read_dir(corpus().join(name)).unwrap() {
            let file = file.unwrap();
            assert!(file.metadata().unwrap().len() <= INPUT_BYTES_MAX, "{}", file.path().display());
        }
    }
}
