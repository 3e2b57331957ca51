//! Reads JSON, NDJSON and MessagePack, with serde: the same walk over all three, one value at a time.
//!
//! An array is no level of its own: its elements stand at its place. So the elements of `{"events": [..]}` are the entries
//! at `/events`, and they are handed out while the array is read. `null` is the same as nothing. Keys that are not texts
//! (MessagePack has such) count as their text.
//!
//! A line of NDJSON that is not JSON is a wrong entry, and reading goes on behind it. In JSON and MessagePack what is not
//! well-formed ends the document.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, Read};

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use crate::collect::{Collector, Stop};
use crate::error::{Position, Problem, ReadError};
use crate::place::{DOCUMENT, PlaceId};
use crate::source::Source;
use crate::xml::Ending;

/// What all steps of a walk share.
struct Shared<'a, 'b, R> {
    source: &'a RefCell<Source<R>>,
    collector: RefCell<&'a mut Collector<'b>>,
    stop: RefCell<Option<Stop>>,
    /// Where the value begins that is read from memory: a line.
    line: Option<Position>,
}

impl<R: BufRead> Shared<'_, '_, R> {
    fn at(&self) -> Position {
        self.line.unwrap_or_else(|| {
            let at = self.source.borrow_mut().position();
            Position { byte: at.byte.saturating_sub(1), ..at }
        })
    }

    /// Why a parser failed: our reason, the reader's, or its own.
    fn why(&self, own: &dyn fmt::Display) -> Option<Problem> {
        match self.stop.take() {
            Some(Stop::Enough) => None,
            Some(Stop::Problem(problem)) => Some(problem),
            None => Some(self.source.borrow_mut().failure.take().unwrap_or_else(|| {
                let text = own.to_string();
                let text = text.split(" at line ").next().unwrap_or_default().to_owned();
                Problem::Syntax(text)
            })),
        }
    }

    fn fail<E: serde::de::Error>(&self, stop: impl Into<Stop>) -> E {
        self.stop.replace(Some(stop.into()));
        E::custom("stopped")
    }

    fn refuse(&self, problem: Option<Problem>) -> Result<Ending, ReadError> {
        let mut source = self.source.borrow_mut();
        match problem {
            None => Ok(Ending { bytes: source.raw_bytes(), is_whole: false }),
            Some(problem) => Err(ReadError { at: source.position(), problem }),
        }
    }
}

/// A reader that leaves the source to others between two reads.
struct Bytes<'a, R>(&'a RefCell<Source<R>>);

impl<R: BufRead> Read for Bytes<'_, R> {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(bytes)
    }
}

pub(crate) fn read_json<R: BufRead>(source: Source<R>, collector: &mut Collector<'_>) -> Result<Ending, ReadError> {
    let source = RefCell::new(source);
    let collector = RefCell::new(collector);
    let shared = Shared { source: &source, collector, stop: RefCell::default(), line: None };
    let mut json = serde_json::Deserializer::from_reader(Bytes(&source));
    let walk = Walk { shared: &shared, place: Some(DOCUMENT), depth: 0 };
    if let Err(error) = walk.deserialize(&mut json).and_then(|()| json.end()) {
        return shared.refuse(shared.why(&error));
    }
    Ok(Ending { bytes: source.borrow().raw_bytes(), is_whole: true })
}

pub(crate) fn read_ndjson<R: BufRead>(source: Source<R>, collector: &mut Collector<'_>) -> Result<Ending, ReadError> {
    let limit = collector.plan().limits.entry_bytes;
    let source = RefCell::new(source);
    let collector = RefCell::new(collector);
    let mut shared = Shared { source: &source, collector, stop: RefCell::default(), line: None };
    let mut line = Vec::new();
    loop {
        line.clear();
        source.borrow_mut().mark("entry_bytes", "the line", limit);
        shared.line = Some(source.borrow_mut().position());
        let read = source.borrow_mut().read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(Ending { bytes: source.borrow().raw_bytes(), is_whole: true }),
            Ok(count) if count as u64 > limit => {
                return shared.refuse(Some(Problem::limit("entry_bytes", "the line", "has too many bytes", limit)));
            }
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => {}
            Err(error) => {
                let failure = source.borrow_mut().failure.take();
                return shared.refuse(Some(failure.unwrap_or(Problem::Io(error))));
            }
        }
        let mut json = serde_json::Deserializer::from_slice(&line);
        let walk = Walk { shared: &shared, place: Some(DOCUMENT), depth: 0 };
        let Err(error) = walk.deserialize(&mut json).and_then(|()| json.end()) else { continue };
        match shared.why(&error) {
            Some(Problem::Syntax(text)) => {
                let at = shared.at();
                let told = shared.collector.borrow_mut().broken(at, format!("is not JSON: {text}"));
                if told.is_err() {
                    return shared.refuse(None);
                }
            }
            problem => return shared.refuse(problem),
        }
    }
}

