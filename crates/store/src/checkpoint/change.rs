//! A row of `change`: the changes of one batch to the content of a checkpoint.
//!
//! A checkpoint shows each part of table and index at some moment after its writing began. Replaying all changes since then
//! in order makes it exact, because each change says whether a number is in a set, whatever the set had before. A change of
//! a device says only that its row has changed, and which traits it had in the sets before. Its new data is read from its
//! row, once for all changes.
//!
//! ```text
//! change   a byte: kind, and whether number and subject are those of the previous change;
//!          number (varint, the difference to the previous one, folded), then by kind:
//! device   nothing if its traits did not change or it had none; otherwise its former traits:
//!          platform (a byte), app, locale, country or nothing, user or nothing
//! subscribed, unsubscribed   subject, topic
//! muted, unmuted             subject, or nothing for everything
//! ```

use tidings_audience::Traits;
use tidings_types::{AppId, Country, DeviceNumber, Locale, Platform, Subject, TopicName, UserId};

use crate::devices::rows::device::{PLATFORMS, place};
use crate::packed::{Unpack, put_bytes, put_varint};

pub(crate) fn change_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// [`Traits`] that own their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownTraits {
    pub(crate) platform: Platform,
    pub(crate) app: AppId,
    pub(crate) locale: Locale,
    pub(crate) country: Option<Country>,
    pub(crate) user: Option<UserId>,
}

impl KnownTraits {
    pub(crate) fn get(&self) -> Traits<'_> {
        let Self { platform, app, locale, country, user } = self;
        Traits { platform: *platform, app, locale, country: country.as_ref(), user: user.as_ref() }
    }
}

/// A change that concerns one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its row was changed or deleted; `before`: its former traits, if they changed.
    Device {
        before: Option<KnownTraits>,
    },
    /// It was deleted, and its former traits are unknown because its row was damaged.
    Forgotten,
    Subscription {
        subject: Subject,
        topic: TopicName,
        is_there: bool,
    },
    /// Without a subject: a mute of everything.
    Mute {
        subject: Option<Subject>,
        is_there: bool,
    },
}

// Kinds, in the lower bits of a change's first byte.
const DEVICE: u8 = 0;
const DEVICE_OF_OTHER_TRAITS: u8 = 1;
const FORGOTTEN: u8 = 2;
const SUBSCRIBED: u8 = 3;
const UNSUBSCRIBED: u8 = 4;
const MUTED: u8 = 5;
const UNMUTED: u8 = 6;
const KIND: u8 = 7;
const SAME_NUMBER: u8 = 8;
const SAME_SUBJECT: u8 = 16;

/// Writes a row.
#[derive(Debug, Default)]
pub(crate) struct ChangeWriter {
    row: Vec<u8>,
    count: u64,
    number: Option<DeviceNumber>,
    /// The last subject.
    subject: Option<Subject>,
}

impl ChangeWriter {
    pub(crate) fn device(&mut self, number: DeviceNumber, before: Option<Traits<'_>>) {
        let kind = if before.is_some() { DEVICE_OF_OTHER_TRAITS } else { DEVICE };
        self.begin(kind, number, None);
        let Some(Traits { platform, app, locale, country, user }) = before else { return };
        self.row.push(place(&PLATFORMS, &platform));
        let (country, user) = (country.map(Country::as_str), user.map(UserId::as_str));
        for text in [app.as_str(), locale.as_str(), country.unwrap_or_default(), user.unwrap_or_default()] {
            put_bytes(&mut self.row, text.as_bytes());
        }
    }

    pub(crate) fn forgotten(&mut self, number: DeviceNumber) {
        self.begin(FORGOTTEN, number, None);
    }

    pub(crate) fn subscription(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName, is_there: bool) {
        self.begin(if is_there { SUBSCRIBED } else { UNSUBSCRIBED }, number, Some(subject));
        put_bytes(&mut self.row, topic.as_str().as_bytes());
    }

    pub(crate) fn mute(&mut self, number: DeviceNumber, subject: Option<&Subject>, is_there: bool) {
        self.begin(if is_there { MUTED } else { UNMUTED }, number, subject);
        if subject.is_none() {
            put_bytes(&mut self.row, &[]);
        }
    }

    fn begin(&mut self, kind: u8, number: DeviceNumber, subject: Option<&Subject>) {
        let is_same_number = self.number == Some(number);
        let is_same_subject = subject.is_some() && subject == self.subject.as_ref();
        let flag = |is_so, flag| if is_so { flag } else { 0 };
        self.row.push(kind | flag(is_same_number, SAME_NUMBER) | flag(is_same_subject, SAME_SUBJECT));
        if !is_same_number {
            let before = self.number.map_or(0, |number| i64::from(number.0));
            put_varint(&mut self.row, fold(i64::from(number.0) - before));
        }
        if let Some(subject) = subject.filter(|_| !is_same_subject) {
            put_bytes(&mut self.row, subject.as_str().as_bytes());
            self.subject = Some(subject.clone());
        }
        self.number = Some(number);
        self.count += 1;
    }

    /// The row, and the number of its changes.
    pub(crate) fn finish(self) -> (Vec<u8>, u64) {
        (self.row, self.count)
    }
}

