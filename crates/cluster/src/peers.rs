//! What the nodes of a cluster say to each other beside the log: questions with an answer, and news for all. Over core NATS, so
//! each message may be lost; who hears news is told when some are missing.
//!
//! ```text
//!  NAME.ask.<process>    a question to one process; its answer goes to the asker's inbox
//!  NAME.news.<process>   what a process tells all others: parts of messages, counted
//! ```
//!
//! Bounds: a question has at most [`PART_BYTES_MAX`]; an answer and news have any number of parts of that size. Of what a node has
//! not taken yet, the client library keeps [`WAITING_COUNT_MAX`] messages of each kind, and drops further ones.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Message, RequestErrorKind, Subscriber};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

/// The most bytes of a message, besides its head. NATS allows a MiB.
pub const PART_BYTES_MAX: usize = 512 << 10;
/// Messages that the client library keeps for a part of the program that does not take them.
pub(crate) const WAITING_COUNT_MAX: usize = 1024;
/// Process, number of the part, flags.
const HEAD_BYTES: usize = 17;
/// Another part of the same message follows.
const MORE: u8 = 1;

/// Nobody has answered a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The process is gone: it has not heard the question, and never will.
    #[error("no such process hears questions")]
    Gone,
    /// This process is not connected to NATS.
    #[error("NATS does not answer")]
    NotConnected,
    /// It may have heard the question or not.
    #[error("no answer in time")]
    Late,
    /// The question or the answer is too large.
    #[error("the question or its answer is too large")]
    TooLarge,
}

/// The connection of one node to the others.
#[derive(Debug, Clone)]
pub struct Peers {
    client: Client,
    name: String,
    process: u64,
}

impl Peers {
    /// Those of the cluster with this name, over this connection. `process`: this one; no other one has the number.
    pub fn new(client: Client, name: String, process: u64) -> Self {
        Self { client, name, process }
    }

    /// This process.
    pub fn process(&self) -> u64 {
        self.process
    }

    fn subject(&self, what: &str, process: u64) -> String {
        format!("{}.{what}.{process}", self.name)
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Asks a process. The answer has one part.
    ///
    /// # Errors
    /// Those of [`Unanswered`].
    ///
    /// # Cancel safety
    /// Dropped: it may have heard the question.
    pub async fn ask(&self, process: u64, question: Vec<u8>, deadline: Instant) -> Result<Bytes, Unanswered> {
        if question.len() > PART_BYTES_MAX {
            return Err(Unanswered::TooLarge);
        }
        // Without a connection the client would ask when there is one.
        if !self.is_connected() {
            return Err(Unanswered::NotConnected);
        }
        let asked = self.client.request(self.subject("ask", process), question.into());
        match timeout_at(deadline, asked).await {
            Ok(Ok(answer)) => Ok(part(&answer).ok_or(Unanswered::Late)?.bytes),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Err(Unanswered::Gone),
            Ok(Err(_)) | Err(_) => Err(Unanswered::Late),
        }
    }

    /// Asks a process for an answer of any number of parts, of at most `bytes_max` together. Each part must come within
    /// `patience`.
    ///
    /// # Errors
    /// Those of [`Unanswered`].
    ///
    /// # Cancel safety
    /// Dropped: it may have heard the question.
    pub async fn fetch(
        &self,
        process: u64,
        question: Vec<u8>,
        bytes_max: usize,
        patience: Duration,
    ) -> Result<Bytes, Unanswered> {
        if !self.is_connected() {
            return Err(Unanswered::NotConnected);
        }
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|_| Unanswered::NotConnected)?;
        let asked = self.client.publish_with_reply(self.subject("ask", process), inbox, question.into());
        asked.await.map_err(|_| Unanswered::NotConnected)?;
        let (mut whole, mut next) = (BytesMut::new(), 0);
        loop {
            let answer = timeout_at(Instant::now() + patience, answers.next()).await;
            let answer = answer.ok().flatten().ok_or(Unanswered::Late)?;
            let part = part(&answer).ok_or(Unanswered::Gone)?; // NATS itself says that nobody hears it.
            if part.number != next {
                return Err(Unanswered::Late);
            }
            next += 1;
            if whole.len() + part.bytes.len() > bytes_max {
                return Err(Unanswered::TooLarge);
            }
            whole.extend_from_slice(&part.bytes);
            if !part.has_more {
                return Ok(whole.freeze());
            }
        }
    }

