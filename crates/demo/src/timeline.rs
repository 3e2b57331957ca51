//! The 2022 World Cup final as a list of events: Argentina 3–3 France after extra time, 4–2 on penalties, Lusail,
//! 18 December 2022.
//!
//! The facts are in one table, in their order. Scores, parameters and channels are computed from them. `at` is the time
//! played since kick-off in minutes. It includes stoppage time (seven minutes in the first half, eight in the second,
//! three at the end) and leaves breaks out, so that nothing stands still for a quarter of an hour.

use serde_json::{Map, Value, json};
use tidings_types::EventId;

/// The channel of the match: every event is published there.
pub(super) const MATCH: &str = "match:2022-final";

/// The most events of a match: 32 bits per phone say which events it got.
pub(super) const MOMENT_COUNT_MAX: usize = 32;
const _: () = assert!(THE_FINAL.len() <= MOMENT_COUNT_MAX);

/// A team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Team {
    Argentina,
    France,
}
use Team::{Argentina, France};

impl Team {
    pub(super) fn name(self) -> &'static str {
        match self {
            Argentina => "Argentina",
            France => "France",
        }
    }

    pub(super) fn subject(self) -> &'static str {
        match self {
            Argentina => "team:argentina",
            France => "team:france",
        }
    }
}

/// A player: name and subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Player(&'static str, &'static str);

const MESSI: Player = Player("Lionel Messi", "player:lionel-messi");
const DI_MARIA: Player = Player("Ángel Di María", "player:angel-di-maria");
const DYBALA: Player = Player("Paulo Dybala", "player:paulo-dybala");
const PAREDES: Player = Player("Leandro Paredes", "player:leandro-paredes");
const MONTIEL: Player = Player("Gonzalo Montiel", "player:gonzalo-montiel");
const MBAPPE: Player = Player("Kylian Mbappé", "player:kylian-mbappe");
const COMAN: Player = Player("Kingsley Coman", "player:kingsley-coman");
const TCHOUAMENI: Player = Player("Aurélien Tchouaméni", "player:aurelien-tchouameni");
const KOLO_MUANI: Player = Player("Randal Kolo Muani", "player:randal-kolo-muani");

/// Something that happens in a match.
#[derive(Debug, Clone, Copy)]
enum Fact {
    KickOff,
    Goal { team: Team, scorer: Player, minute: u32, penalty: bool },
    AddedTime { minutes: u32 },
    HalfTime,
    FullTime,
    ExtraTime,
    ShootOut,
    Shot { team: Team, player: Player, scored: bool },
    Result { winner: Team },
}
use Fact::{AddedTime, ExtraTime, FullTime, Goal, HalfTime, KickOff, Result, ShootOut, Shot};

/// Minutes played, the time on the scoreboard, and what happened.
const THE_FINAL: [(f64, &str, Fact); 22] = [
    (0.0, "1'", KickOff),
    (23.0, "23'", Goal { team: Argentina, scorer: MESSI, minute: 23, penalty: true }),
    (36.0, "36'", Goal { team: Argentina, scorer: DI_MARIA, minute: 36, penalty: false }),
    (45.0, "45'", AddedTime { minutes: 7 }),
    (52.0, "45+7'", HalfTime),
    (87.0, "80'", Goal { team: France, scorer: MBAPPE, minute: 80, penalty: true }),
    (88.0, "81'", Goal { team: France, scorer: MBAPPE, minute: 81, penalty: false }),
    (97.0, "90'", AddedTime { minutes: 8 }),
    (105.0, "90+8'", FullTime),
    (106.0, "91'", ExtraTime),
    (123.0, "108'", Goal { team: Argentina, scorer: MESSI, minute: 108, penalty: false }),
    (133.0, "118'", Goal { team: France, scorer: MBAPPE, minute: 118, penalty: true }),
    (138.0, "120+3'", ShootOut),
    (139.0, "penalties", Shot { team: France, player: MBAPPE, scored: true }),
    (140.0, "penalties", Shot { team: Argentina, player: MESSI, scored: true }),
    (141.0, "penalties", Shot { team: France, player: COMAN, scored: false }), // Saved.
    (142.0, "penalties", Shot { team: Argentina, player: DYBALA, scored: true }),
    (143.0, "penalties", Shot { team: France, player: TCHOUAMENI, scored: false }), // Wide.
    (144.0, "penalties", Shot { team: Argentina, player: PAREDES, scored: true }),
    (145.0, "penalties", Shot { team: France, player: KOLO_MUANI, scored: true }),
    (146.0, "penalties", Shot { team: Argentina, player: MONTIEL, scored: true }),
    (147.0, "end", Result { winner: Argentina }),
];

