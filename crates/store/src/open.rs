//! Opens a store: locks the folder, checks the format, loads the derived data, starts the committer's thread.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parking_lot::RwLock;
use tidings_types::{ChannelName, JournalPosition, Timestamp};
use tokio::sync::watch;
use tracing::info;

use crate::backup::Slot;
use crate::channels::rows::ChannelRow;
use crate::checkpoint::Checkpointing;
use crate::committer::Committer;
use crate::committer::follow::read_position;
use crate::committer::load::{Derived, load};
use crate::config::StoreConfig;
use crate::damage;
use crate::engine::{Durability, Engine, EngineError, Place, Rows, Span, Table};
use crate::error::OpenError;
use crate::folder::lock_folder;
use crate::hash;
use crate::log::{CommitLog, LOG_KEY, LogError, LogPosition, LogRecord, Role, position_row};
use crate::meta::{FORMAT, FORMAT_KEY, State, first_rows, read_state};
use crate::queue::{BRAKE_QUEUE, JOB_QUEUE, Queue};
use crate::record;
use crate::rows;
use crate::service::Store;
use crate::shared::{Counters, Shared};
use crate::sink::CommitSink;
use crate::table::Losses;

impl Store {
    /// Opens the store, creates it if there is none, and loads the derived data into memory. Blocks.
    ///
    /// # Errors
    /// When the folder is in use, cannot be used, has an unknown format, or is damaged.
    pub fn open(config: StoreConfig, sink: Arc<dyn CommitSink>) -> Result<Self, OpenError> {
        Self::begin(config, None, sink)
    }

    /// Opens the store as one of several that share `log`. It follows until it is told to lead ([`Store::lead`]). Blocks.
    ///
    /// # Errors
    /// As [`Store::open`]; and when the store is new and cannot begin with the log's first batch.
    pub fn join(config: StoreConfig, log: Box<dyn CommitLog>, sink: Arc<dyn CommitSink>) -> Result<Self, OpenError> {
        Self::begin(config, Some(log), sink)
    }

    /// Removes the store of a node that never wrote anything and never read its log, so that a copy can take its place.
    /// Returns whether it was such a store. Blocks.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn remove_unused(folder: &Path) -> Result<bool, OpenError> {
        let _lock = lock_folder(folder)?;
        let engine = Engine::open_again(folder, UNUSED_CACHE_BYTES)?;
        if !is_new(&engine)? {
            return Ok(false);
        }
        drop(engine);
        Engine::remove(folder)?;
        Ok(true)
    }

    /// Whether the folder has a store. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn is_in(folder: &Path) -> Result<bool, OpenError> {
        Ok(Engine::is_in(folder)?)
    }

    fn begin(
        mut config: StoreConfig,
        mut log: Option<Box<dyn CommitLog>>,
        sink: Arc<dyn CommitSink>,
    ) -> Result<Self, OpenError> {
        config.subscription_count_max = config.subscription_count_max.min(u32::from(u16::MAX)); // The table counts in u16.
        let lock = lock_folder(&config.path)?;
        let engine = Engine::open(&config.path, config.cache_bytes, || first_rows(&State::empty(hash::new_epoch())))?;
        match &mut log {
            Some(log) => begin_with(&mut **log, &engine)?,
            None if read_position(&engine)? != LogPosition::default() => return Err(OpenError::HasLog),
            None => {}
        }
        let position = read_position(&engine)?;
        let format = check_format(&engine)?;
        let (state, Derived { table, index, brakes, blocks, checkpoint }) = load(&engine, &config.path)?;
        if format != FORMAT {
            mark_format(&engine, &format)?;
        }
        let checkpointing = Checkpointing::default();
        checkpointing.on_loaded(&config, state.change_end, checkpoint, table.count());
        let StoreConfig { event_queue, device_queue, import_queue, .. } = config;
        let queue = Arc::new(Queue::new([BRAKE_QUEUE, JOB_QUEUE, event_queue, device_queue, import_queue]));
        let counters = Counters { scans: engine.scans().clone(), ..Counters::default() };
        let shared = Arc::new(Shared {
            config,
            engine: RwLock::new(Some(engine)),
            table: RwLock::new(table),
            index: RwLock::new(index),
            losses: Losses::default(),
            blocks: Mutex::new(blocks),
            epoch: state.epoch,
            channel_floor: AtomicU64::new(state.channel_floor.0),
            journal_end: watch::Sender::new(JournalPosition(state.journal_end)),
            brakes: watch::Sender::new(Arc::new(brakes)),
            next_later: watch::Sender::new(state.later_first.map(|first| first.at)),
            later_count: AtomicU64::new(state.later_count),
            journal_events: AtomicU64::new(state.journal_events()),
            journal_bytes: AtomicU64::new(state.journal_bytes),
            trim_to: AtomicU64::new(0),
            counters,
            devices_seen: AtomicU64::new(u64::MAX),
            mutes_due: AtomicU64::new(u64::MAX),
            backup: Slot::default(),
            checkpoint: checkpointing,
            role: watch::Sender::new(if log.is_some() { Role::Following } else { Role::Alone }),
            log_position: watch::Sender::new(position),
            wants_to_lead: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        });
        let committer = Committer::new(shared.clone(), queue.clone(), sink, state, lock, log);
        std::thread::Builder::new()
            .name("store-committer".to_owned())
            .spawn(move || committer.run())
            .map_err(|source| OpenError::Folder { path: shared.config.path.clone(), source })?;
        Ok(Self::new(shared, queue))
    }
}

