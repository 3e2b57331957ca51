//! The dashboard for Grafana 10 or newer, in its schema version 1: rows, panels and the variables that choose servers.
//!
//! The first row is open, and the others are closed: Grafana asks Prometheus only for panels that are seen.

use serde_json::{Value, json};
use tidings_telemetry::metrics::GROUPS;

use super::panels::{Form, Panel, first, of_group};

/// The width of a dashboard.
const COLUMNS: usize = 24;

/// `ops/grafana/tidings.json`.
pub(super) fn dashboard() -> String {
    let mut ids = 1..;
    let mut panels = vec![row("First look", 0, false, Vec::new(), &mut ids)];
    panels.extend(placed(&first(), 1, (4, 5), &mut ids));
    for (index, group) in GROUPS.iter().enumerate() {
        let y = 6 + index;
        let inside = placed(&of_group(group), y + 1, (8, 7), &mut ids);
        panels.push(row(group.heading, y, true, inside, &mut ids));
    }
    let board = json!({
        "uid": "tidings",
        "title": "Tidings",
        "description": "Made by `cargo xtask ops` from the table of all metrics.",
        "tags": ["tidings"],
        "schemaVersion": 38,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": panels,
    });
    serde_json::to_string_pretty(&board).expect("it is a tree of plain values") + "\n"
}

fn variables() -> Value {
    let of_label = |name: &str, label: &str, query: &str| {
        json!({
            "name": name, "label": label, "type": "query", "datasource": source(), "definition": query, "query": query,
            "multi": true, "includeAll": true, "allValue": ".+", "current": {"text": "All", "value": "$__all"},
            "refresh": 2, "sort": 1, "hide": 0,
        })
    };
    json!([
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0},
        of_label("job", "Job", "label_values(tidings_build_info, job)"),
        of_label("instance", "Instance", "label_values(tidings_build_info{job=~\"$job\"}, instance)"),
    ])
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn row(title: &str, y: usize, collapsed: bool, panels: Vec<Value>, ids: &mut impl Iterator<Item = usize>) -> Value {
    json!({
        "id": ids.next(), "type": "row", "title": title, "collapsed": collapsed, "panels": panels,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
    })
}

/// Panels of one size, side by side, from line `y` on.
fn placed(panels: &[Panel], y: usize, (w, h): (usize, usize), ids: &mut impl Iterator<Item = usize>) -> Vec<Value> {
    let in_line = COLUMNS / w;
    let place = |index: usize| json!({"x": index % in_line * w, "y": y + index / in_line * h, "w": w, "h": h});
    panels.iter().enumerate().map(|(index, panel)| shown(panel, &place(index), ids.next())).collect()
}

fn shown(panel: &Panel, place: &Value, id: Option<usize>) -> Value {
    let Panel { title, form, unit, description, queries } = panel;
    let targets: Vec<Value> = queries
        .iter()
        .zip('A'..='Z')
        .map(|(query, letter)| {
            json!({
                "refId": letter, "datasource": source(), "expr": query.expr, "legendFormat": query.legend,
                "instant": *form == Form::Table, "range": *form != Form::Table,
                "format": if *form == Form::Table { "table" } else { "time_series" },
            })
        })
        .collect();
    assert_eq!(targets.len(), queries.len(), "{title}: more queries than letters");
    let (kind, options) = match form {
        Form::Stat => {
            ("stat", json!({"graphMode": "area", "colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}}))
        }
        Form::Table => ("table", json!({"showHeader": true})),
        Form::TimeSeries => (
            "timeseries",
            json!({"legend": {"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": {"mode": "multi", "sort": "desc"}}),
        ),
    };
    json!({
        "id": id, "type": kind, "title": title, "description": description, "gridPos": place, "datasource": source(),
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []}, "options": options, "targets": targets,
    })
}