/// Goals and, from the shoot-out on, penalties. Argentina comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Score {
    pub(super) goals: [u32; 2],
    pub(super) penalties: Option<[u32; 2]>,
}

/// One event of the match, ready to be posted.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// Minutes played before the event.
    pub(super) at: f64,
    /// The time on the scoreboard.
    pub(super) clock: &'static str,
    pub(super) id: EventId,
    pub(super) topic: &'static str,
    pub(super) subjects: Vec<&'static str>,
    pub(super) channels: Vec<&'static str>,
    pub(super) params: Map<String, Value>,
    /// The score after the event.
    pub(super) score: Score,
}

impl Moment {
    /// The event for the API. Every delivery contains `index` and `sent_micros`.
    pub(super) fn to_json(&self, index: usize, sent_micros: u64) -> Value {
        let data = json!({ "clock": self.clock, "score": self.score.goals, "moment": index, "sent": sent_micros });
        json!({
            "id": self.id,
            "topic": self.topic,
            "subjects": self.subjects,
            "channels": self.channels,
            "params": self.params,
            "data": data,
        })
    }
}

/// The whole match, in order.
pub(super) fn moments() -> Vec<Moment> {
    let mut score = Score::default();
    THE_FINAL.iter().enumerate().map(|(index, fact)| moment(index, fact, &mut score)).collect()
}

