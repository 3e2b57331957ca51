//! Imports devices chunk by chunk, and notes the progress. A chunk is done as a whole or not at all.

use std::collections::{BTreeSet, HashMap};

use tidings_types::{DeviceId, DeviceNumber, ImportName, MuteScope, Subject, Timestamp, TopicName, UserId};

use crate::committer::draft::Draft;
use crate::devices::USER_DEVICE_COUNT_MAX;
use crate::devices::credential::GivenCredential;
use crate::devices::write::Origin;
use crate::engine::{EngineError, Table};
use crate::error::{ImportError, ReadError, SubscribeError};
use crate::imports::{ImportProgress, ImportStep, Imported, NewImport};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// Imports with kept progress. For a further one, the import whose last step is the oldest is forgotten.
const IMPORT_COUNT_MAX: usize = 1000;

/// Devices that an import writes in one batch.
const IMPORT_CHUNK_COUNT: usize = 1000;

/// The part of a step that one chunk does.
pub(crate) struct StepPart {
    step: ImportStep,
    /// For the last chunk of the step: the result of the chunks before it.
    done_before: Option<Imported>,
}

/// What a chunk adds to one device, up to the current line.
#[derive(Default)]
struct Wanted<'a> {
    /// `None`: it is new.
    number: Option<DeviceNumber>,
    user: Option<UserId>,
    /// Subscriptions and mutes that are new to it.
    subscriptions: BTreeSet<&'a (Subject, TopicName)>,
    mutes: BTreeSet<&'a MuteScope>,
}

impl Store {
    /// Registers many devices with subscriptions and mutes, `IMPORT_CHUNK_COUNT` at a time. It issues no credentials, but
    /// takes given ones. A chunk is done as a whole or not at all. Repeating an import changes nothing, so repeat it after
    /// an error.
    ///
    /// A step of a longer import is done only if it is the next one. Its progress is written in the batch of its last
    /// chunk, also when the step has no devices. [`Store::import_progress`] reads it. The progress of 1000 imports is kept.
    /// For a further one, the import whose last step is the oldest is forgotten and would have to begin anew.
    ///
    /// # Errors
    /// When the step is not the next one, a device would have too many subscriptions or mutes, or the store is overloaded
    /// or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: some chunks are done, as after an error.
    pub async fn import_devices(
        &self,
        devices: Vec<NewImport>,
        step: Option<ImportStep>,
        now: Timestamp,
    ) -> Result<Imported, ImportError> {
        let mut imported = Imported::default();
        let mut devices = devices.into_iter();
        let mut first = 0;
        loop {
            let chunk: Vec<_> = devices.by_ref().take(IMPORT_CHUNK_COUNT).collect();
            let is_last = devices.len() == 0;
            if chunk.is_empty() && step.is_none() {
                return Ok(imported);
            }
            let done_before = is_last.then_some(imported);
            let part = step.clone().map(|step| StepPart { step, done_before });
            let bytes = weight::NAMES + chunk.iter().map(import_bytes).sum::<usize>();
            let import = move |draft: &mut Draft<'_>| {
                draft.advance(now);
                draft.import(chunk, part, now)
            };
            imported += self.write(Class::Imports, bytes, import).await?.map_err(|error| match error {
                ImportError::Device { index, id, source } => ImportError::Device { index: first + index, id, source },
                other => other,
            })?;
            if is_last {
                return Ok(imported);
            }
            first += IMPORT_CHUNK_COUNT;
        }
    }

    /// The progress of an import; `None`: it never did a step, or is forgotten.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn import_progress(&self, name: &ImportName) -> Result<Option<ImportProgress>, ReadError> {
        self.with_engine(|engine| engine.read(Table::Import, name.as_str().as_bytes(), decode_progress))
    }
}

fn decode_progress(key: &[u8], row: &[u8]) -> Result<ImportProgress, EngineError> {
    rows::decode(Table::Import, key, row)
}