pub(crate) fn read_msgpack<R: BufRead>(source: Source<R>, collector: &mut Collector<'_>) -> Result<Ending, ReadError> {
    let source = RefCell::new(source);
    let collector = RefCell::new(collector);
    let shared = Shared { source: &source, collector, stop: RefCell::default(), line: None };
    let mut msgpack = rmp_serde::Deserializer::new(Bytes(&source));
    loop {
        let is_over = source.borrow_mut().fill_buf().map(<[u8]>::is_empty);
        match is_over {
            Ok(true) => return Ok(Ending { bytes: source.borrow().raw_bytes(), is_whole: true }),
            Ok(false) => {}
            Err(error) => return shared.refuse(shared.why(&error)),
        }
        let walk = Walk { shared: &shared, place: Some(DOCUMENT), depth: 0 };
        if let Err(error) = walk.deserialize(&mut msgpack) {
            return shared.refuse(shared.why(&error));
        }
    }
}

/// A value at a place, or one that nobody wants.
struct Walk<'w, 'a, 'b, R> {
    shared: &'w Shared<'a, 'b, R>,
    place: Option<PlaceId>,
    depth: u64,
}

impl<R: BufRead> Walk<'_, '_, '_, R> {
    fn inner(&self, place: Option<PlaceId>) -> Self {
        Self { shared: self.shared, place, depth: self.depth + 1 }
    }

    fn open<E: serde::de::Error>(&self) -> Result<(), E> {
        let Some(place) = self.place else { return Ok(()) };
        let opened = self.shared.collector.borrow_mut().open(place, || self.shared.at());
        opened.map_err(|stop| self.shared.fail(stop))
    }

    fn close<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.place.is_none() {
            return Ok(());
        }
        let mut collector = self.shared.collector.borrow_mut();
        let limit = collector.plan().limits.entry_bytes;
        let byte = self.shared.source.borrow().byte();
        if collector.entry_from().is_some_and(|begun| byte.saturating_sub(begun.byte) > limit) {
            return Err(self.shared.fail(Problem::limit("entry_bytes", "the entry", "has too many bytes", limit)));
        }
        collector.close().map_err(|stop| self.shared.fail(stop))
    }

    fn scalar<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
        let limit = self.shared.collector.borrow().plan().limits.text_bytes;
        if text.len() as u64 > limit {
            return Err(self.shared.fail(Problem::limit("text_bytes", "a text", "has too many bytes", limit)));
        }
        if self.place.is_none() {
            return Ok(());
        }
        self.open()?;
        let kept = self.shared.collector.borrow_mut().text(text);
        kept.map_err(|problem| self.shared.fail(problem))?;
        self.close()
    }

    fn deeper<E: serde::de::Error>(&self) -> Result<(), E> {
        let limit = self.shared.collector.borrow().plan().limits.depth;
        if self.depth >= limit {
            return Err(self.shared.fail(Problem::limit("depth", "the value", "is too deep", limit)));
        }
        Ok(())
    }
}

