//! Follows a document through the mapping's places, keeps what is wanted, and hands entries out.
//!
//! Both readers drive a [`Collector`] in the same way: `open`, `attribute`, `text`, `close`, in the order of the document.
//! They skip themselves what [`Collector::child`] does not know.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::entry::{Entry, Outcome};
use crate::error::{Position, Problem};
use crate::make::{Around, Maker, Saved};
use crate::place::{DOCUMENT, NONE, PlaceId};
use crate::plan::Plan;
use crate::tree::Tree;

/// How many values around the entries a document's entries may look at: some tenths of a second of a processor.
const LOOK_COUNT_MAX: u64 = 64 << 20;
/// More of them for each entry.
const LOOKS_PER_ENTRY: u64 = 1000;

/// What a reader hears when it must not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The document is refused.
    Problem(Problem),
    /// The caller has enough.
    Enough,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

struct Frame {
    place: PlaceId,
    element: u32,
    value: u32,
    which: Which,
    /// An entry begins with this element.
    is_entry: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Around = 0,
    Entry = 1,
}

/// An entry that waits for the end of the document.
struct Held {
    number: u64,
    position: Position,
    tree: Tree,
    around: Vec<Saved>,
}

pub(crate) struct Collector<'a> {
    plan: &'a Plan,
    maker: Maker<'a>,
    on_entry: &'a mut dyn FnMut(Entry) -> ControlFlow<()>,
    frames: Vec<Frame>,
    trees: [Tree; 2],
    tables: Vec<HashMap<Box<str>, Box<str>>>,
    held: Vec<Held>,
    held_bytes: usize,
    pub(crate) entries: u64,
    begun_at: Position,
    /// Id and reason, if the entry that is being read is known to be skipped. Nothing more of it is kept.
    judged: Option<(Option<String>, String)>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(plan: &'a Plan, maker: Maker<'a>, on_entry: &'a mut dyn FnMut(Entry) -> ControlFlow<()>) -> Self {
        let tables = plan.tables.iter().map(|_| HashMap::new()).collect();
        Self {
            plan,
            maker,
            on_entry,
            frames: Vec::new(),
            trees: Default::default(),
            tables,
            held: Vec::new(),
            held_bytes: 0,
            entries: 0,
            begun_at: Position::default(),
            judged: None,
        }
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The place of the innermost open element that is followed.
    #[inline]
    pub(crate) fn place(&self) -> PlaceId {
        self.frames.last().map_or(DOCUMENT, |frame| frame.place)
    }

    /// Where the entry begins that is being read.
    #[inline]
    pub(crate) fn entry_from(&self) -> Option<Position> {
        (self.frames.last()?.which == Which::Entry).then_some(self.begun_at)
    }

    /// Begins an element at a place of the tree.
    pub(crate) fn open(&mut self, place: PlaceId, at: impl FnOnce() -> Position) -> Result<(), Stop> {
        let (mut which, mut parent) =
            self.frames.last().map_or((Which::Around, NONE), |frame| (frame.which, frame.element));
        let mut place = place;
        let entry = self.plan.places.place(place).entry;
        if let Some(root) = entry {
            self.entries += 1;
            self.begun_at = at();
            let limit = self.plan.limits.entries;
            if self.entries > limit {
                return Err(Problem::limit("entries", "the document", "has too many entries", limit).into());
            }
            (which, place, parent) = (Which::Entry, root, NONE);
            self.trees[which as usize].clear();
        }
        let wanted = self.plan.places.place(place);
        if which == Which::Around {
            if wanted.is_around_entries {
                self.fill_held(place)?;
                self.trees[which as usize].next_around(place);
            }
            self.within_held(0)?;
        }
        let (element, value) = self.trees[which as usize].open(place, parent, wanted.text);
        self.frames.push(Frame { place, element, value, which, is_entry: entry.is_some() });
        Ok(())
    }

    #[inline]
    pub(crate) fn attribute(&mut self, leaf: u32, text: &str) {
        if let Some(frame) = self.frames.last() {
            self.trees[frame.which as usize].attribute(frame.element, leaf, text);
        }
    }

    /// Whether a text here is wanted.
    #[inline]
    pub(crate) fn is_collecting(&self) -> bool {
        self.judged.is_none()
            && self.frames.last().is_some_and(|frame| self.trees[frame.which as usize].is_collecting())
    }

    /// The attributes of an element are known: an entry may be skipped because of them alone.
    #[inline]
    pub(crate) fn judge(&mut self) {
        if self.plan.early > 0 && self.frames.last().is_some_and(|frame| frame.is_entry) {
            let around = Around { live: &self.trees[0], saved: &[], tables: &self.tables };
            self.judged = self.maker.skipped_early(&self.trees[1], &around);
        }
    }

    /// Whether the entry that is being read is known to be skipped.
    #[inline]
    pub(crate) fn is_judged(&self) -> bool {
        self.judged.is_some()
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Problem> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let bytes = self.trees[frame.which as usize].text(text, frame.element);
        let limit = self.plan.limits.text_bytes;
        if bytes as u64 > limit {
            return Err(Problem::limit("text_bytes", "a text", "has too many bytes", limit));
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<(), Stop> {
        let frame = self.frames.pop().expect("readers close only what they opened");
        self.trees[frame.which as usize].close(frame.element, frame.value);
        if !frame.is_entry {
            return match frame.which {
                Which::Around => Ok(self.fill_tables(frame.element, frame.place)?),
                Which::Entry => Ok(()),
            };
        }
        if self.plan.is_held {
            return self.hold();
        }
        if let Some((id, reason)) = self.judged.take() {
            let (number, position) = (self.entries, self.begun_at);
            return hand_out(self.on_entry, Entry { number, position, id, outcome: Outcome::Skipped { reason } });
        }
        let around = Around { live: &self.trees[0], saved: &[], tables: &self.tables };
        let entry = self.maker.entry(self.entries, self.begun_at, &self.trees[1], &around);
        self.within_looks()?;
        hand_out(self.on_entry, entry)
    }

    /// What an entry looks at around it may have grown with each entry before it.
    fn within_looks(&self) -> Result<(), Problem> {
        let limit = LOOK_COUNT_MAX + LOOKS_PER_ENTRY * self.entries;
        if self.trees[Which::Around as usize].looks() > limit { Err(Problem::Costly(limit)) } else { Ok(()) }
    }

    /// An entry that could not be read, in a form where reading goes on behind it.
    pub(crate) fn broken(&mut self, at: Position, problem: String) -> Result<(), Stop> {
        let is_begun = self.frames.iter().any(|frame| frame.is_entry);
        self.frames.clear();
        self.trees[Which::Around as usize].clear();
        self.entries += u64::from(!is_begun);
        let outcome = Outcome::Wrong { field: String::new(), problem };
        hand_out(self.on_entry, Entry { number: self.entries, position: at, id: None, outcome })
    }

    /// An element around the entries is over: if it is a row of tables, they take it. The first row with a key stays.
    fn fill_tables(&mut self, element: u32, place: PlaceId) -> Result<(), Problem> {
        let mut bytes = 0;
        for (table, rows) in self.tables.iter_mut().zip(&self.plan.tables).filter(|(_, rows)| rows.place == place) {
            let row = self.trees[Which::Around as usize].row(element, &rows.key, &rows.value);
            if let Some((key, value)) = row.filter(|(key, _)| !table.contains_key(*key)) {
                bytes += key.len() + value.len() + size_of::<(Box<str>, Box<str>)>();
                table.insert(key.into(), value.into());
            }
        }
        self.within_held(bytes)
    }

    /// An element around entries is over, because the next one begins here: the entries in it that are held take what came
    /// behind them.
    fn fill_held(&mut self, place: PlaceId) -> Result<(), Stop> {
        let live = &self.trees[Which::Around as usize];
        let (opening, mut bytes) = (live.openings(place), 0);
        for (number, access) in self.plan.places.absolutes.iter().enumerate().filter(|(_, one)| one.group == place) {
            let Some(text) = live.texts(access).next() else { continue };
            self.within_looks()?;
            let of_this = self.held.iter_mut().rev().map(|held| &mut held.around[number]);
            for saved in of_this.take_while(|saved| saved.opening == opening).filter(|saved| saved.text.is_none()) {
                bytes += text.len();
                saved.text = Some(text.into());
            }
        }
        Ok(self.within_held(bytes)?)
    }

    fn hold(&mut self) -> Result<(), Stop> {
        let tree = self.trees[1].clone();
        let around = self.maker.around(&self.trees[0]);
        self.within_looks()?;
        let texts: usize = around.iter().filter_map(|saved| saved.text.as_ref()).map(|text| text.len()).sum();
        self.within_held(tree.bytes() + texts + size_of_val(&*around) + size_of::<Held>())?;
        self.held.push(Held { number: self.entries, position: self.begun_at, tree, around });
        Ok(())
    }

    /// Counts bytes that stay until the end of the document.
    fn within_held(&mut self, more: usize) -> Result<(), Problem> {
        self.held_bytes += more;
        let limit = self.plan.limits.held_bytes;
        if (self.held_bytes + self.trees[0].bytes()) as u64 > limit {
            let what = "what is kept until the end of the document";
            return Err(Problem::limit("held_bytes", what, "has too many bytes", limit));
        }
        Ok(())
    }

    /// The document is over: hands out what was held.
    pub(crate) fn finish(&mut self) -> Result<(), Stop> {
        let mut made = Vec::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            let around = Around { live: &self.trees[0], saved: &held.around, tables: &self.tables };
            let key = self.maker.order(&held.tree, &around);
            self.within_looks()?;
            made.push((key, held));
        }
        if let Some(order) = &self.plan.order {
            made.sort_by(|(one, _), (other, _)| order.compare(one.as_ref(), other.as_ref()));
        }
        for (_, held) in made {
            let around = Around { live: &self.trees[0], saved: &held.around, tables: &self.tables };
            let entry = self.maker.entry(held.number, held.position, &held.tree, &around);
            self.within_looks()?;
            hand_out(self.on_entry, entry)?;
        }
        Ok(())
    }
}

fn hand_out(on_entry: &mut dyn FnMut(Entry) -> ControlFlow<()>, entry: Entry) -> Result<(), Stop> {
    match on_entry(entry) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Stop::Enough),
    }
}