impl Draft<'_> {
    pub(crate) fn import(
        &mut self,
        devices: Vec<NewImport>,
        part: Option<StepPart>,
        now: Timestamp,
    ) -> Result<Result<Imported, ImportError>, EngineError> {
        if let Some(part) = &part
            && let Err(error) = self.check_step(part)?
        {
            return Ok(Err(error));
        }
        if let Err(error) = self.check_import(&devices)? {
            return Ok(Err(error));
        }
        let mut imported = Imported::default();
        for import in devices {
            imported += self.import_device(import, now)?;
        }
        if let Some(part) = part {
            self.note_progress(part, imported, now)?;
        }
        Ok(Ok(imported))
    }

    fn import_device(&mut self, import: NewImport, now: Timestamp) -> Result<Imported, EngineError> {
        let NewImport { device, subscriptions, mutes, credential, proven, seen_at, token_at } = import;
        let credential = credential.as_ref().map(GivenCredential::hash);
        let registered = self.register(device, now, Origin::Import { credential, proven, seen_at, token_at })?;
        let (number, registered) = registered.expect("`check_import` found room");
        let subscribed = self.add_subscriptions(number, subscriptions).expect("`check_import` found room");
        for mute in mutes {
            if mute.until.is_none_or(|until| until > self.wall()) {
                self.put_mute(number, mute)?;
            }
        }
        let created = u64::from(registered.created);
        Ok(Imported { created, updated: 1 - created, subscribed: subscribed as u64 })
    }

    /// Whether the whole chunk fits. Subscriptions and mutes that a device already has do not count again, so that an import
    /// can be repeated.
    fn check_import(&self, devices: &[NewImport]) -> Result<Result<(), ImportError>, EngineError> {
        let mut created = 0;
        let mut seen: HashMap<&DeviceId, Wanted<'_>> = HashMap::new();
        let mut user_device_counts = HashMap::new();
        for (index, import) in devices.iter().enumerate() {
            let id = &import.device.id;
            if !seen.contains_key(id) {
                let (number, user) = self.find(id)?.map(|(number, row)| (number, row.device.user)).unzip();
                created += u64::from(number.is_none());
                seen.insert(id, Wanted { number, user: user.flatten(), ..Wanted::default() });
            }
            let wanted = seen.get_mut(id).expect("just put there");
            let checked = match self.check_user(wanted, import.device.user.as_ref(), &mut user_device_counts) {
                Ok(()) => self.check_device(wanted, import)?,
                refused => refused,
            };
            if let Err(source) = checked {
                return Ok(Err(ImportError::Device { index, id: id.clone(), source }));
            }
        }
        Ok(self.check_number_room(created).map_err(ImportError::from))
    }

    /// Counts the device for its user, together with the devices of the chunk before it.
    fn check_user(
        &self,
        wanted: &mut Wanted<'_>,
        user: Option<&UserId>,
        counts: &mut HashMap<UserId, u64>,
    ) -> Result<(), SubscribeError> {
        if wanted.user.as_ref() == user {
            return Ok(());
        }
        let former = std::mem::replace(&mut wanted.user, user.cloned());
        let mut add = |user: &UserId, change| {
            let count = counts.entry(user.clone()).or_insert_with(|| self.user_device_count(user));
            *count = count.saturating_add_signed(change);
            *count
        };
        former.map(|former| add(&former, -1));
        let (limit, count) = (USER_DEVICE_COUNT_MAX, user.map_or(0, |user| add(user, 1)));
        if count > u64::from(limit) { Err(SubscribeError::TooManyDevices { limit, count }) } else { Ok(()) }
    }

    /// Adds the subscriptions and mutes of an import to those of the same device earlier in the chunk.
    fn check_device<'a>(
        &self,
        wanted: &mut Wanted<'a>,
        import: &'a NewImport,
    ) -> Result<Result<(), SubscribeError>, EngineError> {
        let number = wanted.number;
        wanted.subscriptions.extend(import.subscriptions.iter().filter(|(subject, topic)| {
            number.is_none_or(|number| {
                let key = rows::subscription_key(number, subject, topic);
                !self.is_subscribed(&key, number, subject, topic)
            })
        }));
        let limit = self.shared.config.subscription_count_max;
        let known = number.map_or(0, |number| u64::from(self.subscription_count(number)));
        let count = known + wanted.subscriptions.len() as u64;
        if count > u64::from(limit) {
            return Ok(Err(SubscribeError::TooMany { limit, count }));
        }
        if import.mutes.is_empty() {
            return Ok(Ok(()));
        }
        let known = number.map(|number| self.mutes(number)).transpose()?.unwrap_or_default();
        let scopes = import.mutes.iter().map(|mute| &mute.scope);
        wanted.mutes.extend(scopes.filter(|scope| !known.contains_key(scope)));
        let (limit, count) = (self.shared.config.mute_count_max, (known.len() + wanted.mutes.len()) as u64);
        Ok(if count > u64::from(limit) { Err(SubscribeError::TooManyMutes { limit, count }) } else { Ok(()) })
    }

    fn check_step(&self, StepPart { step, .. }: &StepPart) -> Result<Result<(), ImportError>, EngineError> {
        let recorded = self.progress(&step.name)?.unwrap_or_default().lines;
        let lines_before = step.lines_before;
        let is_next = lines_before == recorded;
        Ok(if is_next { Ok(()) } else { Err(ImportError::OutOfStep { recorded, lines_before }) })
    }

    fn note_progress(&mut self, part: StepPart, imported: Imported, at: Timestamp) -> Result<(), EngineError> {
        let StepPart { step, done_before: Some(done_before) } = part else { return Ok(()) };
        let known = self.progress(&step.name)?;
        if known.is_none() {
            self.forget_oldest_import()?;
        }
        let mut all = known.unwrap_or_default().imported;
        all += done_before;
        all += imported;
        let progress = ImportProgress { lines: step.lines_after, imported: all, at };
        self.rows.put(Table::Import, step.name.as_str().as_bytes(), rows::encode(&progress));
        Ok(())
    }

    fn progress(&self, name: &ImportName) -> Result<Option<ImportProgress>, EngineError> {
        self.read(Table::Import, name.as_str().as_bytes(), decode_progress)
    }

    /// Makes room for another import. An unreadable row is deleted first.
    fn forget_oldest_import(&mut self) -> Result<(), EngineError> {
        let mut all = self.with_prefix(Table::Import, &[])?;
        let at =
            |(key, row): (&Vec<u8>, &Vec<u8>)| decode_progress(key, row).map_or(Timestamp::default(), |row| row.at);
        while all.len() >= IMPORT_COUNT_MAX {
            let oldest = all.iter().min_by_key(|&entry| at(entry)).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return Ok(()) };
            all.remove(&oldest);
            self.rows.delete(Table::Import, oldest);
        }
        Ok(())
    }
}

fn import_bytes(import: &NewImport) -> usize {
    let credential = match &import.credential {
        Some(GivenCredential::Secret(text)) => text.len(),
        Some(GivenCredential::Hash(_)) | None => 32,
    };
    weight::DEVICE + weight::NAME * (import.subscriptions.len() + import.mutes.len()) + credential
}
