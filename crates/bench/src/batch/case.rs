//! The cases: what is written, how, and to which output.

use super::sink;
use crate::statistic::format_number;

const COUNTS: [u64; 3] = [10_000, 100_000, 1_000_000];
const MESSAGE_BYTES: [usize; 2] = [25, 100];
const PAGE_BYTES: [usize; 3] = [2048, 4096, 8192];
const SLOTS: [usize; 3] = [100, 5000, 40_000];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) sink: sink::Kind,
    pub(super) producers: usize,
    pub(super) count: u64,
    pub(super) message_bytes: usize,
    pub(super) page_bytes: usize,
    /// Messages that may wait.
    pub(super) slots: usize,
    /// Whether messages are dropped when there is no room; else producers wait.
    pub(super) sheds: bool,
}

impl Case {
    /// The standard case of an output.
    pub(super) const fn standard(sink: sink::Kind) -> Self {
        // A terminal is slow, and no goal is stated for it.
        let count = if matches!(sink, sink::Kind::Terminal) { COUNTS[1] } else { COUNTS[2] };
        Self { sink, producers: 4, count, message_bytes: 25, page_bytes: 8192, slots: 40_000, sheds: false }
    }

    pub(super) fn bytes(&self) -> usize {
        self.count as usize * self.message_bytes
    }

    /// The output, and what differs from the standard.
    pub(super) fn name(&self) -> String {
        let standard = Self::standard(self.sink);
        let mut name = self.sink.name().to_owned();
        let mut tell = |differs, text| {
            if differs {
                name = format!("{name}, {text}");
            }
        };
        tell(self.producers != standard.producers, format!("{} producer", self.producers));
        tell(self.count != standard.count, format!("{} messages", format_number(self.count as f64)));
        tell(self.message_bytes != standard.message_bytes, format!("{} B", self.message_bytes));
        tell(self.page_bytes != standard.page_bytes, format!("page {}", self.page_bytes));
        tell(self.slots != standard.slots, format!("buffer {}", self.slots));
        tell(self.sheds, "shedding".to_owned());
        name
    }

    /// Whether to measure this case. Pages, slots and policy do not matter for a writer without a buffer.
    pub(super) fn suits(&self, has_buffer: bool) -> bool {
        let standard = Self::standard(self.sink);
        let Self { page_bytes, slots, sheds, .. } = standard;
        has_buffer || (page_bytes, slots, sheds) == (self.page_bytes, self.slots, self.sheds)
    }
}

/// The standard cases, and cases that change one thing of them.
pub(super) fn cases() -> Vec<Case> {
    use sink::Kind::{File, Nothing, Pipe};
    let standard = sink::Kind::ALL.map(Case::standard);
    let alone = [Pipe, File].map(|sink| Case { producers: 1, ..Case::standard(sink) });
    let sizes = [Nothing, Pipe, File].map(Case::standard).into_iter().flat_map(|case| {
        let pages = PAGE_BYTES.into_iter().filter(move |&bytes| bytes != case.page_bytes);
        pages
            .map(move |page_bytes| Case { page_bytes, ..case })
            .chain([Case { message_bytes: 100, ..case }, Case { count: COUNTS[0], ..case }])
    });
    let shedding = sink::Kind::ALL
        .into_iter()
        .flat_map(|sink| SLOTS.map(|slots| Case { slots, sheds: true, ..Case::standard(sink) }));
    standard.into_iter().chain(alone).chain(sizes).chain(shedding).collect()
}

pub(super) fn all_cases() -> Vec<Case> {
    let mut cases: Vec<_> = sink::Kind::ALL.map(Case::standard).into();
    cases = cases.iter().flat_map(|&case| COUNTS.map(|count| Case { count, ..case })).collect();
    cases = cases.iter().flat_map(|&case| MESSAGE_BYTES.map(|message_bytes| Case { message_bytes, ..case })).collect();
    cases = cases.iter().flat_map(|&case| PAGE_BYTES.map(|page_bytes| Case { page_bytes, ..case })).collect();
    cases = cases.iter().flat_map(|&case| SLOTS.map(|slots| Case { slots, ..case })).collect();
    cases
        .iter()
        .flat_map(|&case| [1, 4].map(|producers| Case { producers, ..case }))
        .flat_map(|case| [false, true].map(|sheds| Case { sheds, ..case }))
        .collect()
}