/// Encodes small positive and negative differences as small numbers.
fn fold(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

/// The changes of a row, in order. Ends with `None` at an invalid change.
pub(crate) struct Changes<'a> {
    rest: Unpack<'a>,
    number: Option<DeviceNumber>,
    subject: Option<Subject>,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(row: &'a [u8]) -> Self {
        Self { rest: Unpack(row), number: None, subject: None }
    }

    fn read(&mut self) -> Option<(DeviceNumber, Change)> {
        let head = self.rest.byte()?;
        let number = self.number(head)?;
        let change = match head & KIND {
            _ if head & !(KIND | SAME_NUMBER | SAME_SUBJECT) != 0 => return None,
            DEVICE => Change::Device { before: None },
            DEVICE_OF_OTHER_TRAITS => Change::Device { before: Some(self.traits()?) },
            FORGOTTEN => Change::Forgotten,
            kind @ (SUBSCRIBED | UNSUBSCRIBED) => Change::Subscription {
                subject: self.subject(head)??,
                topic: TopicName::new(self.rest.text()?).ok()?,
                is_there: kind == SUBSCRIBED,
            },
            kind @ (MUTED | UNMUTED) => Change::Mute { subject: self.subject(head)?, is_there: kind == MUTED },
            _ => return None,
        };
        Some((number, change))
    }

    fn number(&mut self, head: u8) -> Option<DeviceNumber> {
        if head & SAME_NUMBER != 0 {
            return self.number;
        }
        let before = self.number.map_or(0, |number| i64::from(number.0));
        let number = before.checked_add(unfold(self.rest.varint()?))?;
        self.number = Some(DeviceNumber(number.try_into().ok()?));
        self.number
    }

    /// The inner `None` is no subject.
    fn subject(&mut self, head: u8) -> Option<Option<Subject>> {
        if head & SAME_SUBJECT != 0 {
            return self.subject.clone().map(Some);
        }
        match self.rest.text()? {
            "" => Some(None),
            text => {
                self.subject = Some(Subject::new(text).ok()?);
                Some(self.subject.clone())
            }
        }
    }

    fn traits(&mut self) -> Option<KnownTraits> {
        let platform = *PLATFORMS.get(usize::from(self.rest.byte()?))?;
        let app = AppId::new(self.rest.text()?).ok()?;
        let locale = Locale::new(self.rest.text()?).ok()?;
        let country = match self.rest.text()? {
            "" => None,
            text => Some(Country::new(text).ok()?),
        };
        let user = match self.rest.text()? {
            "" => None,
            text => Some(UserId::new(text).ok()?),
        };
        Some(KnownTraits { platform, app, locale, country, user })
    }
}

impl Iterator for Changes<'_> {
    type Item = Option<(DeviceNumber, Change)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.rest = Unpack(&[]);
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change() -> impl Strategy<Value = Change> {
        let subject = || (0..3_u8).prop_map(|key| Subject::new(&format!("team:{key}")).unwrap());
        let traits = (0..3_usize, prop::option::of("[A-Z]{2}"), prop::option::of("[!-~]{1,128}")).prop_map(
            |(platform, country, user)| KnownTraits {
                platform: PLATFORMS[platform],
                app: AppId::new("com.example").unwrap(),
                locale: Locale::new("pt-BR").unwrap(),
                country: country.map(|country| Country::new(&country).unwrap()),
                user: user.map(|user| UserId::new(&user).unwrap()),
            },
        );
        prop_oneof![
            prop::option::of(traits).prop_map(|before| Change::Device { before }),
            Just(Change::Forgotten),
            (subject(), "[a-z]{1,64}", any::<bool>()).prop_map(|(subject, topic, is_there)| {
                Change::Subscription { subject, topic: TopicName::new(&topic).unwrap(), is_there }
            }),
            (prop::option::of(subject()), any::<bool>())
                .prop_map(|(subject, is_there)| Change::Mute { subject, is_there }),
        ]
    }

    fn changes() -> impl Strategy<Value = Vec<(DeviceNumber, Change)>> {
        let number = prop_oneof![0..3_u32, any::<u32>(), Just(u32::MAX)].prop_map(DeviceNumber);
        prop::collection::vec((number, change()), 0..20)
    }

    fn row(changes: &[(DeviceNumber, Change)]) -> Vec<u8> {
        let mut writer = ChangeWriter::default();
        for (number, change) in changes {
            match change {
                Change::Device { before } => writer.device(*number, before.as_ref().map(KnownTraits::get)),
                Change::Forgotten => writer.forgotten(*number),
                Change::Subscription { subject, topic, is_there } => {
                    writer.subscription(*number, subject, topic, *is_there);
                }
                Change::Mute { subject, is_there } => writer.mute(*number, subject.as_ref(), *is_there),
            }
        }
        let (row, count) = writer.finish();
        assert_eq!(count, changes.len() as u64);
        row
    }

    proptest! {
        #[test]
        fn changes_read_back(changes in changes()) {
            let read: Option<Vec<_>> = Changes::new(&row(&changes)).collect();
            prop_assert_eq!(read, Some(changes));
        }

        #[test]
        fn reading_any_bytes_ends(
            changes in changes(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut row = row(&changes);
            for (place, byte) in damage {
                if !row.is_empty() {
                    let place = place.index(row.len());
                    row[place] = byte;
                }
            }
            prop_assert!(Changes::new(&row).count() <= row.len());
        }
    }

    #[test]
    fn a_row_that_is_cut_off_is_noticed() {
        let subject = Subject::new("team:1").unwrap();
        let goal = TopicName::new("goal").unwrap();
        let mut writer = ChangeWriter::default();
        writer.subscription(DeviceNumber(7), &subject, &goal, true);
        writer.subscription(DeviceNumber(7), &subject, &goal, false);
        let (row, _) = writer.finish();
        assert_eq!(row.len(), 1 + 1 + 7 + 5 + 1 + 5, "the second names neither number nor subject");
        assert!(Changes::new(&row[..row.len() - 1]).any(|change| change.is_none()));
        assert_eq!(Changes::new(&[SAME_NUMBER]).collect::<Vec<_>>(), [None], "the same as nothing");
    }
}
