//! A real server has the metrics of the table, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tidings_client::ServerUrl;
use tidings_telemetry::metrics;

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
async fn who_prefers_open_metrics_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, ending) in [(prometheus, true), ("application/openmetrics-text", true), ("text/plain", false)] {
        let page = scraped(&server, accept).await;
        assert_eq!(page.ends_with("\n# EOF\n"), ending, "{accept}");
        let head =
            if ending { "# TYPE tidings_edge_commands counter" } else { "# TYPE tidings_edge_commands_total counter" };
        assert!(page.lines().any(|line| line == head), "{accept}: {page}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_server_has_every_metric_of_the_table_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path()).await;
    let page = scraped(&server, "text/plain").await;
    server.stop().await;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeMap<&str, &str> = types.collect();
    let table: BTreeMap<&str, &str> = metrics::all().map(|metric| (metric.name, metric.kind.as_str())).collect();
    for (name, kind) in &found {
        assert_eq!(table.get(name), Some(kind), "{name} is not in the table");
    }
    for metric in metrics::all() {
        if metric.when.is_none() {
            assert!(found.contains_key(metric.name), "{} is not at /metrics, and has no condition", metric.name);
        }
        let expected: BTreeSet<&str> = metric.labels.iter().copied().collect();
        for sample in page.lines().filter(|line| line.starts_with(&format!("{}{{", metric.name))) {
            assert_eq!(labels(sample), expected, "{sample}");
        }
    }
}
