//! `tidings translations`: brings texts to translators and back.
//!
//! The sources are the topics and names of the configuration. The files are those of `translations.dir`: `DOMAIN.pot` and
//! `LOCALE/LC_MESSAGES/DOMAIN.po`. The logic is in `tidings_gettext`; here are files, the service's commands, and the words
//! on the terminal.
//!
//! A file is written beside its place and then moved there, and only if its content changes. So nobody reads half a file,
//! and a version control system sees only what is new.

mod check;
mod desk;
mod service;
mod stats;

use hyper::Method;
use serde::{Deserialize, Serialize};
use tidings_gettext::{Catalogue, Changes, Pseudo, merge};
use tidings_server::output::{Kind, line, remark};
use tidings_types::Locale;

use self::desk::{Desk, PoFile, catalogue, has, po_path, write};
use super::CommandError;
use super::client::api::{ApiClient, parse};
use crate::cli::{ExtractArgs, MergeArgs, PseudoArgs, TextsArgs, TranslationsCommand};

pub(crate) async fn run(command: TranslationsCommand) -> Result<(), CommandError> {
    match command {
        TranslationsCommand::Extract(args) => extract(&args),
        TranslationsCommand::Merge(args) => merge_all(&args),
        TranslationsCommand::Check(args) => check::run(&args),
        TranslationsCommand::Stats(args) => stats::count(&args),
        TranslationsCommand::Pull(args) => service::pull(&args).await,
        TranslationsCommand::Push(args) => service::push(&args).await,
        TranslationsCommand::CompileCheck(args) => check::compile(&args),
        TranslationsCommand::Status(args) => texts(Method::GET, "/v1/texts", &args).await,
        TranslationsCommand::Reload(args) => texts(Method::POST, "/v1/texts/reload", &args).await,
        TranslationsCommand::Rollback(args) => texts(Method::POST, "/v1/texts/rollback", &args).await,
        TranslationsCommand::Pseudo(args) => pseudo(&args),
    }
}

/// The server's answer about its texts.
#[derive(Deserialize)]
struct Texts {
    topics: usize,
    languages: Vec<String>,
    since: String,
    can_roll_back: bool,
    faults: Vec<String>,
}

/// Asks the server about its texts. Faults end the command with an error, but a rollback is done in spite of them.
async fn texts(method: Method, path: &str, args: &TextsArgs) -> Result<(), CommandError> {
    let answer = ApiClient::new(&args.api)?.ask(method, path, None).await?;
    let Texts { topics, languages, since, can_roll_back, faults } = parse(&answer)?;
    if args.api.json {
        line(answer.trim_end())?;
    } else {
        let languages = if languages.is_empty() { "no translations".to_owned() } else { languages.join(", ") };
        let back = if can_roll_back { "; `tidings translations rollback` goes back" } else { "" };
        line(format!("{topics} topics, {languages}, in force since {since}{back}"))?;
    }
    if faults.is_empty() {
        return Ok(());
    }
    let told = format!("the texts read last are wrong:\n  {}", faults.join("\n  "));
    if path.ends_with("/rollback") {
        remark(Kind::Warning, told);
        return Ok(());
    }
    Err(CommandError::Failed(told))
}

fn extract(args: &ExtractArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    let mut stale = Vec::new();
    for (_, path, template) in desk.templates()? {
        let (text, shown) = (template.to_po(), path.display());
        if args.check {
            if !has(&path, text.as_bytes())? {
                stale.push(shown.to_string());
            }
        } else {
            let done = if write(&path, &text)? { "written" } else { "unchanged" };
            line(format!("{shown}: {} texts, {done}", template.entries().len() - 1))?;
        }
    }
    match stale.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Failed(format!(
            "not up to date: {}; run `tidings translations extract`",
            stale.join(", ")
        ))),
    }
}

#[derive(Serialize)]
struct MergedFile {
    file: String,
    locale: Locale,
    changed: bool,
    kept: usize,
    added: usize,
    outdated: usize,
    fuzzy: usize,
    revived: usize,
    obsolete: usize,
}

fn merge_all(args: &MergeArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    let mut files = desk.files()?;
    for name in &args.locale {
        let locale = Locale::new(name).map_err(|error| CommandError::Usage(error.to_string()))?;
        for domain in desk.domains.keys() {
            if !files.iter().any(|file| file.domain == *domain && file.locale == locale) {
                let path = po_path(&desk.dir.join(name), domain);
                files.push(PoFile { domain: domain.clone(), locale: locale.clone(), path });
            }
        }
    }
    let templates = desk.templates()?;
    let mut merged = Vec::new();
    for PoFile { domain, locale, path } in files {
        let (_, _, template) = templates.iter().find(|(name, ..)| *name == domain).expect("a file of a known domain");
        let old = if path.is_file() { catalogue(&path)? } else { Catalogue::empty(&locale) };
        let result = merge(&old, template);
        let Changes { kept, added, outdated, fuzzy, revived, obsolete } = result.changes;
        let changed = write(&path, result.catalogue.to_po())?;
        let file = path.display().to_string();
        merged.push(MergedFile { file, locale, changed, kept, added, outdated, fuzzy, revived, obsolete });
    }
    if args.json {
        return Ok(line(serde_json::to_string_pretty(&merged).expect("names and numbers"))?);
    }
    for file in &merged {
        line(file.told())?;
    }
    if merged.is_empty() {
        remark(Kind::Note, "there is no PO file yet: begin a language with --locale");
    }
    Ok(())
}

impl MergedFile {
    fn told(&self) -> String {
        let counts = [
            (self.added, "new"),
            (self.outdated, "outdated but sent"),
            (self.fuzzy, "doubtful now"),
            (self.revived, "used again"),
            (self.obsolete, "no longer used"),
        ];
        let told = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let told: Vec<String> = std::iter::once(format!("{} as before", self.kept)).chain(told).collect();
        format!("{}: {}{}", self.file, told.join(", "), if self.changed { "" } else { "; unchanged" })
    }
}

fn pseudo(args: &PseudoArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    let into = args.into.as_ref().unwrap_or(&desk.dir);
    for (domain, _, template) in desk.templates()? {
        for pseudo in Pseudo::ALL {
            let path = po_path(&into.join(pseudo.locale().as_str()), domain);
            write(&path, pseudo.catalogue(&template).to_po())?;
            line(path.display())?;
        }
    }
    Ok(())
}
