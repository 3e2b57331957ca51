//! Arguments of `tidings translations`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ApiServer, ConfigFile};

/// Bring texts to translators and back.
#[derive(Debug, Subcommand)]
pub(crate) enum TranslationsCommand {
    /// Write the POT files, from which translators start.
    Extract(ExtractArgs),
    /// Bring the PO files up to date with the texts, and make those of new languages.
    Merge(MergeArgs),
    /// Find mistakes and work to do in the PO files.
    Check(CheckArgs),
    /// Count what is translated.
    Stats(StatsArgs),
    /// Fetch the translations from the translation service, and check them.
    Pull(PullArgs),
    /// Send the texts to the translation service.
    Push(PushArgs),
    /// Render every text in every language as the server does, for every provider.
    CompileCheck(CompileCheckArgs),
    /// Show which texts the server uses.
    Status(TextsArgs),
    /// Let the server read its texts again. It takes over all of them, or none if one is wrong.
    Reload(TextsArgs),
    /// Let the server use the texts before the last reload.
    Rollback(TextsArgs),
    /// Write PO files in languages that nobody speaks, to see whether all texts are translated and fit.
    Pseudo(PseudoArgs),
}

/// Arguments of `translations extract`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations extract                  writes DIR/DOMAIN.pot
  tidings translations extract --check          fails if a file is not up to date; for CI")]
pub(crate) struct ExtractArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Write nothing, and fail if a file would change.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Arguments of `translations merge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations merge                    all languages that there are
  tidings translations merge --locale pt-BR     makes the files of a new language, too

A text that has changed keeps its translation. It is outdated, and sent until there is a new one.")]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// A language to begin; may be given several times.
    #[arg(long, value_name = "LOCALE")]
    pub(crate) locale: Vec<String>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindingFormat {
    /// In words, with the line of the file.
    Text,
    /// One JSON object.
    Json,
    /// As annotations of GitHub Actions.
    Github,
}

/// Arguments of `translations check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations check
  tidings translations check --min-translated 95 --locale pl --locale sv
  tidings translations check --format github    comments on the lines of a pull request

It fails if there is an error: a translation that the server would not send.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Languages that must be there; may be given several times.
    #[arg(long, value_name = "LOCALE")]
    pub(crate) locale: Vec<String>,
    /// The least share of translated texts of each language, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) min_translated: Option<u8>,
    /// Leave out the notes: untranslated, doubtful, outdated.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// How the findings are printed.
    #[arg(long, value_enum, default_value_t = FindingFormat::Text)]
    pub(crate) format: FindingFormat,
}

/// Arguments of `translations stats`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations stats
  tidings translations stats --json | jq '.[] | select(.untranslated > 0)'")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `translations pull`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations pull

It runs the command of translations.service.pull. Then it writes each PO file in one form, without
dates, so that a pull without new translations changes no file. A file with errors is put back as
it was, and the command fails.")]
pub(crate) struct PullArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Take files with errors, too. What is wrong in them is not sent.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `translations push`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations push

It writes the POT files as `extract` does, then runs the command of translations.service.push.")]
pub(crate) struct PushArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// Arguments of `translations compile-check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations compile-check            for CI, before the server gets the files")]
pub(crate) struct CompileCheckArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// Arguments of `translations status`, `reload` and `rollback`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations status --json
  tidings translations reload                   fails, and says why, if a text is wrong
  tidings translations rollback                 until the next reload or restart")]
pub(crate) struct TextsArgs {
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Arguments of `translations pseudo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings translations pseudo                   writes en-XA and ar-XB (right to left)
  tidings translations pseudo --into /tmp/try")]
pub(crate) struct PseudoArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// The folder to write to [default: translations.dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}
