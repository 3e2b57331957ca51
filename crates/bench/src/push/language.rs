//! The texts of the events, in several languages.

use serde::Serialize;
use serde_json::json;
use tidings_types::DeviceToken;

/// The event's id in the payloads of other senders.
pub(super) const EVENT: &str = "bench-0-1";

/// Parameters of the events.
pub(super) const TEAM: &str = "Sverige";
pub(super) const SCORER: &str = "Karl";
pub(super) const MINUTE: u32 = 90;

/// A language. The simulator recognises it by the beginning of the title.
pub(super) struct Language {
    pub(super) locale: &'static str,
    pub(super) title: &'static str,
    pub(super) body: &'static str,
}

/// The first is the source language.
pub(super) const LANGUAGES: [Language; 4] = [
    Language { locale: "en", title: "Goal for ", body: "%{scorer} scores in minute %{minute}." },
    Language { locale: "de", title: "Tor für ", body: "%{scorer} trifft in Minute %{minute}." },
    Language { locale: "fr", title: "But pour ", body: "%{scorer} marque à la %{minute}e minute." },
    Language { locale: "pt-BR", title: "Gol para ", body: "%{scorer} marca aos %{minute} minutos." },
];

/// The text of a notification, and the payload with it.
#[derive(Serialize)]
pub(super) struct Message {
    pub(super) title: String,
    pub(super) body: String,
    pub(super) payload: String,
}

impl Language {
    /// The text of our events, and our payload with it for other senders.
    pub(super) fn message(&self) -> Message {
        let isolated = |text: &str| format!("\u{2068}{text}\u{2069}");
        let title = format!("{}{}!", self.title, isolated(TEAM));
        let body = self.body.replace("%{scorer}", &isolated(SCORER)).replace("%{minute}", &MINUTE.to_string());
        let payload = json!({
            "aps": {"alert": {"title": title, "body": body}, "sound": "default"}, "tidings": {"event": EVENT},
        });
        Message { title, body, payload: payload.to_string() }
    }

    /// The PO catalogue of a language.
    pub(super) fn catalogue(&self) -> String {
        let source = &LANGUAGES[0];
        format!(
            "msgid \"\"\nmsgstr \"\"\n\"Language: {}\\n\"\n\"Content-Type: text/plain; charset=UTF-8\\n\"\n\
             \"Content-Transfer-Encoding: 8bit\\n\"\n\n\
             msgid \"{}%{{team}}!\"\nmsgstr \"{}%{{team}}!\"\n\nmsgid \"{}\"\nmsgstr \"{}\"\n",
            self.locale, source.title, self.title, source.body, self.body
        )
    }
}

/// The language of a device, from its token; `None` for h2load's tokens.
pub(super) fn language_of(token: &DeviceToken) -> Option<&'static Language> {
    LANGUAGES.get(usize::from(*token.as_bytes().first()?))
}
