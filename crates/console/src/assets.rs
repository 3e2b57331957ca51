//! The style sheet and the scripts, which are part of the binary.
//!
//! A browser that takes gzip gets them compressed. Their addresses contain a hash of their content, so a browser keeps them
//! for good. Pages are not compressed: they have a secret (the token of forms) beside text that others can choose.

use std::io::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A file that pages use.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) bytes: &'static [u8],
    /// The bytes, compressed.
    pub(crate) packed: Bytes,
    /// Changes with the bytes.
    pub(crate) tag: String,
}

macro_rules! file {
    ($name:literal, $media:literal) => {
        ($name, $media, include_bytes!(concat!("../assets/", $name)))
    };
}

const FILES: [(&str, &str, &[u8]); 5] = [
    file!("console.css", "text/css; charset=utf-8"),
    file!("console.js", "text/javascript; charset=utf-8"),
    file!("htmx.min.js", "text/javascript; charset=utf-8"),
    file!("uplot.min.css", "text/css; charset=utf-8"),
    file!("uplot.min.js", "text/javascript; charset=utf-8"),
];

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let asset = |(name, media, bytes): (&'static str, &'static str, &'static [u8])| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(bytes).expect("writing to memory cannot fail");
        let packed = packer.finish().expect("writing to memory cannot fail").into();
        let tag = digest(&SHA256, bytes).as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        Asset { name, media, bytes, packed, tag }
    };
    FILES.into_iter().map(asset).collect()
});

/// The file with this name.
pub(crate) fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Its address.
pub(crate) fn address(name: &str) -> String {
    let tag = asset(name).map_or("", |asset| &asset.tag);
    format!("/console/assets/{name}?{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_others_are_what_the_readme_says() {
        let readme = include_str!("../assets/README.md");
        for name in ["htmx.min.js", "uplot.min.css", "uplot.min.js"] {
            let hash: String =
                digest(&SHA256, asset(name).unwrap().bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let line = readme.lines().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap();
            assert!(line.contains(&hash), "{name} has the SHA-256 {hash}");
        }
    }

    #[test]
    fn a_packed_file_is_the_file() {
        use std::io::Read as _;
        for asset in ASSETS.iter() {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&asset.packed[..]).read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, asset.bytes, "{}", asset.name);
        }
        assert!(asset("../Cargo.toml").is_none());
    }
}