fn moment(index: usize, &(at, clock, fact): &(f64, &'static str, Fact), score: &mut Score) -> Moment {
    match fact {
        Goal { team, .. } => score.goals[team as usize] += 1,
        ShootOut => score.penalties = Some([0, 0]),
        Shot { team, scored: true, .. } => score.penalties.get_or_insert_default()[team as usize] += 1,
        _ => {}
    }
    let (topic, team, player) = about(fact);
    let mut subjects = vec![MATCH];
    match team {
        // A shot is about the team that shoots, everything else about both teams.
        Some(team) if topic.starts_with("shoot_out") => subjects.push(team.subject()),
        _ => subjects.extend([Argentina.subject(), France.subject()]),
    }
    subjects.extend(player.map(|Player(_, subject)| subject));
    let mut channels = vec![MATCH];
    channels.extend(team.map(Team::subject));
    let id = EventId::new(&format!("2022-final-{:02}-{topic}", index + 1)).expect("letters, digits and hyphens");
    Moment { at, clock, id, topic, subjects, channels, params: params(fact, *score), score: *score }
}

/// The topic, and the team and the player that the event is about, if there are such.
fn about(fact: Fact) -> (&'static str, Option<Team>, Option<Player>) {
    match fact {
        KickOff => ("kick_off", None, None),
        Goal { team, scorer, penalty: true, .. } => ("penalty_goal", Some(team), Some(scorer)),
        Goal { team, scorer, penalty: false, .. } => ("goal", Some(team), Some(scorer)),
        AddedTime { .. } => ("added_time", None, None),
        HalfTime => ("half_time", None, None),
        FullTime => ("full_time", None, None),
        ExtraTime => ("extra_time", None, None),
        ShootOut => ("shoot_out", None, None),
        Shot { team, player, scored: true } => ("shoot_out_goal", Some(team), Some(player)),
        Shot { team, player, scored: false } => ("shoot_out_miss", Some(team), Some(player)),
        Result { winner } => ("result", Some(winner), None),
    }
}

fn params(fact: Fact, score: Score) -> Map<String, Value> {
    let [home_goals, away_goals] = score.goals;
    let mut params = json!({
        "home": Argentina.name(), "away": France.name(), "home_goals": home_goals, "away_goals": away_goals,
    });
    match fact {
        Goal { team, scorer: Player(name, _), minute, .. } => {
            params["team"] = team.name().into();
            params["scorer"] = name.into();
            params["minute"] = minute.into();
        }
        AddedTime { minutes } => params["minutes"] = minutes.into(),
        Shot { team, player: Player(name, _), .. } => {
            let [home, away] = score.penalties.unwrap_or_default();
            params["team"] = team.name().into();
            params["player"] = name.into();
            params["home_penalties"] = home.into();
            params["away_penalties"] = away.into();
        }
        Result { winner } => params["winner"] = winner.name().into(),
        KickOff | HalfTime | FullTime | ExtraTime | ShootOut => {}
    }
    let Value::Object(params) = params else { unreachable!("an object was made") };
    params
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_final_ends_three_all_and_four_two_on_penalties() {
        let moments = moments();
        let last = moments.last().unwrap();
        assert_eq!(last.score, Score { goals: [3, 3], penalties: Some([4, 2]) });
        assert_eq!(last.params["winner"], "Argentina");
        let before_extra_time = moments.iter().find(|moment| moment.topic == "extra_time").unwrap();
        assert_eq!(before_extra_time.score, Score { goals: [2, 2], penalties: None });
        let half_time = moments.iter().find(|moment| moment.topic == "half_time").unwrap();
        assert_eq!(half_time.score.goals, [2, 0]);
    }

    #[test]
    fn the_goals_are_those_of_the_real_match() {
        let goals: Vec<_> = moments()
            .into_iter()
            .filter(|moment| moment.topic.ends_with("goal") && !moment.topic.starts_with("shoot_out"))
            .map(|moment| {
                let text = |name: &str| moment.params[name].as_str().unwrap().to_owned();
                let minute = moment.params["minute"].as_u64().unwrap();
                (minute, text("team"), text("scorer"), moment.topic == "penalty_goal", moment.score.goals)
            })
            .collect();
        let goal = |minute, team: Team, scorer: &str, penalty, score| {
            (minute, team.name().to_owned(), scorer.to_owned(), penalty, score)
        };
        assert_eq!(
            goals,
            [
                goal(23, Argentina, "Lionel Messi", true, [1, 0]),
                goal(36, Argentina, "Ángel Di María", false, [2, 0]),
                goal(80, France, "Kylian Mbappé", true, [2, 1]),
                goal(81, France, "Kylian Mbappé", false, [2, 2]),
                goal(108, Argentina, "Lionel Messi", false, [3, 2]),
                goal(118, France, "Kylian Mbappé", true, [3, 3]),
            ]
        );
    }

    #[test]
    fn the_shoot_out_is_counted_shot_by_shot() {
        let moments = moments();
        let shots = moments.iter().filter(|moment| matches!(moment.topic, "shoot_out_goal" | "shoot_out_miss"));
        let shots: Vec<_> = shots.map(|shot| (shot.params["player"].as_str().unwrap(), shot.score.penalties)).collect();
        assert_eq!(
            shots,
            [
                ("Kylian Mbappé", Some([0, 1])),
                ("Lionel Messi", Some([1, 1])),
                ("Kingsley Coman", Some([1, 1])),
                ("Paulo Dybala", Some([2, 1])),
                ("Aurélien Tchouaméni", Some([2, 1])),
                ("Leandro Paredes", Some([3, 1])),
                ("Randal Kolo Muani", Some([3, 2])),
                ("Gonzalo Montiel", Some([4, 2])),
            ]
        );
    }

    #[test]
    fn time_goes_forward_and_every_event_has_its_own_id() {
        let moments = moments();
        assert!(moments.is_sorted_by(|a, b| a.at < b.at));
        let ids: BTreeSet<_> = moments.iter().map(|moment| moment.id.as_str()).collect();
        assert_eq!(ids.len(), moments.len());
        for moment in &moments {
            assert_eq!(moment.channels[0], MATCH);
            assert!(moment.subjects.contains(&MATCH), "{}", moment.id);
        }
    }

    #[test]
    fn every_event_has_the_parameters_of_its_text() {
        let file: toml::Table = super::super::setup::TOPICS.parse().unwrap();
        let topics = file["topics"].as_table().unwrap();
        for moment in moments() {
            let topic = topics[moment.topic].as_table().unwrap();
            let texts = ["title", "title_plural", "body", "body_plural"];
            for text in texts.iter().filter_map(|name| topic.get(*name)?.as_str()) {
                for name in text.split("%{").skip(1).map(|rest| rest.split_once('}').unwrap().0) {
                    assert!(moment.params.contains_key(name), "{} lacks {name}", moment.id);
                }
            }
        }
    }
}
