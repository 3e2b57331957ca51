//! A store with a log: it follows until it is told to lead, and follows again when another node leads.
//!
//! ```text
//!                       told to lead, and its term has begun behind all that it has read
//!  open ──► Following ───────────────────────────────────────────────────────────────────► Leading
//!             ▲    next ─► decode ─► commit ─► apply ─► sink           (append before each commit)
//!             └────────────── told to follow; the log did not take a batch; the disk failed ─────┘
//! ```
//!
//! A follower refuses writes, and is behind by what it has not read yet. What it cannot read stops it: whatever comes
//! behind would be wrong.

use std::time::Duration;

use tidings_telemetry::chain;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::draft::Finished;
use super::effect::Effect;
use super::load::load_blocks;
use super::rounds::Rounds;
use super::{Committer, Failure};
use crate::damage::LeftOut;
use crate::engine::{Durability, Engine, EngineError, Rows, Table};
use crate::log::{LOG_KEY, LogError, LogPosition, LogRecord, Role, decode_log_position, position_row};
use crate::meta::{State, first_rows};
use crate::record::{self, Record};

/// How long a follower waits for a record before it looks whether it is told to lead or to end.
const PATIENCE: Duration = Duration::from_millis(20);
/// The pause after the log could not be read or written.
const PAUSE: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_millis(500) };

impl Committer {
    /// Makes the next batch of the log, or begins to lead if the store is told to. Waits a moment if there is nothing to do.
    pub(super) fn follow(&mut self) -> Result<(), Failure> {
        let wants_to_lead = *self.shared.wants_to_lead.borrow();
        let log = self.log.as_mut().expect("only a store with a log follows");
        let made = match log.next(if wants_to_lead { Duration::ZERO } else { PATIENCE }) {
            Ok(None) if wants_to_lead => match log.lead() {
                Ok(Some(position)) => return self.begin_to_lead(position),
                led => led.map(|_| ()),
            },
            Ok(None) => Ok(self.tend()?),
            Ok(Some(record)) => self.follow_record(record)?,
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => self.on_log_working(),
            Err(error) => {
                self.on_log_failed(&error);
                self.seek(); // What was read and refused is read again. So a store that is lost never leads.
            }
        }
        Ok(())
    }

    fn on_log_working(&mut self) {
        self.is_log_failing = false;
        self.shared.role.send_if_modified(|role| {
            let was_lost = *role == Role::Lost;
            *role = Role::Following;
            was_lost
        });
    }

    /// Says so once, until the log works again, and waits a while.
    fn on_log_failed(&mut self, error: &LogError) {
        let is_said = std::mem::replace(&mut self.is_log_failing, true);
        match error {
            LogError::Lost(_) if self.shared.role.send_replace(Role::Lost) != Role::Lost => {
                error!(
                    error = chain(error),
                    "This store cannot follow the log any more; if that stays so, stop the server, move the store's folder away \
                     and start it again, then it begins with a copy"
                );
            }
            LogError::Fenced { .. } | LogError::Unavailable(_) if !is_said => {
                warn!(error = chain(error), "The log cannot be used; it is tried again");
            }
            _ => {}
        }
        self.queue.wait_closed(PAUSE);
    }

