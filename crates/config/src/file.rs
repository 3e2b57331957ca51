//! Reads the files that settings name, up to a size limit.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The largest configuration file, and the largest file that holds a secret or a key.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a text file of at most [`FILE_BYTES_MAX`].
pub fn read_file(path: &Path) -> std::io::Result<String> {
    read_up_to(File::open(path)?, FILE_BYTES_MAX)
}

/// Reads a text file of at most `max` bytes.
pub(crate) fn read_up_to(file: File, max: u64) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let message = format!("larger than {max} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}
