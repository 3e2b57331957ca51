//! Closes the store and opens it again: with the index's checkpoint, without it, and with files that are not cached.
//!
//! To remove files from the kernel's cache, each file is synced and `posix_fadvise(POSIX_FADV_DONTNEED)` is called for
//! it. This happens after the store was opened, so what the store reads later comes from the disk. It is not the same as
//! a reboot: mapped pages stay, and the disk's own cache may stay. The bytes read from the disk are reported.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use tidings_server::command_error::{CommandError, failed};
use tidings_store::Store;
use tokio::time::Instant;

use super::super::report::Goal;
use super::super::store;
use super::bench::Bench;
use super::goals;
use super::select::Audience;
use crate::folder::each_file;
use crate::report::progress;

/// The store's name for its checkpoint.
const CHECKPOINT: &str = "checkpoint";
const MIB: f64 = (1 << 20) as f64;

impl Bench<'_> {
    /// Opens the store again and again; everything must still be there. Returns the store that was opened last.
    pub(super) async fn start(
        &mut self,
        mut store: Store,
        folder: &Path,
        busy: &Audience,
    ) -> Result<Store, CommandError> {
        for (name, has_checkpoint, goal) in [
            ("opening from the checkpoint", true, goals::START_S),
            ("opening without a checkpoint", false, goals::REBUILD_S),
        ] {
            let mut seconds = Vec::new();
            for run in 1..=self.runs {
                progress(format!("{name}, run {run}"));
                store.close().await;
                if !has_checkpoint {
                    fs::remove_file(folder.join(CHECKPOINT))?;
                }
                let began = Instant::now();
                store = store::open(folder).await?;
                seconds.push(began.elapsed().as_secs_f64());
                self.check_counts(&store)?;
            }
            self.report.judge(name, "s", seconds, self.goals.main(Goal::AtMost(goal)));
        }
        self.cold(store, folder, busy).await
    }

    /// Hands out an audience that must be read from the disk. The index is in memory.
    async fn cold(&mut self, mut store: Store, folder: &Path, busy: &Audience) -> Result<Store, CommandError> {
        let (mut first, mut all, mut read, mut mapped) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for run in 1..=self.runs {
            progress(format!("selecting {} devices from the disk, run {run}", busy.len));
            store.close().await;
            store = store::open(folder).await?;
            each_file(folder, &mut drop_from_cache)?;
            mapped = mapped.max(mapped_bytes(folder)?);
            let before = disk_read_bytes()?;
            let times = busy.hand_out(&store)?;
            read.push((disk_read_bytes()? - before) as f64 / MIB);
            first.push(times.first.as_secs_f64() * 1e3);
            all.push(times.all.as_secs_f64() * 1e3);
        }
        let stated = |goal| self.goals.main(Goal::AtMost(goal)).filter(|_| busy.wanted == 1_300_000);
        let name = format!("cold files, {}", busy.len);
        let (first_goal, all_goal) = (stated(goals::COLD_FIRST_MS), stated(goals::COLD_ALL_MS));
        self.report.judge(format!("{name}: first device"), "ms", first, first_goal);
        self.report.judge(format!("{name}: all handed out"), "ms", all, all_goal);
        self.report.measure(format!("{name}: read from the disk"), "MiB", read);
        self.report.note(format!(
            "Cold: every file of the store was synced and dropped from the kernel's cache (posix_fadvise) when the \
             store was open; no reboot. {:.0} MiB of them stayed mapped.",
            mapped as f64 / MIB
        ));
        Ok(store)
    }
}

fn drop_from_cache(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?; // Only pages that are on the disk can be dropped.
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Bytes that this process has read from disks.
fn disk_read_bytes() -> Result<u64, CommandError> {
    let text = fs::read_to_string("/proc/self/io")?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
    bytes.ok_or_else(|| failed("no read_bytes in /proc/self/io"))
}

/// Bytes of a folder's files that are mapped into this process's memory.
fn mapped_bytes(folder: &Path) -> io::Result<u64> {
    let folder = folder.canonicalize()?;
    Ok(mapped_in(&fs::read_to_string("/proc/self/smaps")?, &folder.to_string_lossy()))
}

/// The same, from the text of `smaps`: a line per map, followed by lines with its numbers.
fn mapped_in(smaps: &str, folder: &str) -> u64 {
    let (mut is_ours, mut bytes) = (false, 0);
    for line in smaps.lines() {
        if let Some(kilobytes) = line.strip_prefix("Rss:") {
            let kilobytes = kilobytes.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            bytes += if is_ours { 1024 * kilobytes } else { 0 };
        } else if line.split_once(' ').is_some_and(|(range, _)| range.contains('-')) {
            is_ours = line.contains(folder);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_maps_of_the_folder_count() {
        let smaps = "\
7f00-7f10 r--s 00000000 fe:00 12   /tmp/store/heap/0\nSize: 64 kB\nRss:     24 kB\nPss: 1 kB\n\
7f20-7f30 r-xp 00000000 fe:00 13   /usr/lib/libc.so\nRss:   100 kB\n\
7f40-7f50 r--s 00000000 fe:00 14   /tmp/store/heap/1\nRss:      4 kB\nVmFlags: rd mr\n\
7f60-7f70 rw-p 00000000 00:00 0\nRss:     16 kB\n";
        assert_eq!(mapped_in(smaps, "/tmp/store"), 28 * 1024);
        assert_eq!(mapped_in(smaps, "/other"), 0);
        assert!(disk_read_bytes().is_ok());
    }
}
