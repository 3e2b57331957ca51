//! A real server has the metrics of the table, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use tidings_client::ServerUrl;
use tidings_telemetry::{Kind, metrics};

use crate::Server;

async fn start(folder: &Path) -> Server {
    let text = format!("data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n", folder.join("data"));
    Server::start(tidings_config::parse("tidings.toml", &text, []).unwrap().config).await.unwrap()
}

async fn scraped(server: &Server, accept: &'static str) -> String {
    let mut page = Vec::new();
    let take = |piece: &[u8]| {
        page.extend_from_slice(piece);
        true
    };
    let url = ServerUrl::of_listener(server.addr());
    let (status, refusal) = url.stream("/metrics", server.api_key(), accept, take).await.unwrap();
    assert!(status.is_success(), "{refusal:?}");
    String::from_utf8(page).unwrap()
}

/// The names of the labels of a sample. No value of a label has a comma or a brace here.
fn labels(sample: &str) -> BTreeSet<&str> {
    let labels = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
    labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect()
}

#[tokio::test]
async fn a_server_has_every_metric_of_the_table_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let page = scraped(&server, "text/plain").await;
    server.stop().await;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeSet<&str> = types.map(|(name, _)| name).collect();
    let table: BTreeSet<&str> = metrics::all().map(|metric| metric.name).collect();
    let derived = |name: &&str| name.ends_with("_seconds_max") || name.ends_with("_seconds_clamped_total");
    let strange: Vec<&&str> = found.difference(&table).filter(|name| !derived(name)).collect();
    assert!(strange.is_empty(), "not in the table: {strange:?}");
    for metric in metrics::all() {
        if metric.when.is_none() {
            assert!(found.contains(metric.name), "{} is not at /metrics, and has no condition", metric.name);
        }
        let mut expected: BTreeSet<&str> = metric.labels.iter().copied().collect();
        expected.extend(matches!(metric.kind, Kind::Histogram(_)).then_some("quantile"));
        for sample in page.lines().filter(|line| line.starts_with(&format!("{}{{", metric.name))) {
            assert_eq!(labels(sample), expected, "{sample}");
        }
    }
}
