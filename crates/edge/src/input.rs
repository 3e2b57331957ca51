//! What a client has sent and what is not handled yet: an unfinished message, frames whose commands wait, and what is not
//! decoded of the last read. Also what the command in work keeps while it waits.
//!
//! Frames stay bytes until their turn: a command may take a hundred times as much as what it is read from.
//!
//! Bounds: an unfinished message has at most `message_bytes_max`, at most [`WAITING_FRAME_COUNT_MAX`] frames wait, and at
//! most one read is not decoded. The memory of all that is counted for the whole loop ([`InputHeld`]); `edge_loop` keeps it
//! within the loop's budget.

use std::collections::VecDeque;

use tidings_protocol::websocket::{CloseCode, Decoded, Decoder};
use tidings_protocol::{Command, Commands, FrameError, WAITING_FRAME_COUNT_MAX, parse_connect};
use tokio::time::Instant;

use crate::output::Held;

const _: () = assert!(size_of::<Frame>() <= 64, "what WAITING_FRAME_COUNT_MAX says of it");

/// A frame that has arrived.
pub(crate) enum Frame {
    Commands(Commands<Box<[u8]>>),
    /// The request to connect on a unidirectional transport.
    Connect(Box<[u8]>),
}

impl Frame {
    fn bytes_len(&self) -> usize {
        match self {
            Self::Commands(commands) => commands.frame().len(),
            Self::Connect(request) => request.len(),
        }
    }
}

/// Memory of what the clients of one loop have sent, in bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputHeld {
    /// What is not handled yet.
    pub(crate) waiting: Held,
    /// What the commands in work keep.
    pub(crate) working: Held,
}

/// See the [module](self). Without `Debug`: it holds what the client sent.
pub(crate) struct Input {
    decoder: Decoder,
    /// Invariant: each has a command or an error.
    frames: VecDeque<Frame>,
    /// Bytes of `frames`.
    frame_bytes: usize,
    /// What is left of the last read, to be decoded when no frame waits.
    undecoded: Vec<u8>,
    /// A command is waited for, so the frames wait, too.
    awaits: bool,
    /// A pong that came meanwhile: it does not wait.
    pong: Option<Commands<Box<[u8]>>>,
    /// Bytes of the commands that came in requests of their own since `frames` was empty.
    emulated_bytes: usize,
    /// Bytes from which the last command was read.
    command_bytes: usize,
    /// When it last began, or a message of the client was whole, or a command was taken.
    since: Instant,
    /// What is counted in `held`.
    waiting: usize,
    working: usize,
    held: InputHeld,
}

impl Drop for Input {
    fn drop(&mut self) {
        self.end_work();
        self.count(0);
    }
}

impl Input {
    /// Nothing yet. Its memory will be counted in `held`.
    pub(crate) fn new(message_bytes_max: usize, held: InputHeld) -> Self {
        Self {
            decoder: Decoder::new(message_bytes_max),
            frames: VecDeque::new(),
            frame_bytes: 0,
            undecoded: Vec::new(),
            awaits: false,
            pong: None,
            emulated_bytes: 0,
            command_bytes: 0,
            since: Instant::now(),
            waiting: 0,
            working: 0,
            held,
        }
    }