    /// Makes the batch that another node has made.
    fn follow_record(&mut self, record: LogRecord) -> Result<Result<(), LogError>, Failure> {
        let LogRecord { position, bytes } = record;
        let brakes = self.shared.brakes.borrow().clone();
        let decoded = record::decode(&bytes, &brakes).map_err(|error| LogError::Lost(error.to_string()));
        let Record { rows, state, effects, change_count } = match decoded.and_then(|it| self.check_next(it)) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error)),
        };
        self.reserve(&effects)?;
        self.position = position;
        let (durability, now) = (Durability::Handed, self.now);
        let batch = Finished { rows, durability, state, now, effects, change_count };
        self.with_engine(|committer, engine| committer.land(engine, batch))?;
        Ok(Ok(()))
    }

    /// Refuses a batch that does not follow on the last one.
    fn check_next(&self, record: Record) -> Result<Record, LogError> {
        let State { epoch, commit, .. } = record.state;
        if epoch != self.state.epoch {
            return Err(LogError::Lost("it belongs to another store".to_owned()));
        }
        // A store that was used before has put its own state first, and may have forgotten that it did.
        let is_own_first = self.position == LogPosition::default() && commit == self.state.commit;
        if commit != self.state.commit + 1 && !is_own_first {
            return Err(LogError::Lost(format!("commit {commit} comes behind commit {}", self.state.commit)));
        }
        Ok(record)
    }

    /// This node's term has begun at `position`, behind all that was read.
    fn begin_to_lead(&mut self, position: LogPosition) -> Result<(), Failure> {
        let is_first = self.position == LogPosition::default();
        self.position = position;
        let state = self.state;
        let blocks = self.with_engine(|committer, engine| {
            let table = committer.shared.table.read();
            load_blocks(engine, &state, &table, &LeftOut::default()).map_err(|error| committer.refuse(&error))
        })?;
        *self.shared.blocks.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = blocks;
        if is_first {
            self.append_first_rows()?;
            self.shared.log_position.send_replace(self.position);
        }
        self.rounds = Rounds::new(Instant::now());
        info!(sequence = position.sequence, "Store leads");
        self.queue.resume(); // Whoever sees the role may write at once.
        self.shared.role.send_replace(Role::Leading);
        Ok(())
    }

    /// The log has no batch yet. Its first one is what a new store has, so that other new stores can follow.
    fn append_first_rows(&mut self) -> Result<(), Failure> {
        self.with_engine(|committer, engine| engine.sync().map_err(|error| committer.refuse(&error)))?;
        self.append(&first_rows(&self.state), &[])?;
        let mut noted = Rows::default();
        noted.put(Table::Meta, LOG_KEY, position_row(self.position));
        self.with_engine(|committer, engine| {
            engine.commit(noted, Durability::Synced).map_err(|error| committer.refuse(&error))
        })
    }

    /// Appends a batch to the log. Its rows must not be committed before.
    pub(super) fn append(&mut self, rows: &Rows, effects: &[Effect]) -> Result<(), Failure> {
        let log = self.log.as_mut().expect("only a store with a log appends");
        match log.append(&record::encode(rows, effects)) {
            Ok(position) => {
                self.position = position;
                Ok(())
            }
            Err(error) => {
                if matches!(error, LogError::Fenced { .. }) {
                    self.shared.wants_to_lead.send_replace(false); // Or the two would take turns.
                }
                warn!(error = chain(&error), "Store does not lead any more");
                Err(Failure::Demoted)
            }
        }
    }

    /// From now on the store follows, from where its rows are.
    pub(super) fn begin_to_follow(&mut self) -> Result<(), Failure> {
        self.queue.suspend();
        self.shared.role.send_replace(Role::Following);
        self.position =
            self.with_engine(|committer, engine| read_position(engine).map_err(|error| committer.refuse(&error)))?;
        self.shared.log_position.send_replace(self.position);
        self.seek();
        Ok(())
    }

    /// Reads behind the last batch that was made. If the log does not have that, the next attempt to read says so.
    fn seek(&mut self) {
        let position = self.position;
        self.log.as_mut().expect("only a store with a log follows").seek(position);
    }

    fn with_engine<T>(&mut self, what: impl FnOnce(&mut Self, &Engine) -> Result<T, Failure>) -> Result<T, Failure> {
        let shared = self.shared.clone();
        let engine = shared.engine.read();
        what(self, engine.as_ref().expect("only `reopen` removes the engine"))
    }
}

/// How far the store is in its log.
pub(crate) fn read_position(engine: &Engine) -> Result<LogPosition, EngineError> {
    let row = engine.get(Table::Meta, LOG_KEY)?;
    row.map_or(Ok(LogPosition::default()), |row| decode_log_position(row.as_ref()))
}
