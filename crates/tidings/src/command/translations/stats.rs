//! `tidings translations stats`: how much is translated.

use serde::Serialize;
use tidings_gettext::{merge, pot, stats};
use tidings_server::output::line;
use tidings_types::Locale;

use super::desk::{Desk, PoFile, catalogue};
use crate::cli::StatsArgs;
use crate::command::CommandError;

#[derive(Serialize)]
pub(super) struct Counted {
    pub(super) domain: String,
    pub(super) locale: Locale,
    total: usize,
    translated: usize,
    /// Of these, translated for an earlier text.
    outdated: usize,
    /// Of these, not sent because of a mistake.
    wrong: usize,
    fuzzy: usize,
    untranslated: usize,
    /// Not in the total: for a value of a parameter, where the text without the value is translated and suffices.
    inheriting: usize,
    obsolete: usize,
    /// The words of the source texts without a translation.
    words_left: usize,
}

pub(super) fn counted(desk: &Desk) -> Result<Vec<Counted>, CommandError> {
    let count = |PoFile { domain, locale, path }: PoFile| {
        let messages = &desk.domains[&domain];
        let stats = stats(&merge(&catalogue(&path)?, &pot(messages).map_err(conflict)?).catalogue, messages);
        Ok(Counted {
            domain,
            locale,
            total: stats.total().messages,
            translated: stats.translated.messages,
            outdated: stats.outdated.messages,
            wrong: stats.wrong.messages,
            fuzzy: stats.fuzzy.messages,
            untranslated: stats.untranslated.messages,
            inheriting: stats.inheriting.messages,
            obsolete: stats.obsolete.messages,
            words_left: stats.untranslated.words + stats.fuzzy.words,
        })
    };
    desk.files()?.into_iter().map(count).collect()
}

fn conflict(error: tidings_gettext::TemplateConflict) -> CommandError {
    CommandError::Usage(error.to_string())
}

impl Counted {
    /// How many of a hundred texts have a translation that is sent, rounded down.
    pub(super) fn percent(&self) -> usize {
        ((self.translated - self.wrong) * 100).checked_div(self.total).unwrap_or(100)
    }
}

/// Counts what is there after a merge, so new texts count as untranslated even before it.
pub(super) fn count(args: &StatsArgs) -> Result<(), CommandError> {
    let all = counted(&Desk::open(&args.file)?)?;
    if args.json {
        return Ok(line(serde_json::to_string_pretty(&all).expect("names and numbers"))?);
    }
    line("domain            locale    sent  translated  outdated  wrong  doubtful  missing  words left")?;
    for it in &all {
        line(format!(
            "{:<16}  {:<7}  {:>4}%  {:>4}/{:<5}  {:>8}  {:>5}  {:>8}  {:>7}  {:>10}",
            it.domain,
            it.locale.as_str(),
            it.percent(),
            it.translated,
            it.total,
            it.outdated,
            it.wrong,
            it.fuzzy,
            it.untranslated,
            it.words_left,
        ))?;
    }
    Ok(())
}