    /// From now on, this process hears questions.
    ///
    /// # Errors
    /// When the client library has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn questions(&self) -> Result<Questions, async_nats::SubscribeError> {
        let heard = self.client.subscribe(self.subject("ask", self.process)).await?;
        self.settle().await;
        Ok(Questions { heard, peers: self.clone() })
    }

    /// What this process tells all others.
    pub fn news_sender(&self) -> NewsSender {
        NewsSender { peers: self.clone(), next: 0 }
    }

    /// From now on, this process hears the news of all others.
    ///
    /// # Errors
    /// When the client library has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn news(&self) -> Result<NewsReceiver, async_nats::SubscribeError> {
        let heard = self.client.subscribe(format!("{}.news.*", self.name)).await?;
        self.settle().await;
        Ok(NewsReceiver { heard, own: self.process })
    }

    /// Waits until NATS has done what this process told it before: it answers a question to nobody only then. Without a connection
    /// there is nothing to wait for, as the client subscribes when there is one.
    async fn settle(&self) {
        if self.is_connected() {
            self.client.request(self.client.new_inbox(), Bytes::new()).await.ok();
        }
    }

    async fn send(&self, subject: String, number: u64, has_more: bool, bytes: &[u8]) -> bool {
        let mut message = BytesMut::with_capacity(HEAD_BYTES + bytes.len());
        message.put_u64(self.process);
        message.put_u64(number);
        message.put_u8(if has_more { MORE } else { 0 });
        message.put_slice(bytes);
        self.client.publish(subject, message.freeze()).await.is_ok()
    }
}

struct Part {
    process: u64,
    number: u64,
    has_more: bool,
    bytes: Bytes,
}

/// `None`: the message is not from a peer.
fn part(message: &Message) -> Option<Part> {
    let head = message.payload.get(..HEAD_BYTES)?;
    let number = |at: usize| head[at..at + 8].try_into().map(u64::from_be_bytes);
    let (process, number) = (number(0).ok()?, number(8).ok()?);
    Some(Part { process, number, has_more: head[16] & MORE != 0, bytes: message.payload.slice(HEAD_BYTES..) })
}

/// The questions to this process.
#[derive(Debug)]
pub struct Questions {
    heard: Subscriber,
    peers: Peers,
}

impl Questions {
    /// The next question; `None`: the client library has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Question> {
        loop {
            let Message { payload, reply, .. } = self.heard.next().await?;
            if let Some(reply) = reply {
                return Some(Question { bytes: payload, reply: reply.to_string(), peers: self.peers.clone() });
            }
        }
    }
}

/// A question of another process.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub bytes: Bytes,
    reply: String,
    peers: Peers,
}

impl Question {
    /// Answers it.
    ///
    /// # Cancel safety
    /// Dropped: the asker gets a part of the answer, or nothing.
    pub async fn answer(self, answer: &[u8]) {
        let parts: Vec<_> = answer.chunks(PART_BYTES_MAX).collect();
        let last = parts.len().saturating_sub(1);
        if parts.is_empty() {
            self.peers.send(self.reply, 0, false, &[]).await;
            return;
        }
        for (number, bytes) in parts.into_iter().enumerate() {
            self.peers.send(self.reply.clone(), number as u64, number < last, bytes).await;
        }
    }
}

/// What this process tells all others.
#[derive(Debug)]
pub struct NewsSender {
    peers: Peers,
    /// The number of the next part.
    next: u64,
}

impl NewsSender {
    /// Tells all others, or nobody while NATS is away: they learn that something is missing.
    ///
    /// # Cancel safety
    /// Dropped: others may hear a part of it, and learn that the rest is missing.
    pub async fn tell(&mut self, news: &[u8]) {
        let subject = self.peers.subject("news", self.peers.process);
        let parts: Vec<_> = news.chunks(PART_BYTES_MAX).collect();
        let last = parts.len().saturating_sub(1);
        for (index, bytes) in parts.into_iter().enumerate() {
            let number = self.next;
            self.next += 1;
            // Without a connection the client would send it late, and all at once.
            if self.peers.is_connected() {
                self.peers.send(subject.clone(), number, index < last, bytes).await;
            }
        }
    }

    /// Something is missing in what was told.
    pub fn skip(&mut self) {
        self.next += 1;
    }
}

/// The news of all others.
#[derive(Debug)]
pub struct NewsReceiver {
    heard: Subscriber,
    own: u64,
}

/// A part of the news of another process.
#[derive(Debug)]
pub struct NewsPart {
    /// The process.
    pub process: u64,
    /// Parts of one process are counted, so that a missing one is seen.
    pub number: u64,
    /// Another part of the same message follows.
    pub has_more: bool,
    /// The bytes.
    pub bytes: Bytes,
}

impl NewsReceiver {
    /// The next part; `None`: the client library has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<NewsPart> {
        loop {
            let message = self.heard.next().await?;
            if let Some(Part { process, number, has_more, bytes }) = part(&message)
                && process != self.own
            {
                return Some(NewsPart { process, number, has_more, bytes });
            }
        }
    }
}
