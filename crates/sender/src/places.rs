//! The readers of one event whose texts differ although they have the same translation.
//!
//! Only an event with typed values has any. A *place* is a locale, and a time zone as far as it matters: zones whose clocks
//! show the same at all moments of the event are one. So a kick-off for devices in 300 zones has some 40 renderings per
//! locale at most.
//!
//! Bounds: [`PLACE_COUNT_MAX`] places and [`ZONE_COUNT_MAX`] zones per job. A device beyond them gets the text of
//! [`EVERYWHERE`]: in the conventions of the text's language, and a moment that is for the device's zone in the default
//! zone, with its offset. It is right, only less convenient.

use std::collections::{BTreeMap, HashMap};

use tidings_gettext::offset;
use tidings_types::{Event, Locale, ParamValue, TimeZone};

/// Each place is a rendering of one or two kilobytes for each lane.
pub(crate) const PLACE_COUNT_MAX: usize = 512;
/// The IANA database has about 600 names. Devices may store others.
const ZONE_COUNT_MAX: usize = 1024;

/// The reader without locale and zone. The only one of an event without typed values.
pub(crate) const EVERYWHERE: PlaceIndex = PlaceIndex(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlaceIndex(u16);

/// What decides how typed values look.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) locale: Locale,
    pub(crate) zone: Option<TimeZone>,
}

/// The places of one job, in the order in which they were met.
#[derive(Debug, Default)]
pub(crate) struct Places {
    places: Vec<Place>,
    by_reader: HashMap<Locale, BTreeMap<Option<u16>, PlaceIndex>>,
    /// The clock of each zone; none for a zone that does not exist.
    clocks: HashMap<TimeZone, Option<u16>>,
    /// Numbers of clocks by what they show.
    by_offsets: HashMap<Vec<i32>, u16>,
}

impl Places {
    pub(crate) fn index(&mut self, event: &Event, place: &Place) -> PlaceIndex {
        let clock = place.zone.as_ref().and_then(|zone| self.clock(event, zone));
        if let Some(index) = self.by_reader.get(&place.locale).and_then(|clocks| clocks.get(&clock)) {
            return *index;
        }
        if self.places.len() >= PLACE_COUNT_MAX {
            return EVERYWHERE;
        }
        let zone = place.zone.clone().filter(|_| clock.is_some());
        self.places.push(Place { locale: place.locale.clone(), zone });
        let index = PlaceIndex(self.places.len() as u16);
        self.by_reader.entry(place.locale.clone()).or_default().insert(clock, index);
        index
    }

    /// `None`: everywhere.
    pub(crate) fn get(&self, PlaceIndex(index): PlaceIndex) -> Option<&Place> {
        self.places.get(usize::from(index).checked_sub(1)?)
    }

    /// The number of what the zone's clock shows; `None` if nothing of the event depends on it.
    fn clock(&mut self, event: &Event, zone: &TimeZone) -> Option<u16> {
        if let Some(clock) = self.clocks.get(zone) {
            return *clock;
        }
        if self.clocks.len() >= ZONE_COUNT_MAX {
            return None;
        }
        let offsets: Vec<i32> = event.params.values().filter_map(|value| offset_of(value, zone)).collect();
        let next = self.by_offsets.len() as u16;
        let clock = (!offsets.is_empty()).then(|| *self.by_offsets.entry(offsets).or_insert(next));
        self.clocks.insert(zone.clone(), clock);
        clock
    }
}

fn offset_of(value: &ParamValue, zone: &TimeZone) -> Option<i32> {
    match value {
        ParamValue::Typed(value) => offset(value, zone),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidings_types::{EventId, Subject, TopicName};

    use super::*;

    fn event(params: &[&str]) -> Event {
        let subjects = vec![Subject::new("match:1").unwrap()];
        let mut event = Event::new(EventId::new("e").unwrap(), TopicName::new("kick-off").unwrap(), subjects);
        let param = |(index, json): (usize, &&str)| (format!("p{index}"), serde_json::from_str(json).unwrap());
        event.params = params.iter().enumerate().map(param).collect();
        event
    }

    fn place(locale: &str, zone: &str) -> Place {
        let zone = (!zone.is_empty()).then(|| TimeZone::new(zone).unwrap());
        Place { locale: Locale::new(locale).unwrap(), zone }
    }

    #[test]
    fn zones_whose_clocks_show_the_same_are_one_place() {
        let winter = r#"{"datetime":"2026-11-24T20:45:00Z","zone":"device"}"#;
        let summer = r#"{"datetime":"2026-07-24T20:45:00Z","zone":"device"}"#;
        let differ = |params: &[&str], one: &str, other: &str| {
            let (event, mut places) = (event(params), Places::default());
            places.index(&event, &place("sv", one)) != places.index(&event, &place("sv", other))
        };
        assert!(!differ(&[winter], "Europe/Stockholm", "Europe/Berlin"));
        assert!(differ(&[winter], "Europe/Stockholm", "Europe/Helsinki"));
        assert!(!differ(&[winter], "Europe/Stockholm", "Africa/Lagos"), "no summer time in winter");
        assert!(differ(&[winter, summer], "Europe/Stockholm", "Africa/Lagos"));
        assert!(differ(&[winter], "UTC", ""), "a device without zone is told the offset");
        assert!(!differ(&[winter], "Mars/Base", ""));
        assert!(!differ(&[r#"{"number":1}"#], "Europe/Stockholm", "Asia/Tokyo"), "nothing depends on the zone");
    }

    #[test]
    fn invented_locales_and_zones_cannot_make_more_places_than_there_may_be() {
        let (event, mut places) =
            (event(&[r#"{"datetime":"2026-11-24T20:45:00Z","zone":"device"}"#]), Places::default());
        let letters = || b'A'..=b'Z';
        let mut seen = BTreeSet::new();
        for (index, (one, other)) in letters().flat_map(|one| letters().map(move |other| (one, other))).enumerate() {
            let name = format!("en-{}{}", char::from(one), char::from(other));
            seen.insert(places.index(&event, &place(&name, &format!("Zone/N{index}"))).0);
            places.index(&event, &place("en", &format!("Zone/M{index}")));
        }
        assert_eq!(seen.len(), PLACE_COUNT_MAX, "one of them is everywhere");
        assert!(places.clocks.len() <= ZONE_COUNT_MAX);
        assert_eq!(places.index(&event, &place("de", "UTC")), EVERYWHERE);
        assert!(places.get(EVERYWHERE).is_none());
    }
}
