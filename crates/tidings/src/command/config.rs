//! `tidings config`: checks the configuration, shows its settings and the memory they need.

use serde::Serialize;
use tidings_types::{Locale, TopicName};

use super::{CommandError, load};
use crate::cli::{ConfigCheckArgs, ConfigCommand};
use tidings_config::{effective, example, reference};
use tidings_server::output::{Kind, line, remark};
use tidings_server::{memory_sum, topics};
use tidings_telemetry::memory::MemorySum;

pub(crate) async fn run(command: ConfigCommand) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check(args) => check(&args),
        ConfigCommand::Import(args) => super::import::run(&args),
        ConfigCommand::Example => Ok(line(example().trim_end())?),
        ConfigCommand::Reference => Ok(line(reference().trim_end())?),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    settings: Vec<ReportSetting<'a>>,
    warnings: Vec<String>,
    topics: Vec<ReportTopic<'a>>,
    memory: &'a MemorySum,
    memory_standing_bytes: u64,
    memory_bytes: u64,
}

#[derive(Serialize)]
struct ReportSetting<'a> {
    table: &'a str,
    name: &'a str,
    /// As TOML spells it.
    value: &'a str,
    origin: String,
}

#[derive(Serialize)]
struct ReportTopic<'a> {
    topic: &'a TopicName,
    /// Languages that have a catalogue, but no or only a partial translation of this topic.
    lacks: &'a [Locale],
}

fn check(args: &ConfigCheckArgs) -> Result<(), CommandError> {
    let loaded = load(&args.file)?;
    let texts = topics(&loaded.config)?;
    let topics = texts.names().map(|topic| ReportTopic { topic, lacks: texts.untranslated(topic) });
    let memory = memory_sum(&loaded.config);
    if args.json {
        let settings = loaded.effective.iter().map(|setting| ReportSetting {
            table: &setting.table,
            name: &setting.name,
            value: &setting.value,
            origin: setting.origin.to_string(),
        });
        let report = Report {
            settings: settings.collect(),
            warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
            topics: topics.collect(),
            memory: &memory,
            memory_standing_bytes: memory.standing_bytes(),
            memory_bytes: memory.bytes(),
        };
        return Ok(line(serde_json::to_string_pretty(&report).expect("a report has string keys only"))?);
    }
    line(effective(&loaded.effective).trim_end())?;
    line("\n# Topics:")?;
    for ReportTopic { topic, lacks } in topics {
        let lacks: Vec<&str> = lacks.iter().map(Locale::as_str).collect();
        match lacks.is_empty() {
            true => line(format!("# {topic}: nothing is missing"))?,
            false => line(format!("# {topic}: no translation, or an incomplete one, for {}", lacks.join(", ")))?,
        }
    }
    line("\n# Memory:")?;
    for text in memory.to_string().lines() {
        line(format!("# {text}"))?;
    }
    for warning in &loaded.warnings {
        remark(Kind::Warning, warning);
    }
    Ok(())
}
