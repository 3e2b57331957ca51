//! The expected texts on phones, written by hand in each language, independent of catalogues and templates.
//!
//! There are two events: the first goal (texts and numbers as parameters, isolates in Arabic) and the added time of the
//! first half (a plural: seven takes the third form in Polish, the fourth in Arabic). French has its no-break spaces.
//! The demo compares them with the texts that the simulator accepted.

/// Title and body.
pub(super) type Wording = (&'static str, &'static str);

/// The text of an event in a language; `None` for other events.
pub(super) fn expected(moment: usize, locale: &str) -> Option<Wording> {
    let table = match moment {
        FIRST_GOAL => &FIRST_GOAL_WORDS,
        ADDED_TIME => &ADDED_TIME_WORDS,
        _ => return None,
    };
    table.iter().find(|(known, ..)| *known == locale).map(|&(_, title, body)| (title, body))
}

/// Index of Messi's penalty in the 23rd minute.
const FIRST_GOAL: usize = 1;
/// Index of the seven minutes added to the first half.
const ADDED_TIME: usize = 3;

const FIRST_GOAL_WORDS: [(&str, &str, &str); 8] = [
    ("en", "Penalty goal for Argentina!", "Lionel Messi converts the penalty in minute 23. Argentina 1 – 0 France"),
    (
        "es",
        "¡Gol de penalti de Argentina!",
        "Lionel Messi transforma el penalti en el minuto 23. Argentina 1 – 0 France",
    ),
    (
        "fr",
        "But sur penalty\u{a0}: Argentina\u{202f}!",
        "Lionel Messi transforme le penalty à la minute 23. Argentina 1 – 0 France",
    ),
    ("de", "Elfmetertor für Argentina!", "Lionel Messi verwandelt den Elfmeter in Minute 23. Argentina 1 – 0 France"),
    ("pt-BR", "Gol de pênalti: Argentina!", "Lionel Messi converte o pênalti no minuto 23. Argentina 1 – 0 France"),
    (
        "pl",
        "Gol z rzutu karnego dla drużyny Argentina!",
        "Lionel Messi wykorzystuje rzut karny w 23. minucie. Argentina 1 – 0 France",
    ),
    (
        "ar",
        "هدف من ركلة جزاء لفريق \u{2068}Argentina\u{2069}!",
        "هدف من ركلة جزاء بتوقيع \u{2068}Lionel Messi\u{2069} في الدقيقة 23. \u{2068}Argentina\u{2069} 1 – 0 \u{2068}France\u{2069}",
    ),
    ("ja", "ArgentinaがPKでゴール！", "23分、Lionel MessiがPKを決めました。Argentina 1 – 0 France"),
];

const ADDED_TIME_WORDS: [(&str, &str, &str); 8] = [
    ("en", "Added time", "7 minutes added"),
    ("es", "Tiempo añadido", "Se añaden 7 minutos"),
    ("fr", "Temps additionnel", "7 minutes de plus"),
    ("de", "Nachspielzeit", "7 Minuten Nachspielzeit"),
    ("pt-BR", "Acréscimos", "7 minutos de acréscimo"),
    ("pl", "Doliczony czas", "Doliczono 7 minut"),
    ("ar", "الوقت بدل الضائع", "7 دقائق وقتًا بدل ضائع"),
    ("ja", "アディショナルタイム", "アディショナルタイムは7分です"),
];

#[cfg(test)]
mod tests {
    use super::super::population::LOCALES;
    use super::super::timeline::moments;
    use super::*;

    #[test]
    fn both_events_have_a_text_in_every_language() {
        let moments = moments();
        assert_eq!((moments[FIRST_GOAL].topic, &moments[FIRST_GOAL].params["minute"]), ("penalty_goal", &23.into()));
        assert_eq!((moments[ADDED_TIME].topic, &moments[ADDED_TIME].params["minutes"]), ("added_time", &7.into()));
        for (locale, _) in LOCALES {
            assert!(expected(FIRST_GOAL, locale).is_some() && expected(ADDED_TIME, locale).is_some(), "{locale}");
        }
        assert_eq!(expected(0, "en"), None);
    }
}
