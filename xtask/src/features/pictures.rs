//! Pictures of the screen where a step failed: PNG files that a scenario left in a folder of its own.
//!
//! The test is told the folder of the run (`TIDINGS_FEATURES_PICTURES`). A scenario's folder in it is called after its file
//! and line, as its place on the page is: `console.feature-12`. Whoever has a screen to show writes there; here the
//! pictures of failed scenarios are read, in the order of their names.
//!
//! Limits: 4 pictures a scenario, 2 MiB a picture. What is more, or no PNG, is left out, and the page says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::results::{Picture, Run, State};

const COUNT_MAX: usize = 4;
const BYTES_MAX: u64 = 2 << 20;
/// How every PNG file begins.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Adds the pictures in this folder to the failed scenarios of the run.
pub(super) fn attach(run: &mut Run, folder: &Path) {
    for feature in &mut run.features {
        for scenario in feature.scenarios.iter_mut().filter(|scenario| scenario.state == State::Failed) {
            let own = folder.join(format!("{}-{}", feature.file, scenario.line));
            // Most scenarios have no screen and no folder.
            let files = files(&own).unwrap_or_default();
            scenario.pictures = files.iter().take(COUNT_MAX).map(|path| read(path)).collect();
            if files.len() > COUNT_MAX {
                let more = format!("{} more pictures are left out", files.len() - COUNT_MAX);
                scenario.pictures.push(Picture::LeftOut(more));
            }
        }
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "png"));
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Picture {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let bytes =
        fs::metadata(path).and_then(|meta| if meta.len() > BYTES_MAX { Ok(None) } else { fs::read(path).map(Some) });
    match bytes {
        Ok(Some(bytes)) if bytes.starts_with(SIGNATURE) => Picture::Png(BASE64_STANDARD.encode(bytes)),
        Ok(Some(_)) => Picture::LeftOut(format!("{name} is no PNG")),
        Ok(None) => Picture::LeftOut(format!("{name} has more than {} MiB", BYTES_MAX >> 20)),
        Err(error) => Picture::LeftOut(format!("{name} cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::mixed;
    use super::*;

    #[test]
    fn a_failed_scenario_gets_the_pictures_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for scenario in ["push.feature-9", "push.feature-4"] {
            fs::create_dir(folder.path().join(scenario)).unwrap();
            let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(scenario).join(name), bytes).unwrap();
            write("2.png", SIGNATURE);
            write("1.png", &[SIGNATURE, b"one"].concat());
            write("3.png", b"<script>");
            write("notes.txt", b"no picture");
        }
        let mut run = mixed();
        attach(&mut run, folder.path());
        let encoded = |bytes: &[u8]| Picture::Png(BASE64_STANDARD.encode(bytes));
        let no_png = Picture::LeftOut("3.png is no PNG".to_owned());
        let failed = &run.features[0].scenarios[1];
        assert_eq!(failed.pictures, [encoded(&[SIGNATURE, b"one"].concat()), encoded(SIGNATURE), no_png]);
        assert_eq!(run.features[0].scenarios[0].pictures, [], "it passed");
    }

    #[test]
    fn too_many_and_too_large_pictures_are_left_out_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("push.feature-9");
        fs::create_dir(&own).unwrap();
        (0..7).for_each(|number| fs::write(own.join(format!("{number}.png")), SIGNATURE).unwrap());
        fs::File::create(own.join("0.png")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let mut run = mixed();
        attach(&mut run, folder.path());
        let pictures = &run.features[0].scenarios[1].pictures;
        assert_eq!(pictures.len(), 5);
        assert_eq!(pictures[0], Picture::LeftOut("0.png has more than 2 MiB".to_owned()));
        assert_eq!(pictures[4], Picture::LeftOut("3 more pictures are left out".to_owned()));
    }
}