/// The engine's cache while it is looked at whether a store was used.
const UNUSED_CACHE_BYTES: u64 = 1 << 20;

/// Whether the store has written nothing and read nothing of its log.
fn is_new(engine: &Engine) -> Result<bool, EngineError> {
    Ok(read_state(engine)?.commit == 0 && read_position(engine)? == LogPosition::default())
}

/// How long a new store waits for the first batch of its log.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// A store that has written nothing yet, and whose log has a first batch, begins with that.
fn begin_with(log: &mut dyn CommitLog, engine: &Engine) -> Result<(), OpenError> {
    if !is_new(engine)? {
        return Ok(());
    }
    log.seek(LogPosition::default());
    let Some(LogRecord { position, bytes }) = log.next(FIRST_PATIENCE)? else { return Ok(()) };
    let record = record::decode(&bytes, &Arc::default()).map_err(|error| LogError::Lost(error.to_string()))?;
    if record.state.commit > 0 {
        return Err(LogError::Lost("it does not begin with an empty store".to_owned()).into());
    }
    let mut rows = record.rows;
    rows.put(Table::Meta, LOG_KEY, position_row(position));
    Ok(engine.commit(rows, Durability::Synced)?)
}

/// The store's format; an error if it is unknown.
fn check_format(engine: &Engine) -> Result<String, OpenError> {
    let found = engine.get(Table::Meta, FORMAT_KEY)?;
    let found = found.as_ref().ok_or_else(|| EngineError::damaged(Table::Meta, FORMAT_KEY))?.as_ref();
    let text = String::from_utf8_lossy(found).chars().take(64).collect();
    if rows::is_known_format(found) { Ok(text) } else { Err(OpenError::Format { found: text, known: FORMAT }) }
}

/// Writes the current format, so that older versions refuse the store: they would not understand the new rows. Before format
/// 4, a channel's row did not say when a scheduled event is due in it, so this adds it.
fn mark_format(engine: &Engine, former: &str) -> Result<(), EngineError> {
    let mut rows = Rows::default();
    rows.put(Table::Meta, FORMAT_KEY, FORMAT);
    let mut due: BTreeMap<ChannelName, Timestamp> = BTreeMap::new();
    let scanned = engine.scan(Place::Open, Table::Later, &Span::all(), |key, row| {
        if let Some(key) = rows::decode_later_key(key)
            && let Ok(later) = rows::decode_later(key, row)
        {
            due.extend(later.channels.into_iter().map(|channel| (channel.name, key.at))); // The latest time comes last.
        }
        Ok(true)
    });
    damage::tolerate_quietly(scanned)?; // At worst, some channels exceed the bound later.
    for (name, at) in due {
        let key = name.as_str().as_bytes();
        let row = damage::tolerate_quietly(engine.get(Table::Channel, key))?.flatten();
        if let Some(mut row) = row.and_then(|row| rows::decode::<ChannelRow>(Table::Channel, key, row.as_ref()).ok()) {
            row.published_at = row.published_at.max(at);
            rows.put(Table::Channel, key, rows::encode(&row));
        }
    }
    engine.commit(rows, Durability::Synced)?;
    info!(from = former, to = FORMAT, "Store has a new format now");
    Ok(())
}