    /// See [`Decoder::decode`]. Call [`Input::settle`] after it.
    pub(crate) fn decode<'a>(&mut self, input: &'a mut [u8]) -> Result<Decoded<'a>, CloseCode> {
        self.decoder.decode(input)
    }

    /// A command begins or ends to be waited for.
    pub(crate) fn set_awaits(&mut self, awaits: bool) {
        self.awaits = awaits;
    }

    /// Whether a command is waited for.
    pub(crate) fn awaits(&self) -> bool {
        self.awaits
    }

    /// Whether more may be read although a command is waited for: there may be a pong in it.
    pub(crate) fn may_read_ahead(&self) -> bool {
        self.undecoded.is_empty() && !self.is_full()
    }

    /// Whether a pong may have come that cannot be read before the commands in front of it are handled.
    pub(crate) fn keeps_pongs_waiting(&self) -> bool {
        self.awaits && !self.may_read_ahead()
    }

    /// Takes the commands of a frame out of their turn, if they are a pong that would wait otherwise.
    pub(crate) fn push_pong(&mut self, commands: Commands<Box<[u8]>>) -> Option<Commands<Box<[u8]>>> {
        if !self.awaits || self.pong.is_some() || !commands.is_pong() {
            return Some(commands);
        }
        self.pong = Some(commands);
        None
    }

    /// The pong that came while a command was waited for.
    pub(crate) fn take_pong(&mut self) -> Option<Commands<Box<[u8]>>> {
        self.pong.take()
    }

    /// No frame may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= WAITING_FRAME_COUNT_MAX
    }

    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Adds a frame. Call [`Input::settle`] after it.
    pub(crate) fn push(&mut self, frame: Frame) {
        debug_assert!(!self.is_full());
        self.frame_bytes += frame.bytes_len();
        self.frames.push_back(frame);
        self.since = Instant::now();
    }

    /// Keeps the rest of a read until no frame waits. Call [`Input::settle`] after it.
    pub(crate) fn keep_undecoded(&mut self, rest: &[u8]) {
        debug_assert!(self.undecoded.is_empty(), "nothing is read while commands wait");
        self.undecoded = rest.to_vec();
    }

    /// What is left of the last read, if there are no commands.
    pub(crate) fn take_undecoded(&mut self) -> Vec<u8> {
        let undecoded = if self.frames.is_empty() { std::mem::take(&mut self.undecoded) } else { Vec::new() };
        self.settle();
        undecoded
    }

    /// Whether so many bytes more may wait in requests of their own; they are counted.
    pub(crate) fn has_room_for(&mut self, bytes: usize, bytes_max: usize) -> bool {
        self.emulated_bytes += bytes;
        !self.is_full() && self.emulated_bytes <= bytes_max
    }

    /// The next command that has arrived.
    pub(crate) fn next_command(&mut self) -> Option<Result<Command, FrameError>> {
        let frame = self.frames.front_mut()?;
        self.since = Instant::now();
        let (command, is_last) = match frame {
            Frame::Commands(commands) => {
                let left = commands.left();
                let command = commands.next();
                self.command_bytes = left - commands.left();
                (command, commands.is_done())
            }
            Frame::Connect(request) => {
                self.command_bytes = request.len();
                (Some(parse_connect(request)), true)
            }
        };
        if is_last && let Some(frame) = self.frames.pop_front() {
            self.frame_bytes -= frame.bytes_len();
        }
        command
    }

    /// Bytes from which the last command was read.
    pub(crate) fn command_bytes(&self) -> usize {
        self.command_bytes
    }

    /// Frees the memory of the largest burst of commands.
    pub(crate) fn free_commands(&mut self) {
        if self.frames.is_empty() {
            self.drop_frames();
        }
        self.settle();
    }

    /// Drops the commands that wait.
    pub(crate) fn drop_frames(&mut self) {
        (self.frames, self.frame_bytes, self.emulated_bytes) = (VecDeque::new(), 0, 0);
    }

    /// No more commands: of what comes only control frames are read.
    pub(crate) fn discard(&mut self) {
        self.decoder.discard();
        self.drop_frames();
        self.settle();
    }

    /// Forgets the rest of a read, if there is one. A frame may be cut then, so nothing that comes is read any more.
    pub(crate) fn forget_undecoded(&mut self) {
        if !self.undecoded.is_empty() {
            self.forget();
        }
    }

    /// Forgets all that waits; nothing that comes is read any more.
    pub(crate) fn forget(&mut self) {
        self.decoder.stop();
        self.undecoded = Vec::new();
        self.drop_frames();
        self.settle();
    }

    /// The command in work keeps so many bytes while it waits.
    pub(crate) fn begin_work(&mut self, bytes: usize) {
        let held = &self.held.working;
        held.set(held.get() - self.working + bytes);
        self.working = bytes;
    }

    /// No command is in work.
    pub(crate) fn end_work(&mut self) {
        self.begin_work(0);
    }

    /// What the command in work keeps.
    pub(crate) fn working(&self) -> usize {
        self.working
    }

    /// How much it holds, and for how long without any progress: bytes times milliseconds.
    pub(crate) fn burden(&self, now: Instant) -> u128 {
        self.waiting as u128 * (1 + now.duration_since(self.since).as_millis())
    }

    /// Counts its memory after a change.
    pub(crate) fn settle(&mut self) {
        let frames = self.frames.capacity() * size_of::<Frame>() + self.frame_bytes;
        self.count(self.decoder.bytes_len() + self.undecoded.capacity() + frames);
    }

    fn count(&mut self, waiting: usize) {
        if self.waiting == 0 && waiting > 0 {
            self.since = Instant::now();
        }
        let held = &self.held.waiting;
        held.set(held.get() - self.waiting + waiting);
        self.waiting = waiting;
    }

    /// Invariant whenever the connection waits: it keeps no memory for commands if it has none.
    pub(crate) fn check(&self) {
        debug_assert!(!self.frames.is_empty() || self.frames.capacity() == 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_protocol::parse_frame;
    use tidings_types::Format;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Frame(usize),
        Unfinished(usize),
        Rest(usize),
        Command,
        Free,
        Work(usize),
        Undecoded,
        Drop,
        Discard,
        Forget,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_usize..4).prop_map(Step::Frame),
            2 => (1_usize..500).prop_map(Step::Unfinished),
            1 => (1_usize..500).prop_map(Step::Rest),
            6 => Just(Step::Command),
            2 => Just(Step::Free),
            2 => (0_usize..500).prop_map(Step::Work),
            1 => Just(Step::Undecoded),
            1 => Just(Step::Drop),
            1 => Just(Step::Discard),
            1 => Just(Step::Forget),
        ]
    }

    /// The start of a masked binary frame whose end does not come.
    fn unfinished(bytes: usize) -> Vec<u8> {
        [&[0x82, 0x80 | 126, 0x40, 0, 0, 0, 0, 0][..], &vec![1; bytes]].concat()
    }

    fn perform(input: &mut Input, step: &Step) {
        match step {
            Step::Frame(commands) if !input.is_full() => {
                let frame = "{}\n".repeat(*commands).into_bytes().into_boxed_slice();
                input.push(Frame::Commands(parse_frame(Format::Json, frame)));
            }
            Step::Unfinished(bytes) => drop(input.decode(&mut unfinished(*bytes))), // Also what is not allowed there.
            Step::Rest(bytes) if input.undecoded.is_empty() => input.keep_undecoded(&vec![1; *bytes]),
            Step::Frame(_) | Step::Rest(_) => {}
            Step::Command => drop(input.next_command()),
            Step::Free => input.free_commands(),
            Step::Work(bytes) => input.begin_work(*bytes),
            Step::Undecoded => drop(input.take_undecoded()),
            Step::Drop => input.drop_frames(),
            Step::Discard => input.discard(),
            Step::Forget => input.forget(),
        }
        input.settle();
    }

    /// What an input takes, counted anew.
    fn taken(input: &Input) -> usize {
        let frames = input.frames.iter().map(Frame::bytes_len).sum::<usize>();
        let decoded = input.decoder.bytes_len() + input.undecoded.capacity();
        decoded + frames + input.frames.capacity() * size_of::<Frame>()
    }

    proptest! {
        #[test]
        fn what_all_inputs_of_a_loop_take_is_counted(steps in prop::collection::vec((any::<bool>(), step()), 0..100)) {
            let held = InputHeld::default();
            let mut inputs = [(); 2].map(|()| Input::new(1 << 16, held.clone()));
            for (which, step) in &steps {
                let input = &mut inputs[usize::from(*which)];
                perform(input, step);
                if matches!(step, Step::Forget) {
                    prop_assert_eq!(input.waiting, 0, "nothing is left");
                }
                prop_assert_eq!(held.waiting.get(), inputs.iter().map(taken).sum::<usize>());
                prop_assert_eq!(held.working.get(), inputs.iter().map(|input| input.working).sum::<usize>());
            }
            drop(inputs);
            prop_assert_eq!((held.waiting.get(), held.working.get()), (0, 0));
        }
    }
}
