//! Looks at the files of the texts every now and then, and reloads the texts when files have changed.
//!
//! A change counts once two looks in a row have seen the same: while files are being copied, nobody reads half of them. What
//! is wrong is told like after any other reload, and is read again when the files change again.
//!
//! It looks, and does not ask the operating system to be told: that works on every file system, and for folders that are
//! replaced through a link.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tidings_audit::Audit;
use tidings_config::Config;
use tokio::time::sleep;
use tracing::info;

use crate::auditing;
use crate::texts::{Loader, Texts};

/// The files of the texts as they were when somebody looked.
pub(crate) struct TextWatch {
    interval: Duration,
    dir: Option<PathBuf>,
    messages: Option<PathBuf>,
    /// What stands for the files of the texts that were read last.
    read: u64,
}

impl TextWatch {
    /// Looks for the first time: before the texts are read, so that no later change is missed. `None`: nobody wants it.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let interval = Some(config.translations.watch).filter(|interval| !interval.is_zero())?;
        let mut watch = Self { interval, dir: None, messages: None, read: 0 };
        watch.follow(config);
        watch.read = watch.look();
        Some(watch)
    }

    fn follow(&mut self, config: &Config) {
        (self.dir, self.messages) = (config.translations.dir.clone(), config.translations.messages.clone());
    }

    /// Goes on until it is dropped.
    pub(crate) async fn run(mut self, texts: Arc<Texts>, load: Loader, audit: Option<Audit>) {
        let mut before = self.read;
        loop {
            sleep(self.interval).await;
            let (texts, load, audit) = (texts.clone(), load.clone(), audit.clone());
            let turn = move || {
                let now = self.look();
                if now == before && now != self.read {
                    info!("The files of the texts have changed");
                    self.read = now;
                    if let Some(config) = texts.reload(&load) {
                        self.follow(&config);
                    }
                    auditing::of_system(audit.as_ref(), "texts.reload", !texts.is_faulty());
                }
                (self, now)
            };
            (self, before) = tokio::task::spawn_blocking(turn).await.expect("reading texts does not panic");
        }
    }

    /// Stands for names, sizes and times of all files.
    fn look(&self) -> u64 {
        let mut files = BTreeMap::new();
        if let Some(folder) = &self.messages {
            let _ = add(folder, "toml", &mut files); // A folder that cannot be read has no files.
        }
        for folder in self.dir.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().filter_map(Result::ok) {
            let _ = add(&folder.path().join("LC_MESSAGES"), "po", &mut files);
        }
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        hasher.finish()
    }
}

/// Size and time of the last change of each file with this ending; 0 and `None` if they cannot be learned.
type Seen = (u64, Option<std::time::SystemTime>);

fn add(folder: &Path, ending: &str, files: &mut BTreeMap<PathBuf, Seen>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == ending) {
            let metadata = fs::metadata(&path);
            let seen = metadata.map_or((0, None), |metadata| (metadata.len(), metadata.modified().ok()));
            files.insert(path, seen);
        }
    }
    Ok(())
}
