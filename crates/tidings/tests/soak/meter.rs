//! What the server takes: of the system, of its data folder, and by what it says itself at `/metrics`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tidings_telemetry::process::{TICKS_PER_SECOND, memory_bytes, stat_field};
use tidings_trial::launcher::Server;
use tidings_trial::raw::{HOME, backend_request, exchange};

use crate::API_KEY;

/// The store has a folder for each of its tables at the next depth.
const DEPTH_MAX: usize = 3;
const SCANNED: &str = "tidings_store_scanned_rows_total{place=\"";

/// The server's metrics, as `name{labels} value`.
pub(crate) struct Metrics(String);

impl Metrics {
    /// None at all if the server does not answer.
    pub(crate) async fn of(server: &Server) -> Self {
        let answer = exchange(server.addr, HOME, &backend_request(API_KEY, "GET", "/metrics", &Value::Null)).await;
        Self(answer.map(|(_, answer)| String::from_utf8_lossy(&answer).into_owned()).unwrap_or_default())
    }

    /// The sum over all labels; none when there is no such metric. `name` may have labels.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let named = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let values = named.filter(|rest| rest.starts_with(['{', ' ']));
        values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).reduce(|a, b| a + b)
    }

    fn series_count(&self) -> usize {
        self.0.lines().filter(|line| line.starts_with(char::is_alphabetic)).count()
    }

    /// Rows read by scans, by place. Nothing if the server does not count them.
    fn scanned(&self) -> BTreeMap<String, u64> {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(SCANNED)?.split_once("\"} "));
        lines.map(|(place, rows)| (place.to_owned(), rows.parse::<f64>().unwrap_or_default() as u64)).collect()
    }
}

/// Files and bytes of a folder, without those of its folders.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Folder {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// What the server takes at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) anonymous_mib: f64,
    pub(crate) mapped_mib: f64,
    pub(crate) descriptors: usize,
    /// Descriptors that are sockets.
    pub(crate) sockets: usize,
    pub(crate) threads: usize,
    pub(crate) series: usize,
    /// By path in the data folder.
    pub(crate) folders: BTreeMap<String, Folder>,
    pub(crate) scanned: BTreeMap<String, u64>,
}

impl Figures {
    pub(crate) fn of(server: &Server, metrics: &Metrics) -> Self {
        let id = server.process_id();
        let mib = |field| memory_bytes(id, field).unwrap_or_default() as f64 / f64::from(1 << 20);
        let descriptors: Vec<_> = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten().collect();
        let is_socket = |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let mut folders = BTreeMap::new();
        measure(&server.path("data"), "", &mut folders);
        Self {
            anonymous_mib: mib("RssAnon"),
            mapped_mib: mib("RssFile"),
            descriptors: descriptors.len(),
            sockets: descriptors.iter().filter(|entry| is_socket(&entry.path())).count(),
            threads: fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count),
            series: metrics.series_count(),
            folders,
            scanned: metrics.scanned(),
        }
    }
}

/// Files that are gone meanwhile do not count. What lies deeper than [`DEPTH_MAX`] counts as of the folder at that depth.
fn measure(folder: &Path, name: &str, folders: &mut BTreeMap<String, Folder>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        if !found.is_dir() {
            let own = folders.entry(if name.is_empty() { "/" } else { name }.to_owned()).or_default();
            own.files += 1;
            own.bytes += found.len();
        } else if name.matches('/').count() < DEPTH_MAX {
            measure(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), folders);
        } else {
            measure(&entry.path(), name, folders);
        }
    }
}

/// The time that a process has had of the processors.
pub(crate) fn cpu_seconds(process_id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap_or_default();
    let ticks = stat_field(&stat, 14).zip(stat_field(&stat, 15)).map(|(user, system)| user + system);
    ticks.unwrap_or_default() / TICKS_PER_SECOND
}