impl<'de, R: BufRead> DeserializeSeed<'de> for Walk<'_, '_, '_, R> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let collector = self.shared.collector.borrow();
        if self.shared.line.is_none() && collector.entry_from().is_none() {
            let limit = collector.plan().limits.entry_bytes;
            self.shared.source.borrow_mut().mark("entry_bytes", "the entry", limit);
        }
        drop(collector);
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: BufRead> Visitor<'de> for Walk<'_, '_, '_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.deeper()?;
        self.open()?;
        while let Some(place) = map.next_key_seed(Key(self.place.map(|_| self.shared)))? {
            map.next_value_seed(self.inner(place))?;
        }
        self.close()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.deeper()?;
        while seq.next_element_seed(self.inner(self.place))?.is_some() {}
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.scalar(text)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(if value { "true" } else { "false" })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        if self.place.is_some() { self.scalar(&value.to_string()) } else { Ok(()) }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        if self.place.is_some() { self.scalar(&value.to_string()) } else { Ok(()) }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        // As JSON prints it; what is no number (MessagePack has such) is nothing. So is what may be a whole number of more
        // than 64 bits, because its last digits are lost: two ids would become one.
        let is_exact = (i64::MIN as f64..u64::MAX as f64).contains(&value);
        match self.place.filter(|_| is_exact).and_then(|_| serde_json::Number::from_f64(value)) {
            Some(number) => self.scalar(&number.to_string()),
            None => Ok(()),
        }
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    /// Bytes have no meaning that is known here.
    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }

    /// MessagePack's extensions, of which the moment (-1) has a meaning.
    fn visit_newtype_struct<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let moment = deserializer.deserialize_any(Extension)?;
        moment.map_or(Ok(()), |moment| self.scalar(&moment.to_string()))
    }
}

/// A key: the place of its value. Without a walk nothing in it is wanted.
struct Key<'w, 'a, 'b, R>(Option<&'w Shared<'a, 'b, R>>);

impl<R> Key<'_, '_, '_, R> {
    fn find(&self, key: &str) -> Option<PlaceId> {
        let collector = self.0?.collector.borrow();
        let children = &collector.plan().places.place(collector.place()).children;
        children.iter().find(|(name, _)| *name.local == *key).map(|(_, id)| *id)
    }
}

impl<'de, R> DeserializeSeed<'de> for Key<'_, '_, '_, R> {
    type Value = Option<PlaceId>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R> Visitor<'de> for Key<'_, '_, '_, R> {
    type Value = Option<PlaceId>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.find(key))
    }

    fn visit_u64<E: serde::de::Error>(self, key: u64) -> Result<Self::Value, E> {
        Ok(self.find(&key.to_string()))
    }

    fn visit_i64<E: serde::de::Error>(self, key: i64) -> Result<Self::Value, E> {
        Ok(self.find(&key.to_string()))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// An extension of MessagePack, read as a moment.
struct Extension;

impl<'de> Visitor<'de> for Extension {
    type Value = Option<jiff::Timestamp>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an extension")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let tag: i8 = seq.next_element()?.ok_or_else(|| A::Error::custom("an extension without a type"))?;
        let data: ExtensionBytes = seq.next_element()?.ok_or_else(|| A::Error::custom("an extension without data"))?;
        Ok(if tag == -1 { moment(&data.0) } else { None })
    }
}

struct ExtensionBytes(Vec<u8>);

impl<'de> serde::Deserialize<'de> for ExtensionBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Taken;
        impl Visitor<'_> for Taken {
            type Value = ExtensionBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(ExtensionBytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_any(Taken)
    }
}

/// The moment of MessagePack's extension -1: seconds; nanoseconds in 30 bits and seconds in 34; or both in full.
fn moment(bytes: &[u8]) -> Option<jiff::Timestamp> {
    let (seconds, nanoseconds) = match bytes.len() {
        4 => (i64::from(u32::from_be_bytes(bytes.try_into().ok()?)), 0),
        8 => {
            let both = u64::from_be_bytes(bytes.try_into().ok()?);
            ((both & ((1 << 34) - 1)) as i64, (both >> 34) as i32)
        }
        12 => {
            let (nanoseconds, seconds) = bytes.split_at(4);
            (i64::from_be_bytes(seconds.try_into().ok()?), i32::from_be_bytes(nanoseconds.try_into().ok()?))
        }
        _ => return None,
    };
    jiff::Timestamp::new(seconds, nanoseconds).ok()
}
