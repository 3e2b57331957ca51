//! Commands for programs in Java.

use std::path::Path;
use std::process::Command;

/// The command for a program that `conformance/peers.sh` has built; `None` if the program or Java is missing.
pub(super) fn java(folder: &Path, class: &str) -> Option<Command> {
    let (classes, libraries) = (folder.join("java/classes"), folder.join("java/lib"));
    if !classes.join(class).with_extension("class").is_file() || !libraries.is_dir() {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    let java = std::env::split_paths(&path).map(|folder| folder.join("java")).find(|java| java.is_file())?;
    let mut command = Command::new(java);
    command.arg("-Xmx2g").arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(format!("{}:{}/*", classes.display(), libraries.display())).arg(class);
    Some(command)
}
